//! The cache: pulled artifacts on disk, stored by digest, for starts while the registry is unavailable.
//!
//! Several processes may share the folder. A file is created by renaming, and its name is the digest of its content.
//! Each read compares the content with this name. The digest that a tag was last resolved to is in a separate file,
//! which cannot be checked this way. So the folder must be private.
//!
//! When the cache is too large, the content that was used longest ago is deleted. Two kinds of content always stay:
//! content of plugins that run or are about to run ([`Hold`]), and content that a recorded start needs.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

use super::last_good;
use super::private::write_private;

/// A folder of pulled artifacts.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
    max_bytes: u64,
    holds: Mutex<Vec<Weak<Digests>>>,
}

type Digests = Mutex<BTreeSet<String>>;

/// Digests that the cache must keep, because plugins were made from them or are being made. The hold lasts until this
/// value and all of its clones are dropped.
#[derive(Clone, Debug, Default)]
pub struct Hold(Arc<Digests>);

// === impl Cache ===

impl Cache {
    pub(crate) fn new(folder: PathBuf, max_bytes: u64) -> Self {
        Self {
            folder,
            max_bytes,
            holds: Mutex::default(),
        }
    }

    /// Creates a hold, which keeps all digests that are added to it.
    pub(crate) fn hold(&self) -> Hold {
        let hold = Hold::default();
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        holds.retain(|hold| hold.strong_count() > 0);
        holds.push(Arc::downgrade(&hold.0));
        hold
    }

    /// The content of a digest; `None` if it is missing, damaged or longer than the limit. The limit may come from a
    /// registry, so longer content is not deleted.
    pub(super) fn get(&self, digest: &str, limit_bytes: u64) -> Option<Vec<u8>> {
        let path = self.blob(digest)?;
        let file = File::open(&path).ok()?;
        let mut bytes = Vec::new();
        let limit = limit_bytes.saturating_add(1);
        (&file).take(limit).read_to_end(&mut bytes).ok()?;
        if bytes.len() as u64 > limit_bytes {
            return None;
        }
        if digest_of(&bytes) != digest {
            tracing::warn!(file = %path.display(), "a cached artifact does not have the digest in its name; pulling it again");
            // Another process may have removed the file already.
            drop(fs::remove_file(&path));
            return None;
        }
        // The modification time is the time of the last use.
        drop(file.set_modified(SystemTime::now()));
        Some(bytes)
    }

    pub(super) fn put(&self, hold: &Hold, digest: &str, bytes: &[u8]) {
        hold.add(digest);
        if let Some(path) = self.blob(digest)
            && let Err(error) = self.write(&path, bytes)
        {
            self.complain(&error);
        }
    }

    /// Keeps content that the cache may already have.
    pub(crate) fn keep(&self, hold: &Hold, digest: &str, bytes: &[u8]) {
        hold.add(digest);
        if self.get(digest, bytes.len() as u64).is_none() {
            self.put(hold, digest, bytes);
        }
    }

    /// The digest that a tag was last resolved to.
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
        write_private(path, bytes)
    }

    /// Logs a failed write. A plugin whose artifact cannot be kept still serves.
    fn complain(&self, error: &io::Error) {
        tracing::warn!(
            folder = %self.folder.display(), %error,
            "failed to cache an artifact (registries.cacheDirectory); a restart without the registry would lack it"
        );
    }

    /// Deletes the content that was used longest ago, until the cache is within its limit. Held content and content
    /// that a start may need stay.
    pub(super) fn shrink(&self) {
        let mut kept = self.blobs();
        let mut total: u64 = kept.iter().map(|(_, bytes, _)| bytes).sum();
        if total <= self.max_bytes {
            return;
        }
        kept.sort();
        let mut spared = last_good::needed(&self.folder);
        {
            let holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
            for hold in holds.iter().filter_map(Weak::upgrade) {
                let held = hold.lock().unwrap_or_else(PoisonError::into_inner);
                spared.extend(held.iter().cloned());
            }
        }
        let spared = self.paths(&spared);
        for (_, bytes, path) in kept {
            if total <= self.max_bytes {
                return;
            }
            if !spared.contains(&path) && fs::remove_file(&path).is_ok() {
                total -= bytes;
            }
        }
    }

    /// The size of the content that starts may need, and the limit, if that size exceeds the limit.
    pub(super) fn exceeded(&self) -> Option<(u64, u64)> {
        let needed = self.paths(&last_good::needed(&self.folder));
        let blobs = self.blobs().into_iter();
        let needed = blobs.filter(|(_, _, path)| needed.contains(path));
        let needed = needed.map(|(_, bytes, _)| bytes).sum();
        (needed > self.max_bytes).then_some((needed, self.max_bytes))
    }

    /// The time of the last use, the size in bytes, and the path of each blob.
    fn blobs(&self) -> Vec<(SystemTime, u64, PathBuf)> {
        let entries = fs::read_dir(self.folder.join("blobs").join("sha256"));
        let blobs = entries.into_iter().flatten().filter_map(|entry| {
            let entry = entry.ok()?;
            let metadata = entry.metadata().ok()?;
            Some((metadata.modified().ok()?, metadata.len(), entry.path()))
        });
        blobs.collect()
    }

    fn paths(&self, digests: &BTreeSet<String>) -> BTreeSet<PathBuf> {
        let paths = digests.iter().filter_map(|digest| self.blob(digest));
        paths.collect()
    }
}

