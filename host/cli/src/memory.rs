//! Gives memory back to the system, on every thread once for each round of [`Reclaim`].

use std::cell::Cell;

use tollgate_gate::live::Reclaim;

thread_local! {
    /// The round in which this thread last gave memory back.
    static ROUND: Cell<usize> = const { Cell::new(0) };
}

/// Must be called on a new thread. A new thread has nothing to give back yet.
pub(crate) fn begin(reclaim: &Reclaim) {
    ROUND.set(reclaim.rounds());
}

/// Must be called on a thread that has nothing else to do. Gives memory back if that is due.
pub(crate) fn idle(reclaim: &Reclaim) {
    if ROUND.with(|last| is_due(reclaim.rounds(), last)) {
        give_back();
    }
}

/// Returns whether a round began since the last call on this thread.
fn is_due(rounds: usize, last: &Cell<usize>) -> bool {
    last.replace(rounds) != rounds
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
    fn is_due_once_per_thread_in_each_round() {
        let (one, other) = (Cell::new(0), Cell::new(0));
        assert!(!is_due(0, &one), "no round began yet");
        for rounds in 1..3 {
            assert!(is_due(rounds, &one));
            assert!(!is_due(rounds, &one));
            assert!(is_due(rounds, &other));
        }
    }
}
