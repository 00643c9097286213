//! The state file of a scan: the results for objects that have not changed.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tollgate_scan::state::Seen;

use crate::terminal::tell;

/// The results of earlier scans.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct State {
    format: u32,
    /// The objects, by apiVersion, kind, namespace and name.
    objects: BTreeMap<String, Seen>,
}

/// The version of the format. A file of another version is not used.
const FORMAT: u32 = 2;

// === impl State ===

impl Default for State {
    fn default() -> Self {
        Self {
            format: FORMAT,
            objects: BTreeMap::new(),
        }
    }
}

impl State {
    /// Reads a file. A file that does not exist or cannot be used is an empty state: the scan then calls every plugin.
    ///
    /// # Errors
    /// When the file exists and cannot be read.
    pub(super) fn read(file: &Path) -> anyhow::Result<Self> {
        let text = match std::fs::read(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", file.display()));
            }
        };
        match serde_json::from_slice::<Self>(&text) {
            Ok(state) if state.format == FORMAT => Ok(state),
            _ => {
                tell!(
                    "tollgate: {} is not a state file of this version, so all objects are judged again",
                    file.display()
                );
                Ok(Self::default())
            }
        }
    }

    /// Replaces the file. Only the user may read it, because it holds messages about all objects.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn write(&self, file: &Path) -> anyhow::Result<()> {
        let what = || format!("cannot write {}", file.display());
        let folder = match file.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let mut new = tempfile::NamedTempFile::new_in(folder).with_context(what)?;
        let text = serde_json::to_vec(self).with_context(what)?;
        new.write_all(&text).with_context(what)?;
        new.persist(file)
            .map_err(|error| error.error)
            .with_context(what)?;
        Ok(())
    }

    /// Returns the stored result for an object.
    pub(super) fn seen(&self, object: &str) -> Option<&Seen> {
        self.objects.get(object)
    }

    pub(super) fn add(&mut self, object: String, seen: Seen) {
        self.objects.insert(object, seen);
    }
}

#[cfg(test)]
mod tests {
    use tollgate_scan::key::Key;
    use tollgate_scan::state::Kept;

    use super::*;

    fn seen() -> Seen {
        let key = Key::of(&["k"]);
        Seen {
            version: Key::of(&["1", "2"]),
            namespace: Key::of(&["n"]),
            judged_by: None,
            plugins: vec![Kept::new(key, &[])],
        }
    }

    #[test]
    fn finds_objects_after_writing_and_reading() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.json");
        let mut state = State::read(&file).unwrap();
        state.add("v1/Pod/shop/web".to_owned(), seen());
        state.write(&file).unwrap();
        let read = State::read(&file).unwrap();
        assert_eq!(read.seen("v1/Pod/shop/web"), Some(&seen()));
        assert!(read.seen("v1/Pod/shop/other").is_none());
    }

    #[test]
    fn damaged_file_and_other_format_are_an_empty_state() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.json");
        for text in ["{", r#"{"format":1,"objects":{}}"#] {
            std::fs::write(&file, text).unwrap();
            assert!(State::read(&file).unwrap().objects.is_empty(), "{text}");
        }
    }
}
