//! Whether a table answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// Whether a table answers, and how old its content is.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Whether the table follows the cluster.
    pub synchronisation: Synchronisation,
    /// The version of the resource's list that the content has.
    pub resource_version: Option<Arc<str>>,
    /// The time of the last list, event or bookmark.
    pub last_event: Option<Instant>,
}

/// Whether a table follows the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Synchronisation {
    /// The objects have never been read.
    Pending {
        /// Why the last attempt failed. None before the first attempt has ended.
        reason: Option<Arc<str>>,
    },
    /// The table follows the cluster.
    Following,
    /// The watch is cut. The table answers from its content until [`LONGEST_CUT`] is over.
    Cut {
        /// The time of the first failure.
        since: Instant,
        /// Why the last attempt failed.
        reason: Arc<str>,
    },
}

/// The time for which a table answers without a watch.
pub const LONGEST_CUT: Duration = Duration::from_secs(60);

const NOT_READ: &str = "the objects have not been read yet";

// === impl Synchronisation ===

impl Default for Synchronisation {
    fn default() -> Self {
        Self::Pending { reason: None }
    }
}

// === impl State ===

impl State {
    /// Whether the table answers now.
    #[must_use]
    pub fn is_synchronised(&self) -> bool {
        self.why_silent(Instant::now()).is_none()
    }

    /// Says why the objects have never been read. None if they have been read.
    #[must_use]
    pub fn pending(&self) -> Option<String> {
        match &self.synchronisation {
            Synchronisation::Pending { reason: None } => Some(NOT_READ.to_owned()),
            Synchronisation::Pending {
                reason: Some(reason),
            } => Some(format!("{NOT_READ}: {reason}")),
            _ => None,
        }
    }

    /// Says why the table does not answer at a time. None if it answers.
    pub(super) fn why_silent(&self, now: Instant) -> Option<String> {
        match &self.synchronisation {
            Synchronisation::Following => None,
            Synchronisation::Pending { .. } => self.pending(),
            Synchronisation::Cut { since, reason } => {
                let cut = now.saturating_duration_since(*since);
                (cut > LONGEST_CUT).then(|| {
                    let seconds = cut.as_secs();
                    format!("the watch has been cut for {seconds} s: {reason}")
                })
            }
        }
    }

    /// A list has been read.
    pub(super) fn synchronises(&mut self, resource_version: &str) {
        self.synchronisation = Synchronisation::Following;
        self.note(resource_version);
    }

    /// A watch has said something. Another watch of the table may be cut, so this does not end a cut.
    pub(super) fn advances(&mut self, resource_version: &str) {
        self.note(resource_version);
    }

    /// Notes that all watches of the table work again. A table that has never been read stays unread.
    pub(super) fn recovers(&mut self) {
        if let Synchronisation::Cut { .. } = self.synchronisation {
            self.synchronisation = Synchronisation::Following;
        }
    }

    /// Notes that no task follows the table any more.
    pub(super) fn ends(&mut self, reason: &str) {
        self.synchronisation = Synchronisation::Pending {
            reason: Some(Arc::from(reason)),
        };
    }

    pub(super) fn fails(&mut self, reason: &str, now: Instant) {
        let reason = Arc::from(reason);
        self.synchronisation = match &self.synchronisation {
            Synchronisation::Pending { .. } => Synchronisation::Pending {
                reason: Some(reason),
            },
            Synchronisation::Following => Synchronisation::Cut { since: now, reason },
            Synchronisation::Cut { since, .. } => Synchronisation::Cut {
                since: *since,
                reason,
            },
        };
    }

    fn note(&mut self, resource_version: &str) {
        self.resource_version = Some(Arc::from(resource_version));
        self.last_event = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_for_a_minute_after_the_watch_is_cut() {
        let mut state = State::default();
        assert_eq!(state.pending().unwrap(), NOT_READ);
        let start = Instant::now();
        state.fails("forbidden", start);
        let silent = state.why_silent(start).unwrap();
        assert_eq!(silent, "the objects have not been read yet: forbidden");
        state.advances("7");
        assert!(!state.is_synchronised(), "a bookmark is no list");
        state.synchronises("8");
        assert!(state.is_synchronised() && state.pending().is_none());
        state.fails("connection refused", start);
        state.fails("connection reset", start + Duration::from_secs(50));
        assert_eq!(state.why_silent(start + LONGEST_CUT), None);
        let late = start + LONGEST_CUT + Duration::from_secs(15);
        let silent = state.why_silent(late).unwrap();
        assert_eq!(silent, "the watch has been cut for 75 s: connection reset");
        assert!(state.pending().is_none());
        state.advances("9");
        assert!(
            state.why_silent(late).is_some(),
            "another watch may have spoken"
        );
        state.recovers();
        assert_eq!(state.why_silent(late), None);
        state.ends("gone");
        assert!(!state.is_synchronised(), "nobody follows");
        assert_eq!(state.resource_version.as_deref(), Some("9"));
    }
}
