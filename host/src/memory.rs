//! Memory goes back to the system when plugins have been loaded, and when large reviews have ceased.
//!
//! Loading takes megabytes for each plugin, for a moment: the artifact, its code, what is said about the code. A review of
//! a megabyte takes tens of them. The allocator keeps what was freed for the next time, which may be in weeks, and gives it
//! back only while it is used.

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What smaller reviews leave behind is not worth giving back.
const LARGE_BYTES: usize = 64 << 10;
/// For so long after a large review, another one is expected: giving back takes milliseconds.
const REST: Duration = Duration::from_secs(15);
/// Of threads that give back at the same time, the allocator lets one do the most of it; so all do it once more after this.
const AGAIN: Duration = Duration::from_secs(1);

/// How often there has been something to give back.
static OCCASIONS: AtomicUsize = AtomicUsize::new(0);
static LAST_LARGE: LastLarge = LastLarge(AtomicU64::new(0));
/// What milliseconds count from.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

thread_local! {
    /// Which of these occasions this thread has given back at.
    static GIVEN_BACK: Cell<usize> = const { Cell::new(0) };
}

/// When the last large review ended, in milliseconds, times two; one more when it has been seen to once, and 0 when twice.
struct LastLarge(AtomicU64);

/// A review that is under way.
pub(crate) struct Reviewed {
    bytes: usize,
}

/// Plugins have been loaded: every thread that comes to [`idle`] gives back what it has freed, once.
pub(crate) fn loaded() {
    OCCASIONS.fetch_add(1, Ordering::Relaxed);
}

/// To be called on a thread that begins: it has freed nothing yet.
pub(crate) fn begin() {
    GIVEN_BACK.set(OCCASIONS.load(Ordering::Relaxed));
}

/// To be called now and then: where large reviews have ceased, threads that come to [`idle`] give back.
pub(crate) fn look() {
    if LAST_LARGE.is_over(START.elapsed()) {
        OCCASIONS.fetch_add(1, Ordering::Relaxed);
    }
}

/// To be called on a thread that has nothing else to do.
pub(crate) fn idle() {
    if GIVEN_BACK.with(|given_back| is_due(&OCCASIONS, given_back)) {
        give_back();
    }
}

/// Whether there has been an occasion since the last time, which is now.
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
    /// One of so many bytes.
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

    /// Whether it is long over; twice.
    fn is_over(&self, now: Duration) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        let (ended, is_second) = (Duration::from_millis(last / 2), last % 2 == 1);
        let (rest, next) = if is_second {
            (REST + AGAIN, 0)
        } else {
            (REST, last + 1)
        };
        // Where another one has ended meanwhile, it is not over.
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
    fn is_due_once_on_every_thread_after_each_occasion() {
        let occasions = AtomicUsize::new(0);
        let (one, other) = (Cell::new(0), Cell::new(0));
        assert!(!is_due(&occasions, &one), "there was none");
        for _ in 0..2 {
            occasions.fetch_add(1, Ordering::Relaxed);
            assert!(is_due(&occasions, &one));
            assert!(!is_due(&occasions, &one));
            assert!(is_due(&occasions, &other));
        }
    }

    #[test]
    fn large_reviews_are_over_a_while_after_the_last_of_them_and_once_more_soon_after() {
        let last = LastLarge(AtomicU64::new(0));
        let at = Duration::from_secs;
        assert!(!last.is_over(at(100)), "none has ended");
        last.ended(at(0));
        assert!(!last.is_over(at(14)));
        last.ended(at(10));
        assert!(!last.is_over(at(24)));
        assert!(last.is_over(at(25)));
        assert!(!last.is_over(at(25)), "it was seen to");
        assert!(last.is_over(at(26)), "once more");
        assert!(!last.is_over(at(100)), "twice is enough");
        last.ended(at(200));
        assert!(last.is_over(at(300)), "another one");
    }
}
