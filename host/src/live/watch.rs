//! Which files have changed, and whether they have come to rest.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::desired::Desired;
use super::reconcile::{Stamps, files};
use crate::config::Config;
use crate::engine::chain;
use crate::memory;
use crate::stamp::Stamp;

/// What was read of a source of the desired state.
pub(super) struct Reading {
    /// The configuration, or all that is wrong with it.
    pub(super) read: Result<Config, String>,
    /// Of its own files and of those that loads read, from before any of them was read.
    pub(super) stamps: Stamps,
}

/// Which files have changed since they were last read.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// As they were when they were read.
    read: Stamps,
    /// As they were at the last look.
    seen: Stamps,
    restless_since: Option<Instant>,
}

/// Files that are written without a pause are read all the same after this.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The stamps of these files as they are now. May block.
pub(super) fn stamps(paths: impl IntoIterator<Item = PathBuf>) -> Stamps {
    let stamp = |path: PathBuf| {
        let stamp = Stamp::of(&path);
        (path, stamp)
    };
    let stamps = paths.into_iter().map(stamp).collect();
    // These are the threads that have read and linked the plugins, each of which comes by here within a second or two.
    // What one of them gives back of large reviews is most of what all threads have freed.
    memory::idle();
    stamps
}

/// Reads a source, and stamps its files. `known` are the files of the plugins that were desired before. May block.
pub(super) fn read(source: &dyn Desired, known: Vec<PathBuf>) -> Reading {
    let mut stamped = stamps(source.files());
    let read = source.read().map_err(|error| chain(&error));
    let paths = match &read {
        Ok(config) => {
            let entries = config.plugins.iter().chain(&config.candidates);
            let enabled = entries.filter(|entry| entry.enabled);
            enabled.flat_map(files).cloned().collect()
        }
        Err(_) => known,
    };
    stamped.extend(stamps(paths));
    Reading {
        read,
        stamps: stamped,
    }
}

// === impl Watch ===

impl Watch {
    /// These are about to be read.
    pub(super) fn reading(&mut self, stamps: Stamps) {
        self.read = stamps;
        self.restless_since = None;
    }

    /// Whether any file differs from when it was read, and all of them have been the same for two looks: one that is
    /// being written, or the half of a volume that has been swapped, is not for reading yet.
    pub(super) fn has_changed(&mut self, now: Stamps) -> bool {
        let changed = now != self.read;
        let rests = now == self.seen;
        self.seen = now;
        if !changed {
            self.restless_since = None;
            return false;
        }
        let since = *self.restless_since.get_or_insert_with(Instant::now);
        rests || since.elapsed() >= LONGEST_WAIT
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn look(watch: &mut Watch, path: &Path) -> bool {
        watch.has_changed(Stamps::from([(path.to_owned(), Stamp::of(path))]))
    }

    #[test]
    fn sees_a_change_once_the_file_rests() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plugin.wasm");
        let mut watch = Watch::default();
        fs::write(&path, "one").unwrap();
        watch.reading(Stamps::from([(path.clone(), Stamp::of(&path))]));
        assert!(!look(&mut watch, &path));
        fs::write(&path, "another").unwrap();
        assert!(!look(&mut watch, &path), "it may still be being written");
        fs::write(&path, "another one").unwrap();
        assert!(!look(&mut watch, &path));
        assert!(look(&mut watch, &path));
        fs::remove_file(&path).unwrap();
        assert!(!look(&mut watch, &path));
        assert!(look(&mut watch, &path), "that it is gone is a change, too");
    }
}
