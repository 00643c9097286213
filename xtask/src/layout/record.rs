//! Runs a program with a breakpoint at each of its functions.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, Command};

use anyhow::{Context as _, bail};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// The instruction of a breakpoint, one byte long on this architecture.
const BREAKPOINT: u8 = 0xcc;
/// Stops until the tracer is attached, and then becomes the program.
const STOPPED: &str = r#"kill -STOP $$; exec "$@""#;

/// A program that is being recorded.
pub(super) struct Recording {
    child: Child,
    process: Pid,
    memory: File,
    base: u64,
    /// The first byte of each function, by its address in the program.
    first_bytes: HashMap<u64, u8>,
    seen: HashSet<u64>,
    called: Vec<u64>,
}

// === impl Recording ===

impl Recording {
    /// Starts the program with a breakpoint at each function.
    pub(super) fn start(
        command: &mut Command,
        program: &Path,
        functions: impl IntoIterator<Item = u64>,
    ) -> anyhow::Result<Self> {
        let child = command.spawn().context("sh does not run")?;
        let process = Pid::from_raw(i32::try_from(child.id())?);
        if let Err(error) = ptrace::attach(process) {
            kill(process, Signal::SIGKILL)?;
            return Err(error).context("a debugger may not attach");
        }
        waitpid(process, None)?;
        let options =
            Options::PTRACE_O_TRACEEXEC | Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_EXITKILL;
        ptrace::setoptions(process, options)?;
        kill(process, Signal::SIGCONT)?;
        loop {
            ptrace::cont(process, None)?;
            match waitpid(process, None)? {
                WaitStatus::PtraceEvent(..) => break,
                WaitStatus::Stopped(..) => {}
                ended => bail!("the program does not start: {ended:?}"),
            }
        }
        let maps = fs::read_to_string(format!("/proc/{process}/maps"))?;
        let program = fs::canonicalize(program)?;
        let mapping = maps
            .lines()
            .find(|line| line.ends_with(&*program.to_string_lossy()))
            .with_context(|| format!("{} is not mapped", program.display()))?;
        let begin = mapping.split('-').next().unwrap_or_default();
        let memory = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{process}/mem"))?;
        let mut recording = Self {
            child,
            process,
            memory,
            base: u64::from_str_radix(begin, 16)?,
            first_bytes: HashMap::new(),
            seen: HashSet::new(),
            called: Vec::new(),
        };
        for function in functions {
            let mut byte = [0];
            recording
                .memory
                .read_exact_at(&mut byte, recording.base + function)?;
            recording.write(function, BREAKPOINT)?;
            recording.first_bytes.insert(function, byte[0]);
        }
        ptrace::cont(process, None)?;
        Ok(recording)
    }

    /// The program's standard error.
    pub(super) fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// The process, to end it with.
    pub(super) fn process(&self) -> Pid {
        self.process
    }

    /// Runs the program to its end. Returns the functions that it called, in the order of their first calls.
    pub(super) fn finish(mut self) -> anyhow::Result<Vec<u64>> {
        // Other threads wait for their own children.
        let own = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        loop {
            match waitpid(None, Some(own))? {
                WaitStatus::Exited(process, _) | WaitStatus::Signaled(process, ..)
                    if process == self.process =>
                {
                    break;
                }
                // A thread that was killed at a breakpoint can do nothing more. The end of the process follows.
                WaitStatus::Stopped(thread, Signal::SIGTRAP) => drop(self.stopped(thread)),
                WaitStatus::Stopped(thread, signal) => {
                    // A new thread begins with a stop of its own.
                    let signal = (signal != Signal::SIGSTOP).then_some(signal);
                    resume(thread, signal);
                }
                WaitStatus::PtraceEvent(thread, ..) => resume(thread, None),
                _ => {}
            }
        }
        drop(self.child.wait());
        Ok(self.called)
    }

    /// Notes the function of a breakpoint and takes the breakpoint away. Another thread may have met it at the same time.
    fn stopped(&mut self, thread: Pid) -> anyhow::Result<()> {
        let mut registers = ptrace::getregs(thread)?;
        let address = registers.rip.wrapping_sub(1);
        let function = address.wrapping_sub(self.base);
        let Some(&byte) = self.first_bytes.get(&function) else {
            resume(thread, Some(Signal::SIGTRAP));
            return Ok(());
        };
        if self.seen.insert(function) {
            self.write(function, byte)?;
            self.called.push(function);
        }
        registers.rip = address;
        ptrace::setregs(thread, registers)?;
        resume(thread, None);
        Ok(())
    }

    fn write(&self, function: u64, byte: u8) -> anyhow::Result<()> {
        Ok(self.memory.write_all_at(&[byte], self.base + function)?)
    }
}

/// Continues a thread, unless it has ended in the meantime.
fn resume(thread: Pid, signal: Option<Signal>) {
    let _: nix::Result<()> = ptrace::cont(thread, signal);
}

/// A command that waits for the tracer before it becomes the program.
pub(super) fn stopped(program: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", STOPPED, "sh"]).arg(program);
    command
}
