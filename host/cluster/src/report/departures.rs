//! Finds replicas that have an entry in a status and are gone, because nobody has renewed their Leases for a
//! while. Does no IO.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::Installation;
use crate::lease::Replicas;
use crate::status::ReplicaEntry;

/// When each replica with an entry was last known to run.
#[derive(Debug, Default)]
pub(super) struct Departures {
    seen: BTreeMap<String, Instant>,
}

/// The result of a look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Departed {
    /// The replicas whose entries go.
    pub(super) names: BTreeSet<String>,
    /// When the next one would go, if its Lease is not renewed.
    pub(super) next: Option<Instant>,
}

// === impl Departures ===

impl Departures {
    /// Looks at the entries of this installation's other replicas.
    ///
    /// A replica without a Lease counts from its first look: a new replica may write its entry before its Lease. A
    /// replica whose Lease the leader has deleted counts from the last renewal.
    pub(super) fn look<'e>(
        &mut self,
        entries: impl IntoIterator<Item = &'e ReplicaEntry>,
        installation: &Installation,
        replicas: &Replicas,
        gone_after: Duration,
        now: Instant,
    ) -> Departed {
        if !replicas.is_complete() {
            return Departed::default();
        }
        let own = installation.full_name();
        let names: BTreeSet<&str> = entries
            .into_iter()
            .filter(|entry| entry.installation == own && entry.name != installation.replica)
            .map(|entry| entry.name.as_str())
            .collect();
        self.seen.retain(|name, _| names.contains(name.as_str()));
        let mut departed = Departed::default();
        for name in names {
            let renewed = replicas.renewed(&installation.lease_of(name));
            let seen = self.seen.entry(name.to_owned());
            let seen = seen.or_insert_with(|| renewed.unwrap_or(now));
            *seen = renewed.unwrap_or(*seen).max(*seen);
            let end = *seen + gone_after;
            if end <= now {
                departed.names.insert(name.to_owned());
            } else {
                let next = departed.next.map_or(end, |next| next.min(end));
                departed.next = Some(next);
            }
        }
        departed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Announcement;

    const GONE_AFTER: Duration = Duration::from_secs(30);

    fn installation(replica: &str) -> Installation {
        Installation {
            name: "gate".to_owned(),
            namespace: "system".to_owned(),
            replica: replica.to_owned(),
        }
    }

    fn entry(replica: &str) -> ReplicaEntry {
        let message = String::new();
        ReplicaEntry::new(&installation(replica), true, "Serving", message, 1)
    }

    /// Looks as the replica `a` after some seconds, and returns who is gone.
    fn gone(
        departures: &mut Departures,
        entries: &[ReplicaEntry],
        replicas: &Replicas,
        at: Instant,
    ) -> Vec<String> {
        let departed = departures.look(entries, &installation("a"), replicas, GONE_AFTER, at);
        departed.names.into_iter().collect()
    }

    fn renew(replicas: &mut Replicas, replica: &str, version: &str, at: Instant) {
        let lease = format!("gate-replica-{replica}");
        replicas.see(lease, version.to_owned(), Announcement::default(), at);
    }

    #[test]
    fn replica_is_gone_when_its_lease_has_not_been_renewed_for_30_seconds() {
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        let entries = [entry("a"), entry("b"), entry("c")];
        let (mut departures, mut replicas) = (Departures::default(), Replicas::default());
        for replica in ["b", "c"] {
            renew(&mut replicas, replica, "1", now);
        }
        // Nobody is gone before all Leases have been listed.
        let none: [&str; 0] = [];
        assert_eq!(gone(&mut departures, &entries, &replicas, after(99)), none);
        let leases = ["b", "c"].map(|replica| format!("gate-replica-{replica}"));
        replicas.complete(&leases);
        let mut departures = Departures::default();
        renew(&mut replicas, "c", "2", after(20));
        assert_eq!(gone(&mut departures, &entries, &replicas, after(29)), none);
        // The leader deletes the Lease of b. That does not delay anything.
        replicas.forget("gate-replica-b");
        assert_eq!(gone(&mut departures, &entries, &replicas, after(30)), ["b"]);
        let left = [entry("a"), entry("c")];
        let departed = departures.look(&left, &installation("a"), &replicas, GONE_AFTER, after(30));
        assert_eq!((departed.names.len(), departed.next), (0, Some(after(50))));
        assert_eq!(gone(&mut departures, &left, &replicas, after(50)), ["c"]);
    }

    #[test]
    fn new_replica_has_time_to_write_its_lease() {
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        let entries = [entry("a"), entry("b")];
        let (mut departures, mut replicas) = (Departures::default(), Replicas::default());
        replicas.complete(&[]);
        let none: [&str; 0] = [];
        assert_eq!(gone(&mut departures, &entries, &replicas, now), none);
        assert_eq!(gone(&mut departures, &entries, &replicas, after(29)), none);
        renew(&mut replicas, "b", "1", after(29));
        assert_eq!(gone(&mut departures, &entries, &replicas, after(31)), none);
        // The own entry stays, whatever the Leases say.
        assert_eq!(gone(&mut departures, &entries, &replicas, after(90)), ["b"]);
    }

    #[test]
    fn entries_of_other_installations_stay() {
        let now = Instant::now();
        let mut other = entry("b");
        other.installation = "elsewhere/gate".to_owned();
        let mut replicas = Replicas::default();
        replicas.complete(&[]);
        let mut departures = Departures::default();
        let none: [&str; 0] = [];
        for seconds in [0, 600] {
            let at = now + Duration::from_secs(seconds);
            let entries = [other.clone()];
            assert_eq!(gone(&mut departures, &entries, &replicas, at), none);
        }
    }
}
