//! Runs the host's own costly work on separate threads, a few tasks at a time.
//!
//! Examples are a match condition over thousands of values, and a comparison of two large objects. A step count bounds
//! such work, but it can take up to a tenth of a second. On a serving thread it would hold up every other request, and
//! the other calls of the same review. The number of tasks is limited, so that half of the processors stay free for
//! serving.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Instant;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout_at;

/// A limited number of places for costly work. Clones share the places.
#[derive(Clone, Debug)]
pub struct Offload {
    places: Arc<Semaphore>,
}

// === impl Offload ===

impl Offload {
    /// Allows `places` tasks at a time.
    pub fn new(places: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(places)),
        }
    }

    /// Allows half as many tasks at a time as there are processors, and at least one.
    pub(super) fn beside_the_servers() -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        Self::new((processors / 2).max(1))
    }

    /// Takes a place if one is free, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn try_place(&self) -> Option<tokio::sync::OwnedSemaphorePermit> {
        self.places.clone().try_acquire_owned().ok()
    }

    /// Runs `work` on another thread. Returns `None` if no place was free before the deadline.
    ///
    /// Work that has begun always finishes, and keeps its place until then, even if nobody waits for it any more.
    pub async fn run<T: Send + 'static>(
        &self,
        deadline: Instant,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let place = timeout_at(deadline.into(), self.places.clone().acquire_owned());
        // The semaphore is never closed.
        let place = place.await.ok()?.ok()?;
        let work = spawn_blocking(move || {
            let done = work();
            drop(place);
            done
        });
        match work.await {
            Ok(done) => Some(done),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime is shutting down, and the request ends with it.
                Err(_) => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn work_waits_for_a_place_until_the_deadline() {
        let offload = Offload::new(1);
        let (release, hold) = mpsc::channel::<()>();
        let later = Instant::now() + Duration::from_secs(60);
        let first = {
            let offload = offload.clone();
            tokio::spawn(async move {
                let work = move || hold.recv().is_err();
                offload.run(later, work).await
            })
        };
        while offload.places.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let soon = Instant::now() + Duration::from_millis(20);
        assert_eq!(offload.run(soon, || 1).await, None);
        drop(release);
        assert_eq!(first.await.expect("it does not panic"), Some(true));
        assert_eq!(offload.run(later, || 2).await, Some(2));
    }

    #[tokio::test]
    #[should_panic(expected = "the work panics")]
    async fn panic_reaches_waiting_caller() {
        let later = Instant::now() + Duration::from_secs(60);
        let work = || panic!("the work panics");
        Offload::new(1).run(later, work).await;
    }
}
