//! Writes segments, and deletes the oldest ones.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ring::rand::{SecureRandom as _, SystemRandom};
use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

use crate::format::{Header, Origin, PluginSetNote, Record};

/// The ending of a segment's name.
pub(crate) const ENDING: &str = ".jsonl.zst";
/// A block of this size is compressed and written. Larger blocks compress better, and a crash loses more.
const BLOCK_BYTES: usize = 512 * 1024;
/// zstd's level. Level 3 compresses some hundreds of megabytes per second.
const LEVEL: i32 = 3;
/// The ring has about this many segments. Its size therefore varies by this share when the oldest one is deleted.
const SEGMENTS: u64 = 16;
/// Maximum size of a segment, so that it can be copied and read alone.
const LARGEST_SEGMENT_BYTES: u64 = 64 << 20;
const SMALLEST_SEGMENT_BYTES: u64 = 64 << 10;

/// Settings of a ring.
#[derive(Clone, Debug)]
pub struct RingOptions {
    /// Maximum size of all segments in the folder together.
    pub max_bytes: u64,
    /// The source of the reviews.
    pub origin: Origin,
    /// The version of the program.
    pub host: String,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The reviews that are in the folder now.
    pub reviews: u64,
    /// The bytes that were written for them.
    pub bytes: u64,
}

/// A folder of segments with a bounded size.
pub struct Ring {
    folder: PathBuf,
    options: RingOptions,
    id: String,
    number: u64,
    compressor: Compressor<'static>,
    current: Option<Segment>,
    /// Lines that are not written yet, and the reviews among them.
    block: Vec<u8>,
    waiting: u64,
    /// Closed segments, the oldest first, also those of earlier recordings.
    closed: VecDeque<(PathBuf, u64)>,
    sets: Vec<PluginSetNote>,
}

struct Segment {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// The plugin sets that the segment has, by their index.
    sets: BTreeMap<usize, u64>,
}

// === impl Ring ===

