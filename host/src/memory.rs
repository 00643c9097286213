//! Memory goes back to the system when plugins have been loaded.
//!
//! Loading takes megabytes for each plugin, for a moment: the artifact, its code, what is said about the code. The allocator
//! keeps what was freed for the thread that had it, and nobody may need as much again for weeks.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often plugins have been loaded.
static LOADED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Which of these times this thread has given back for.
    static GIVEN_BACK: Cell<usize> = const { Cell::new(0) };
}

/// Plugins have been loaded: every thread that comes to [`idle`] gives back what it has freed, once.
pub(crate) fn loaded() {
    LOADED.fetch_add(1, Ordering::Relaxed);
}

/// To be called on a thread that has nothing else to do.
pub(crate) fn idle() {
    if GIVEN_BACK.with(|given_back| is_due(&LOADED, given_back)) {
        give_back();
    }
}

/// Whether plugins have been loaded since the last time, which is now.
fn is_due(loaded: &AtomicUsize, given_back: &Cell<usize>) -> bool {
    let loaded = loaded.load(Ordering::Relaxed);
    given_back.replace(loaded) != loaded
}

#[expect(unsafe_code, reason = "the allocator is written in C")]
fn give_back() {
    // SAFETY: it may be called at any time; where another allocator is in use, there is nothing to give back.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_due_once_on_every_thread_after_each_load() {
        let loaded = AtomicUsize::new(0);
        let (one, other) = (Cell::new(0), Cell::new(0));
        assert!(!is_due(&loaded, &one), "nothing has been loaded");
        for _ in 0..2 {
            loaded.fetch_add(1, Ordering::Relaxed);
            assert!(is_due(&loaded, &one));
            assert!(!is_due(&loaded, &one));
            assert!(is_due(&loaded, &other));
        }
    }
}
