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

/// To be called on a thread that has nothing else to do. True when it has given something back.
pub(crate) fn idle() -> bool {
    let loaded = LOADED.load(Ordering::Relaxed);
    let is_due = GIVEN_BACK.replace(loaded) != loaded;
    if is_due {
        give_back();
    }
    is_due
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
    fn every_thread_gives_back_once_after_a_load() {
        loaded();
        assert!(idle());
        assert!(std::thread::spawn(idle).join().unwrap());
    }
}
