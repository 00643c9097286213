//! Takes reviews off the request path, and writes them on one thread.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use tollgate_json::document::parse_up_to;

use crate::format::{CallNote, Endpoint, PluginSetNote, Record};
use crate::redact::{PatternError, Redactor};
use crate::segment::{Ring, RingOptions, Written};

/// A review that was answered.
#[derive(Clone, Debug)]
pub struct Captured {
    /// When the review came.
    pub time: SystemTime,
    /// The endpoint that it came to.
    pub endpoint: Endpoint,
    /// The plugin that the path named, if it named one.
    pub only: Option<String>,
    /// The plugins that answered.
    pub set: Arc<PluginSetNote>,
    /// The plugins that were called.
    pub calls: Vec<CallNote>,
    /// The AdmissionReview as it came.
    pub body: Vec<u8>,
    /// The AdmissionReview that was sent.
    pub answer: Vec<u8>,
}

/// Settings of a recorder.
#[derive(Clone, Debug)]
pub struct RecorderOptions {
    /// The folder, its size, and the source of the reviews.
    pub ring: RingOptions,
    /// Maximum size of the reviews that wait to be written.
    pub max_queue_bytes: u64,
    /// Further confidential places in objects.
    pub redact: Vec<String>,
}

/// Why a review is missing in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Too much was waiting to be written.
    Queue,
    /// The review could not be read, and so not be redacted.
    Unreadable,
    /// The folder could not be written.
    Write,
}

/// Counts what a recorder does.
pub trait Observer: Send + Sync + 'static {
    /// Reviews were written, with their compressed size.
    fn written(&self, written: Written);
    /// Reviews were dropped.
    fn dropped(&self, reason: DropReason, reviews: u64);
    /// The folder cannot be written. Called once when it begins, and every minute while it lasts.
    fn failed(&self, folder: &Path, error: &io::Error);
}

/// A recorder cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A configured place is not a JSON Pointer.
    #[error("cannot use a place of record.redact")]
    Pattern(#[from] PatternError),
    /// The folder cannot be used.
    #[error("cannot write recordings to {} (record.directory)", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The error from the system.
        source: io::Error,
    },
    /// The system has no thread left.
    #[error("cannot start the thread that writes recordings")]
    Thread(#[source] io::Error),
}

