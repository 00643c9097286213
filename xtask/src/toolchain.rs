//! Finds and installs the tools that are needed besides cargo.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::terminal::{self, NOTABLE};
use crate::workspace::WASM;

/// The toolchain for work that needs nightly: Miri, and instrumentation for fuzzing.
const NIGHTLY: &str = "nightly";

/// Returns the output of `rustc --version`.
pub(crate) fn rustc_version() -> anyhow::Result<String> {
    output(Command::new(rustc()).arg("--version")).context("cannot run rustc")
}

/// Installs the target for plugins if it is missing.
pub(crate) fn ensure_wasm_target() -> anyhow::Result<()> {
    if has_wasm_target() {
        return Ok(());
    }
    terminal::paragraph("  ", &format!("installing: rustup target add {WASM}"));
    let added = Command::new("rustup")
        .args(["target", "add", WASM])
        .stdin(Stdio::null())
        .status();
    let why = match added {
        Ok(status) if status.success() && has_wasm_target() => return Ok(()),
        Ok(status) => format!("`rustup target add {WASM}` did not help ({status})"),
        Err(error) => format!("cannot run rustup ({error})"),
    };
    anyhow::bail!(
        "the Rust standard library for {WASM} is not installed, and {why}. Install Rust from https://rustup.rs, or \
         your distribution's package for the target (Debian: libstd-rust-dev-wasm32, Fedora: \
         rust-std-static-{WASM}), and run this again"
    )
}

/// Installs a target with rustup if it is missing.
pub(crate) fn ensure_target(target: &str) -> anyhow::Result<()> {
    let installed = output(Command::new("rustup").args(["target", "list", "--installed"]))
        .context(
            "cannot ask rustup for the installed targets: install Rust from https://rustup.rs",
        )?;
    if installed.lines().any(|line| line == target) {
        return Ok(());
    }
    rustup(&["target", "add", target])
}

/// Installs `cargo fmt` and `cargo clippy` if they are missing.
pub(crate) fn ensure_components() -> anyhow::Result<()> {
    for (component, command) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
        let works = || cargo_has(command);
        if works() {
            continue;
        }
        terminal::paragraph(
            "  ",
            &format!("installing: rustup component add {component}"),
        );
        let added = Command::new("rustup")
            .args(["component", "add", component])
            .stdin(Stdio::null())
            .status();
        let is_there = added.is_ok_and(|status| status.success()) && works();
        anyhow::ensure!(
            is_there,
            "cannot run `cargo {command}`, and rustup cannot install {component}: install it by other means and run \
             this again"
        );
    }
    Ok(())
}

/// Installs Go if possible, to build kube-apiserver and its patch library. Returns its version, or the consequences of
/// its absence.
pub(crate) fn ensure_go() -> String {
    let version = || output(Command::new("go").arg("version"));
    if let Ok(version) = version() {
        return version;
    }
    if apt_get_install("golang-go")
        && let Ok(version) = version()
    {
        return version;
    }
    anstream::println!(
        "  {NOTABLE}Go is not installed, so nothing is tested with kube-apiserver and its patch library; install Go \
         and run this again{NOTABLE:#}"
    );
    "not installed".to_owned()
}

/// Installs valgrind if possible, to count instructions. Returns whether it works.
pub(crate) fn ensure_valgrind() -> bool {
    let works = || output(Command::new("valgrind").arg("--version")).is_ok();
    works() || apt_get_install("valgrind") && works()
}

/// Installs a command if possible. Returns whether it works.
pub(crate) fn ensure_command(command: &str, package: &str) -> bool {
    // Go has no `--version`.
    let works = || {
        let answers = |argument| output(Command::new(command).arg(argument)).is_ok();
        answers("--version") || answers("version")
    };
    works() || apt_get_install(package) && works()
}

/// Installs a file of a package if possible. Returns whether it is there.
pub(crate) fn ensure_file(file: &str, package: &str) -> bool {
    let exists = || Path::new(file).exists();
    exists() || apt_get_install(package) && exists()
}

