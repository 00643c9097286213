//! The replicas that share work, as this replica knows them.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::replicas::Replicas;

/// The ready replicas of the installation, by the names of their Leases. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Members {
    replicas: watch::Receiver<Replicas>,
    own: String,
    gone_after: Duration,
}

// === impl Members ===

impl Members {
    pub(crate) fn new(
        replicas: watch::Receiver<Replicas>,
        own: String,
        gone_after: Duration,
    ) -> Self {
        Self {
            replicas,
            own,
            gone_after,
        }
    }

    /// The name of this replica.
    #[must_use]
    pub fn own(&self) -> &str {
        &self.own
    }

    /// The names of the replicas that are ready and renew their Leases. None if this replica is not among them, or does
    /// not know all Leases yet.
    #[must_use]
    pub fn ready(&self) -> Option<BTreeSet<String>> {
        let replicas = self.replicas.borrow();
        let ready = replicas.ready_names(self.gone_after, Instant::now())?;
        ready.contains(&self.own).then_some(ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Announcement;

    const GONE_AFTER: Duration = Duration::from_secs(30);

    #[test]
    fn knows_the_ready_replicas_once_it_is_one_of_them() {
        let (sender, replicas) = watch::channel(Replicas::default());
        let members = Members::new(replicas, "b".to_owned(), GONE_AFTER);
        let see = |lease: &str, ready: bool| {
            let announcement = Announcement {
                ready,
                ..Announcement::default()
            };
            let version = format!("{lease}{ready}");
            sender.send_modify(|replicas| {
                replicas.see(lease.to_owned(), version, announcement, Instant::now());
            });
        };
        see("a", true);
        assert_eq!(members.ready(), None, "not all Leases are known");
        let all = ["a", "b", "c"].map(str::to_owned);
        sender.send_modify(|replicas| replicas.complete(&all));
        see("b", false);
        see("c", false);
        assert_eq!(members.ready(), None, "this replica is not ready");
        see("b", true);
        let ready = members.ready().expect("known");
        assert_eq!(ready.into_iter().collect::<Vec<_>>(), ["a", "b"]);
    }
}
