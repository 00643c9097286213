//! Keeps a scan slow: so many objects per second, and a share of a processor.

use std::time::{Duration, Instant};

use tollgate_gate::idle;

/// The pace of a scan.
#[derive(Debug)]
pub(crate) struct Pace {
    /// None where the processor time does not matter.
    share: Option<idle::Share>,
    rate: u32,
    /// When the objects so far are paid for.
    paid: Instant,
}

/// Pauses that are shorter are made up for later, because a timer is not that exact.
const SHORTEST: Duration = Duration::from_millis(2);
/// Unused time is saved up for at most this long.
const CREDIT: Duration = Duration::from_millis(100);

// === impl Pace ===

impl Pace {
    /// A pace of so many objects per second, for the calling thread.
    pub(crate) fn new(rate: u32) -> Self {
        Self {
            share: Some(idle::Share::begin()),
            rate,
            paid: Instant::now(),
        }
    }

    /// Waits until the next object may be read or judged.
    pub(crate) async fn step(&mut self) {
        let share = self.share.as_mut().and_then(idle::Share::pause);
        let pause = self.pause(Instant::now()).max(share);
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
        }
    }

    fn pause(&mut self, now: Instant) -> Option<Duration> {
        let earliest = now.checked_sub(CREDIT).unwrap_or(now);
        self.paid = self.paid.max(earliest) + Duration::from_secs(1) / self.rate.max(1);
        let pause = self.paid.saturating_duration_since(now);
        (pause >= SHORTEST).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_do_not_come_faster_than_the_rate() {
        for rate in [5, 200, 10_000] {
            let began = Instant::now();
            let mut pace = Pace {
                share: None,
                rate,
                paid: began,
            };
            let mut now = began;
            let objects = rate * 3;
            for _ in 0..objects {
                now += pace.pause(now).unwrap_or_default();
            }
            let seconds = (now - began).as_secs_f64();
            assert!((2.8..3.1).contains(&seconds), "{rate}: {seconds}");
        }
    }
}
