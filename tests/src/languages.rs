//! The languages that plugins are written in: a folder of `languages/` each.

use std::path::PathBuf;

use crate::binary::{profile_directory, workspace};

/// Names another folder with built plugins than `languages` in the target folder.
const FOLDER_VARIABLE: &str = "TOLLGATE_LANGUAGES";

/// Their names, in order.
///
/// # Panics
/// When the workspace cannot be read.
#[must_use]
pub fn names() -> Vec<String> {
    let sources = workspace().join("languages");
    let entries = std::fs::read_dir(&sources)
        .unwrap_or_else(|error| panic!("{}: {error}", sources.display()));
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().join("build").is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Where the build of one leaves its plugins, if it has been built.
///
/// # Panics
/// When this program does not lie in a target folder.
#[must_use]
pub fn output(name: &str) -> PathBuf {
    let built = match std::env::var_os(FOLDER_VARIABLE) {
        Some(folder) => PathBuf::from(folder),
        None => profile_directory()
            .parent()
            .expect("a profile's folder lies in the target folder")
            .join("languages"),
    };
    built.join(name)
}