impl Ring {
    /// Opens a folder for a new recording, and creates it for this user alone if it does not exist. Segments of earlier
    /// recordings count towards the size, and are deleted first.
    ///
    /// # Errors
    /// When the folder cannot be created, read or written.
    ///
    /// # Panics
    /// When the system has no random numbers.
    pub fn open(folder: &Path, options: RingOptions) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let mut id = [0; 8];
        SystemRandom::new()
            .fill(&mut id)
            .expect("the system has random numbers");
        let mut compressor = Compressor::new(LEVEL)?;
        compressor.set_parameter(CParameter::ChecksumFlag(true))?;
        let mut closed = Vec::new();
        for path in segments(folder)? {
            let bytes = std::fs::metadata(&path)?.len();
            closed.push((path, bytes));
        }
        let mut ring = Self {
            folder: folder.to_owned(),
            options,
            id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
            number: 0,
            compressor,
            current: None,
            block: Vec::new(),
            waiting: 0,
            closed: closed.into(),
            sets: Vec::new(),
        };
        // Begins the first segment, so that a folder that cannot be written is found at once.
        ring.begin()?;
        Ok(ring)
    }

    /// Adds a review. It is written with the next full block, or by [`Ring::flush`].
    ///
    /// # Errors
    /// When a block cannot be written. Its reviews are lost, and the recording continues with the next block.
    pub fn add(&mut self, mut record: Record, set: Option<&PluginSetNote>) -> io::Result<Written> {
        record.set = match set {
            Some(set) => Some(self.set(set)?),
            None => None,
        };
        self.block.extend_from_slice(&record.to_line());
        self.waiting += 1;
        if self.block.len() >= BLOCK_BYTES {
            return self.flush();
        }
        Ok(Written::default())
    }

    /// Returns the number of reviews that wait for the next write.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// When it cannot be written. The reviews are lost, and the recording continues with the next block.
    pub fn flush(&mut self) -> io::Result<Written> {
        let reviews = std::mem::take(&mut self.waiting);
        if self.block.is_empty() {
            return Ok(Written::default());
        }
        let block = std::mem::take(&mut self.block);
        let result = self.write(&block);
        self.block = block;
        self.block.clear();
        // One large review must not keep its memory.
        self.block.shrink_to(2 * BLOCK_BYTES);
        match result {
            Ok(bytes) => Ok(Written { reviews, bytes }),
            Err(error) => {
                // The block may have had the lines of plugin sets, so they are written again.
                if let Some(current) = &mut self.current {
                    current.sets.clear();
                }
                Err(error)
            }
        }
    }

    /// Returns the number of a plugin set in the current segment, and adds the set if the segment lacks it.
    fn set(&mut self, set: &PluginSetNote) -> io::Result<u64> {
        let known = self.sets.iter().position(|known| known == set);
        let index = known.unwrap_or_else(|| {
            self.sets.push(set.clone());
            self.sets.len() - 1
        });
        let current = match self.current.take() {
            Some(current) => self.current.insert(current),
            None => self.begin()?,
        };
        if let Some(number) = current.sets.get(&index) {
            return Ok(*number);
        }
        let number = current.sets.len() as u64 + 1;
        current.sets.insert(index, number);
        self.block.extend_from_slice(&set.to_line(number));
        Ok(number)
    }

    fn write(&mut self, block: &[u8]) -> io::Result<u64> {
        let frame = self.compressor.compress(block)?;
        let bytes = frame.len() as u64;
        if self.current.is_none() {
            self.begin()?;
        }
        self.make_room(bytes)?;
        let Some(current) = &mut self.current else {
            return Ok(0);
        };
        if let Err(error) = current.file.write_all(&frame) {
            // Readers stop at half a frame, so it must not stay in front of others.
            let file = &mut current.file;
            let undone = file.set_len(current.bytes).and_then(|()| {
                let end = SeekFrom::Start(current.bytes);
                file.seek(end)
            });
            if undone.is_err() {
                self.close();
            }
            return Err(error);
        }
        current.bytes += bytes;
        if current.bytes >= segment_bytes(self.options.max_bytes) {
            self.close();
        }
        Ok(bytes)
    }

    /// Begins a segment with its header.
    fn begin(&mut self) -> io::Result<&mut Segment> {
        self.number += 1;
        let started = SystemTime::now();
        let since = started.duration_since(SystemTime::UNIX_EPOCH);
        let milliseconds = since.map_or(0, |since| since.as_millis());
        // Names sort by time, and within a recording by number.
        let name = format!("{milliseconds:014}-{}-{:06}{ENDING}", self.id, self.number);
        let header = Header {
            recording: self.id.clone(),
            segment: self.number,
            started,
            host: self.options.host.clone(),
            origin: self.options.origin,
        };
        let frame = self.compressor.compress(&header.to_line())?;
        let path = self.folder.join(name);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        if let Err(error) = file.write_all(&frame) {
            // On a full disk, every attempt would leave a file.
            let _: io::Result<()> = std::fs::remove_file(&path);
            return Err(error);
        }
        Ok(self.current.insert(Segment {
            path,
            file,
            bytes: frame.len() as u64,
            sets: BTreeMap::new(),
        }))
    }

    fn close(&mut self) {
        if let Some(segment) = self.current.take() {
            self.closed.push_back((segment.path, segment.bytes));
        }
    }

    /// Deletes the oldest segments until `bytes` more fit.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        let current = self.current.as_ref().map_or(0, |segment| segment.bytes);
        if current + bytes > self.options.max_bytes {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "the reviews do not fit into the size of the recording",
            ));
        }
        let mut total = current + self.closed.iter().map(|(_, bytes)| bytes).sum::<u64>();
        while total + bytes > self.options.max_bytes {
            let Some((path, freed)) = self.closed.pop_front() else {
                break;
            };
            match std::fs::remove_file(&path) {
                Ok(()) => {}
                // Somebody else may delete segments, too.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    self.closed.push_front((path, freed));
                    return Err(error);
                }
            }
            total -= freed;
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Whoever wants to know about errors calls `flush` first.
        let _: io::Result<Written> = self.flush();
    }
}

fn segment_bytes(max_bytes: u64) -> u64 {
    (max_bytes / SEGMENTS).clamp(SMALLEST_SEGMENT_BYTES, LARGEST_SEGMENT_BYTES)
}

/// Lists the segments in a folder, the oldest first.
pub(crate) fn segments(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(ENDING) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}
