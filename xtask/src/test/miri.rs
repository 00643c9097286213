//! Runs Miri on the unsafe code that it can interpret: the allocator of the Rust SDK.
//!
//! The host's own unsafe code calls C and system functions (mimalloc's `mi_collect`, `sched_setscheduler`) and one
//! function of wasmtime, which maps a file and runs it. Miri supports none of these.

use crate::cargo;
use crate::test::count::Count;
use crate::toolchain;
use crate::workspace::Workspace;

/// Check strict provenance and symbolic alignment. Ignore leaks, because the tests never free their memory, just as
/// linear memory is never freed.
const FLAGS: &str = "-Zmiri-strict-provenance -Zmiri-symbolic-alignment-check -Zmiri-ignore-leaks";

/// Runs the allocator's tests under Miri, and counts them.
pub(super) fn run(workspace: &Workspace, count: &mut Count) -> anyhow::Result<()> {
    match toolchain::ensure_miri() {
        Ok(version) => println!("  {version}"),
        Err(error) => {
            count.skip(format!("cannot install Miri: {error:#}"));
            return Ok(());
        }
    }
    let mut command = toolchain::nightly("cargo");
    command
        .args(["miri", "test", "--lib", "--manifest-path"])
        .arg(workspace.root().join("tests/miri/Cargo.toml"))
        .arg("--target-dir")
        .arg(workspace.target().join("miri"))
        .env("MIRIFLAGS", FLAGS);
    println!("$ {}", cargo::typed(&command));
    let result = cargo::read(&mut command, |line| count.read(line));
    count.end();
    result
}
