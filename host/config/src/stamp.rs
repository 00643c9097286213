//! Detects changes of a file without reading it.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Metadata that changes when a file is written or replaced, or when a link on its path is swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

// === impl Stamp ===

impl Stamp {
    /// Returns the stamp of a file. None if there is no such file.
    pub fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    /// Returns a stamp that differs for each version, for tests without files.
    #[doc(hidden)]
    #[must_use]
    pub fn of_version(version: u64) -> Self {
        Self {
            device: 0,
            inode: version,
            bytes: 0,
            modified: (0, 0),
            changed: (0, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn detects_swap_of_mounted_volume() {
        // This is how kubelet does it: `file` → `..data/file`, and `..data` → a folder named after its time.
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for version in ["..1", "..2"] {
            fs::create_dir(root.join(version)).unwrap();
            fs::write(root.join(version).join("file"), "same length").unwrap();
        }
        symlink("..1", root.join("..data")).unwrap();
        symlink("..data/file", root.join("file")).unwrap();
        let path = root.join("file");
        let before = Stamp::of(&path);
        symlink("..2", root.join("..tmp")).unwrap();
        fs::rename(root.join("..tmp"), root.join("..data")).unwrap();
        assert!(before.is_some());
        assert_ne!(Stamp::of(&path), before);
    }
}
