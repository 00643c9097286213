//! The languages that plugins are written in. Each has a folder in `languages/`.

use std::path::PathBuf;

use crate::binary::{profile_directory, workspace};

/// Variable for a folder with built plugins, other than `languages` in the target folder.
const FOLDER_VARIABLE: &str = "TOLLGATE_LANGUAGES";

/// Returns the names of the languages in order.
///
/// # Panics
/// Panics if the workspace cannot be read.
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

/// Returns the folder in which a language's build leaves its plugins, if it has been built.
///
/// # Panics
/// Panics if this program is not in a target folder.
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
