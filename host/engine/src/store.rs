//! Stores compiled code on disk under the digest of its content, and finds it again by the inputs that it was made
//! from.
//!
//! ```text
//! FOLDER/code/<sha256 of the code>       what is mapped and run
//! FOLDER/prepared/<sha256 of the inputs> which code that is, and what else is known of the plugin
//! ```
//!
//! Only the host writes here. The children that prepare plugins cannot open files at all.
//!
//! The host writes each file under a temporary name and then renames it. The host copies stored code before use,
//! compares the copy with its digest, and maps the copy, so nobody can change the code between check and use.

mod fill;
mod writing;

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use writing::Holes;
pub use writing::Writing;

/// Stores compiled code in a folder that belongs to this user.
#[derive(Debug)]
pub struct Store {
    code: PathBuf,
    prepared: PathBuf,
    limit_bytes: u64,
    /// Lets one thread at a time store code, so that none writes what another writes, or deletes it.
    storing: Mutex<()>,
}

/// The compiled code of a plugin, in parts.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The component.
    pub component: Arc<Code>,
    /// A module for each memory that the component imports.
    pub memories: Vec<Arc<Code>>,
}

/// Compiled code in its own file, compared with its digest.
#[derive(Debug)]
pub struct Code {
    file: NamedTempFile,
    digest: String,
    holes: Holes,
}

/// A digest of the inputs that code was prepared from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key(String);

#[derive(Deserialize, Serialize)]
struct Record<T> {
    /// The digests of the parts, with the component first.
    parts: Vec<String>,
    value: T,
}

/// Number of bytes that are read from a stored file at once.
const READ_AT_ONCE: usize = 64 << 10;
/// Prefix for the names of files that are being written.
const UNFINISHED: &str = ".new-";
/// Age after which an unfinished file counts as left by a killed process.
const ABANDONED: Duration = Duration::from_secs(3600);

// === impl Store ===

impl Store {
    /// Creates a store for at most `limit_bytes` of code. The folder must exist, and only this user may write to it.
    pub fn new(folder: &Path, limit_bytes: u64) -> Self {
        Self {
            code: folder.join("code"),
            prepared: folder.join("prepared"),
            limit_bytes,
            storing: Mutex::new(()),
        }
    }

    /// Begins to write code.
    pub fn write(&self) -> io::Result<Writing> {
        Ok(Writing::to(unfinished(&self.code)?))
    }

    /// Whether there is a record of code that was prepared from these inputs.
    pub fn has(&self, key: &Key) -> bool {
        self.prepared.join(&key.0).exists()
    }

    /// Finds the code that was prepared from these inputs. Damaged files are deleted and count as missing.
    pub fn recall<T: DeserializeOwned>(&self, key: &Key) -> Option<(T, Compiled)> {
        let path = self.prepared.join(&key.0);
        let text = fs::read(&path).ok()?;
        let recalled = match parse::<T>(&text) {
            Some(Record { parts, value }) => {
                let codes = parts.iter().map(|digest| self.code(digest));
                let codes = codes.collect::<io::Result<Vec<_>>>();
                codes.and_then(|codes| Ok((value, Compiled::of(codes)?)))
            }
            None => Err(io::ErrorKind::InvalidData.into()),
        };
        recalled
            .inspect_err(|error| {
                if error.kind() == io::ErrorKind::InvalidData {
                    let path = path.display();
                    tracing::warn!(%path, "deleted a damaged record of compiled code; preparing the plugin again");
                }
                let _: io::Result<()> = fs::remove_file(&path);
            })
            .ok()
    }

