//! The cap on connections: which connections have a place, and which one is evicted for a new one.

use std::{
    cmp::Reverse,
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::CancellationToken;

use crate::activity::{Activity, Standing};

/// Time without any request after which an unproven connection may be evicted. A handshake on a busy machine takes a
/// small part of this.
const UNPROVEN_AFTER: Duration = Duration::from_millis(100);

/// Time after which a connection may be evicted if all of its requests are waiting for their bodies.
const RECEIVING_AFTER: Duration = Duration::from_secs(1);

/// The open connections, at most `limit`.
#[derive(Debug)]
pub(super) struct Places {
    limit: usize,
    gauge: Gauge,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: HashMap<u64, Taken>,
    by_peer: HashMap<IpAddr, usize>,
    next: u64,
}

#[derive(Debug)]
struct Taken {
    peer: IpAddr,
    activity: Arc<Activity>,
    evicted: CancellationToken,
}

/// The place of one connection. Dropping it frees the place.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    id: u64,
    evicted: CancellationToken,
}

/// How readily a connection is evicted. Later variants are evicted first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Rank {
    /// All of its requests are waiting for their bodies.
    Receiving,
    /// A review was answered on it, and it is idle.
    Idle,
    /// No review was answered on it, and it has no request.
    Unproven,
}

// === impl Places ===

impl Places {
    pub(crate) fn new(limit: usize, gauge: Gauge) -> Arc<Self> {
        Arc::new(Self {
            limit,
            gauge,
            state: Mutex::default(),
        })
    }

    /// Takes a place for a new connection. At the limit, this evicts another connection. Connections of peers above
    /// their share go first, then those of the lowest standing, then those of the peer with the most places, then the
    /// quietest. Returns none while no connection can be evicted.
    pub(super) fn take(self: &Arc<Self>, peer: IpAddr, activity: &Arc<Activity>) -> Option<Place> {
        let mut state = self.state();
        if state.taken.len() >= self.limit {
            let id = state.first_to_go(Some(peer))?;
            state.evict(id);
        }
        let id = state.next;
        state.next += 1;
        let evicted = CancellationToken::new();
        let taken = Taken {
            peer,
            activity: Arc::clone(activity),
            evicted: evicted.clone(),
        };
        state.taken.insert(id, taken);
        *state.by_peer.entry(peer).or_default() += 1;
        self.gauge.inc();
        Some(Place {
            places: Arc::clone(self),
            id,
            evicted,
        })
    }

    /// Whether a peer that finds no place is refused at once, because it already holds more than half of them. If there
    /// is no other peer, it waits instead.
    pub(super) fn has_most(&self, peer: IpAddr) -> bool {
        let state = self.state();
        state.by_peer.len() > 1 && state.count(peer) > self.limit / 2
    }

