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
    /// Of the bytes that cannot be used; empty where there are none.
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
    /// Another failure; `earlier` is the same candidate's last one.
    pub(super) fn next(reason: String, digest: Arc<str>, earlier: Option<&Self>) -> Self {
        let attempts = earlier.map_or(1, |earlier| earlier.attempts.saturating_add(1));
        Self {
            reason,
            digest,
            since: earlier.map_or_else(OffsetDateTime::now_utc, |earlier| earlier.since),
            attempts,
            next: Instant::now() + pause(attempts, RandomState::new().hash_one(attempts)),
        }
    }

    /// Whether it is about what these bytes are, and not about having them.
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
fn pause(attempts: u32, random: u64) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << attempts.saturating_sub(1).min(16));
    let percent = u32::try_from(80 + random % 41).unwrap_or(100);
    doubled.min(LONGEST_PAUSE) * percent / 100
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
            .map(|&attempts| pause(attempts, 20).as_secs())
            .collect();
        assert_eq!(seconds, [1, 2, 4, 256, 300, 300, 300]);
        assert_eq!(pause(1, 0), Duration::from_millis(800));
        assert_eq!(pause(1, 40), Duration::from_millis(1200));
    }
}
