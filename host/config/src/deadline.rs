//! Computes the moment when an answer must be ready from `?timeout=`.

use std::time::{Duration, Instant};

use crate::Margin;

/// The longest timeout that Tollgate accepts. Kubernetes allows a webhook at most 30 seconds. A longer timeout would
/// only let a client hold memory for longer.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns when a call that arrived at `received` with `timeout` must be answered.
///
/// The margin is the time that the answer needs to reach the caller: `percent` of the timeout or `at_least`, whichever
/// is more, but never more than half of the timeout. A very small timeout therefore still leaves time to run.
#[must_use]
pub fn deadline_after(received: Instant, timeout: Duration, margin: &Margin) -> Instant {
    received + usable_time(timeout, *margin)
}

/// Returns the part of a timeout that is left for the plugins.
#[must_use]
pub fn usable_time(timeout: Duration, margin: Margin) -> Duration {
    let share = timeout.saturating_mul(margin.percent) / 100;
    timeout - share.max(margin.at_least).min(timeout / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(timeout_milliseconds: u64) -> u128 {
        let received = Instant::now();
        let margin = Margin {
            percent: 10,
            at_least: Duration::from_millis(50),
        };
        let timeout = Duration::from_millis(timeout_milliseconds);
        (deadline_after(received, timeout, &margin) - received).as_millis()
    }

    #[test]
    fn subtracts_larger_of_share_and_minimum_up_to_half() {
        assert_eq!(left(10_000), 9_000);
        assert_eq!(left(500), 450);
        assert_eq!(left(200), 150);
        assert_eq!(left(60), 30);
        assert_eq!(left(0), 0);
    }
}
