//! The cap on all request bytes in flight.
//!
//! A lease grows with the bytes that have arrived, not with the length that a client announces. If a request does not
//! fit, slowly arriving bodies are evicted first, starting with those of the client that holds most. If that is not
//! enough, the host refuses the request with a 429, which kube-apiserver retries. A queue would use up the deadline of
//! the requests in it.

use std::{
    cmp::Reverse,
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use prometheus_client::metrics::gauge::Gauge;
use tokio::{sync::Notify, time::timeout_at};
use tokio_util::sync::CancellationToken;

/// Largest lease that may use the reserve. Nearly every review is smaller.
pub(super) const SMALL_BYTES: u64 = 256 * 1024;

/// The reserve for small bodies is the cap divided by this number.
const RESERVE_PART: u64 = 8;

/// Time after which a body that is still arriving may be evicted if the budget is short. A client in the same cluster
/// sends a megabyte in a tenth of this time.
const SLOW_AFTER: Duration = Duration::from_millis(250);

/// Time that a request waits for slow bodies to make room.
const ROOM_TIMEOUT: Duration = Duration::from_millis(500);

/// The cap on bytes held at once, and the bytes that each peer holds.
#[derive(Debug)]
pub(super) struct Budget {
    limit_bytes: u64,
    reserve_bytes: u64,
    gauge: Gauge,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    used_bytes: u64,
    by_peer: HashMap<IpAddr, u64>,
    /// Bodies that are still arriving.
    arriving: HashMap<u64, Arriving>,
    next: u64,
}

/// A body that is still arriving.
#[derive(Debug)]
struct Arriving {
    peer: IpAddr,
    bytes: u64,
    since: Instant,
    evicted: CancellationToken,
}

/// A share of the budget. Dropping it returns the bytes.
#[derive(Debug)]
pub(super) struct Lease {
    budget: Arc<Budget>,
    peer: IpAddr,
    bytes: u64,
    /// Its entry among the arriving bodies, until the body is complete. A body that arrives at once never has one.
    arriving: Option<Entry>,
}

/// The entry of a body among those that are still arriving.
#[derive(Debug)]
struct Entry {
    id: u64,
    evicted: CancellationToken,
}

// === impl Budget ===

impl Budget {
    /// Creates a budget of `limit_bytes`, but at least `largest_bytes`, so that one largest body always fits.
    pub(crate) fn new(limit_bytes: u64, largest_bytes: u64, gauge: Gauge) -> Arc<Self> {
        let limit_bytes = limit_bytes.max(largest_bytes);
        let beside_the_largest = limit_bytes - largest_bytes;
        Arc::new(Self {
            limit_bytes,
            reserve_bytes: (limit_bytes / RESERVE_PART).min(beside_the_largest),
            gauge,
            state: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// Creates an empty lease for a body of `peer`. It cannot be evicted until somebody waits for the body.
    pub(super) fn lease(self: &Arc<Self>, peer: IpAddr) -> Lease {
        Lease {
            budget: Arc::clone(self),
            peer,
            bytes: 0,
            arriving: None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limit for the sum of all leases when a lease of `bytes` is granted.
    fn ceiling(&self, bytes: u64) -> u64 {
        if bytes > SMALL_BYTES {
            self.limit_bytes - self.reserve_bytes
        } else {
            self.limit_bytes
        }
    }
}

// === impl State ===

impl State {
    /// Evicts slow bodies to make room for `missing` bytes of `peer`. Returns false if they do not free enough. Only
    /// peers that hold at least as much as `peer` make room, and the body `own` is never evicted.
    fn evict(&self, peer: IpAddr, own: Option<u64>, missing: u64, now: Instant) -> bool {
        let held = |peer: &IpAddr| self.by_peer.get(peer).copied().unwrap_or(0);
        let wanted_by = held(&peer);
        let mut slow: Vec<(u64, &Arriving)> = self
            .arriving
            .iter()
            .filter(|(id, body)| Some(**id) != own && body.bytes > 0)
            .filter(|(_, body)| now.duration_since(body.since) >= SLOW_AFTER)
            .map(|(_, body)| (held(&body.peer), body))
            .filter(|(held, _)| *held >= wanted_by)
            .collect();
        slow.sort_by_key(|(held, body)| (Reverse(*held), body.since));
        let mut made = 0;
        for (_, body) in slow {
            if made >= missing {
                break;
            }
            body.evicted.cancel();
            made += body.bytes;
        }
        made >= missing
    }
}

// === impl Lease ===

impl Lease {
    #[cfg(test)]
    pub(super) fn covered_bytes(&self) -> u64 {
        self.bytes
    }

    /// Grows the lease to cover `bytes` if there is room now.
    pub(super) fn cover(&mut self, bytes: u64) -> bool {
        self.try_cover(bytes).is_ok()
    }

    /// Grows the lease to cover `bytes`. If there is no room, waits for slow bodies to make room.
    pub(super) async fn cover_in_time(&mut self, bytes: u64) -> bool {
        if self.try_cover(bytes).is_ok() {
            return true;
        }
        // While it waits, it may have to make room for others.
        self.entry();
        let until = tokio::time::Instant::now() + ROOM_TIMEOUT;
        let budget = Arc::clone(&self.budget);
        loop {
            // Enabled before the check, so that no release in between is missed.
            let mut freed = std::pin::pin!(budget.freed.notified());
            freed.as_mut().enable();
            let Err(missing) = self.try_cover(bytes) else {
                return true;
            };
            if self.is_evicted()
                || !budget
                    .state()
                    .evict(self.peer, self.id(), missing, Instant::now())
                || timeout_at(until, freed).await.is_err()
            {
                return false;
            }
        }
    }

    /// Grows the lease to cover `bytes`. If there is no room, returns the number of missing bytes.
    fn try_cover(&mut self, bytes: u64) -> Result<(), u64> {
        let more = bytes.saturating_sub(self.bytes);
        let mut state = self.budget.state();
        let wanted = state.used_bytes.saturating_add(more);
        let ceiling = self.budget.ceiling(bytes);
        if more > 0 && wanted > ceiling {
            return Err(wanted - ceiling);
        }
        state.used_bytes = wanted;
        *state.by_peer.entry(self.peer).or_default() += more;
        self.bytes += more;
        if let Some(body) = self.id().and_then(|id| state.arriving.get_mut(&id)) {
            body.bytes = self.bytes;
        }
        drop(state);
        self.budget.gauge.inc_by(more.cast_signed());
        Ok(())
    }

    /// Returns the bytes beyond `bytes` to the budget.
    pub(super) fn shrink(&mut self, bytes: u64) {
        let surplus = self.bytes.saturating_sub(bytes);
        if surplus == 0 {
            return;
        }
        let mut state = self.budget.state();
        state.used_bytes -= surplus;
        if let Some(held) = state.by_peer.get_mut(&self.peer) {
            *held -= surplus;
            if *held == 0 {
                state.by_peer.remove(&self.peer);
            }
        }
        self.bytes -= surplus;
        if let Some(body) = self.id().and_then(|id| state.arriving.get_mut(&id)) {
            body.bytes = self.bytes;
        }
        drop(state);
        self.budget.gauge.dec_by(surplus.cast_signed());
        self.budget.freed.notify_waiters();
    }

    /// Marks the body as complete. While it is answered, it cannot be evicted.
    pub(super) fn complete(&mut self) {
        if let Some(entry) = self.arriving.take() {
            self.budget.state().arriving.remove(&entry.id);
        }
    }

    /// Returns a token that is cancelled when this body must make room. From the first call on, it can be evicted.
    pub(super) fn evicted(&mut self) -> &CancellationToken {
        &self.entry().evicted
    }

    /// Its entry among the arriving bodies.
    fn entry(&mut self) -> &Entry {
        self.arriving.get_or_insert_with(|| {
            let evicted = CancellationToken::new();
            let mut state = self.budget.state();
            let id = state.next;
            state.next += 1;
            state.arriving.insert(
                id,
                Arriving {
                    peer: self.peer,
                    bytes: self.bytes,
                    since: Instant::now(),
                    evicted: evicted.clone(),
                },
            );
            Entry { id, evicted }
        })
    }

    fn is_evicted(&self) -> bool {
        let entry = self.arriving.as_ref();
        entry.is_some_and(|entry| entry.evicted.is_cancelled())
    }

    /// Its key among the arriving bodies.
    fn id(&self) -> Option<u64> {
        self.arriving.as_ref().map(|entry| entry.id)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.complete();
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const LARGE: u64 = 4 * SMALL_BYTES;

    fn peer(number: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, number).into()
    }

    #[test]
    fn rejects_body_over_budget_until_bytes_are_released() {
        let gauge = Gauge::default();
        let budget = Budget::new(100, 100, gauge.clone());
        let mut first = budget.lease(peer(1));
        assert!(first.cover(60));
        let mut second = budget.lease(peer(2));
        assert!(!second.cover(41));
        assert!(first.cover(100));
        assert!(!first.cover(101));
        assert_eq!(gauge.get(), 100);
        first.shrink(10);
        assert!(second.cover(90), "it fits after the shrink");
        drop(first);
        drop(second);
        assert_eq!(gauge.get(), 0);
        assert!(budget.state().by_peer.is_empty() && budget.state().arriving.is_empty());
        assert!(budget.lease(peer(1)).cover(100));
        assert!(!budget.lease(peer(1)).cover(u64::MAX));
    }

    #[test]
    fn keeps_reserve_for_small_bodies() {
        let budget = Budget::new(8 * LARGE, LARGE, Gauge::default());
        let large: Vec<Lease> = (0..7)
            .map(|_| {
                let mut lease = budget.lease(peer(1));
                assert!(lease.cover(LARGE));
                lease
            })
            .collect();
        assert!(!budget.lease(peer(1)).cover(LARGE));
        assert!(!budget.lease(peer(1)).cover(SMALL_BYTES + 1));
        let small: Vec<Lease> = (0..4)
            .map(|_| {
                let mut lease = budget.lease(peer(2));
                assert!(lease.cover(SMALL_BYTES));
                lease
            })
            .collect();
        assert!(!budget.lease(peer(2)).cover(1), "the reserve is used up");
        drop((large, small));
    }

    #[tokio::test]
    async fn body_that_waits_for_room_can_be_evicted() {
        let budget = Budget::new(100, 100, Gauge::default());
        let mut first = budget.lease(peer(1));
        assert!(first.cover_in_time(60).await);
        assert_eq!(first.id(), None, "it did not wait");
        let mut second = budget.lease(peer(2));
        assert!(second.cover_in_time(20).await);
        assert!(!second.cover_in_time(50).await);
        assert_eq!(budget.state().arriving[&second.id().unwrap()].bytes, 20);
        second.complete();
        assert!(budget.state().arriving.is_empty());
    }

    #[test]
    fn accepts_one_body_of_largest_size_with_any_cap() {
        let budget = Budget::new(LARGE, LARGE, Gauge::default());
        assert!(budget.lease(peer(1)).cover(LARGE));
    }

    #[test]
    fn evicts_only_slow_bodies_of_peer_that_holds_most() {
        let budget = Budget::new(1_000, 100, Gauge::default());
        let mut leases: Vec<Lease> = [(1, 300), (2, 400), (2, 200), (3, 100)]
            .into_iter()
            .map(|(number, bytes)| {
                let mut lease = budget.lease(peer(number));
                assert!(lease.cover(bytes));
                assert!(!lease.evicted().is_cancelled());
                lease
            })
            .collect();
        let evicted =
            |leases: &[Lease]| -> Vec<bool> { leases.iter().map(Lease::is_evicted).collect() };
        let now = Instant::now();
        assert!(
            !budget.state().evict(peer(4), None, 100, now),
            "none is slow yet"
        );
        let later = now + SLOW_AFTER;
        leases[1].complete();
        assert!(budget.state().evict(peer(4), None, 150, later));
        assert_eq!(evicted(&leases), [false, false, true, false]);
        let most = leases[2].id();
        assert!(
            !budget.state().evict(peer(2), most, 100, later),
            "no body is evicted for the peer that holds most"
        );
        assert_eq!(evicted(&leases), [false, false, true, false]);
    }
}
