//! The state file of a scan: the results for objects that have not changed.
//!
//! The key of a result is the version of the object, its Namespace, and the plugin with its settings and exceptions. A
//! result under another key is not used.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::finding::Finding;
use crate::terminal::tell;

/// The results of earlier scans.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct State {
    format: u32,
    /// The objects, by apiVersion, kind, namespace and name.
    objects: BTreeMap<String, Seen>,
}

/// An object that was judged.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Seen {
    /// The object's uid and resourceVersion, or a hash of its content.
    pub(super) version: String,
    /// A hash of its Namespace.
    pub(super) namespace: String,
    /// The results of each plugin whose rules match.
    pub(super) plugins: BTreeMap<String, Kept>,
}

/// The results of one plugin for one object.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Kept {
    /// A hash of the plugin's code, settings, exceptions, and everything else in its entry.
    pub(super) key: String,
    pub(super) findings: Vec<Finding>,
}

/// The version of the format. A file of another version is not used.
const FORMAT: u32 = 1;

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

    /// Returns what is known about an object in this version, in a Namespace like this.
    pub(super) fn seen(&self, object: &str, version: &str, namespace: &str) -> Option<&Seen> {
        let seen = self.objects.get(object)?;
        (seen.version == version && seen.namespace == namespace).then_some(seen)
    }

    pub(super) fn add(&mut self, object: String, seen: Seen) {
        self.objects.insert(object, seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::finding::Verdict;
    use crate::scan::finding::tests::finding;

    fn seen() -> Seen {
        let kept = Kept {
            key: "k".to_owned(),
            findings: vec![finding("labels", Verdict::Fail)],
        };
        Seen {
            version: "1/2".to_owned(),
            namespace: "n".to_owned(),
            plugins: [("labels".to_owned(), kept)].into(),
        }
    }

    #[test]
    fn finds_objects_of_the_same_version_after_writing_and_reading() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.json");
        let mut state = State::read(&file).unwrap();
        state.add("v1/Pod/shop/web".to_owned(), seen());
        state.write(&file).unwrap();
        let read = State::read(&file).unwrap();
        let known = read.seen("v1/Pod/shop/web", "1/2", "n").unwrap();
        assert_eq!(
            known.plugins["labels"].findings,
            seen().plugins["labels"].findings
        );
        assert!(read.seen("v1/Pod/shop/web", "1/3", "n").is_none());
        assert!(read.seen("v1/Pod/shop/web", "1/2", "other").is_none());
        assert!(read.seen("v1/Pod/shop/other", "1/2", "n").is_none());
    }

    #[test]
    fn damaged_file_and_other_format_are_an_empty_state() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.json");
        for text in ["{", r#"{"format":2,"objects":{}}"#] {
            std::fs::write(&file, text).unwrap();
            assert!(State::read(&file).unwrap().objects.is_empty(), "{text}");
        }
    }
}
