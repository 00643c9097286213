//! The last decisions, bounded in number and in bytes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Decision;
use crate::config::DecisionLimits;

/// Keeps the last decisions and forgets the oldest ones.
#[derive(Debug)]
pub struct Ring<T> {
    limits: DecisionLimits,
    kept: Mutex<Kept<T>>,
}

#[derive(Debug)]
struct Kept<T> {
    entries: VecDeque<Entry<T>>,
    bytes: u64,
}

#[derive(Debug)]
struct Entry<T> {
    decision: Arc<Decision>,
    /// What belongs to it and is not part of what it takes.
    with: T,
    bytes: u64,
}

/// Fewer characters of a uid are no uid.
const SHORTEST_PREFIX_BYTES: usize = 4;

// === impl Ring ===

impl<T: Clone> Ring<T> {
    /// An empty one.
    #[must_use]
    pub fn new(limits: DecisionLimits) -> Self {
        Self {
            limits,
            kept: Mutex::new(Kept {
                entries: VecDeque::new(),
                bytes: 0,
            }),
        }
    }

    /// Whether anything is kept at all.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.limits.max_count > 0
    }

    /// Adds a decision. The oldest ones go, as far as there is no room for it; one for which there is none goes
    /// itself.
    pub fn push(&self, decision: Decision, with: T) {
        let bytes = decision.bytes() as u64;
        if !self.is_on() || bytes > self.limits.max_bytes {
            return;
        }
        let entry = Entry {
            decision: Arc::new(decision),
            with,
            bytes,
        };
        // What is forgotten is freed after the lock is given back.
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
        kept.entries.push_back(entry);
        drop(kept);
    }

    /// Those that are kept, the newest first.
    #[must_use]
    pub fn recent(&self) -> Vec<(Arc<Decision>, T)> {
        let kept = self.lock();
        kept.entries.iter().rev().map(Entry::shared).collect()
    }

    /// Those of one review, the newest first: kube-apiserver may ask again. Where no review has the uid, those of all
    /// reviews whose uids begin with it, as long as it has at least four characters.
    #[must_use]
    pub fn of(&self, uid: &str) -> Vec<(Arc<Decision>, T)> {
        let same = self.those(|known| known == uid);
        if same.is_empty() && uid.len() >= SHORTEST_PREFIX_BYTES {
            return self.those(|known| known.starts_with(uid));
        }
        same
    }

    fn those(&self, has: impl Fn(&str) -> bool) -> Vec<(Arc<Decision>, T)> {
        let kept = self.lock();
        let entries = kept.entries.iter().rev();
        entries
            .filter(|entry| has(&entry.decision.uid))
            .map(Entry::shared)
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Kept<T>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Entry ===

impl<T: Clone> Entry<T> {
    fn shared(&self) -> (Arc<Decision>, T) {
        (self.decision.clone(), self.with.clone())
    }
}
