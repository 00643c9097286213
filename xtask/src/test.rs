//! `cargo xtask test`: runs all checks that a change must pass, from an empty target folder.
//!
//! ```text
//! toolchain → dependencies → format → lints → guests → build → languages → kubernetes → browser → tests → memory
//!     → instructions → documentation
//! ```
//!
//! Cheap steps come first. The command that runs the tests also builds them, because cargo selects features by the
//! packages that it builds. Another selection would build wasmtime a second time. The same build makes the `tollgate`
//! binary, which the end-to-end suites start.

mod browser;
mod count;
mod dependencies;
mod disk;
pub(crate) mod languages;
mod miri;
mod suites;

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Args;

use self::count::Count;
use crate::terminal::{self, BAD, FAINT, GOOD, NOTABLE, STRONG};
use crate::workspace::{PLUGIN_PROFILE, WASM, Workspace};
use crate::{bench, cargo, kubernetes, toolchain};

/// Set up and run all tests: format, lints, every suite, documentation.
///
/// Installs missing tools. rustup installs the WebAssembly target, rustfmt, clippy, a nightly compiler and Miri. cargo
/// installs cargo-deny. When running as root, apt-get installs Go, Node, Python, Chromium and valgrind.
///
/// Two suites need Go: one tries the patches with kube-apiserver's own library, and one runs against kube-apiserver
/// itself. Plugins in JavaScript and Python need Node and Python. valgrind counts instructions. Build dependencies of
/// the plugins come from npm, PyPI and Go's module proxy.
///
/// Ends with the time that each step took and, as its last line, the number of tests.
#[derive(Args, Debug)]
pub(crate) struct Test {
    /// Continue with the next step when one fails.
    #[arg(long)]
    keep_going: bool,
    /// Run this step alone, such as `languages`. May be given several times. The other steps must have run before.
    #[arg(long, value_name = "STEP", value_parser = step_name)]
    only: Vec<&'static str>,
}

fn step_name(name: &str) -> Result<&'static str, String> {
    let mut names = STEPS.iter().map(|(name, ..)| *name);
    let names_text = || STEPS.map(|(name, ..)| name).join(", ");
    names
        .find(|known| *known == name)
        .ok_or_else(|| format!("expected one of {}", names_text()))
}

/// A step with its result.
struct Done {
    name: &'static str,
    result: anyhow::Result<()>,
    took: Duration,
}

/// The state that the steps share.
struct Run {
    workspace: Workspace,
    count: Count,
}

type Step = (
    &'static str,
    &'static str,
    fn(&mut Run) -> anyhow::Result<()>,
);

const STEPS: [Step; 14] = [
    (
        "toolchain",
        "the disk has room, and required tools are installed",
        toolchain,
    ),
    (
        "dependencies",
        "sources, licences and known vulnerabilities",
        dependencies,
    ),
    ("format", "all code is formatted", format),
    ("lints", "no warnings of the compiler or clippy", lints),
    (
        "guest lints",
        "no warnings for the plugins as WebAssembly",
        guest_lints,
    ),
    ("guests", "the plugins build as WebAssembly", guests),
    (
        "build",
        "the host and all suites; the first time takes minutes: wasmtime is large",
        build,
    ),
    (
        "languages",
        "plugins in Go, JavaScript, Python, C and Zig build, and their SDKs' own tests pass",
        languages,
    ),
    (
        "kubernetes",
        "etcd, kube-apiserver, kubectl and Helm are built, if Go is installed; the first time takes minutes",
        kubernetes,
    ),
    (
        "browser",
        "Chromium and the packages that drive it are installed, for the tests of the page",
        browser,
    ),
    (
        "tests",
        "all suites and the examples of the documentation",
        tests,
    ),
    (
        "memory",
        "Miri interprets the unsafe code, if a nightly compiler is available",
        memory,
    ),
    (
        "instructions",
        "no piece exceeds its recorded count, if valgrind is installed",
        instructions,
    ),
    ("documentation", "no warnings of rustdoc", documentation),
];

// === impl Test ===

