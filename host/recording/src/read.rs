//! Reads the segments of a recording.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zstd::stream::read::Decoder;

use crate::format::{FormatError, Header, Line, PluginSetNote, Record};
use crate::segment::{ENDING, segments};

/// The segments of one or more recordings, the oldest first.
#[derive(Clone, Debug)]
pub struct Recording {
    segments: Vec<PathBuf>,
}

/// A record with its place.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The position in the recording, from 1 on.
    pub number: u64,
    /// The header of its segment.
    pub header: Arc<Header>,
    /// The plugins that answered, if they are known.
    pub plugins: Option<Arc<PluginSetNote>>,
    /// The record.
    pub record: Record,
}

/// A segment that could not be read to its end. The records before that place are good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The segment.
    pub segment: PathBuf,
    /// Whether the segment just ends too early, as after a crash of the server.
    pub is_torn: bool,
    /// The problem.
    pub reason: String,
}

/// A path is not a recording.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// The error from the system.
        source: io::Error,
    },
    /// The folder has no segments.
    #[error("{} has no recording: expected files with names that end in {ENDING}", path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
    },
}

/// Reads the records of a recording one after the other.
pub struct Records {
    rest: VecDeque<PathBuf>,
    current: Option<Open>,
    number: u64,
    damages: Vec<Damage>,
}

struct Open {
    path: PathBuf,
    lines: BufReader<Decoder<'static, BufReader<File>>>,
    header: Option<Arc<Header>>,
    sets: HashMap<u64, Arc<PluginSetNote>>,
}

/// Why a segment ends.
enum End {
    /// The segment is complete.
    Complete,
    Damaged(io::Error),
    Invalid(FormatError),
    TooLong,
}

/// Maximum length of a line. A review has at most 1 GiB (`requests.maxBody`), and 40 MiB by default.
const LONGEST_LINE_BYTES: u64 = 256 << 20;
/// Base 2 logarithm of the memory that a frame may ask for.
const LARGEST_WINDOW: u32 = 27;

// === impl Recording ===

impl Recording {
    /// Finds the segments of a folder. The path can also be a single segment.
    ///
    /// # Errors
    /// When the path cannot be read, or the folder has no segments.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let unreadable = |source| OpenError::Read {
            path: path.to_owned(),
            source,
        };
        if !std::fs::metadata(path).map_err(unreadable)?.is_dir() {
            return Ok(Self {
                segments: vec![path.to_owned()],
            });
        }
        let segments = segments(path).map_err(unreadable)?;
        if segments.is_empty() {
            return Err(OpenError::Empty {
                path: path.to_owned(),
            });
        }
        Ok(Self { segments })
    }

    /// Returns the number of segments.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Returns the size of all segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let sizes = self.segments.iter().filter_map(|path| {
            let metadata = std::fs::metadata(path).ok()?;
            Some(metadata.len())
        });
        sizes.sum()
    }

    /// Reads the records from the beginning.
    #[must_use]
    pub fn records(&self) -> Records {
        Records {
            rest: self.segments.iter().cloned().collect(),
            current: None,
            number: 0,
            damages: Vec::new(),
        }
    }
}

// === impl Records ===

impl Records {
    /// Returns the segments that could not be read to their end so far.
    #[must_use]
    pub fn damages(&self) -> &[Damage] {
        &self.damages
    }

    fn open(&mut self, path: PathBuf) {
        let open = File::open(&path).and_then(|file| {
            let mut decoder = Decoder::with_buffer(BufReader::new(file))?;
            decoder.window_log_max(LARGEST_WINDOW)?;
            Ok(decoder)
        });
        match open {
            Ok(decoder) => {
                self.current = Some(Open {
                    path,
                    lines: BufReader::with_capacity(128 * 1024, decoder),
                    header: None,
                    sets: HashMap::new(),
                });
            }
            Err(error) => self.damages.push(Damage::new(path, &End::Damaged(error))),
        }
    }
}

impl Iterator for Records {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            let Some(open) = &mut self.current else {
                let path = self.rest.pop_front()?;
                self.open(path);
                continue;
            };
            match open.next(self.number + 1) {
                Ok(entry) => {
                    self.number = entry.number;
                    return Some(entry);
                }
                Err(end) => {
                    let path = self.current.take().map(|open| open.path);
                    if let (Some(path), false) = (path, matches!(end, End::Complete)) {
                        self.damages.push(Damage::new(path, &end));
                    }
                }
            }
        }
    }
}

// === impl Open ===

impl Open {
    /// Returns the next review, as the recording's number `number`.
    fn next(&mut self, number: u64) -> Result<Entry, End> {
        loop {
            let mut text = Vec::new();
            let read = (&mut self.lines)
                .take(LONGEST_LINE_BYTES)
                .read_until(b'\n', &mut text);
            match read {
                Ok(0) if self.header.is_some() => return Err(End::Complete),
                Ok(0) => return Err(End::Invalid(FormatError::NoHeader)),
                Ok(_) if text.last() == Some(&b'\n') => {}
                Ok(read) if read as u64 == LONGEST_LINE_BYTES => return Err(End::TooLong),
                Ok(_) => return Err(End::Damaged(io::ErrorKind::UnexpectedEof.into())),
                Err(error) => return Err(End::Damaged(error)),
            }
            match Line::parse(&text).map_err(End::Invalid)? {
                Line::Header(header) => self.header = Some(Arc::new(header)),
                _ if self.header.is_none() => return Err(End::Invalid(FormatError::NoHeader)),
                Line::Plugins(number, set) => {
                    self.sets.insert(number, Arc::new(set));
                }
                Line::Record(record) => {
                    let header = self.header.clone().ok_or(FormatError::NoHeader);
                    let plugins = record.set.and_then(|set| self.sets.get(&set).cloned());
                    return Ok(Entry {
                        number,
                        header: header.map_err(End::Invalid)?,
                        plugins,
                        record: *record,
                    });
                }
            }
        }
    }
}

// === impl Damage ===

impl Damage {
    fn new(segment: PathBuf, end: &End) -> Self {
        let is_torn =
            matches!(end, End::Damaged(error) if error.kind() == io::ErrorKind::UnexpectedEof);
        let reason = match end {
            End::Complete => String::new(),
            End::Damaged(_) if is_torn => "the segment ends in the middle of a block".to_owned(),
            End::Damaged(error) => format!("the segment is damaged: {error}"),
            End::Invalid(error) => error.to_string(),
            End::TooLong => format!("a line is longer than {LONGEST_LINE_BYTES} bytes"),
        };
        Self {
            segment,
            is_torn,
            reason,
        }
    }
}

#[cfg(test)]
mod tests;