    /// Stores code that was just written, so that these inputs find it.
    pub fn keep<T: Serialize>(&self, key: &Key, value: &T, code: &Compiled) -> io::Result<()> {
        let _turn = self.storing.lock().unwrap_or_else(PoisonError::into_inner);
        for part in code.parts() {
            let path = self.code.join(&part.digest);
            if !path.exists() {
                // Store a copy: nothing that overwrites the stored file may reach the mapped file.
                let mut copy = self.write()?;
                copy.copy(part, part.bytes()?)?;
                copy.end()?.file.persist(&path)?;
            }
        }
        let record = Record {
            parts: code.parts().map(|part| part.digest.clone()).collect(),
            value,
        };
        let body = serde_json::to_vec(&record)?;
        let mut file = unfinished(&self.prepared)?;
        writeln!(file, "{:x}", Sha256::digest(&body))?;
        file.write_all(&body)?;
        file.persist(self.prepared.join(&key.0))?;
        let stored = code.parts().map(|part| self.code.join(&part.digest));
        self.prune(&stored.collect::<Vec<_>>())
    }

    /// Makes a private copy of stored code and compares it with its digest. Files with other content are deleted.
    fn code(&self, digest: &str) -> io::Result<Code> {
        if digest.len() != 64 || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let path = self.code.join(digest);
        let mut stored = File::open(&path)?;
        // Mark the file as used, so that used code is pruned last.
        let _: io::Result<()> = stored.set_modified(SystemTime::now());
        let mut copy = self.write()?;
        let mut buffer = vec![0; READ_AT_ONCE];
        loop {
            match stored.read(&mut buffer)? {
                0 => break,
                read => copy.write(&buffer[..read])?,
            }
        }
        let code = copy.end()?;
        if code.digest == digest {
            return Ok(code);
        }
        fs::remove_file(&path)?;
        Err(io::ErrorKind::InvalidData.into())
    }

    /// Deletes the least recently used code and its records, if the code exceeds the limit. Keeps the files of `stored`.
    fn prune(&self, stored: &[PathBuf]) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.code)?.filter_map(Result::ok) {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                if used.elapsed().is_ok_and(|age| age > ABANDONED) {
                    let _: io::Result<()> = fs::remove_file(entry.path());
                }
                continue;
            }
            files.push((used, metadata.len(), entry.path()));
        }
        let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        if bytes <= self.limit_bytes {
            return Ok(());
        }
        files.sort();
        // Keep the files that were just stored.
        for (_, size, path) in files.iter().filter(|(.., path)| !stored.contains(path)) {
            if bytes <= self.limit_bytes / 4 * 3 {
                break;
            }
            fs::remove_file(path)?;
            bytes -= size;
        }
        for entry in fs::read_dir(&self.prepared)?.filter_map(Result::ok) {
            let record = fs::read(entry.path()).ok();
            let record = record.and_then(|text| parse::<serde::de::IgnoredAny>(&text));
            let is_whole = record.is_some_and(|record| {
                let parts = record.parts.iter();
                parts
                    .map(|part| self.code.join(part))
                    .all(|part| part.exists())
            });
            if !is_whole {
                let _: io::Result<()> = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }
}

/// Parses a record. Its first line is the digest of the rest.
fn parse<T: DeserializeOwned>(text: &[u8]) -> Option<Record<T>> {
    let end = text.iter().position(|byte| *byte == b'\n')?;
    let (digest, body) = (&text[..end], &text[end + 1..]);
    if format!("{:x}", Sha256::digest(body)).as_bytes() != digest {
        return None;
    }
    serde_json::from_slice(body).ok()
}

/// Creates a file with a temporary name. Creates the folder if it is missing.
fn unfinished(folder: &Path) -> io::Result<NamedTempFile> {
    let make = || {
        tempfile::Builder::new()
            .prefix(UNFINISHED)
            .tempfile_in(folder)
    };
    match make() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
            make()
        }
        made => made,
    }
}

// === impl Compiled ===

impl Compiled {
    /// Puts parts together. The component is the first of them.
    pub fn of(parts: impl IntoIterator<Item = impl Into<Arc<Code>>>) -> io::Result<Self> {
        let mut parts = parts.into_iter().map(Into::into);
        let component = parts.next().ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self {
            component,
            memories: parts.collect(),
        })
    }

    /// All parts, with the component first.
    pub fn parts(&self) -> impl Iterator<Item = &Arc<Code>> {
        std::iter::once(&self.component).chain(&self.memories)
    }
}

impl From<Arc<Code>> for Compiled {
    fn from(component: Arc<Code>) -> Self {
        Self {
            component,
            memories: Vec::new(),
        }
    }
}

