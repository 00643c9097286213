//! Looks at registries: one for equal questions, few at a time, on a thread of their own.
//!
//! The thread keeps the work of registries away from the threads that answer reviews. It also belongs to nobody: a
//! background scan and a review may wait for the same look.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::cache::Key;

/// The most looks that are under way or wait.
const MOST_WAITING: usize = 1_000;
/// The most looks at all registries at a time. Each of them may hold some megabytes.
const MOST_AT_A_TIME: usize = 32;
/// The most looks at one registry at a time, so that one that hangs stops no other.
const MOST_AT_A_REGISTRY: usize = 8;
/// The longest look, with its waiting.
const LONGEST: Duration = Duration::from_secs(30);

/// A look that several callers wait for.
pub(super) type Look = Shared<BoxFuture<'static, ()>>;

/// The looks that are under way.
pub(super) struct Looks {
    under_way: Arc<Mutex<HashMap<Key, Look>>>,
    at_a_time: Arc<Semaphore>,
    of_registries: Mutex<HashMap<Box<str>, Arc<Semaphore>>>,
    thread: OnceLock<Option<Thread>>,
}

/// The thread of the looks. It ends when this is dropped.
struct Thread {
    runtime: Handle,
    _stop: oneshot::Sender<()>,
}

/// Permission to ask a registry.
pub(super) struct Turn {
    _of_registry: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// Removes a look from the list when it ends, also when it is aborted.
struct UnderWay {
    all: Arc<Mutex<HashMap<Key, Look>>>,
    key: Key,
}

// === impl Looks ===

impl Looks {
    pub(super) fn new() -> Self {
        Self {
            under_way: Arc::default(),
            at_a_time: Arc::new(Semaphore::new(MOST_AT_A_TIME)),
            of_registries: Mutex::default(),
            thread: OnceLock::new(),
        }
    }

    /// Returns the look with this key that is under way, or begins one. None if too many wait, or if there is no thread.
    pub(super) fn at(
        &self,
        key: Key,
        look: impl FnOnce() -> BoxFuture<'static, ()>,
    ) -> Option<Look> {
        let mut under_way = self
            .under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(look) = under_way.get(&key) {
            return Some(look.clone());
        }
        if under_way.len() >= MOST_WAITING {
            return None;
        }
        let thread = self.thread.get_or_init(Thread::start).as_ref()?;
        let guard = UnderWay {
            all: self.under_way.clone(),
            key,
        };
        let look = look();
        let task = thread.runtime.spawn(async move {
            let _guard = guard;
            // A look that takes longer has no result, and its callers are told that the registry does not answer.
            let _ended = tokio::time::timeout(LONGEST, look).await;
        });
        let look = task.map(drop).boxed().shared();
        under_way.insert(key, look.clone());
        Some(look)
    }

    /// Waits until a registry may be asked.
    pub(super) async fn turn(&self, registry: &str) -> Option<Turn> {
        let own = {
            let mut all = self
                .of_registries
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let new = || Arc::new(Semaphore::new(MOST_AT_A_REGISTRY));
            all.entry(registry.into()).or_insert_with(new).clone()
        };
        Some(Turn {
            _of_registry: own.acquire_owned().await.ok()?,
            _of_all: self.at_a_time.clone().acquire_owned().await.ok()?,
        })
    }
}

impl fmt::Debug for Looks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Looks").finish_non_exhaustive()
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&self.key);
    }
}

// === impl Thread ===

impl Thread {
    /// Starts the thread. None if the system has none left.
    fn start() -> Option<Self> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (started, runtime) = std::sync::mpsc::sync_channel(1);
        let run = move || {
            // The runtime is made and dropped here: neither is allowed on a thread that serves requests.
            let Ok(own) = Builder::new_current_thread().enable_all().build() else {
                return;
            };
            let _ = started.send(own.handle().clone());
            let _ = own.block_on(stopped);
        };
        let spawned = std::thread::Builder::new()
            .name("images".to_owned())
            .spawn(run);
        if let Err(error) = spawned {
            tracing::error!(%error, "failed to start the thread that verifies images; images count as unavailable");
            return None;
        }
        Some(Self {
            runtime: runtime.recv().ok()?,
            _stop: stop,
        })
    }
}

#[cfg(test)]
mod tests;
