//! Decides when freed memory is worth giving back to the system.
//!
//! Loading a plugin briefly takes megabytes: for the artifact, its code, and data about the code. A review of one
//! megabyte takes tens of megabytes. The allocator keeps freed memory for later use, which may be weeks away. It gives
//! memory back only while it is used.
//!
//! The library does not choose the allocator. It counts the rounds in which every thread should give memory back, and
//! the program does so on each thread that is idle.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Smaller reviews leave too little memory behind to give back.
const LARGE_BYTES: usize = 64 << 10;
/// Waiting time after a large review. Another large review is likely in this time, and giving back takes milliseconds.
const REST: Duration = Duration::from_secs(15);
/// Delay before all threads give back a second time. When several threads give back at once, the allocator lets one of
/// them do most of the work.
const AGAIN: Duration = Duration::from_secs(1);

/// Counts the rounds in which freed memory is given back to the system.
#[derive(Debug)]
pub struct Reclaim {
    rounds: AtomicUsize,
    large: Mutex<LargeReviews>,
    on_idle: fn(&Reclaim),
}

/// The memory that large reviews have left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LargeReviews {
    /// No memory, because all of it was given back.
    Reclaimed,
    /// The last one ended at this time.
    Ended(Instant),
    /// The last one ended at this time, and memory was given back once since.
    ReclaimedOnce(Instant),
}

/// A review in progress. When it is dropped, a large review is recorded.
pub(super) struct Reviewed<'a> {
    reclaim: &'a Reclaim,
    bytes: usize,
}

// === impl Reclaim ===

impl Reclaim {
    /// Creates a counter. `on_idle` is called on threads of the library that have nothing else to do. It gives the
    /// thread's memory back if there was a new round since its last call.
    #[must_use]
    pub fn new(on_idle: fn(&Reclaim)) -> Self {
        Self {
            rounds: AtomicUsize::new(0),
            large: Mutex::new(LargeReviews::Reclaimed),
            on_idle,
        }
    }

    /// The number of rounds so far.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Starts a round because plugins were loaded.
    pub(super) fn loaded(&self) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }

    /// Starts a review of this size.
    pub(super) fn review(&self, bytes: usize) -> Reviewed<'_> {
        Reviewed {
            reclaim: self,
            bytes,
        }
    }

    /// Must be called from time to time. Starts two rounds after large reviews have ended.
    pub(super) fn tick(&self) {
        let mut large = self.large.lock().unwrap_or_else(PoisonError::into_inner);
        if large.is_due(Instant::now()) {
            self.rounds.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Must be called on a thread that has nothing else to do.
    pub(super) fn idle(&self) {
        (self.on_idle)(self);
    }
}

impl Default for Reclaim {
    /// A counter for programs that leave memory to their allocator.
    fn default() -> Self {
        Self::new(|_| {})
    }
}

// === impl Reviewed ===

impl Drop for Reviewed<'_> {
    fn drop(&mut self) {
        if self.bytes >= LARGE_BYTES {
            let large = self.reclaim.large.lock();
            *large.unwrap_or_else(PoisonError::into_inner) = LargeReviews::Ended(Instant::now());
        }
    }
}

// === impl LargeReviews ===

impl LargeReviews {
    /// Returns true twice after a large review: after `REST`, and `AGAIN` later.
    fn is_due(&mut self, now: Instant) -> bool {
        let next = match *self {
            Self::Ended(at) if now >= at + REST => Self::ReclaimedOnce(at),
            Self::ReclaimedOnce(at) if now >= at + REST + AGAIN => Self::Reclaimed,
            _ => return false,
        };
        *self = next;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_two_rounds_after_end_of_large_reviews() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut large = LargeReviews::Reclaimed;
        assert!(!large.is_due(at(100)), "no large review has ended");
        large = LargeReviews::Ended(at(0));
        assert!(!large.is_due(at(14)));
        large = LargeReviews::Ended(at(10));
        assert!(!large.is_due(at(24)));
        assert!(large.is_due(at(25)));
        assert!(!large.is_due(at(25)), "the memory was just given back");
        assert!(large.is_due(at(26)), "given back once more a second later");
        assert!(!large.is_due(at(100)), "given back only twice");
        large = LargeReviews::Ended(at(200));
        assert!(large.is_due(at(300)), "another large review ended");
    }

    #[test]
    fn records_large_reviews_only() {
        let reclaim = Reclaim::default();
        drop(reclaim.review(LARGE_BYTES - 1));
        assert_eq!(*reclaim.large.lock().unwrap(), LargeReviews::Reclaimed);
        drop(reclaim.review(LARGE_BYTES));
        assert_ne!(*reclaim.large.lock().unwrap(), LargeReviews::Reclaimed);
    }
}
