//! Objects for lookups from files and suites, for reviews without a cluster.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, ensure};
use tollgate_json::document::Json;
use tollgate_lookups::{FileTables, Tables};

use crate::review::input;

/// Endings of the files that a folder is searched for.
const ENDINGS: [&str; 3] = ["json", "yaml", "yml"];

/// Reads the objects of a file, or of all files with YAML and JSON in a folder.
pub(crate) fn read(path: &Path) -> anyhow::Result<Arc<dyn Tables>> {
    let mut objects = Vec::new();
    for file in files(path)? {
        let documents = input::read_any(&file)?;
        objects.extend(documents.into_iter().map(|document| document.content));
    }
    of_list(&format!("in {}", path.display()), &objects)
}

/// Takes the objects of a list. `place` is part of messages, such as "in dump.yaml".
pub(crate) fn of_list(place: &str, objects: &[Json]) -> anyhow::Result<Arc<dyn Tables>> {
    let tables = FileTables::from_objects(place, objects).map_err(|error| anyhow!(error))?;
    Ok(Arc::new(tables))
}

/// Returns the files of a path. Folders in a folder are not searched.
fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let unreadable = || format!("cannot read the folder {}", path.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).with_context(unreadable)? {
        let file = entry.with_context(unreadable)?.path();
        let ending = file.extension().and_then(|ending| ending.to_str());
        if file.is_file() && ending.is_some_and(|ending| ENDINGS.contains(&ending)) {
            files.push(file);
        }
    }
    files.sort();
    ensure!(
        !files.is_empty(),
        "the folder {} has no file that ends in .yaml, .yml or .json",
        path.display()
    );
    Ok(files)
}
