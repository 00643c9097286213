//! The files that a component is built from, and their hashes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

/// Folders that tools create. Hidden folders are left out too, except for cargo's configuration.
const MADE: [&str; 5] = [
    "dist",
    "node_modules",
    "target",
    "tollgate-tls",
    "__pycache__",
];
/// Endings of the names of such folders.
const MADE_ENDINGS: [&str; 1] = [".egg-info"];
const CARGO: &str = ".cargo";
/// Files that mark a folder as the work of a tool: a cache, and a virtual environment of Python.
const MARKS: [&str; 2] = ["CACHEDIR.TAG", "pyvenv.cfg"];
/// The folder that setuptools builds in, beside this file.
const SETUPTOOLS: (&str, &str) = ("build", "pyproject.toml");
/// Files that are about the component and not a part of it.
const ABOUT: [&str; 1] = ["tollgate.yaml"];
const ABOUT_ENDINGS: [&str; 6] = [
    ".log",
    ".test.yaml",
    ".test.yml",
    ".snapshot.yaml",
    ".snapshot.yml",
    "~",
];
/// Files that a build may write itself.
const LOCKS: [&str; 3] = ["Cargo.lock", "package-lock.json", "go.sum"];
/// The hash of a file that changed while it was built from. It equals no hash, so the component counts as stale.
const CHANGED_MEANWHILE: &str = "changed during the build";
const CHUNK_BYTES: usize = 64 << 10;

/// The sources of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sources {
    /// The project's folder.
    pub(super) folder: PathBuf,
    /// Files and folders outside the project's folder that its build reads.
    pub(super) outside: Vec<PathBuf>,
    /// Keys of files in the folder that are no sources: results that a command wrote, and the files of suites.
    pub(super) apart: BTreeSet<String>,
}

/// SHA-256 of each source. The keys are paths in the project's folder, and absolute paths outside it.
pub(crate) type Hashes = BTreeMap<String, String>;

// === impl Sources ===

impl Sources {
    /// Returns the sources of a project that reads nothing outside its folder.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            ..Self::default()
        }
    }

    /// Lists the sources by their keys. A file or folder that does not exist is left out.
    pub(crate) fn files(&self) -> BTreeMap<String, PathBuf> {
        let mut files = BTreeMap::new();
        let inside = |path: &Path| {
            let relative = path.strip_prefix(&self.folder).unwrap_or(path);
            relative.to_string_lossy().into_owned()
        };
        walk(&self.folder, &mut |path| {
            let key = inside(&path);
            if !self.apart.contains(&key) {
                files.insert(key, path);
            }
        });
        for root in &self.outside {
            let mut add = |path: PathBuf| {
                files.insert(path.to_string_lossy().into_owned(), path);
            };
            match root.is_dir() {
                true => walk(root, &mut add),
                false if root.is_file() => add(root.clone()),
                false => {}
            }
        }
        files
    }

    /// Returns whether a build may write the file itself.
    pub(crate) fn is_lock(path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default();
        LOCKS.iter().any(|lock| name == *lock)
    }

    pub(crate) fn hashes(&self) -> anyhow::Result<Hashes> {
        let mut hashes = Hashes::new();
        for (key, path) in self.files() {
            if let Some(hash) = hash_of(&path)? {
                hashes.insert(key, hash);
            }
        }
        Ok(hashes)
    }

    /// Completes the hashes that were taken of the folder when a build began.
    ///
    /// The files outside the folder are known only now. One that changed since then counts as changed. Lock files are
    /// hashed again, because the build may have apart them.
    pub(super) fn complete(&self, mut begun: Hashes, began: SystemTime) -> anyhow::Result<Hashes> {
        for (key, path) in self.files() {
            let is_lock = Self::is_lock(&path);
            let is_outside = Path::new(&key).is_absolute();
            if !is_lock && !is_outside {
                continue;
            }
            let modified = std::fs::metadata(&path).and_then(|metadata| metadata.modified());
            let hash = match modified {
                Ok(modified) if modified >= began && !is_lock => Some(CHANGED_MEANWHILE.to_owned()),
                _ => hash_of(&path)?,
            };
            begun.extend(hash.map(|hash| (key, hash)));
        }
        Ok(begun)
    }
}

/// Returns the keys that differ: changed, new and removed sources.
pub(super) fn differences(before: &Hashes, now: &Hashes) -> Vec<String> {
    let keys: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let differing = keys
        .into_iter()
        .filter(|key| before.get(*key) != now.get(*key));
    differing.cloned().collect()
}

/// Returns the key of a file in a folder. A file elsewhere has none.
pub(super) fn key_in(folder: &Path, file: &Path) -> Option<String> {
    let parent = file
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = std::fs::canonicalize(parent.unwrap_or(Path::new("."))).ok()?;
    let file = parent.join(file.file_name()?);
    let folder = std::fs::canonicalize(folder).ok()?;
    let relative = file.strip_prefix(folder).ok()?;
    Some(relative.to_string_lossy().into_owned())
}

