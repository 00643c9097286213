//! Detects changed files, and waits until they are no longer being written.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tollgate_admission::chain;
use tollgate_config::Config;
use tollgate_config::stamp::Stamp;

use super::desired::Desired;
use super::reconcile::{Stamps, files};

/// The result of reading a source of the desired state.
pub(super) struct Reading {
    /// The configuration, or all of its problems.
    pub(super) read: Result<Config, String>,
    /// The state to desire while the source is not valid. None keeps the previously desired state.
    pub(super) meanwhile: Option<Config>,
    /// The stamps of the source's own files and of the files that loads read. All were taken before any of these files
    /// was read.
    pub(super) stamps: Stamps,
}

/// Detects files that have changed since they were last read.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The stamps when the files were last read.
    read: Stamps,
    /// The stamps at the last poll.
    polled: Stamps,
    restless_since: Option<Instant>,
}

/// Files that change without a pause are read after this time anyway.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The current stamps of these files. May block.
pub(super) fn stamps(paths: impl IntoIterator<Item = PathBuf>) -> Stamps {
    let stamp = |path: PathBuf| {
        let stamp = Stamp::of(&path);
        (path, stamp)
    };
    paths.into_iter().map(stamp).collect()
}

/// Reads a source and stamps its files. If the source is invalid, stamps `known`: the files of the plugins that were
/// desired before. May block.
pub(super) fn read(source: &dyn Desired, known: Vec<PathBuf>) -> Reading {
    let mut stamped = stamps(source.files());
    let read = source.read().map_err(|error| chain(&error));
    let meanwhile = match read {
        Ok(_) => None,
        Err(_) => source.meanwhile(),
    };
    let paths = match read.as_ref().ok().or(meanwhile.as_ref()) {
        Some(config) => {
            let entries = config.plugins.iter().chain(&config.shadows);
            let enabled = entries.filter(|entry| entry.enabled);
            enabled.flat_map(files).cloned().collect()
        }
        None => known,
    };
    stamped.extend(stamps(paths));
    Reading {
        read,
        meanwhile,
        stamps: stamped,
    }
}

// === impl Watch ===

impl Watch {
    /// Sets the stamps of the last read, which were taken before the files were read.
    pub(super) fn reading(&mut self, stamps: Stamps) {
        self.read = stamps;
        self.restless_since = None;
    }

    /// Whether a file has changed since it was last read, and all files have the same stamps as at the last poll. A
    /// file that is being written, or a volume that is half swapped, must not be read yet. After `LONGEST_WAIT`,
    /// changed files are read anyway.
    pub(super) fn has_changed(&mut self, now: Stamps) -> bool {
        let changed = now != self.read;
        let rests = now == self.polled;
        self.polled = now;
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

    fn poll(watch: &mut Watch, path: &Path) -> bool {
        watch.has_changed(Stamps::from([(path.to_owned(), Stamp::of(path))]))
    }

    #[test]
    fn detects_change_once_file_rests() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plugin.wasm");
        let mut watch = Watch::default();
        fs::write(&path, "one").unwrap();
        watch.reading(Stamps::from([(path.clone(), Stamp::of(&path))]));
        assert!(!poll(&mut watch, &path));
        fs::write(&path, "another").unwrap();
        assert!(!poll(&mut watch, &path), "the file may not be complete yet");
        fs::write(&path, "another one").unwrap();
        assert!(!poll(&mut watch, &path));
        assert!(poll(&mut watch, &path));
        fs::remove_file(&path).unwrap();
        assert!(!poll(&mut watch, &path));
        assert!(poll(&mut watch, &path), "a deleted file counts as changed");
    }
}
