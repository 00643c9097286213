//! What is known about the uses of an exception.

use std::time::{Duration, SystemTime};

/// The uses of an exception by this process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExceptionUses {
    /// The requests that were not sent to the plugin because of the exception.
    pub count: u64,
    /// When this happened last.
    pub last: Option<SystemTime>,
    /// When counting began.
    pub since: SystemTime,
}

/// A mean over less time would say nothing about a day.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

// === impl ExceptionUses ===

impl ExceptionUses {
    /// Returns the mean number of uses in a day. None before the first day is over.
    #[must_use]
    pub fn per_day(&self, now: SystemTime) -> Option<f64> {
        let counted = now.duration_since(self.since).unwrap_or_default();
        (counted >= DAY).then(|| {
            let days = counted.as_secs_f64() / DAY.as_secs_f64();
            // No counter comes near the numbers that f64 cannot tell apart.
            (self.count as f64 / days * 100.0).round() / 100.0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_begins_after_a_day() {
        let since = SystemTime::UNIX_EPOCH;
        let uses = ExceptionUses {
            count: 7,
            last: None,
            since,
        };
        let hours = |hours: u64| since + Duration::from_secs(hours * 60 * 60);
        assert_eq!(uses.per_day(hours(23)), None);
        assert_eq!(uses.per_day(hours(24)), Some(7.0));
        assert_eq!(uses.per_day(hours(72)), Some(2.33));
    }
}
