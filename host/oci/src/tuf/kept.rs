//! The files of a TUF repository that were verified, in memory and on disk.
//!
//! Each set is one file, replaced by renaming, so that it is never half of one refresh and half of another. A reader
//! trusts nothing in it: everything is verified again from the pinned root.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use sigstore_tuf::{Error, MetadataStore};
use tollgate_config::TufSource;

/// The texts of verified files, by the names that `sigstore-tuf` gives them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Files(BTreeMap<String, String>);

/// Files that a refresh reads and adds to.
#[derive(Clone)]
pub(super) struct Shelf(Arc<Mutex<Files>>);

/// The files of a repository on disk.
pub(super) struct Kept {
    folder: PathBuf,
    in_effect: PathBuf,
}

/// The last complete set.
const COMPLETE: &str = "kept.json";
/// Everything that was verified, also by a refresh that failed later.
const SEEN: &str = "seen.json";
/// Maximum size of a set, in bytes.
const MAX_BYTES: u64 = 64 << 20;

// === impl Files ===

impl Files {
    #[cfg(test)]
    pub(super) fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}

// === impl Shelf ===

impl Shelf {
    pub(super) fn of(files: Files) -> Self {
        Self(Arc::new(Mutex::new(files)))
    }

    pub(super) fn files(&self) -> Files {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MetadataStore for Shelf {
    fn load(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.lock().0.get(name).map(|text| text.clone().into()))
    }

    /// Keeps a verified file. Files that are kept under a second name are left out, so that the set does not grow.
    fn store(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let is_numbered_snapshot = name
            .strip_suffix(".snapshot.json")
            .is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit()));
        if name == "root.json" || is_numbered_snapshot {
            return Ok(());
        }
        let text = String::from_utf8(bytes.to_vec())
            .map_err(|_| Error::Malformed(format!("{name} is not UTF-8 text")))?;
        self.lock().0.insert(name.to_owned(), text);
        Ok(())
    }
}

// === impl Kept ===

impl Kept {
    pub(super) fn of(tuf: &TufSource) -> Self {
        Self {
            folder: tuf.folder.clone(),
            in_effect: tuf.in_effect.clone(),
        }
    }

    /// The last complete set; None if there is none that can be read.
    pub(super) fn complete(&self) -> Option<Files> {
        read(&self.folder.join(COMPLETE))
    }

    /// Everything that was verified.
    pub(super) fn seen(&self) -> Option<Files> {
        read(&self.folder.join(SEEN)).or_else(|| self.complete())
    }

    pub(super) fn write_seen(&self, files: &Files) {
        self.note(self.write_files(SEEN, files));
    }

    /// Keeps a complete set, and then the trusted root in it.
    pub(super) fn write(&self, files: &Files, root: &str) {
        let written = self.write_files(COMPLETE, files).and_then(|()| {
            let is_same = fs::read(&self.in_effect).is_ok_and(|known| known == root.as_bytes());
            match is_same {
                true => Ok(()),
                false => self.replace(&self.in_effect, root.as_bytes()),
            }
        });
        self.note(written);
    }

    fn write_files(&self, name: &str, files: &Files) -> io::Result<()> {
        self.replace(&self.folder.join(name), &serde_json::to_vec(files)?)
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        // The cache folder itself is created elsewhere, and private.
        let parents = [self.folder.parent(), Some(self.folder.as_path())];
        for folder in parents.into_iter().flatten() {
            match DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        let mut file = tempfile::Builder::new()
            .prefix(".new-")
            .tempfile_in(&self.folder)?;
        file.write_all(bytes)?;
        file.persist(path)?;
        Ok(())
    }

    /// Logs a failed write. The trusted root is still used, from memory.
    fn note(&self, written: io::Result<()>) {
        // A command may run where the cache folder does not exist. A server has created it.
        if let Err(error) = written
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(
                folder = %self.folder.display(), %error,
                "failed to keep the trusted root (registries.cacheDirectory); a restart without its repository would lack it"
            );
        }
    }
}

fn read(path: &Path) -> Option<Files> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    let read = serde_json::from_slice(&bytes);
    if read.is_err() {
        tracing::warn!(file = %path.display(), "ignoring a damaged copy of a TUF repository");
    }
    read.ok()
}
