//! A budget of fuel and CPU time that fills up by the clock. Pure: the time comes in.

use std::time::{Duration, Instant};

/// The rest of a budget. It is at most the budget of one second, and may be negative.
#[derive(Debug)]
pub(super) struct Bucket {
    fuel: Amount,
    /// In nanoseconds.
    cpu_time: Amount,
    filled: Instant,
}

/// An amount that grows by a rate.
#[derive(Debug)]
struct Amount {
    /// Units per second, which is also the most that the amount holds.
    rate: i128,
    /// The rest, in billionths of a unit, so that frequent refills lose nothing.
    left: i128,
}

const PER_SECOND: i128 = 1_000_000_000;

// === impl Bucket ===

impl Bucket {
    /// Creates a full budget.
    pub(super) fn new(fuel_per_second: u64, cpu_time_per_second: Duration, now: Instant) -> Self {
        Self {
            fuel: Amount::full(fuel_per_second.into()),
            cpu_time: Amount::full(cpu_time_per_second.as_nanos()),
            filled: now,
        }
    }

    /// Returns how long it takes until something of everything is left. Zero if that is so now.
    pub(super) fn wait(&mut self, now: Instant) -> Duration {
        self.fill(now);
        self.fuel.wait().max(self.cpu_time.wait())
    }

    /// Takes the cost of a call, even if less is left.
    pub(super) fn charge(&mut self, now: Instant, fuel: u64, cpu_time: Duration) {
        self.fill(now);
        self.fuel.take(fuel.into());
        self.cpu_time.take(cpu_time.as_nanos());
    }

    /// Returns whether nothing would be lost if the budget was forgotten.
    pub(super) fn is_full(&mut self, now: Instant) -> bool {
        self.fill(now);
        self.fuel.is_full() && self.cpu_time.is_full()
    }

    fn fill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.filled);
        self.filled = self.filled.max(now);
        self.fuel.fill(elapsed);
        self.cpu_time.fill(elapsed);
    }
}

// === impl Amount ===

impl Amount {
    fn full(rate: u128) -> Self {
        let rate = i128::try_from(rate).unwrap_or(i128::from(u64::MAX)).max(1);
        Self {
            rate,
            left: rate * PER_SECOND,
        }
    }

    fn fill(&mut self, elapsed: Duration) {
        let nanoseconds = i128::try_from(elapsed.as_nanos()).unwrap_or(i128::from(u64::MAX));
        let filled = self
            .left
            .saturating_add(self.rate.saturating_mul(nanoseconds));
        self.left = filled.min(self.rate * PER_SECOND);
    }

    fn take(&mut self, units: u128) {
        let units = i128::try_from(units).unwrap_or(i128::from(u64::MAX));
        self.left = self.left.saturating_sub(units.saturating_mul(PER_SECOND));
    }

    fn is_full(&self) -> bool {
        self.left == self.rate * PER_SECOND
    }

    fn wait(&self) -> Duration {
        if self.left > 0 {
            return Duration::ZERO;
        }
        let nanoseconds = self.left.unsigned_abs() / self.rate.unsigned_abs() + 1;
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MILLISECOND: Duration = Duration::from_millis(1);

    fn bucket() -> (Bucket, Instant) {
        let now = Instant::now();
        (Bucket::new(1_000, 100 * MILLISECOND, now), now)
    }

    #[test]
    fn full_budget_lets_a_call_begin_and_its_debt_delays_the_next() {
        let (mut bucket, now) = bucket();
        assert_eq!(bucket.wait(now), Duration::ZERO);
        bucket.charge(now, 10, 350 * MILLISECOND);
        let wait = bucket.wait(now);
        assert!(
            wait > 2_500 * MILLISECOND && wait < 2_501 * MILLISECOND,
            "{wait:?}"
        );
        assert!(bucket.wait(now + 2_499 * MILLISECOND) > Duration::ZERO);
        assert_eq!(bucket.wait(now + 2_501 * MILLISECOND), Duration::ZERO);
        assert!(!bucket.is_full(now + 3 * SECOND));
        assert!(bucket.is_full(now + 4 * SECOND));
    }

    #[test]
    fn fuel_counts_like_time() {
        let (mut bucket, now) = bucket();
        bucket.charge(now, 3_000, MILLISECOND);
        let wait = bucket.wait(now);
        assert!(
            wait > 2 * SECOND - MILLISECOND && wait < 2 * SECOND + MILLISECOND,
            "{wait:?}"
        );
    }

    #[test]
    fn idle_time_saves_one_second_at_most() {
        let (mut bucket, now) = bucket();
        let later = now + 3_600 * SECOND;
        bucket.charge(later, 2_000, Duration::ZERO);
        assert!(bucket.wait(later) > SECOND - MILLISECOND);
    }

    /// Frequent refills do not lose fractions.
    #[test]
    fn use_stays_within_the_rate_however_often_one_asks() {
        let (mut bucket, now) = bucket();
        let mut used = 0;
        for microseconds in 0..10_000_000_u64 / 50 {
            let now = now + Duration::from_micros(microseconds * 50);
            if bucket.wait(now).is_zero() {
                bucket.charge(now, 7, Duration::ZERO);
                used += 7;
            }
        }
        // Ten seconds, what was there at the beginning, and the last call.
        assert!((10_900..=11_007).contains(&used), "{used}");
    }

    #[test]
    fn clock_that_goes_back_gives_nothing() {
        let (mut bucket, now) = bucket();
        let later = now + SECOND;
        bucket.charge(later, 1_500, Duration::ZERO);
        bucket.charge(now, 0, Duration::ZERO);
        assert!(bucket.wait(later) > 400 * MILLISECOND);
    }
}
