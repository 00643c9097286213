//! The announcements of all replicas, from their Leases. Does no IO.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::announcement::Announcement;

/// The Leases of all replicas.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replicas {
    /// Whether all Leases have been listed once.
    is_complete: bool,
    leases: BTreeMap<String, Replica>,
}

#[derive(Clone, Debug)]
struct Replica {
    announcement: Announcement,
    resource_version: String,
    /// When this process saw this version of the Lease first. Clocks of replicas may differ.
    renewed: Instant,
}

// === impl Replicas ===

impl Replicas {
    /// Takes note of a Lease as it is now.
    pub(crate) fn see(
        &mut self,
        lease: String,
        resource_version: String,
        announcement: Announcement,
        now: Instant,
    ) {
        let renewed = match self.leases.get(&lease) {
            Some(known) if known.resource_version == resource_version => known.renewed,
            _ => now,
        };
        let replica = Replica {
            announcement,
            resource_version,
            renewed,
        };
        self.leases.insert(lease, replica);
    }

    /// Takes note that a Lease was deleted.
    pub(crate) fn forget(&mut self, lease: &str) {
        self.leases.remove(lease);
    }

    /// Takes note that these are all Leases.
    pub(crate) fn complete(&mut self, listed: &[String]) {
        self.leases.retain(|lease, _| listed.contains(lease));
        self.is_complete = true;
    }

    /// Whether all Leases have been listed.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// When this process saw the last renewal of a Lease. None if there is no such Lease.
    pub(crate) fn renewed(&self, lease: &str) -> Option<Instant> {
        self.leases.get(lease).map(|replica| replica.renewed)
    }

    /// The Leases of the ready replicas. None before all Leases have been listed.
    pub(crate) fn ready_names(
        &self,
        gone_after: Duration,
        now: Instant,
    ) -> Option<BTreeSet<String>> {
        let ready = self.leases.iter().filter(|(_, replica)| {
            replica.announcement.ready && now.duration_since(replica.renewed) < gone_after
        });
        self.is_complete
            .then(|| ready.map(|(lease, _)| lease.clone()).collect())
    }

    /// The announcements of the ready replicas. None before all Leases have been listed.
    pub(crate) fn ready(&self, gone_after: Duration, now: Instant) -> Option<Vec<&Announcement>> {
        let is_here = |replica: &&Replica| now.duration_since(replica.renewed) < gone_after;
        let here = self.leases.values().filter(is_here);
        let ready = here
            .map(|replica| &replica.announcement)
            .filter(|announcement| announcement.ready);
        self.is_complete.then(|| ready.collect())
    }

    /// The public keys of all replicas with a Lease.
    pub(crate) fn canary_keys(&self) -> impl Iterator<Item = &str> {
        let announcements = self.leases.values().map(|replica| &replica.announcement);
        announcements.filter_map(|announcement| announcement.canary.as_deref())
    }

    /// Whether every ready replica has a public key.
    pub(crate) fn all_have_canary_keys(&self, gone_after: Duration, now: Instant) -> bool {
        let ready = self.ready(gone_after, now);
        ready.is_some_and(|ready| ready.iter().all(|one| one.canary.is_some()))
    }

    /// The Leases that no replica renews any more, with their versions.
    pub(crate) fn gone(&self, gone_after: Duration, now: Instant) -> Vec<(String, String)> {
        let is_gone = |replica: &Replica| now.duration_since(replica.renewed) >= gone_after;
        self.leases
            .iter()
            .filter(|(_, replica)| is_gone(replica))
            .map(|(lease, replica)| (lease.clone(), replica.resource_version.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GONE_AFTER: Duration = Duration::from_secs(30);

    fn ready() -> Announcement {
        Announcement {
            ready: true,
            ..Announcement::default()
        }
    }

    #[test]
    fn counts_a_replica_until_it_has_not_renewed_for_30_seconds() {
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        let mut replicas = Replicas::default();
        let see = |replicas: &mut Replicas, version: &str, at| {
            replicas.see("a".to_owned(), version.to_owned(), ready(), at);
        };
        see(&mut replicas, "1", now);
        assert_eq!(replicas.ready(GONE_AFTER, now), None);
        replicas.complete(&["a".to_owned()]);
        let count =
            |replicas: &Replicas, at| replicas.ready(GONE_AFTER, at).map(|ready| ready.len());
        assert_eq!(count(&replicas, after(29)), Some(1));
        // Another list shows the same version: the replica has not renewed.
        see(&mut replicas, "1", after(29));
        assert_eq!(count(&replicas, after(30)), Some(0));
        let gone = vec![("a".to_owned(), "1".to_owned())];
        assert_eq!(replicas.gone(GONE_AFTER, after(30)), gone);
        see(&mut replicas, "2", after(31));
        assert_eq!(count(&replicas, after(60)), Some(1));
        assert_eq!(replicas.gone(GONE_AFTER, after(60)), []);
        replicas.forget("a");
        assert_eq!(count(&replicas, after(60)), Some(0));
    }

    #[test]
    fn does_not_count_replicas_that_are_not_ready() {
        let now = Instant::now();
        let mut replicas = Replicas::default();
        replicas.see("a".to_owned(), "1".to_owned(), Announcement::default(), now);
        replicas.see("b".to_owned(), "1".to_owned(), ready(), now);
        replicas.complete(&["a".to_owned(), "b".to_owned()]);
        let count = replicas.ready(GONE_AFTER, now).map(|ready| ready.len());
        assert_eq!(count, Some(1));
    }
}
