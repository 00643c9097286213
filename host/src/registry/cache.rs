//! What was pulled, kept on disk by its digest, for starts with the registry away.
//!
//! Several processes may share the folder: a file comes into being by renaming, under the name of its content, and is
//! compared with that name whenever it is read. What a tag was last resolved to is a file of its own; the folder has to
//! be private for its sake.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

use super::last_good;

/// A folder of what was pulled.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    folder: PathBuf,
    max_bytes: u64,
}

// === impl Cache ===

impl Cache {
    pub(super) fn new(folder: PathBuf, max_bytes: u64) -> Self {
        Self { folder, max_bytes }
    }

    /// The content of a digest, where it is there and is that.
    pub(super) fn get(&self, digest: &str, limit_bytes: u64) -> Option<Vec<u8>> {
        let path = self.blob(digest)?;
        let file = File::open(&path).ok()?;
        let mut bytes = Vec::new();
        (&file).take(limit_bytes + 1).read_to_end(&mut bytes).ok()?;
        if digest_of(&bytes) != digest {
            tracing::warn!(file = %path.display(), "a cached artifact is not what its name says; it is fetched anew");
            // Another process may have been faster.
            drop(fs::remove_file(&path));
            return None;
        }
        // What was used last goes last.
        drop(file.set_modified(SystemTime::now()));
        Some(bytes)
    }

    pub(super) fn put(&self, digest: &str, bytes: &[u8]) {
        if let Some(path) = self.blob(digest)
            && let Err(error) = self.write(&path, bytes)
        {
            self.complain(&error);
        }
        self.shrink(digest);
    }

    /// Keeps what may be there already.
    pub(super) fn keep(&self, digest: &str, bytes: &[u8]) {
        if self.get(digest, bytes.len() as u64).is_none() {
            self.put(digest, bytes);
        }
    }

    /// What a tag was last resolved to.
    pub(super) fn resolved(&self, reference: &str) -> Option<String> {
        let digest = fs::read_to_string(self.tag(reference)).ok()?;
        Some(digest.trim().to_owned())
    }

    pub(super) fn resolve(&self, reference: &str, digest: &str) {
        if self.resolved(reference).as_deref() != Some(digest)
            && let Err(error) = self.write(&self.tag(reference), digest.as_bytes())
        {
            self.complain(&error);
        }
    }

    fn blob(&self, digest: &str) -> Option<PathBuf> {
        let hex = digest
            .strip_prefix("sha256:")
            .filter(|_| super::manifest::is_digest(digest))?;
        Some(self.folder.join("blobs").join("sha256").join(hex))
    }

    fn tag(&self, reference: &str) -> PathBuf {
        let name = format!("{:x}", Sha256::digest(reference));
        self.folder.join("tags").join(name)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let folder = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder)?;
        let mut file = tempfile::Builder::new()
            .prefix(".new-")
            .tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.persist(path)?;
        Ok(())
    }

    /// Not being able to keep something is no reason not to serve it.
    fn complain(&self, error: &io::Error) {
        tracing::warn!(
            folder = %self.folder.display(), %error,
            "what was pulled cannot be kept (registries.cacheDirectory); a start without the registry would lack it"
        );
    }

    /// Takes away what was not used for longest, but neither what has just come nor what a start may fall back to.
    fn shrink(&self, newest: &str) {
        let Ok(entries) = fs::read_dir(self.folder.join("blobs").join("sha256")) else {
            return;
        };
        let mut kept: Vec<(SystemTime, u64, PathBuf)> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let metadata = entry.metadata().ok()?;
                Some((metadata.modified().ok()?, metadata.len(), entry.path()))
            })
            .collect();
        let mut total: u64 = kept.iter().map(|(_, bytes, _)| bytes).sum();
        if total <= self.max_bytes {
            return;
        }
        kept.sort();
        let needed = last_good::needed(&self.folder);
        let spared: Vec<PathBuf> = needed
            .iter()
            .map(String::as_str)
            .chain([newest])
            .filter_map(|digest| self.blob(digest))
            .collect();
        for (_, bytes, path) in kept {
            if total <= self.max_bytes {
                return;
            }
            if !spared.contains(&path) && fs::remove_file(&path).is_ok() {
                total -= bytes;
            }
        }
    }
}

/// As registries write it.
pub(super) fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_what_was_put_and_nothing_that_was_tampered_with() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned(), 1000);
        let digest = digest_of(b"plugin");
        assert_eq!(cache.get(&digest, 1000), None);
        cache.put(&digest, b"plugin");
        assert_eq!(cache.get(&digest, 1000).as_deref(), Some(&b"plugin"[..]));
        fs::write(cache.blob(&digest).unwrap(), "another").unwrap();
        assert_eq!(cache.get(&digest, 1000), None);
        assert!(!cache.blob(&digest).unwrap().exists());
        assert_eq!(cache.get("sha256:../../../etc/passwd", 1000), None);
    }

    #[test]
    fn remembers_what_a_tag_was() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned(), 1000);
        assert_eq!(cache.resolved("registry.example.com/a:1"), None);
        cache.resolve("registry.example.com/a:1", "sha256:1");
        cache.resolve("registry.example.com/a:1", "sha256:2");
        assert_eq!(
            cache.resolved("registry.example.com/a:1").as_deref(),
            Some("sha256:2")
        );
    }

    #[test]
    fn stays_within_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned(), 250);
        let digests: Vec<String> = (0..5u8)
            .map(|number| {
                let bytes = [number; 100];
                let digest = digest_of(&bytes);
                cache.put(&digest, &bytes);
                let file = File::open(cache.blob(&digest).unwrap()).unwrap();
                let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number.into());
                file.set_modified(at).unwrap();
                digest
            })
            .collect();
        let there = |digest: &String| cache.blob(digest).unwrap().exists();
        let there: Vec<bool> = digests.iter().map(there).collect();
        assert_eq!(there, [false, false, false, true, true]);
    }

    #[test]
    fn keeps_what_a_start_may_fall_back_to() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned(), 150);
        let bytes = [[1; 100], [2; 100], [3; 100]];
        let digests = bytes.map(|bytes| digest_of(&bytes));
        let records = folder.path().join("last-good").join("a");
        fs::create_dir_all(&records).unwrap();
        let record = format!(r#"{{"needs": ["{}"]}}"#, digests[0]);
        fs::write(records.join("plugin.json"), record).unwrap();
        for (digest, bytes) in digests.iter().zip(&bytes) {
            cache.put(digest, bytes);
        }
        let there = digests.map(|digest| cache.blob(&digest).unwrap().exists());
        assert_eq!(there, [true, false, true]);
    }
}