// === impl Hold ===

impl Hold {
    /// Adds a digest to the hold.
    pub fn add(&self, digest: &str) {
        let mut digests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        digests.insert(digest.to_owned());
    }
}

/// The SHA-256 of these bytes, in the notation of registries.
pub(super) fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_intact_content_and_deletes_tampered_content() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned(), 1000);
        let digest = digest_of(b"plugin");
        assert_eq!(cache.get(&digest, 1000), None);
        cache.put(&cache.hold(), &digest, b"plugin");
        assert_eq!(cache.get(&digest, 1000).as_deref(), Some(&b"plugin"[..]));
        fs::write(cache.blob(&digest).unwrap(), "another").unwrap();
        assert_eq!(cache.get(&digest, 1000), None);
        assert!(!cache.blob(&digest).unwrap().exists());
        assert_eq!(cache.get("sha256:../../../etc/passwd", 1000), None);
    }

    #[test]
    fn withholds_but_keeps_content_over_requested_limit() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned(), 1000);
        let digest = digest_of(b"plugin");
        cache.put(&cache.hold(), &digest, b"plugin");
        for limit in [0, 1, 5] {
            assert_eq!(cache.get(&digest, limit), None);
        }
        for limit in [6, u64::MAX] {
            assert_eq!(cache.get(&digest, limit).as_deref(), Some(&b"plugin"[..]));
        }
    }

    #[test]
    fn remembers_digest_of_tag() {
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
    fn stays_within_size_limit() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned(), 250);
        let digests: Vec<String> = (0..5u8)
            .map(|number| {
                let bytes = [number; 100];
                let digest = digest_of(&bytes);
                cache.put(&cache.hold(), &digest, &bytes);
                let file = File::open(cache.blob(&digest).unwrap()).unwrap();
                let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number.into());
                file.set_modified(at).unwrap();
                cache.shrink();
                digest
            })
            .collect();
        let there = |digest: &String| cache.blob(digest).unwrap().exists();
        let there: Vec<bool> = digests.iter().map(there).collect();
        assert_eq!(there, [false, false, false, true, true]);
    }

    #[test]
    fn keeps_artifacts_of_last_known_good() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned(), 150);
        let bytes = [[1; 100], [2; 100], [3; 100]];
        let digests = bytes.map(|bytes| digest_of(&bytes));
        let records = folder.path().join("last-good").join("a");
        fs::create_dir_all(&records).unwrap();
        let record = format!(r#"{{"needs": ["{}"]}}"#, digests[0]);
        fs::write(records.join("plugin.json"), record).unwrap();
        for (digest, bytes) in digests.iter().zip(&bytes) {
            cache.put(&cache.hold(), digest, bytes);
        }
        assert_eq!(cache.exceeded(), None);
        cache.shrink();
        let there = digests.map(|digest| cache.blob(&digest).unwrap().exists());
        assert_eq!(there, [true, false, false]);
    }

    #[test]
    fn keeps_held_artifacts_until_released() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned(), 150);
        let bytes = [[1; 100], [2; 100]];
        let digests = bytes.map(|bytes| digest_of(&bytes));
        let there = || {
            cache.shrink();
            digests
                .each_ref()
                .map(|digest| cache.blob(digest).unwrap().exists())
        };
        let (one, other) = (cache.hold(), cache.hold());
        cache.put(&one, &digests[0], &bytes[0]);
        cache.put(&other, &digests[1], &bytes[1]);
        assert_eq!(there(), [true, true]);
        let serving = one.clone();
        drop((one, other));
        assert_eq!(there(), [true, false]);
        cache.put(&cache.hold(), &digests[1], &bytes[1]);
        drop(serving);
        assert_eq!(there().iter().filter(|there| **there).count(), 1);
    }

    #[test]
    fn reports_needed_artifacts_over_size_limit() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned(), 150);
        let bytes = [[1; 100], [2; 100]];
        let digests = bytes.map(|bytes| digest_of(&bytes));
        let records = folder.path().join("last-good").join("a");
        fs::create_dir_all(&records).unwrap();
        let record = serde_json::json!({"needs": digests});
        fs::write(records.join("plugin.json"), record.to_string()).unwrap();
        for (digest, bytes) in digests.iter().zip(&bytes) {
            cache.put(&cache.hold(), digest, bytes);
        }
        cache.shrink();
        assert_eq!(cache.exceeded(), Some((200, 150)));
    }
}
