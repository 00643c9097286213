//! The program that prepares plugins in child processes.

use std::io::Write as _;
use std::path::PathBuf;

use tollgate_gate::plugin::prepare;

use crate::error::BuildError;

/// Exit code of a child that could not do its work at all.
const FAILURE: i32 = 2;

/// The program that prepares plugins in child processes.
///
/// Compiling a plugin cannot be interrupted, and a plugin's file is not trusted. So a [`Gate`](crate::Gate) compiles no
/// plugin in its own process. It runs a program as a child, which has neither files nor network, and limits for CPU
/// time and memory (`engine.loadTimeout`, `engine.loadMemory`). The program is either:
///
/// - your own ([`Preparer::this_program`]), which then calls [`Preparer::run_if_child`] first of all.
/// - an installed `tollgate` ([`Preparer::program`]) of the same version as this library. A different version may
///   compile code that this library cannot run.
#[derive(Clone, Debug)]
pub struct Preparer(Program);

#[derive(Clone, Debug)]
enum Program {
    This,
    Named(PathBuf),
}

// === impl Preparer ===

impl Preparer {
    /// Prepares plugins with this very program, even if its file has been replaced since it started.
    ///
    /// The program must call [`Preparer::run_if_child`] at the start of `main`.
    #[must_use]
    pub fn this_program() -> Self {
        Self(Program::This)
    }

    /// Prepares plugins with an installed `tollgate` program. The path is used as it is given: it is not looked up in
    /// `PATH` unless it is a bare name.
    #[must_use]
    pub fn program(path: impl Into<PathBuf>) -> Self {
        Self(Program::Named(path.into()))
    }

    /// Does the work of a child and ends the process, if this process was started to prepare a plugin. Otherwise it
    /// returns at once.
    ///
    /// Call this first in `main`: before the program starts threads or an async runtime, reads its arguments, or writes
    /// to standard output. With `#[tokio::main]`, the runtime would already run. Write a plain `main` instead, and
    /// start the runtime after this call.
    pub fn run_if_child() {
        if !is_child() {
            return;
        }
        let done = prepare::run(std::io::stdin().lock(), std::io::stdout().lock());
        let code = match done {
            Ok(()) => 0,
            Err(error) => {
                // If standard error is closed, there is nobody left to tell.
                let _: std::io::Result<()> = writeln!(
                    std::io::stderr(),
                    "tollgate: cannot prepare the plugin: {error:#}"
                );
                FAILURE
            }
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "the child has nothing to drain, and the caller of this function must not go on"
        )]
        std::process::exit(code)
    }

    /// Returns the path of the program.
    ///
    /// # Errors
    /// When this process is itself a child, or when this program's path is not known.
    pub fn path(&self) -> Result<PathBuf, BuildError> {
        match &self.0 {
            Program::Named(path) => Ok(path.clone()),
            // Without this check, a program that forgets `run_if_child` would start children without end.
            Program::This if is_child() => Err(BuildError::InsideChild),
            Program::This => this_program().map_err(BuildError::Preparer),
        }
    }
}

impl Default for Preparer {
    fn default() -> Self {
        Self::this_program()
    }
}

/// Whether a host started this process to prepare a plugin.
fn is_child() -> bool {
    let mut arguments = std::env::args_os().skip(1);
    arguments
        .next()
        .is_some_and(|first| first == prepare::SUBCOMMAND)
        && arguments.next().is_none()
        && std::env::var_os(prepare::CHILD_VARIABLE).is_some()
}

fn this_program() -> std::io::Result<PathBuf> {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() {
        return Ok(own);
    }
    std::env::current_exe()
}
