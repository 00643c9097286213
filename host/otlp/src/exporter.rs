//! Takes items off the request path, and exports them on one thread.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tollgate_config::CollectorConfig;
use tollgate_telemetry::metrics::{ExportDrop, Metrics};

use crate::message::{Record, Resource};
use crate::sender::{SendError, Sender};

/// Something to export: one record, or several.
pub trait Item: Send + 'static {
    /// The records of the signal.
    type Record: Record;

    /// The number of records.
    fn count(&self) -> u64;

    /// The memory that the item takes, in bytes. This is an estimate.
    fn bytes(&self) -> u64;

    /// Adds the records. Called on the exporter's thread.
    fn write(self, records: &mut Vec<Self::Record>);
}

/// The system has no thread left.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the thread that exports {signal} (telemetry.{signal})")]
pub struct StartError {
    signal: &'static str,
    source: io::Error,
}

/// Exports items on a separate thread. Never waits for that thread.
pub struct Exporter<T: Item> {
    queue: Arc<Queue<T>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The items that wait.
struct Queue<T> {
    waiting: Mutex<Vec<T>>,
    /// The memory of the items that wait or are being sent.
    bytes: AtomicU64,
    max_bytes: u64,
    /// Wakes the thread before its next turn, when the queue is half full.
    crowded: Notify,
    ending: CancellationToken,
    metrics: Arc<Metrics>,
}

/// The state of the thread.
struct Worker<T: Item> {
    queue: Arc<Queue<T>>,
    sender: Sender,
    resource: Resource,
    /// When the log last said that the collector does not take anything.
    reported: Option<Instant>,
}

/// How long an item waits at most before the thread takes it.
const PERIOD: Duration = Duration::from_secs(1);
/// Maximum number of records in a request, as in OpenTelemetry's SDKs.
const BATCH_RECORDS: usize = 512;
/// Maximum memory of the items in a request. A request is smaller than its items. Collectors take 20 MiB by default.
const BATCH_BYTES: u64 = 4 << 20;
/// Number of attempts to send a request.
const ATTEMPTS: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause before an attempt, whatever the collector asks for.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How often the log says that a collector does not take anything.
const REPEAT: Duration = Duration::from_secs(60);
/// How often the end of the process looks whether the thread has ended.
const PAUSE: Duration = Duration::from_millis(5);

// === impl Exporter ===

impl<T: Item> Exporter<T> {
    /// Starts the thread. The collector need not be there yet.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn start(
        collector: CollectorConfig,
        resource: Resource,
        metrics: Arc<Metrics>,
    ) -> Result<Self, StartError> {
        let signal = T::Record::SIGNAL;
        let failed = |source| StartError { signal, source };
        let queue = Arc::new(Queue {
            waiting: Mutex::new(Vec::new()),
            bytes: AtomicU64::new(0),
            max_bytes: collector.max_queue_bytes,
            crowded: Notify::new(),
            ending: CancellationToken::new(),
            metrics,
        });
        let worker = Worker {
            queue: queue.clone(),
            sender: Sender::new(collector),
            resource,
            reported: None,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let thread = std::thread::Builder::new()
            .name(format!("tollgate-{signal}"))
            .spawn(move || runtime.block_on(worker.run()))
            .map_err(failed)?;
        Ok(Self {
            queue,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Takes an item if there is room, and counts its records as dropped otherwise. Never waits for the collector.
    pub fn offer(&self, item: T) {
        self.queue.offer(item);
    }

    /// Exports everything that waits, with one attempt for each request, and ends the thread. Gives up after `patience`,
    /// and returns false then.
    pub fn finish(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        self.queue.ending.cancel();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(thread) = thread else {
            return true;
        };
        while !thread.is_finished() {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        thread.join().is_ok()
    }
}

// === impl Queue ===

impl<T: Item> Queue<T> {
    fn offer(&self, item: T) {
        let bytes = item.bytes();
        let reserved = self
            .bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
                let held = held.saturating_add(bytes);
                (held <= self.max_bytes).then_some(held)
            });
        let Ok(before) = reserved else {
            return self.dropped(ExportDrop::Queue, item.count());
        };
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(item);
        let half = self.max_bytes / 2;
        if before < half && before + bytes >= half {
            self.crowded.notify_one();
        }
    }

    fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn dropped(&self, reason: ExportDrop, records: u64) {
        self.metrics
            .export_dropped(T::Record::SIGNAL, reason, records);
    }
}

// === impl Worker ===

impl<T: Item> Worker<T> {
    async fn run(mut self) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => {}
                () = self.queue.crowded.notified() => {}
                () = self.queue.ending.cancelled() => {}
            }
            // Read before the items are taken, so that none of them is left behind.
            let is_last = self.queue.ending.is_cancelled();
            self.export(self.queue.take()).await;
            if is_last {
                return;
            }
        }
    }

    async fn export(&mut self, items: Vec<T>) {
        let mut records = Vec::new();
        let mut bytes = 0;
        for item in items {
            bytes += item.bytes();
            item.write(&mut records);
            if records.len() >= BATCH_RECORDS || bytes >= BATCH_BYTES {
                self.send(std::mem::take(&mut records)).await;
                self.release(std::mem::take(&mut bytes));
            }
        }
        if !records.is_empty() {
            self.send(records).await;
        }
        self.release(bytes);
    }

    fn release(&self, bytes: u64) {
        self.queue.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Sends a request, and counts what became of its records.
    async fn send(&mut self, records: Vec<T::Record>) {
        let count = records.len() as u64;
        let body = T::Record::request(&self.resource, records);
        match self.attempt(body).await {
            Ok(rejected) => {
                let rejected = rejected.min(count);
                if rejected > 0 {
                    self.queue.dropped(ExportDrop::Rejected, rejected);
                }
                self.reported = None;
                let accepted = count - rejected;
                self.queue.metrics.exported(T::Record::SIGNAL, accepted);
            }
            Err(error) => {
                self.queue.dropped(ExportDrop::Failed, count);
                self.report(&error);
            }
        }
    }

    /// Sends a body, and tries again where that may help. Returns the number of rejected records.
    async fn attempt(&mut self, body: Vec<u8>) -> Result<u64, SendError> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..ATTEMPTS {
            let error = match self.sender.send(body.clone()).await {
                Ok(accepted) => return Ok(accepted.rejected),
                Err(error) => error,
            };
            let is_ending = self.queue.ending.is_cancelled();
            if !error.is_temporary() || is_ending {
                return Err(error);
            }
            let asked = error.retry_after().unwrap_or(pause);
            tokio::select! {
                () = tokio::time::sleep(asked.min(LONGEST_PAUSE)) => {}
                () = self.queue.ending.cancelled() => {}
            }
            pause *= 2;
        }
        Ok(self.sender.send(body).await?.rejected)
    }

    fn report(&mut self, error: &SendError) {
        if self.reported.is_some_and(|last| last.elapsed() < REPEAT) {
            return;
        }
        self.reported = Some(Instant::now());
        let signal = T::Record::SIGNAL;
        let setting = format!("telemetry.{signal}");
        tracing::warn!(
            setting,
            endpoint = self.sender.collector().endpoint,
            error = error as &dyn std::error::Error,
            "cannot export {signal}; reviews are answered, but this part of their {signal} is lost"
        );
    }
}

#[cfg(test)]
mod tests;
