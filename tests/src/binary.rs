//! Finds the `tollgate` binary, which the suites run as a user would.

use std::path::{Path, PathBuf};

/// Variable for another binary than the one beside the tests, such as a released one.
pub const BINARY_VARIABLE: &str = "TOLLGATE_BIN";

/// Returns the binary of the profile that the tests were built in.
///
/// # Panics
/// Panics if the binary is missing: for tests, cargo builds only the binaries of the same crate.
#[must_use]
pub fn tollgate() -> PathBuf {
    if let Some(path) = std::env::var_os(BINARY_VARIABLE) {
        let path = PathBuf::from(path);
        assert!(
            path.is_file(),
            "{BINARY_VARIABLE} names {}, which is not a file",
            path.display()
        );
        return path;
    }
    let path = profile_directory().join("tollgate");
    assert!(
        path.is_file(),
        "{} is not there: run `cargo build --workspace --bin tollgate` first (with --release where the tests have it), or name the \
         binary in {BINARY_VARIABLE}",
        path.display()
    );
    path
}

/// Returns an example program of the workspace, in the profile that the tests were built in.
///
/// # Panics
/// Panics if the example is missing: for tests, cargo builds only the examples of the same crate.
#[must_use]
pub fn example(name: &str) -> PathBuf {
    let path = profile_directory().join("examples").join(name);
    assert!(
        path.is_file(),
        "{} is not there: run `cargo build --workspace --examples` first (with --release where the tests have it)",
        path.display()
    );
    path
}

/// Returns `target/debug` or `target/release`, the folder that contains the test executable's `deps` folder.
#[must_use]
pub fn profile_directory() -> PathBuf {
    let executable =
        std::env::current_exe().expect("the path of the running test is known on this system");
    let folder = executable.parent().expect("an executable lies in a folder");
    match folder.parent() {
        Some(profile) if folder.ends_with("deps") => profile.to_owned(),
        _ => folder.to_owned(),
    }
}

/// Gatekeeper's library of policies, where it is beside the project.
#[must_use]
pub fn gatekeeper_library() -> Option<PathBuf> {
    let shared = std::env::var_os("TOLLGATE_SHARED")
        .map_or_else(|| workspace().join("../shared"), PathBuf::from);
    let library = shared.join("conformance/gatekeeper-library/library");
    library.is_dir().then_some(library)
}

/// The folder of the workspace.
#[must_use]
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate lies in the workspace")
}
