//! Miri, over the unsafe code that it can interpret: the allocator of the SDK for Rust.
//!
//! The host's own unsafe code is calls of C and of the system (mimalloc's `mi_collect`, `sched_setscheduler`) and one of
//! wasmtime's, which maps a file and runs it. Miri has neither.

use crate::cargo;
use crate::test::count::Count;
use crate::toolchain;
use crate::workspace::Workspace;

/// Pointers keep to what they were made of, and alignment is what a type promises. The tests' memory is never given back:
/// no more than linear memory is.
const FLAGS: &str = "-Zmiri-strict-provenance -Zmiri-symbolic-alignment-check -Zmiri-ignore-leaks";

/// Runs the allocator's tests under Miri, and counts them.
pub(super) fn run(workspace: &Workspace, count: &mut Count) -> anyhow::Result<()> {
    match toolchain::ensure_miri() {
        Ok(version) => println!("  {version}"),
        Err(error) => {
            count.skip(format!("Miri cannot be installed: {error:#}"));
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