/// Returns the SHA-256 of a file, or none if the file does not exist any more.
pub(super) fn hash_of(path: &Path) -> anyhow::Result<Option<String>> {
    let cannot = || format!("cannot read {}", path.display());
    let mut file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(cannot),
    };
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = file.read(&mut chunk).with_context(cannot)?;
        if read == 0 {
            return Ok(Some(format!("{:x}", hash.finalize())));
        }
        hash.update(&chunk[..read]);
    }
}

/// Calls `add` with each source below a folder. A folder that cannot be read has none, and the build says why.
fn walk(folder: &Path, add: &mut impl FnMut(PathBuf)) {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    for entry in entries.filter_map(Result::ok) {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        // Links to folders are not followed, because they may lead back here.
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder {
            if !is_made(folder, &path, &name) {
                walk(&path, add);
            }
        } else if !is_about(&name) && path.is_file() {
            add(path);
        }
    }
}

fn is_made(parent: &Path, folder: &Path, name: &str) -> bool {
    let (build, manifest) = SETUPTOOLS;
    (name.starts_with('.') && name != CARGO)
        || MADE.contains(&name)
        || MADE_ENDINGS.iter().any(|ending| name.ends_with(ending))
        || (name == build && parent.join(manifest).is_file())
        || MARKS.iter().any(|mark| folder.join(mark).is_file())
}

fn is_about(name: &str) -> bool {
    name.starts_with('.')
        || ABOUT.contains(&name)
        || ABOUT_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn write(folder: &Path, files: &[&str]) {
        for file in files {
            let path = folder.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file).unwrap();
        }
    }

    #[test]
    fn leaves_out_what_tools_wrote_and_what_is_about_the_component() {
        let folder = tempfile::tempdir().unwrap();
        write(
            folder.path(),
            &[
                "Cargo.toml",
                "src/lib.rs",
                "src/list.json",
                ".cargo/config.toml",
                "sdk/build/build.js",
                "policy.test.yaml",
                "policy.snapshot.yaml",
                "tollgate.yaml",
                "src/lib.rs~",
                "test.log",
                ".src.swp",
                ".git/HEAD",
                "dist/x.wasm",
                "target/debug/x",
                "node_modules/x/index.js",
                "env/pyvenv.cfg",
                "env/lib/x.py",
                "python/pyproject.toml",
                "python/build/lib/x.py",
                "python/x.egg-info/PKG-INFO",
                "results.json",
            ],
        );
        let mut sources = Sources::in_folder(folder.path());
        sources.apart.insert("results.json".to_owned());
        let files: Vec<String> = sources.files().into_keys().collect();
        assert_eq!(
            files,
            [
                ".cargo/config.toml",
                "Cargo.toml",
                "python/pyproject.toml",
                "sdk/build/build.js",
                "src/lib.rs",
                "src/list.json",
            ]
        );
    }

    #[test]
    fn names_changed_new_and_removed_sources() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &["a", "b", "c"]);
        let before = Sources::in_folder(folder.path()).hashes().unwrap();
        assert!(
            differences(
                &before,
                &Sources::in_folder(folder.path()).hashes().unwrap()
            )
            .is_empty()
        );
        std::fs::write(folder.path().join("a"), "other").unwrap();
        std::fs::remove_file(folder.path().join("b")).unwrap();
        write(folder.path(), &["d"]);
        let now = Sources::in_folder(folder.path()).hashes().unwrap();
        assert_eq!(differences(&before, &now), ["a", "b", "d"]);
    }

    #[test]
    fn only_lock_files_may_change_during_a_build() {
        let (folder, clone) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(folder.path(), &["policy.c", "Cargo.lock"]);
        write(clone.path(), &["before.h", "after.h"]);
        let mut sources = Sources::in_folder(folder.path());
        let begun = sources.hashes().unwrap();
        let began = SystemTime::now() - Duration::from_secs(60);
        let earlier = std::fs::File::open(clone.path().join("before.h")).unwrap();
        earlier
            .set_modified(began - Duration::from_secs(60))
            .unwrap();
        for file in ["policy.c", "Cargo.lock", "new.c"] {
            std::fs::write(folder.path().join(file), "changed").unwrap();
        }
        sources.outside = vec![clone.path().to_owned()];
        let built = sources.complete(begun, began).unwrap();
        let changed = differences(&built, &sources.hashes().unwrap());
        let after = clone.path().join("after.h").display().to_string();
        assert_eq!(changed, [after.as_str(), "new.c", "policy.c"]);
    }

    #[test]
    fn keys_are_paths_in_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &["ci/old.xml"]);
        let key = |file: &str| key_in(folder.path(), &folder.path().join(file));
        assert_eq!(key("ci/new.xml").as_deref(), Some("ci/new.xml"));
        assert_eq!(key("../new.xml"), None);
    }
}