impl Test {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut run = Run {
            workspace: Workspace::find()?,
            count: Count::default(),
        };
        let began = Instant::now();
        let mut done: Vec<Done> = Vec::new();
        for (index, (name, what, step)) in STEPS.into_iter().enumerate() {
            if !self.only.is_empty() && !self.only.contains(&name) {
                continue;
            }
            terminal::heading(&format!("{}/{} {name}: {what}", index + 1, STEPS.len()));
            let step_began = Instant::now();
            let result = step(&mut run);
            if let Err(error) = &result {
                anstream::println!("{BAD}{name} failed: {error:#}{BAD:#}");
            }
            let failed = result.is_err();
            done.push(Done {
                name,
                result,
                took: step_began.elapsed(),
            });
            if failed && !self.keep_going {
                break;
            }
        }
        let failed = sum_up(&done, began.elapsed());
        for what in run.count.left_out() {
            anstream::println!("  {NOTABLE}not tested: {what}{NOTABLE:#}");
        }
        println!("test: {}", run.count);
        Ok(if failed || run.count.has_failed() {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}

/// Prints the table of steps. Returns true if one failed.
fn sum_up(done: &[Done], took: Duration) -> bool {
    terminal::heading("summary");
    for Done { name, result, took } in done {
        let time = terminal::time(*took);
        match result {
            Ok(()) => anstream::println!("  {name:14} {time:>13}  {GOOD}ok{GOOD:#}"),
            Err(_) => anstream::println!("  {name:14} {time:>13}  {BAD}failed{BAD:#}"),
        }
    }
    let ran: Vec<&str> = done.iter().map(|done| done.name).collect();
    for (name, ..) in STEPS.into_iter().filter(|(name, ..)| !ran.contains(name)) {
        anstream::println!("  {FAINT}{name:14} {:>13}  not run{FAINT:#}", "");
    }
    anstream::println!(
        "  {STRONG}{:14} {:>13}{STRONG:#}",
        "together",
        terminal::time(took)
    );
    let failures: Vec<&str> = done
        .iter()
        .filter(|done| done.result.is_err())
        .map(|done| done.name)
        .collect();
    if let [first, ..] = failures.as_slice() {
        anstream::println!(
            "{BAD}failed: {} (look for \"{first} failed\" above){BAD:#}",
            failures.join(", ")
        );
    }
    !failures.is_empty()
}

fn toolchain(run: &mut Run) -> anyhow::Result<()> {
    disk::check(&run.workspace)?;
    println!("  rust    {}", toolchain::rustc_version()?);
    toolchain::ensure_wasm_target()?;
    println!("  target  {WASM}");
    toolchain::ensure_components()?;
    println!("  go      {}", toolchain::ensure_go());
    Ok(())
}

fn dependencies(run: &mut Run) -> anyhow::Result<()> {
    dependencies::check(&run.workspace, &mut run.count)
}

fn format(run: &mut Run) -> anyhow::Result<()> {
    cargo(run, ["fmt", "--all", "--check"])
}

fn lints(run: &mut Run) -> anyhow::Result<()> {
    cargo(
        run,
        [
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--",
            "-D",
            "warnings",
        ],
    )
}

fn guest_lints(run: &mut Run) -> anyhow::Result<()> {
    let mut command = run.workspace.cargo();
    command.args(["clippy", "--target", WASM]);
    packages(&mut command, &run.workspace);
    announced(command.args(["--", "-D", "warnings"]))
}

fn guests(run: &mut Run) -> anyhow::Result<()> {
    let mut command = run.workspace.cargo();
    command.args(["build", "--profile", PLUGIN_PROFILE, "--target", WASM]);
    packages(&mut command, &run.workspace);
    announced(&mut command)
}

fn build(run: &mut Run) -> anyhow::Result<()> {
    cargo(run, ["test", "--workspace", "--no-run"])
}

fn kubernetes(_: &mut Run) -> anyhow::Result<()> {
    kubernetes::ensure_pods();
    kubernetes::ensure()
}

fn browser(run: &mut Run) -> anyhow::Result<()> {
    browser::install(&run.workspace)
}

fn languages(run: &mut Run) -> anyhow::Result<()> {
    languages::run(&run.workspace)
}

fn tests(run: &mut Run) -> anyhow::Result<()> {
    suites::run(&run.workspace, &mut run.count)
}

fn memory(run: &mut Run) -> anyhow::Result<()> {
    miri::run(&run.workspace, &mut run.count)
}

fn instructions(run: &mut Run) -> anyhow::Result<()> {
    bench::instructions::check(&run.workspace)
}

fn documentation(run: &mut Run) -> anyhow::Result<()> {
    let mut command = run.workspace.cargo();
    command
        .args(["doc", "--workspace", "--no-deps", "--all-features"])
        .env("RUSTDOCFLAGS", "-D warnings");
    announced(&mut command)
}

fn cargo<const N: usize>(run: &Run, arguments: [&str; N]) -> anyhow::Result<()> {
    announced(run.workspace.cargo().args(arguments))
}

fn announced(command: &mut Command) -> anyhow::Result<()> {
    println!("$ {}", cargo::typed(command));
    cargo::run(command)
}

fn packages(command: &mut Command, workspace: &Workspace) {
    for guest in workspace.guests() {
        command.args(["--package", guest]);
    }
}