// === impl Code ===

impl Code {
    /// Path of the file. The file is deleted when this is dropped; parts that are mapped by then stay.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Digest of the code, by which code that is mapped already is found.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    /// Size of the code, in bytes.
    pub fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.as_file().metadata()?.len())
    }

    /// Reads up to `limit` bytes from `offset` on. At the end of the code, there are none.
    pub fn read(&self, offset: u64, limit: usize) -> io::Result<Vec<u8>> {
        let (bytes, is_hole) = self.holes.next(offset, limit);
        let mut piece = vec![0; bytes];
        if !is_hole {
            let read = self.file.as_file().read_at(&mut piece, offset)?;
            piece.truncate(read);
        }
        Ok(piece)
    }
}

// === impl Key ===

impl Key {
    /// Computes the key of a list of inputs; their order matters.
    pub fn of<'i>(inputs: impl IntoIterator<Item = &'i [u8]>) -> Self {
        let mut digest = Sha256::new();
        for input in inputs {
            // Hash the length too, so that no two lists of inputs give the same bytes.
            digest.update((input.len() as u64).to_le_bytes());
            digest.update(input);
        }
        Self(format!("{:x}", digest.finalize()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(limit_bytes: u64) -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path(), limit_bytes);
        (folder, store)
    }

    fn kept(store: &Store, key: &Key, content: &[u8]) -> Compiled {
        let mut writing = store.write().unwrap();
        writing.write(content).unwrap();
        let code = writing.end().unwrap();
        let code = Compiled::from(Arc::new(code));
        store.keep(key, &"value", &code).unwrap();
        code
    }

    fn recalled(store: &Store, key: &Key) -> Option<(String, Vec<u8>)> {
        let (value, code) = store.recall::<String>(key)?;
        assert!(code.memories.is_empty());
        Some((value, fs::read(code.component.path()).unwrap()))
    }

    #[test]
    fn finds_code_by_its_inputs() {
        let (_folder, store) = store(1 << 20);
        let key = Key::of([b"plugin".as_slice(), b"settings"]);
        let content = vec![7; 10_000];
        drop(kept(&store, &key, &content));
        assert_eq!(recalled(&store, &key), Some(("value".to_owned(), content)));
        assert_eq!(recalled(&store, &Key::of([b"other".as_slice()])), None);
        assert_ne!(
            Key::of([b"ab".as_slice(), b"c"]),
            Key::of([b"a".as_slice(), b"bc"])
        );
    }

    #[test]
    fn rejects_changed_code_and_records() {
        let (folder, store) = store(1 << 20);
        let key = Key::of([b"plugin".as_slice()]);
        for changed in ["code", "prepared"] {
            drop(kept(&store, &key, b"machine code"));
            let files = fs::read_dir(folder.path().join(changed)).unwrap();
            let file = files.last().unwrap().unwrap().path();
            let mut content = fs::read(&file).unwrap();
            let last = content.len() - 1;
            content[last] ^= 1;
            fs::write(&file, content).unwrap();
            assert_eq!(recalled(&store, &key), None, "{changed}");
            assert!(!file.exists(), "{changed}: the damaged file is still there");
        }
    }

    /// Code of a component and of a memory, stored under the key.
    fn kept_with_memory(store: &Store, key: &Key, memory: &[u8]) {
        let parts = [b"component".as_slice(), memory].map(|content| {
            let mut writing = store.write().unwrap();
            writing.write(content).unwrap();
            writing.end().unwrap()
        });
        store
            .keep(key, &"value", &Compiled::of(parts).unwrap())
            .unwrap();
    }

    fn memories(store: &Store, key: &Key) -> Option<Vec<Vec<u8>>> {
        let (_, code) = store.recall::<String>(key)?;
        let component = fs::read(code.component.path()).unwrap();
        assert_eq!(component, b"component");
        let memories = code.memories.iter();
        Some(
            memories
                .map(|code| fs::read(code.path()).unwrap())
                .collect(),
        )
    }

    #[test]
    fn finds_all_parts_of_code_or_none() {
        let (folder, store) = store(1 << 20);
        let keys = [b"one".as_slice(), b"two"].map(|name| Key::of([name]));
        for (key, memory) in keys.iter().zip([b"memory 1", b"memory 2"]) {
            kept_with_memory(&store, key, memory);
        }
        let files = || fs::read_dir(folder.path().join("code")).unwrap().count();
        assert_eq!(files(), 3, "the component is there once");
        assert_eq!(memories(&store, &keys[0]), Some(vec![b"memory 1".to_vec()]));
        for file in fs::read_dir(folder.path().join("code")).unwrap() {
            let file = file.unwrap().path();
            if fs::read(&file).unwrap() == b"memory 1" {
                fs::write(&file, b"memory 3").unwrap();
            }
        }
        assert_eq!(memories(&store, &keys[0]), None);
        assert_eq!(files(), 2, "the damaged part is gone");
        assert_eq!(memories(&store, &keys[1]), Some(vec![b"memory 2".to_vec()]));
    }

    #[test]
    fn keeps_all_parts_that_were_just_stored() {
        let (folder, store) = store(1000);
        let old = Key::of([b"old".as_slice()]);
        kept_with_memory(&store, &old, &[1; 900]);
        // A file that is not used for a while goes first.
        for file in fs::read_dir(folder.path().join("code")).unwrap() {
            let file = File::options().write(true).open(file.unwrap().path());
            let before = SystemTime::now() - Duration::from_secs(10);
            file.unwrap().set_modified(before).unwrap();
        }
        let new = Key::of([b"new".as_slice()]);
        kept_with_memory(&store, &new, &[2; 2000]);
        assert_eq!(memories(&store, &new), Some(vec![vec![2; 2000]]));
        assert_eq!(memories(&store, &old), None);
        assert_eq!(fs::read_dir(&store.prepared).unwrap().count(), 1);
    }

    #[test]
    fn rejects_record_that_points_outside_folder() {
        let (folder, store) = store(1 << 20);
        let key = Key::of([b"plugin".as_slice()]);
        drop(kept(&store, &key, b"machine code"));
        fs::write(folder.path().join("elsewhere"), b"machine code").unwrap();
        let body = br#"{"parts": ["../elsewhere"], "value": "value"}"#;
        let mut record = format!("{:x}\n", Sha256::digest(body)).into_bytes();
        record.extend_from_slice(body);
        fs::write(store.prepared.join(&key.0), record).unwrap();
        assert_eq!(recalled(&store, &key), None);
    }

    #[test]
    fn recalled_code_survives_change_of_stored_file() {
        let (folder, store) = store(1 << 20);
        let key = Key::of([b"plugin".as_slice()]);
        drop(kept(&store, &key, b"machine code"));
        let (_, code) = store.recall::<String>(&key).unwrap();
        for file in fs::read_dir(folder.path().join("code")).unwrap() {
            let path = file.unwrap().path();
            if path != code.component.path() {
                fs::write(&path, b"something else").unwrap();
            }
        }
        assert_eq!(fs::read(code.component.path()).unwrap(), b"machine code");
    }

    #[test]
    fn deletes_least_recently_used_code() {
        let (folder, store) = store(10_000);
        let key = |number: u8| Key::of([[number].as_slice()]);
        for number in 0..4 {
            drop(kept(&store, &key(number), &[number; 3000]));
            let name = recalled(&store, &key(number)).map(|_| ());
            assert!(name.is_some());
            // The clock of a file system may be coarse.
            for file in fs::read_dir(folder.path().join("code")).unwrap() {
                let file = File::options()
                    .write(true)
                    .open(file.unwrap().path())
                    .unwrap();
                let before = file.metadata().unwrap().modified().unwrap();
                file.set_modified(before - Duration::from_secs(10)).unwrap();
            }
        }
        assert_eq!(recalled(&store, &key(0)), None);
        assert_eq!(recalled(&store, &key(1)), None);
        assert!(recalled(&store, &key(3)).is_some());
        assert_eq!(fs::read_dir(&store.prepared).unwrap().count(), 2);
    }
}
