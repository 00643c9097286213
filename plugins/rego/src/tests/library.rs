//! Suites of `gator verify`: those of Gatekeeper's library, which are not part of this repository, and the project's own.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

/// Reads the documents of a file.
pub(super) fn yaml(path: &Path) -> Vec<Json> {
    let mut text =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // One template has a line of a quoted text that is not indented enough for this parser. kubectl accepts it.
    text = text.replace(
        "\n              to false.\"",
        "\n                to false.\"",
    );
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Reads the first document of a file.
pub(super) fn one(path: &Path) -> Json {
    yaml(path)
        .into_iter()
        .find(|document| !document.is_null())
        .unwrap()
}

/// Returns the folder of Gatekeeper's library. None if it is not on this machine.
pub(super) fn library() -> Option<PathBuf> {
    let shared = std::env::var_os("TOLLGATE_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let root = shared.join("conformance/gatekeeper-library/library");
    root.is_dir().then_some(root)
}

/// Returns the folder of the project's own suites.
pub(super) fn own() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/gatekeeper")
}

/// Returns the suites below a folder, in order.
pub(super) fn suites(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(folder, &mut found);
    found.sort();
    found
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, into);
        } else if path.ends_with("suite.yaml") {
            into.push(path);
        }
    }
}