/// Installs a Debian package, if that needs no questions.
fn apt_get_install(package: &str) -> bool {
    let is_root = output(Command::new("id").arg("-u")).is_ok_and(|user| user == "0");
    if !is_root || !Path::new("/usr/bin/apt-get").exists() {
        return false;
    }
    terminal::paragraph("  ", &format!("installing: apt-get install {package}"));
    let apt_get = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive");
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let packages = ["install", "--yes", "--no-install-recommends", package];
    // The package lists are fetched only when they are needed, because most images have them.
    apt_get(&packages) || (apt_get(&["update"]) && apt_get(&packages))
}

/// Installs a nightly compiler if it is missing. Returns its version.
pub(crate) fn ensure_nightly() -> anyhow::Result<String> {
    let version = || output(nightly("rustc").arg("--version"));
    if let Ok(version) = version() {
        return Ok(version);
    }
    rustup(&["toolchain", "install", NIGHTLY, "--profile", "minimal"])?;
    version().context("cannot run the nightly compiler")
}

/// Installs Miri if it is missing. Returns its version.
pub(crate) fn ensure_miri() -> anyhow::Result<String> {
    ensure_nightly()?;
    let version = || output(nightly("cargo").args(["miri", "--version"]));
    if let Ok(version) = version() {
        return Ok(version);
    }
    rustup(&[
        "component",
        "add",
        "--toolchain",
        NIGHTLY,
        "miri",
        "rust-src",
    ])?;
    version().context("cannot run Miri")
}

/// Installs `cargo COMMAND` from the crate `cargo-COMMAND` if it is missing. Returns its version.
pub(crate) fn ensure_cargo_command(command: &str) -> anyhow::Result<String> {
    let version = || output(cargo().args([command, "--version"]));
    if let Ok(version) = version() {
        return Ok(version);
    }
    let package = format!("cargo-{command}");
    announce(&format!("cargo install {package} --locked (minutes)"));
    // The command runs for seconds. Its own profile optimises the whole program at once, on one processor for minutes.
    let installed = cargo()
        .args(["install", &package, "--locked", "--quiet"])
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .stdin(Stdio::null())
        .status()?;
    anyhow::ensure!(
        installed.success(),
        "`cargo install {package} --locked` failed ({installed})"
    );
    version().with_context(|| format!("cannot run `cargo {command}`"))
}

/// Returns a command of the nightly toolchain, whichever toolchain started this program.
pub(crate) fn nightly(command: &str) -> Command {
    let mut command = Command::new(command);
    command.arg(format!("+{NIGHTLY}"));
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(name);
    }
    command
}

fn rustup(arguments: &[&str]) -> anyhow::Result<()> {
    let typed = format!("rustup {}", arguments.join(" "));
    announce(&typed);
    let status = Command::new("rustup")
        .args(arguments)
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot run `{typed}`"))?;
    anyhow::ensure!(status.success(), "`{typed}` failed ({status})");
    Ok(())
}

fn announce(what: &str) {
    terminal::paragraph("  ", &format!("installing: {what}"));
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn cargo_has(command: &str) -> bool {
    output(cargo().args([command, "--version"])).is_ok()
}

fn has_wasm_target() -> bool {
    let folder = output(Command::new(rustc()).args(["--print", "target-libdir", "--target", WASM]));
    // rustc prints the folder even if it does not exist.
    folder.is_ok_and(|folder| {
        let files = std::fs::read_dir(folder).into_iter().flatten();
        let mut names = files.filter_map(Result::ok).map(|file| file.file_name());
        names.any(|name| name.to_string_lossy().starts_with("libstd-"))
    })
}

fn rustc() -> std::ffi::OsString {
    std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())
}

/// Returns the output of a command on one line.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    anyhow::ensure!(output.status.success(), "it failed ({})", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