    /// Evicts up to `count` connections because a resource other than places is short.
    pub(super) fn make_room(&self, count: usize) {
        let mut state = self.state();
        for _ in 0..count {
            let Some(id) = state.first_to_go(None) else {
                return;
            };
            state.evict(id);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    /// Selects the connection to evict for `newcomer`. Connections of peers above their share go first. A peer that
    /// holds fewer places than the newcomer keeps all its places.
    fn first_to_go(&self, newcomer: Option<IpAddr>) -> Option<u64> {
        let share = self.taken.len() / self.by_peer.len().max(1);
        let least = newcomer.map_or(0, |peer| self.count(peer));
        self.taken
            .iter()
            .filter_map(|(id, taken)| {
                let (rank, quiet) = rank(taken.activity.standing())?;
                let count = self.count(taken.peer);
                (count >= least).then_some((count > share, rank, count, quiet, Reverse(*id)))
            })
            .max()
            .map(|(.., Reverse(id))| id)
    }

    fn count(&self, peer: IpAddr) -> usize {
        self.by_peer.get(&peer).copied().unwrap_or(0)
    }

    fn evict(&mut self, id: u64) {
        if let Some(taken) = self.remove(id) {
            taken.evicted.cancel();
        }
    }

    fn remove(&mut self, id: u64) -> Option<Taken> {
        let taken = self.taken.remove(&id)?;
        if let Some(count) = self.by_peer.get_mut(&taken.peer) {
            *count -= 1;
            if *count == 0 {
                self.by_peer.remove(&taken.peer);
            }
        }
        Some(taken)
    }
}

fn rank(standing: Standing) -> Option<(Rank, Duration)> {
    match standing {
        Standing::Unproven { quiet } if quiet >= UNPROVEN_AFTER => Some((Rank::Unproven, quiet)),
        Standing::Idle { quiet } => Some((Rank::Idle, quiet)),
        Standing::Receiving { quiet } if quiet >= RECEIVING_AFTER => Some((Rank::Receiving, quiet)),
        _ => None,
    }
}

// === impl Place ===

impl Place {
    /// Returns a token that is cancelled when this connection must give up its place.
    pub(super) fn evicted(&self) -> CancellationToken {
        self.evicted.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.state().remove(self.id);
        self.places.gauge.dec();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn peer(number: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, number).into()
    }

    fn activity(standing: Standing) -> Arc<Activity> {
        Activity::standing_as(standing)
    }

    fn idle(seconds: u64) -> Arc<Activity> {
        let quiet = Duration::from_secs(seconds);
        activity(Standing::Idle { quiet })
    }

    fn unproven(seconds: u64) -> Arc<Activity> {
        let quiet = Duration::from_secs(seconds);
        activity(Standing::Unproven { quiet })
    }

    fn evicted(taken: &[Place]) -> Vec<usize> {
        let evicted = taken.iter().enumerate();
        let evicted = evicted.filter(|(_, place)| place.evicted.is_cancelled());
        evicted.map(|(index, _)| index).collect()
    }

    fn places(limit: usize, of: &[(u8, Arc<Activity>)]) -> (Arc<Places>, Vec<Place>) {
        let places = Places::new(limit, Gauge::default());
        let taken = of
            .iter()
            .map(|(number, activity)| places.take(peer(*number), activity).expect("a place"));
        let taken = taken.collect();
        (places, taken)
    }

    #[test]
    fn evicts_no_connection_below_limit() {
        let (places, taken) = places(3, &[(1, idle(50)), (1, unproven(50))]);
        assert!(places.take(peer(2), &unproven(0)).is_some());
        assert_eq!(evicted(&taken), [0; 0]);
    }

    #[test]
    fn evicts_unproven_connections_before_longest_idle_ones() {
        let of = [
            (1, idle(5)),
            (1, unproven(1)),
            (1, idle(9)),
            (1, unproven(2)),
        ];
        let (places, taken) = places(4, &of);
        let mut new = Vec::new();
        for expected in [vec![3], vec![1, 3], vec![1, 2, 3], vec![0, 1, 2, 3]] {
            new.push(places.take(peer(1), &unproven(0)).expect("a place"));
            assert_eq!(evicted(&taken), expected);
        }
        assert!(
            places.take(peer(1), &unproven(0)).is_none(),
            "all connections are new, so none is evicted"
        );
        assert_eq!(evicted(&new), [0; 0]);
    }

    #[test]
    fn keeps_connections_of_peer_within_its_share() {
        let of = [
            (1, idle(80)),
            (1, idle(70)),
            (2, idle(1)),
            (2, idle(2)),
            (2, idle(3)),
        ];
        let (places, taken) = places(5, &of);
        let _another = places.take(peer(2), &unproven(0)).expect("a place");
        assert_eq!(evicted(&taken), [4]);
        let _third = places.take(peer(3), &unproven(0)).expect("a place");
        assert_eq!(evicted(&taken), [3, 4]);
        assert!(!places.has_most(peer(1)));
    }

    #[test]
    fn never_evicts_connection_with_review_in_progress() {
        let (places, taken) = places(
            2,
            &[(1, activity(Standing::Busy)), (1, activity(Standing::Busy))],
        );
        assert!(places.take(peer(1), &unproven(0)).is_none());
        assert!(!places.has_most(peer(1)), "no other peer is connected");
        drop(taken);
        assert!(places.take(peer(1), &unproven(0)).is_some());
        assert_eq!(places.gauge.get(), 0);
    }
}
