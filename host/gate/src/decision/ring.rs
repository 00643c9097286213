//! The last decisions, bounded in number and in bytes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_config::DecisionLimits;

use super::{Decision, KeptDecision};

/// A buffer that keeps the last decisions and drops the oldest ones.
#[derive(Debug)]
pub struct Ring<T> {
    limits: DecisionLimits,
    kept: Mutex<Kept<T>>,
}

#[derive(Debug)]
struct Kept<T> {
    entries: VecDeque<Entry<T>>,
    bytes: u64,
    /// The number of the next decision.
    next: u64,
}

#[derive(Debug)]
struct Entry<T> {
    /// Later decisions have higher numbers.
    number: u64,
    decision: Arc<KeptDecision>,
    /// Data kept with the decision. Its size does not count.
    with: T,
    bytes: u64,
}

/// Minimum length of a uid's prefix, in bytes. Shorter texts are not searched for as a prefix.
const SHORTEST_PREFIX_BYTES: usize = 4;

// === impl Ring ===

impl<T: Clone> Ring<T> {
    /// An empty ring with these limits.
    #[must_use]
    pub fn new(limits: DecisionLimits) -> Self {
        Self {
            limits,
            kept: Mutex::new(Kept {
                entries: VecDeque::new(),
                bytes: 0,
                next: 1,
            }),
        }
    }

    /// Whether this ring keeps decisions at all.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.limits.max_count > 0
    }

    /// Adds a decision, and drops the oldest ones to make room for it. A decision that is larger than the whole ring is
    /// not kept.
    pub fn push(&self, decision: Decision, with: T) {
        if self.is_on() {
            self.keep(KeptDecision::of(decision), with);
        }
    }

    /// Adds a decision that is packed already. See [`Ring::push`].
    pub fn keep(&self, decision: KeptDecision, with: T) {
        if !self.is_on() {
            return;
        }
        let bytes = decision.bytes() as u64;
        if bytes > self.limits.max_bytes {
            return;
        }
        let mut entry = Entry {
            number: 0,
            decision: Arc::new(decision),
            with,
            bytes,
        };
        // Dropped decisions are freed after the lock is released.
        let mut forgotten = Vec::new();
        let mut kept = self.lock();
        while kept.entries.len() >= self.limits.max_count as usize
            || kept.bytes + bytes > self.limits.max_bytes
        {
            let Some(oldest) = kept.entries.pop_front() else {
                break;
            };
            kept.bytes -= oldest.bytes;
            forgotten.push(oldest);
        }
        kept.bytes += bytes;
        entry.number = kept.next;
        kept.next += 1;
        kept.entries.push_back(entry);
        drop(kept);
    }

    /// The kept decisions, newest first.
    #[must_use]
    pub fn recent(&self) -> Vec<(Arc<KeptDecision>, T)> {
        let kept = self.lock();
        kept.entries.iter().rev().map(Entry::shared).collect()
    }

    /// The kept decisions with their numbers, newest first. A number stays with its decision, and is not used again.
    #[must_use]
    pub fn numbered(&self) -> Vec<(u64, Arc<KeptDecision>)> {
        let kept = self.lock();
        let entries = kept.entries.iter().rev();
        let numbered = entries.map(|entry| (entry.number, entry.decision.clone()));
        numbered.collect()
    }

    /// The decisions of one review, newest first. A review can have several, because kube-apiserver may send it again.
    ///
    /// If no review has this uid, returns the decisions of all reviews whose uid begins with it. For that, `uid` needs
    /// at least four bytes.
    #[must_use]
    pub fn of(&self, uid: &str) -> Vec<(Arc<KeptDecision>, T)> {
        let same = self.those(|known| known == uid);
        if same.is_empty() && uid.len() >= SHORTEST_PREFIX_BYTES {
            return self.those(|known| known.starts_with(uid));
        }
        same
    }

    fn those(&self, has: impl Fn(&str) -> bool) -> Vec<(Arc<KeptDecision>, T)> {
        let kept = self.lock();
        let entries = kept.entries.iter().rev();
        entries
            .filter(|entry| has(&entry.decision.about().uid))
            .map(Entry::shared)
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Kept<T>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Entry ===

impl<T: Clone> Entry<T> {
    fn shared(&self) -> (Arc<KeptDecision>, T) {
        (self.decision.clone(), self.with.clone())
    }
}
