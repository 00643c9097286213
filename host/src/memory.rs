//! Gives memory back to the system after plugins were loaded, and after large reviews have ended.
//!
//! Loading a plugin briefly takes megabytes: for the artifact, its code, and data about the code. A review of one
//! megabyte takes tens of megabytes. The allocator keeps freed memory for later use, which may be weeks away. It gives
//! memory back only while it is used.

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Smaller reviews leave too little memory behind to give back.
const LARGE_BYTES: usize = 64 << 10;
/// Waiting time after a large review. Another large review is likely in this time, and giving back takes milliseconds.
const REST: Duration = Duration::from_secs(15);
/// Delay before all threads give back a second time. When several threads give back at once, the allocator lets one of
/// them do most of the work.
const AGAIN: Duration = Duration::from_secs(1);

/// The number of times that there was memory to give back.
static OCCASIONS: AtomicUsize = AtomicUsize::new(0);
static LAST_LARGE: LastLarge = LastLarge(AtomicU64::new(0));
/// The start of the millisecond counter.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

thread_local! {
    /// The value of `OCCASIONS` when this thread last gave memory back.
    static GIVEN_BACK: Cell<usize> = const { Cell::new(0) };
}

/// When the last large review ended, as milliseconds times two.
///
/// The lowest bit is set once the memory was given back for the first time. The value is 0 after the second time.
struct LastLarge(AtomicU64);

/// A review in progress. When it is dropped, a large review is recorded.
pub(crate) struct Reviewed {
    bytes: usize,
}

/// Records that plugins were loaded. Every thread that calls [`idle`] then gives its freed memory back once.
pub(crate) fn loaded() {
    OCCASIONS.fetch_add(1, Ordering::Relaxed);
}

/// Must be called on a new thread. A new thread has nothing to give back yet.
pub(crate) fn begin() {
    GIVEN_BACK.set(OCCASIONS.load(Ordering::Relaxed));
}

/// Must be called from time to time. After large reviews have ended, it makes threads that call [`idle`] give memory
/// back.
pub(crate) fn look() {
    if LAST_LARGE.is_over(START.elapsed()) {
        OCCASIONS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Must be called on a thread that has nothing else to do. Gives memory back if that is due.
pub(crate) fn idle() {
    if GIVEN_BACK.with(|given_back| is_due(&OCCASIONS, given_back)) {
        give_back();
    }
}

/// Returns whether there was an occasion since the last call on this thread.
fn is_due(occasions: &AtomicUsize, given_back: &Cell<usize>) -> bool {
    let occasions = occasions.load(Ordering::Relaxed);
    given_back.replace(occasions) != occasions
}

#[expect(unsafe_code, reason = "the allocator is written in C")]
fn give_back() {
    // SAFETY: it may be called at any time; where another allocator is in use, there is nothing to give back.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

// === impl Reviewed ===

impl Reviewed {
    /// Starts a review of this size.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { bytes }
    }
}

impl Drop for Reviewed {
    fn drop(&mut self) {
        if self.bytes >= LARGE_BYTES {
            LAST_LARGE.ended(START.elapsed());
        }
    }
}

// === impl LastLarge ===

impl LastLarge {
    fn ended(&self, now: Duration) {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.0
            .store(now.max(1).saturating_mul(2), Ordering::Relaxed);
    }

    /// Returns true twice after a large review: after `REST`, and `AGAIN` later.
    fn is_over(&self, now: Duration) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        let (ended, is_second) = (Duration::from_millis(last / 2), last % 2 == 1);
        let (rest, next) = if is_second {
            (REST + AGAIN, 0)
        } else {
            (REST, last + 1)
        };
        // The exchange fails if another large review ended in the meantime.
        let seen_to = || {
            let (order, otherwise) = (Ordering::Relaxed, Ordering::Relaxed);
            self.0
                .compare_exchange(last, next, order, otherwise)
                .is_ok()
        };
        last != 0 && now.saturating_sub(ended) >= rest && seen_to()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_due_once_per_thread_after_each_occasion() {
        let occasions = AtomicUsize::new(0);
        let (one, other) = (Cell::new(0), Cell::new(0));
        assert!(!is_due(&occasions, &one), "nothing was released yet");
        for _ in 0..2 {
            occasions.fetch_add(1, Ordering::Relaxed);
            assert!(is_due(&occasions, &one));
            assert!(!is_due(&occasions, &one));
            assert!(is_due(&occasions, &other));
        }
    }

    #[test]
    fn reports_end_of_large_reviews_twice() {
        let last = LastLarge(AtomicU64::new(0));
        let at = Duration::from_secs;
        assert!(!last.is_over(at(100)), "no large review has ended");
        last.ended(at(0));
        assert!(!last.is_over(at(14)));
        last.ended(at(10));
        assert!(!last.is_over(at(24)));
        assert!(last.is_over(at(25)));
        assert!(!last.is_over(at(25)), "the memory was just given back");
        assert!(last.is_over(at(26)), "given back once more a second later");
        assert!(!last.is_over(at(100)), "given back only twice");
        last.ended(at(200));
        assert!(last.is_over(at(300)), "another large review ended");
    }
}
