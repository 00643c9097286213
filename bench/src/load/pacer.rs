//! Waits for a moment to within some microseconds. tokio's own timer has a resolution of milliseconds.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A kernel timer.
pub(super) struct Pacer(AsyncFd<OwnedFd>);

// === impl Pacer ===

impl Pacer {
    pub(super) fn new() -> std::io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "unsound for a type that shows another descriptor each time it is asked, which OwnedFd does not; \
                      its successor is an unsafe function"
        )]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        Ok(Self(timer))
    }

    /// Waits until `due`. Returns at once if that moment has passed.
    pub(super) async fn until(&mut self, due: Instant) -> std::io::Result<()> {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let zero = Timespec::try_from(std::time::Duration::ZERO);
        let value = Timespec::try_from(left);
        let (Ok(zero), Ok(value)) = (zero, value) else {
            return Err(std::io::ErrorKind::InvalidInput.into());
        };
        let once = Itimerspec {
            it_interval: zero,
            it_value: value,
        };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut ready = self.0.readable().await?;
            let mut expirations = [0; 8];
            let read = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut expirations)?));
            match read {
                Ok(result) => return result.map(drop),
                Err(_would_block) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn waits_under_a_millisecond_and_never_too_short() {
        let mut pacer = Pacer::new().unwrap();
        let mut shortest = Duration::MAX;
        for _ in 0..50 {
            let began = Instant::now();
            pacer
                .until(began + Duration::from_micros(200))
                .await
                .unwrap();
            let took = began.elapsed();
            assert!(took >= Duration::from_micros(200), "{took:?}");
            shortest = shortest.min(took);
        }
        // The shortest delay, because a busy machine may be late at any time.
        assert!(shortest < Duration::from_millis(1), "{shortest:?}");
    }
}