/// Writes reviews on a separate thread. Never waits for that thread.
pub struct Recorder {
    sender: SyncSender<Message>,
    queued_bytes: Arc<AtomicU64>,
    max_queue_bytes: u64,
    redactor: Arc<Redactor>,
    observer: Arc<dyn Observer>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

enum Message {
    Review(Box<Captured>),
    End,
}

/// The state of the thread.
struct Writer {
    ring: Ring,
    folder: PathBuf,
    redactor: Arc<Redactor>,
    observer: Arc<dyn Observer>,
    last_failure: Option<Instant>,
}

/// Maximum number of reviews that wait. Their bytes are limited, too.
const MOST_QUEUED: usize = 16 * 1024;
/// Memory of a review in the queue, in addition to its texts.
const ENTRY_BYTES: u64 = 512;
/// A review is in the folder after this time, even if the block is not full.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// How often the thread says again that it cannot write.
const REPEAT: Duration = Duration::from_secs(60);
/// How long the end of the process waits for the thread.
const PAUSE: Duration = Duration::from_millis(5);
/// Maximum nesting of a review, above the largest `requests.maxDepth`.
const MAX_DEPTH: u32 = 600;
/// Maximum number of values of a review. Its tree takes some tens of megabytes then.
const MAX_VALUES: u32 = 400_000;

// === impl Recorder ===

impl Recorder {
    /// Opens the folder and starts the thread.
    ///
    /// # Errors
    /// When the folder cannot be written, or a place is not a JSON Pointer.
    pub fn start(
        folder: &Path,
        options: RecorderOptions,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, StartError> {
        let redactor = Arc::new(Redactor::new(&options.redact)?);
        let ring = Ring::open(folder, options.ring).map_err(|source| StartError::Folder {
            folder: folder.to_owned(),
            source,
        })?;
        let (sender, receiver) = sync_channel(MOST_QUEUED);
        let queued_bytes = Arc::new(AtomicU64::new(0));
        let writer = Writer {
            ring,
            folder: folder.to_owned(),
            redactor: redactor.clone(),
            observer: observer.clone(),
            last_failure: None,
        };
        let thread = std::thread::Builder::new()
            .name("tollgate-record".to_owned())
            .spawn({
                let queued_bytes = queued_bytes.clone();
                move || writer.run(&receiver, &queued_bytes)
            })
            .map_err(StartError::Thread)?;
        Ok(Self {
            sender,
            queued_bytes,
            max_queue_bytes: options.max_queue_bytes,
            redactor,
            observer,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Returns the keyed hash of some bytes.
    #[must_use]
    pub fn hash(&self, bytes: &[u8]) -> String {
        self.redactor.hash(bytes)
    }

    /// Counts a review that cannot be recorded.
    pub fn drop_review(&self, reason: DropReason) {
        self.observer.dropped(reason, 1);
    }

    /// Takes a review of `bytes` bytes if there is room, and counts it as dropped otherwise. `capture` is called only if
    /// there is room. Never blocks.
    pub fn offer(&self, bytes: usize, capture: impl FnOnce() -> Captured) {
        let bytes = bytes as u64 + ENTRY_BYTES;
        let reserved =
            self.queued_bytes
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |queued| {
                    let queued = queued.saturating_add(bytes);
                    (queued <= self.max_queue_bytes).then_some(queued)
                });
        if reserved.is_err() {
            return self.observer.dropped(DropReason::Queue, 1);
        }
        match self.sender.try_send(Message::Review(Box::new(capture()))) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
                self.observer.dropped(DropReason::Queue, 1);
            }
        }
    }

    /// Writes everything that waits, and ends the thread. Gives up after `patience`, and returns false then.
    pub fn finish(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(thread) = thread else {
            return true;
        };
        let mut is_told = false;
        while Instant::now() < until {
            is_told = is_told || self.sender.try_send(Message::End).is_ok();
            if thread.is_finished() {
                return thread.join().is_ok();
            }
            std::thread::sleep(PAUSE);
        }
        false
    }
}

// === impl Captured ===

impl Captured {
    /// The memory that the review is charged for in the queue.
    fn bytes(&self) -> u64 {
        (self.body.len() + self.answer.len()) as u64 + ENTRY_BYTES
    }
}

// === impl Writer ===

impl Writer {
    fn run(mut self, receiver: &Receiver<Message>, queued_bytes: &AtomicU64) {
        let mut flushed = Instant::now();
        loop {
            match receiver.recv_timeout(LONGEST_WAIT.saturating_sub(flushed.elapsed())) {
                Ok(Message::Review(captured)) => {
                    let bytes = captured.bytes();
                    self.add(*captured);
                    queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => {
                    let waiting = self.ring.waiting();
                    let result = self.ring.flush();
                    return self.count(result, waiting);
                }
            }
            if flushed.elapsed() >= LONGEST_WAIT {
                let waiting = self.ring.waiting();
                let result = self.ring.flush();
                self.count(result, waiting);
                flushed = Instant::now();
            }
        }
    }

    fn add(&mut self, captured: Captured) {
        let parsed = [&captured.body, &captured.answer]
            .map(|text| parse_up_to(text, MAX_DEPTH, MAX_VALUES).ok());
        let redacted = match &parsed {
            [Some(review), Some(answer)] => {
                let response = answer.member("response");
                response.and_then(|response| self.redactor.redact(review, response))
            }
            _ => None,
        };
        let Some(redacted) = redacted else {
            return self.observer.dropped(DropReason::Unreadable, 1);
        };
        let record = Record {
            time: captured.time,
            endpoint: captured.endpoint,
            only: captured.only,
            set: None,
            calls: captured.calls,
            answer: redacted.answer,
            review: redacted.review,
        };
        let waiting = self.ring.waiting() + 1;
        let result = self.ring.add(record, Some(&captured.set));
        self.count(result, waiting);
    }

    /// Counts the result of a write, when `waiting` reviews waited for it.
    fn count(&mut self, result: io::Result<Written>, waiting: u64) {
        match result {
            Ok(Written { reviews: 0, .. }) => {}
            Ok(written) => {
                self.last_failure = None;
                self.observer.written(written);
            }
            Err(error) => {
                let lost = waiting - self.ring.waiting().min(waiting);
                self.observer.dropped(DropReason::Write, lost);
                let is_new = self.last_failure.is_none_or(|last| last.elapsed() > REPEAT);
                if is_new {
                    self.last_failure = Some(Instant::now());
                    self.observer.failed(&self.folder, &error);
                }
            }
        }
    }
}

// === impl DropReason ===

impl DropReason {
    /// Every reason.
    pub const ALL: [Self; 3] = [Self::Queue, Self::Unreadable, Self::Write];

    /// Returns the word for metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Unreadable => "unreadable",
            Self::Write => "write",
        }
    }
}

#[cfg(test)]
mod tests;
