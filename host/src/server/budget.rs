//! The cap on all request bytes in flight.
//!
//! A counter rather than a queue: a request that does not fit is refused at once, because
//! kube-apiserver retries a 429 and a queue would only eat the deadline of whoever waits in it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use prometheus_client::metrics::gauge::Gauge;

/// Bytes that may be held at once, and how many are.
#[derive(Debug)]
pub(super) struct Budget {
    limit_bytes: u64,
    used_bytes: AtomicU64,
    gauge: Gauge,
}

/// A share of the budget, given back when dropped.
#[derive(Debug)]
pub(super) struct Lease {
    budget: Arc<Budget>,
    bytes: u64,
}

// === impl Budget ===

impl Budget {
    pub(super) fn new(limit_bytes: u64, gauge: Gauge) -> Arc<Self> {
        Arc::new(Self {
            limit_bytes,
            used_bytes: AtomicU64::new(0),
            gauge,
        })
    }

    pub(super) fn lease(self: &Arc<Self>, bytes: u64) -> Option<Lease> {
        self.take(bytes).then(|| Lease {
            budget: Arc::clone(self),
            bytes,
        })
    }

    fn take(&self, bytes: u64) -> bool {
        let taken = self
            .used_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes)
                    .filter(|&sum| sum <= self.limit_bytes)
            })
            .is_ok();
        if taken {
            self.gauge.inc_by(bytes.cast_signed());
        }
        taken
    }

    fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.gauge.dec_by(bytes.cast_signed());
    }
}

// === impl Lease ===

impl Lease {
    /// Takes what is missing for the lease to cover `bytes`.
    pub(super) fn cover(&mut self, bytes: u64) -> bool {
        let missing = bytes.saturating_sub(self.bytes);
        let covered = self.budget.take(missing);
        if covered {
            self.bytes += missing;
        }
        covered
    }

    /// Gives back what is more than `bytes`.
    pub(super) fn shrink(&mut self, bytes: u64) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.budget.give_back(surplus);
        self.bytes -= surplus;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_does_not_fit_and_takes_it_once_bytes_came_back() {
        let gauge = Gauge::default();
        let budget = Budget::new(100, gauge.clone());
        let mut first = budget.lease(60).expect("fits");
        assert!(budget.lease(41).is_none());
        assert!(first.cover(100));
        assert!(!first.cover(101));
        assert_eq!(gauge.get(), 100);
        first.shrink(10);
        let second = budget.lease(90).expect("fits after the shrink");
        drop(first);
        drop(second);
        assert_eq!(gauge.get(), 0);
        assert!(budget.lease(100).is_some());
        assert!(budget.lease(u64::MAX).is_none());
    }
}
