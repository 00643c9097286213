//! Plugins in Rust, which are built once for all suites.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::binary::{profile_directory, workspace};

const TARGET: &str = "wasm32-unknown-unknown";
const PROFILE: &str = "plugin";

/// Builds a package of the workspace as a plugin and returns its path.
///
/// # Panics
/// Panics if the build fails. The message has cargo's output.
#[must_use]
pub fn build(package: &str) -> PathBuf {
    static IN_THIS_PROCESS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut built = IN_THIS_PROCESS
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let target_directory = target_directory();
    let file = format!("{}.wasm", package.replace('-', "_"));
    let path = target_directory.join(TARGET).join(PROFILE).join(file);
    if built.iter().any(|known| known == package) {
        return path;
    }
    let _others = lock(&target_directory);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--profile",
            PROFILE,
            "--target",
            TARGET,
            "--package",
            package,
            "--target-dir",
        ])
        .arg(&target_directory)
        .current_dir(workspace())
        .output()
        .unwrap_or_else(|error| panic!("cargo cannot be run to build {package}: {error}"));
    assert!(
        output.status.success(),
        "{package} does not build for {TARGET} (is the target installed? `rustup target add {TARGET}`):\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        path.is_file(),
        "cargo built {package}, but not {}: is it a cdylib?",
        path.display()
    );
    built.push(package.to_owned());
    path
}

/// Adds a custom section that nobody reads. The result is the same plugin with other bytes.
#[must_use]
pub fn with_section(wasm: &[u8], name: &str, content: &[u8]) -> Vec<u8> {
    let mut section = Vec::new();
    write_length(&mut section, name.len());
    section.extend_from_slice(name.as_bytes());
    section.extend_from_slice(content);
    let mut wasm = wasm.to_vec();
    wasm.push(0);
    write_length(&mut wasm, section.len());
    wasm.extend_from_slice(&section);
    wasm
}

/// Writes a length in LEB128.
fn write_length(out: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

/// The target folder: `target`, or the folder that cargo was told to use.
fn target_directory() -> PathBuf {
    let profile = profile_directory();
    let target = profile
        .parent()
        .expect("a profile's folder lies in the target folder");
    target.to_owned()
}

/// Locks the build, because test binaries may run beside each other.
fn lock(target_directory: &Path) -> File {
    let path = target_directory.join("tollgate-guests.lock");
    let open = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path);
    let file = open.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.lock()
        .unwrap_or_else(|error| panic!("{}: cannot be locked: {error}", path.display()));
    file
}
