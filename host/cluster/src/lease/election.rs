//! Decides when a replica takes, renews and gives up the leader's Lease. Does no IO.
//!
//! Replicas do not compare clocks. A replica takes the Lease of another one when the Lease has not changed for its
//! whole duration, by the replica's own clock. The leader stops earlier: it leads until `renew_deadline` after the
//! *begin* of its last successful renewal. So a leader that cannot reach kube-apiserver has stopped before another one
//! begins.

use std::time::Duration;

use tokio::time::Instant;

/// The longest time for which another holder's Lease is respected without a renewal, whatever the Lease says.
const LONGEST_RESPECTED: Duration = Duration::from_secs(60);

/// The times of the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectionTiming {
    /// Time without a renewal after which another replica takes the Lease.
    pub lease: Duration,
    /// Time after the last renewal at which the leader stops. It must be shorter than `lease`, so that a request in
    /// flight ends before another replica leads.
    pub renew_deadline: Duration,
    /// Time between two looks at the Lease.
    pub retry: Duration,
}

/// The Lease as a candidate sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// The holder. None after an orderly handover.
    pub(crate) holder: Option<String>,
    /// Changes with every write.
    pub(crate) resource_version: String,
    /// The time that the holder asked for.
    pub(crate) lease: Duration,
}

/// The write that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Create the Lease.
    Create,
    /// Take the Lease, which nobody holds any more.
    Take,
    /// Renew the own Lease.
    Renew,
    /// Write nothing: another replica holds the Lease.
    Wait,
}

/// The state of one candidate.
#[derive(Debug)]
pub(crate) struct Election {
    identity: String,
    timing: ElectionTiming,
    /// The last version of the Lease, and when this candidate saw it first.
    seen: Option<(String, Instant)>,
    leads_until: Option<Instant>,
}

// === impl ElectionTiming ===

/// Ten seconds until a dead leader is replaced.
impl Default for ElectionTiming {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            renew_deadline: Duration::from_secs(7),
            retry: Duration::from_secs(2),
        }
    }
}

// === impl Election ===

impl Election {
    pub(crate) fn new(identity: String, timing: ElectionTiming) -> Self {
        Self {
            identity,
            timing,
            seen: None,
            leads_until: None,
        }
    }

    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    pub(crate) fn timing(&self) -> ElectionTiming {
        self.timing
    }

    /// Takes note of the Lease, and returns what to write.
    pub(crate) fn look(&mut self, lease: Option<&Look>, now: Instant) -> Action {
        let Some(lease) = lease else {
            self.seen = None;
            return Action::Create;
        };
        let since = match &self.seen {
            Some((version, since)) if *version == lease.resource_version => *since,
            _ => {
                self.seen = Some((lease.resource_version.clone(), now));
                now
            }
        };
        match lease.holder.as_deref() {
            None | Some("") => Action::Take,
            Some(holder) if holder == self.identity => Action::Renew,
            Some(_) => {
                self.leads_until = None;
                if now.duration_since(since) >= lease.lease.min(LONGEST_RESPECTED) {
                    Action::Take
                } else {
                    Action::Wait
                }
            }
        }
    }

    /// Takes note that a write succeeded. `began` is when its request began.
    pub(crate) fn wrote(&mut self, began: Instant) {
        self.leads_until = Some(began + self.timing.renew_deadline);
    }

    /// Takes note that another replica wrote the Lease first.
    pub(crate) fn lost(&mut self) {
        self.leads_until = None;
    }

    /// Until when this replica leads. None if it does not.
    pub(crate) fn leads_until(&self, now: Instant) -> Option<Instant> {
        self.leads_until.filter(|until| now < *until)
    }
}

#[cfg(test)]
mod tests;
