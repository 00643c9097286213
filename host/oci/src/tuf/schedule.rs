//! Decides when a repository is asked again.

use std::time::{Duration, Instant};

/// The refreshes so far.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    failures: u32,
    /// The time of the next refresh. None before the first one.
    next: Option<Instant>,
}

const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// Maximum pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

// === impl Schedule ===

impl Schedule {
    /// Whether the refresh interval, or the pause after a failure, is over.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| now >= next)
    }

    /// Whether a refresh that a load needs may begin. So loads do not ask a repository that has just failed.
    pub(super) fn is_allowed(&self, now: Instant) -> bool {
        self.failures == 0 || self.is_due(now)
    }

    pub(super) fn succeeded(&mut self, interval: Duration, now: Instant) {
        self.failures = 0;
        self.next = Some(now + interval);
    }

    pub(super) fn failed(&mut self, interval: Duration, now: Instant) {
        let doubled = FIRST_PAUSE.saturating_mul(1 << self.failures.min(10));
        self.failures += 1;
        self.next = Some(now + doubled.min(LONGEST_PAUSE).min(interval));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_longer_after_each_failure_and_never_longer_than_the_interval() {
        let now = Instant::now();
        let hour = Duration::from_secs(3600);
        let mut schedule = Schedule::default();
        assert!(schedule.is_due(now) && schedule.is_allowed(now));
        let pauses = [10, 20, 40, 80, 160, 320, 600, 600];
        for pause in pauses.map(Duration::from_secs) {
            schedule.failed(hour, now);
            let before = now + pause - Duration::from_secs(1);
            assert!(!schedule.is_due(before) && !schedule.is_allowed(before));
            assert!(schedule.is_due(now + pause) && schedule.is_allowed(now + pause));
        }
        schedule.failed(Duration::from_secs(60), now);
        assert!(schedule.is_due(now + Duration::from_secs(60)));
        schedule.succeeded(hour, now);
        assert!(!schedule.is_due(now + hour / 2) && schedule.is_allowed(now));
        assert!(schedule.is_due(now + hour));
    }
}
