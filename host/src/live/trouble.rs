//! What is wanted and cannot be had, and when it is tried again.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Why what is wanted of a plugin is not what serves.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) reason: String,
    /// Of the bytes that cannot be used; empty where it is not the bytes.
    digest: Arc<str>,
    since: OffsetDateTime,
    attempts: u32,
    next: Instant,
}

const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Loading may take a processor for `engine.loadTimeout`, each time.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

// === impl Trouble ===

impl Trouble {
    /// Another failure; `earlier` is the same candidate's last one. It is tried again after `longest` at the latest.
    pub(super) fn next(
        reason: String,
        digest: Arc<str>,
        earlier: Option<&Self>,
        longest: Duration,
    ) -> Self {
        let same = earlier.filter(|earlier| earlier.digest == digest);
        let attempts = same.map_or(1, |earlier| earlier.attempts.saturating_add(1));
        let random = RandomState::new().hash_one(attempts);
        Self {
            reason,
            digest,
            since: earlier.map_or_else(OffsetDateTime::now_utc, |earlier| earlier.since),
            attempts,
            next: Instant::now() + pause(attempts, longest, random),
        }
    }

    /// The version that is not to be tried before this is due.
    pub(super) fn held_back(&self) -> Option<&Arc<str>> {
        let held_back = !self.is_due() && self.is_of_bytes();
        held_back.then_some(&self.digest)
    }

    /// Whether there are bytes, and they cannot be used.
    pub(super) fn is_of_bytes(&self) -> bool {
        !self.digest.is_empty()
    }

    /// Whether these are the bytes that cannot be used.
    pub(super) fn is_about(&self, digest: &str) -> bool {
        *self.digest == *digest
    }

    pub(super) fn is_due(&self) -> bool {
        self.next <= Instant::now()
    }

    pub(super) fn retry_in(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// For `/plugins`.
    pub(super) fn tell(&self) -> Value {
        let mut told = json!({
            "reason": self.reason,
            "since": timestamp(self.since),
            "attempts": self.attempts,
            "nextAttempt": timestamp(OffsetDateTime::now_utc() + self.retry_in()),
        });
        if !self.digest.is_empty() {
            told["digest"] = (&*self.digest).into();
        }
        told
    }
}

/// Doubles with each attempt, within a fifth more or less: replicas do not all come at once.
fn pause(attempts: u32, longest: Duration, random: u64) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << attempts.saturating_sub(1).min(16));
    let percent = u32::try_from(80 + random % 41).unwrap_or(100);
    doubled.min(longest).min(LONGEST_PAUSE) * percent / 100
}

/// To the second.
pub(super) fn timestamp(time: OffsetDateTime) -> String {
    let time = time.replace_nanosecond(0).unwrap_or(time);
    time.format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_longer_each_time_and_not_forever() {
        let seconds: Vec<u64> = [1, 2, 3, 9, 10, 40, u32::MAX]
            .iter()
            .map(|&attempts| pause(attempts, Duration::MAX, 20).as_secs())
            .collect();
        assert_eq!(seconds, [1, 2, 4, 256, 300, 300, 300]);
        assert_eq!(pause(1, Duration::MAX, 0), Duration::from_millis(800));
        assert_eq!(pause(1, Duration::MAX, 40), Duration::from_millis(1200));
        let minute = Duration::from_secs(60);
        assert_eq!(pause(3, minute, 20), Duration::from_secs(4));
        assert_eq!(pause(u32::MAX, minute, 20), minute);
    }

    #[test]
    fn another_version_is_tried_without_the_pauses_of_the_one_before() {
        let next = |digest: &str, earlier: Option<&Trouble>| {
            Trouble::next("why".to_owned(), digest.into(), earlier, Duration::MAX)
        };
        let mut first = next("sha256:1", None);
        for _ in 0..5 {
            first = next("sha256:1", Some(&first));
        }
        assert_eq!(first.attempts, 6);
        assert_eq!(first.held_back().map(|digest| &**digest), Some("sha256:1"));
        let other = next("sha256:2", Some(&first));
        assert_eq!(other.attempts, 1);
        assert_eq!(other.since, first.since);
        let away = next("", Some(&other));
        assert_eq!(away.held_back(), None, "nothing is known to be bad");
    }
}
