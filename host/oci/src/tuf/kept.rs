//! The files of a TUF repository that were verified, in memory and on disk.
//!
//! Each set is one file, replaced by renaming, so that it is never half of one refresh and half of another. A reader
//! trusts nothing in it: everything is verified again from the pinned root.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use sigstore_tuf::{Error, MetadataStore};
use tollgate_config::TufSource;

use super::verified::Versions;
use crate::private::write_private;

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
    /// Reads a set from its bytes. None if they are damaged.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let read = serde_json::from_slice(bytes);
        if let Err(error) = &read {
            tracing::warn!(%error, "ignoring a damaged copy of a TUF repository");
        }
        read.ok()
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        // A map of texts can always be written.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The one with the newer versions. They need not be verified yet.
    pub(super) fn newer(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) if one.versions() < other.versions() => Some(other),
            (one, other) => one.or(other),
        }
    }

    /// The versions that the files name.
    fn versions(&self) -> Versions {
        #[derive(Deserialize)]
        struct Metadata {
            signed: Signed,
        }
        #[derive(Deserialize)]
        struct Signed {
            version: u64,
        }
        let version = |name: &str| {
            let read = self.0.get(name).map(|text| serde_json::from_str(text));
            read.and_then(Result::ok)
                .map_or(0, |metadata: Metadata| metadata.signed.version)
        };
        let roots = self.0.keys().filter_map(|name| {
            let number = name.strip_suffix(".root.json")?;
            number.parse().ok()
        });
        Versions {
            root: roots.max().unwrap_or(0),
            timestamp: version("timestamp.json"),
            snapshot: version("snapshot.json"),
            targets: version("targets.json"),
        }
    }

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

    /// The bytes of the last complete set. None if there is none.
    pub(super) fn complete(&self) -> Option<Vec<u8>> {
        read(&self.folder.join(COMPLETE))
    }

    /// Everything that was verified.
    pub(super) fn seen(&self) -> Option<Files> {
        let seen = read(&self.folder.join(SEEN)).and_then(|bytes| Files::read(&bytes));
        seen.or_else(|| Files::read(&self.complete()?))
    }

    pub(super) fn write_seen(&self, files: &Files) {
        let written = self.replace(&self.folder.join(SEEN), &files.to_bytes());
        self.note(written);
    }

    /// Keeps a complete set, and then the trusted root in it. Returns whether the disk has taken both.
    pub(super) fn write(&self, set: &[u8], root: &str) -> bool {
        let is = |path: &Path, bytes: &[u8]| fs::read(path).is_ok_and(|known| known == bytes);
        let complete = self.folder.join(COMPLETE);
        let files = [(&complete, set), (&self.in_effect, root.as_bytes())];
        let written = files.into_iter().try_for_each(|(path, bytes)| {
            if is(path, bytes) {
                return Ok(());
            }
            self.replace(path, bytes)
        });
        self.note(written)
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
        write_private(path, bytes)
    }

    /// Logs a failed write. The trusted root is still used, from memory. Returns whether it was written.
    fn note(&self, written: io::Result<()>) -> bool {
        let is_written = written.is_ok();
        // A command may run where the cache folder does not exist. A server has created it.
        if let Err(error) = written
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(
                folder = %self.folder.display(), %error,
                "failed to keep the trusted root (registries.cacheDirectory); a restart without its repository would lack it"
            );
        }
        is_written
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
