//! How much time a call has had: CPU while it ran, and by the clock.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::TICK;

/// The time of one call, shared between the future that runs it and the epoch's callback inside.
///
/// Up to its first tick a call's CPU time is taken to be the time that it ran for by the clock, which costs no
/// system call, and a tick at most; from then on its thread's CPU clock is read, so that a host short of CPU is not
/// mistaken for a guest that spins.
pub(super) struct Meter {
    started: Instant,
    /// When the slice under way began, on the clock in use; nanoseconds.
    slice_began: AtomicU64,
    spent: AtomicU64,
    ticked: AtomicBool,
}

/// Runs a future and charges its slices to a meter.
pub(super) struct Metered<'m, F> {
    pub(super) meter: &'m Meter,
    pub(super) future: F,
}

// === impl Meter ===

impl Meter {
    pub(super) fn start() -> Self {
        Self {
            started: Instant::now(),
            slice_began: AtomicU64::new(0),
            spent: AtomicU64::new(0),
            ticked: AtomicBool::new(false),
        }
    }

    /// CPU time of the slices that have ended.
    pub(super) fn cpu(&self) -> Duration {
        Duration::from_nanos(self.spent.load(Ordering::Relaxed))
    }

    /// At a tick, inside a slice: charges what the slice has had so far and says how much that makes in all.
    pub(super) fn tick(&self) -> Duration {
        if self.ticked.swap(true, Ordering::Relaxed) {
            self.end_slice();
        } else {
            // The clock went on while others had the processor, which may have been for much longer than a tick.
            let slice = self
                .clock()
                .saturating_sub(self.slice_began.load(Ordering::Relaxed));
            let tick = u64::try_from(TICK.as_nanos()).unwrap_or(u64::MAX);
            self.spent.fetch_add(slice.min(tick), Ordering::Relaxed);
        }
        self.begin_slice();
        self.cpu()
    }

    fn begin_slice(&self) {
        self.slice_began.store(self.now(), Ordering::Relaxed);
    }

    fn end_slice(&self) {
        let slice = self
            .now()
            .saturating_sub(self.slice_began.load(Ordering::Relaxed));
        self.spent.fetch_add(slice, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        if self.ticked.load(Ordering::Relaxed) {
            let time = clock_gettime(ClockId::ThreadCPUTime);
            let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
            seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default()
        } else {
            self.clock()
        }
    }

    fn clock(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

// === impl Metered ===

impl<F: Future + Unpin> Future for Metered<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.meter.begin_slice();
        let poll = Pin::new(&mut self.future).poll(context);
        self.meter.end_slice();
        poll
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn does_not_charge_for_a_processor_that_others_had() {
        let meter = Meter::start();
        meter.begin_slice();
        std::thread::sleep(TICK * 50);
        let charged = meter.tick();
        assert!(charged <= TICK, "{charged:?}");
        std::thread::sleep(TICK * 50);
        let charged = meter.tick();
        assert!(charged < TICK * 25, "{charged:?}");
    }

    #[test]
    fn charges_for_work_from_the_first_tick_on() {
        let meter = Meter::start();
        meter.begin_slice();
        meter.tick();
        let began = clock_gettime(ClockId::ThreadCPUTime);
        let worked = || {
            let now = clock_gettime(ClockId::ThreadCPUTime);
            (now.tv_sec - began.tv_sec) * 1_000_000_000 + (now.tv_nsec - began.tv_nsec)
        };
        while worked() < 5_000_000 {
            std::hint::spin_loop();
        }
        assert!(meter.tick() >= Duration::from_millis(5));
    }
}
