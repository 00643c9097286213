//! A failed load: the reason, and the time of the next attempt.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// The reason why the desired version of a plugin does not serve.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trouble {
    pub(crate) reason: String,
    /// Digest of the unusable bytes; `None` if the bytes are not the reason.
    pub(crate) digest: Option<Arc<str>>,
    /// Whether the reason is a signature or attestation that is missing.
    pub(crate) is_unsigned: bool,
    /// Time of the first failure in a row.
    pub(crate) since: Instant,
    pub(crate) attempts: u32,
    /// Time of the next attempt.
    pub(crate) next: Instant,
}

/// Random numbers that differ between replicas, so that not all replicas retry at the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Jitter(u64);

const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Maximum pause between attempts, before jitter. Each attempt may use a processor for as long as `engine.loadTimeout`.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

// === impl Trouble ===

impl Trouble {
    /// Describes another failure at `now`. `earlier` is the last failure of the same inputs. `longest` is the maximum
    /// pause before the next attempt, before jitter; `None` for the general maximum.
    pub(super) fn next(
        reason: String,
        digest: Option<Arc<str>>,
        earlier: Option<&Self>,
        longest: Option<Duration>,
        now: Instant,
        jitter: &mut Jitter,
    ) -> Self {
        let same = earlier.filter(|earlier| earlier.digest == digest);
        let attempts = same.map_or(1, |earlier| earlier.attempts.saturating_add(1));
        Self {
            reason,
            digest,
            is_unsigned: false,
            since: earlier.map_or(now, |earlier| earlier.since),
            attempts,
            next: now + pause(attempts, longest, jitter.next()),
        }
    }

    /// The version that is held back; `None` if the next attempt is due, or if the bytes are not the reason.
    pub(super) fn held_back(&self, now: Instant) -> Option<&Arc<str>> {
        self.digest.as_ref().filter(|_| !self.is_due(now))
    }

    /// Whether bytes were fetched and cannot be used.
    pub(super) fn is_of_bytes(&self) -> bool {
        self.digest.is_some()
    }

    /// Whether the trouble is about the bytes with this digest.
    pub(super) fn is_about(&self, digest: &str) -> bool {
        self.digest.as_deref() == Some(digest)
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next <= now
    }
}

// === impl Jitter ===

impl Jitter {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, by SplitMix64.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The duration, changed by a random amount of up to 10 %.
    pub(super) fn about(&mut self, duration: Duration) -> Duration {
        let percent = 90 + u32::try_from(self.next() % 21).unwrap_or(10);
        duration * percent / 100
    }
}

/// The pause after this many attempts. The pause doubles with each attempt up to `longest`, and never exceeds
/// `LONGEST_PAUSE`. Then it is changed by a random amount of up to 20 %.
fn pause(attempts: u32, longest: Option<Duration>, random: u64) -> Duration {
    let longest = longest.map_or(LONGEST_PAUSE, |longest| longest.min(LONGEST_PAUSE));
    let doubled = FIRST_PAUSE.saturating_mul(1 << attempts.saturating_sub(1).min(16));
    let percent = u32::try_from(80 + random % 41).unwrap_or(100);
    doubled.min(longest) * percent / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backs_off_up_to_maximum() {
        let seconds: Vec<u64> = [1, 2, 3, 9, 10, 40, u32::MAX]
            .iter()
            .map(|&attempts| pause(attempts, None, 20).as_secs())
            .collect();
        assert_eq!(seconds, [1, 2, 4, 256, 300, 300, 300]);
        assert_eq!(pause(1, None, 0), Duration::from_millis(800));
        assert_eq!(pause(1, None, 40), Duration::from_millis(1200));
        let minute = Duration::from_secs(60);
        assert_eq!(pause(3, Some(minute), 20), Duration::from_secs(4));
        assert_eq!(pause(u32::MAX, Some(minute), 20), minute);
    }

    #[test]
    fn other_version_resets_backoff() {
        let now = Instant::now();
        let mut jitter = Jitter::new(1);
        let mut next = |digest: Option<&str>, earlier: Option<&Trouble>, now| {
            let digest = digest.map(Arc::from);
            Trouble::next("why".to_owned(), digest, earlier, None, now, &mut jitter)
        };
        let mut first = next(Some("sha256:1"), None, now);
        for _ in 0..5 {
            first = next(Some("sha256:1"), Some(&first), now);
        }
        assert_eq!(first.attempts, 6);
        assert_eq!(
            first.held_back(now).map(|digest| &**digest),
            Some("sha256:1")
        );
        let other = next(Some("sha256:2"), Some(&first), now);
        assert_eq!(other.attempts, 1);
        assert_eq!(other.since, first.since);
        let away = next(None, Some(&other), now);
        assert_eq!(
            away.held_back(now),
            None,
            "without a digest, no version is held back"
        );
    }
}
