//! Measures a call's time: CPU time, and wall-clock time by cause.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use rustix::time::{ClockId, clock_gettime};

use super::TICK;
use super::fault::Milliseconds;

/// The time of one call. The future that runs the call and the epoch callback inside it share this meter.
///
/// Until its first tick, a call is charged wall-clock time as CPU time, for one tick at most. This costs no system
/// call. After the first tick, the meter reads the thread's CPU clock. A host that is short of CPU is therefore not
/// mistaken for a guest that spins.
pub(super) struct Meter {
    started: Instant,
    /// Start of the current slice in nanoseconds, on the clock in use.
    slice_began: AtomicU64,
    /// Start of the current slice by the wall clock, while the meter uses the CPU clock.
    slice_began_by_clock: AtomicU64,
    spent: AtomicU64,
    /// Time in which the call was ready to run and did not run, in nanoseconds.
    waited: AtomicU64,
    /// End of the last slice that left the call pending, since `started`; absent before the first pause.
    paused: OptionalMoment,
    /// Whether a slice has begun and not ended. The first one begins with the meter.
    in_slice: AtomicBool,
    ticked: AtomicBool,
}

/// How a call spent its wall-clock time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Time waiting for one of the plugin's own permits.
    pub queued: Duration,
    /// Time on a processor.
    pub cpu: Duration,
    /// Time ready to run, but without a processor.
    pub waited: Duration,
    /// Time waiting for something that the plugin chose, such as a timer.
    pub slept: Duration,
}

/// Runs a future and charges its slices to a meter. [`Meter::finish`] ends the last slice.
///
/// The first slice begins with the meter, so the future is polled at once.
pub(super) struct Metered<'m, F> {
    pub(super) meter: &'m Meter,
    /// Records when the future is woken; `None` when every pause is a yield.
    pub(super) woken: Option<Arc<Woken>>,
    pub(super) future: F,
}

/// A waker that records the time of its first use.
pub(super) struct Woken {
    started: Instant,
    /// Time of the wake-up, since `started`; absent if there was none since the last look.
    at: OptionalMoment,
    inner: AtomicWaker,
}

/// A moment that may be absent, in nanoseconds. It takes one atomic word.
struct OptionalMoment(AtomicU64);

// === impl Meter ===

impl Meter {
    pub(super) fn start() -> Self {
        Self::start_at(Instant::now())
    }

    /// Starts at a time that was just read.
    pub(super) fn start_at(started: Instant) -> Self {
        Self {
            started,
            slice_began: AtomicU64::new(0),
            slice_began_by_clock: AtomicU64::new(0),
            spent: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            paused: OptionalMoment::absent(),
            in_slice: AtomicBool::new(true),
            ticked: AtomicBool::new(false),
        }
    }

    /// Ends the slice in which the call has ended, and returns the time. What the host did to remove the instance is part
    /// of the slice.
    pub(super) fn finish(&self) -> Instant {
        let now = Instant::now();
        if self.in_slice.load(Ordering::Relaxed) {
            self.end_slice_at(nanoseconds(now.saturating_duration_since(self.started)));
        }
        now
    }

    /// Whether the call has run without a pause so far, and so on one thread.
    pub(super) fn was_never_paused(&self) -> bool {
        self.paused.get().is_none()
    }

    /// CPU time of the slices that have ended.
    pub(super) fn cpu(&self) -> Duration {
        Duration::from_nanos(self.spent.load(Ordering::Relaxed))
    }

    /// How the call spent its time since `began`, which is not after the start of the meter.
    ///
    /// `can_sleep` says whether the call can wait for anything other than a processor.
    pub(super) fn spent(&self, began: Instant, can_sleep: bool) -> Spent {
        let queued = self.started.saturating_duration_since(began);
        let cpu = self.cpu();
        let waited = Duration::from_nanos(self.waited.load(Ordering::Relaxed));
        let rest = began.elapsed().saturating_sub(queued + cpu + waited);
        let (waited, slept) = if can_sleep {
            (waited, rest)
        } else {
            (waited + rest, Duration::ZERO)
        };
        Spent {
            queued,
            cpu,
            waited,
            slept,
        }
    }

    /// Creates a waker for a future that can wait for something other than a processor.
    pub(super) fn woken(&self) -> Arc<Woken> {
        Arc::new(Woken {
            started: self.started,
            at: OptionalMoment::absent(),
            inner: AtomicWaker::new(),
        })
    }

    /// Charges the current slice at a tick, and returns the CPU time of the call so far.
    pub(super) fn tick(&self) -> Duration {
        if self.ticked.swap(true, Ordering::Relaxed) {
            self.end_slice_at(self.clock());
        } else {
            // The wall clock went on while other threads had the processor, possibly for much longer than a tick.
            let slice = self
                .clock()
                .saturating_sub(self.slice_began.load(Ordering::Relaxed));
            let tick = nanoseconds(TICK);
            let charged = slice.min(tick);
            self.spent.fetch_add(charged, Ordering::Relaxed);
            self.waited.fetch_add(slice - charged, Ordering::Relaxed);
        }
        self.begin_slice();
        self.cpu()
    }

    fn begin_slice(&self) {
        self.in_slice.store(true, Ordering::Relaxed);
        if self.ticked.load(Ordering::Relaxed) {
            self.slice_began.store(thread_time(), Ordering::Relaxed);
            self.slice_began_by_clock
                .store(self.clock(), Ordering::Relaxed);
        } else {
            self.slice_began.store(self.clock(), Ordering::Relaxed);
        }
    }

    /// Ends a slice at a time by the wall clock, since `started`.
    fn end_slice_at(&self, clock: u64) {
        self.in_slice.store(false, Ordering::Relaxed);
        let began = self.slice_began.load(Ordering::Relaxed);
        if self.ticked.load(Ordering::Relaxed) {
            let cpu = thread_time().saturating_sub(began);
            let began = self.slice_began_by_clock.load(Ordering::Relaxed);
            let by_clock = clock.saturating_sub(began);
            self.spent.fetch_add(cpu, Ordering::Relaxed);
            let preempted = by_clock.saturating_sub(cpu);
            self.waited.fetch_add(preempted, Ordering::Relaxed);
        } else {
            let cpu = clock.saturating_sub(began);
            self.spent.fetch_add(cpu, Ordering::Relaxed);
        }
    }

    /// Ends a pause: charges the time since the wake-up as waiting for a processor, and begins a slice. Does nothing if
    /// there was no pause.
    ///
    /// `woken` is `None` when the call was ready for the whole pause.
    fn resume(&self, woken: Option<&Woken>) {
        let Some(paused) = self.paused.get() else {
            return;
        };
        let now = self.clock();
        let ready = match woken.map(|woken| woken.at.take()) {
            None => paused,
            // The timer around the call polled it, not its own waker.
            Some(None) => now,
            Some(Some(at)) => at.max(paused),
        };
        let waited = now.saturating_sub(ready);
        self.waited.fetch_add(waited, Ordering::Relaxed);
        self.begin_slice();
    }

    /// Ends the slice that leaves the call pending.
    fn pause(&self) {
        let now = self.clock();
        self.end_slice_at(now);
        self.paused.set(now);
    }

    fn clock(&self) -> u64 {
        nanoseconds(self.started.elapsed())
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// CPU time of this thread, in nanoseconds.
fn thread_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default()
}

// === impl Metered ===

impl<F: Future + Unpin> Future for Metered<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.meter.resume(this.woken.as_deref());
        let poll = match &this.woken {
            None => Pin::new(&mut this.future).poll(context),
            Some(woken) => {
                woken.inner.register(context.waker());
                let waker = Waker::from(woken.clone());
                let mut context = Context::from_waker(&waker);
                Pin::new(&mut this.future).poll(&mut context)
            }
        };
        if poll.is_pending() {
            this.meter.pause();
        }
        poll
    }
}

// === impl Woken ===

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Only the first wake-up counts: the call is ready from then on.
        self.at.set_if_absent(nanoseconds(self.started.elapsed()));
        self.inner.wake();
    }
}

// === impl OptionalMoment ===

impl OptionalMoment {
    /// The word of an absent moment. A moment of 0 ns is stored as 1 ns.
    const ABSENT: u64 = 0;

    fn absent() -> Self {
        Self(AtomicU64::new(Self::ABSENT))
    }

    fn of(word: u64) -> Option<u64> {
        (word != Self::ABSENT).then_some(word)
    }

    fn get(&self) -> Option<u64> {
        Self::of(self.0.load(Ordering::Relaxed))
    }

    /// Returns the moment and makes it absent.
    fn take(&self) -> Option<u64> {
        Self::of(self.0.swap(Self::ABSENT, Ordering::Relaxed))
    }

    fn set(&self, nanoseconds: u64) {
        self.0.store(nanoseconds.max(1), Ordering::Relaxed);
    }

    fn set_if_absent(&self, nanoseconds: u64) {
        let word = nanoseconds.max(1);
        let _: Result<u64, u64> =
            self.0
                .compare_exchange(Self::ABSENT, word, Ordering::Relaxed, Ordering::Relaxed);
    }
}

// === impl Spent ===

impl fmt::Display for Spent {
    /// Writes the parts of a tick or more, and explains the largest part.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            queued,
            cpu,
            waited,
            slept,
        } = *self;
        write!(f, "the plugin ran for {}", Milliseconds(cpu))?;
        let parts = [
            (waited, "waited for a processor for"),
            (queued, "waited for a free slot for"),
            (slept, "slept for"),
        ];
        for (part, what) in parts {
            if part >= TICK {
                write!(f, ", {what} {}", Milliseconds(part))?;
            }
        }
        let largest = cpu.max(waited).max(queued).max(slept);
        f.write_str(if largest == cpu {
            ": an endless loop, or too much work"
        } else if largest == waited {
            ": other calls and processes used the processors"
        } else if largest == queued {
            ": too many concurrent calls of this plugin (limits.concurrency)"
        } else {
            ": the plugin waits for a timer"
        })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[test]
    fn does_not_charge_time_without_processor() {
        let meter = Meter::start();
        meter.begin_slice();
        std::thread::sleep(TICK * 50);
        let charged = meter.tick();
        assert!(charged <= TICK, "{charged:?}");
        std::thread::sleep(TICK * 50);
        let charged = meter.tick();
        assert!(charged < TICK * 25, "{charged:?}");
        let spent = meter.spent(meter.started, true);
        assert!(spent.waited >= TICK * 70, "{spent:?}");
    }

    #[test]
    fn optional_moment_keeps_first_value_until_taken() {
        let moment = OptionalMoment::absent();
        assert_eq!((moment.get(), moment.take()), (None, None));
        moment.set_if_absent(7);
        moment.set_if_absent(9);
        assert_eq!(moment.get(), Some(7));
        moment.set(9);
        assert_eq!((moment.take(), moment.get()), (Some(9), None));
        moment.set(0);
        assert_eq!(moment.get(), Some(1));
    }

    #[test]
    fn finish_ends_only_a_slice_that_has_begun() {
        let meter = Meter::start();
        std::thread::sleep(TICK * 2);
        let end = meter.finish();
        assert_eq!(meter.cpu(), end - meter.started);
        assert!(meter.cpu() >= TICK * 2);

        let paused = Meter::start();
        paused.pause();
        let cpu = paused.cpu();
        std::thread::sleep(TICK * 2);
        assert!(paused.finish() - paused.started >= TICK * 2);
        assert_eq!(paused.cpu(), cpu);
    }

    #[test]
    fn charges_cpu_time_after_first_tick() {
        let meter = Meter::start();
        meter.begin_slice();
        meter.tick();
        let began = thread_time();
        while thread_time() - began < 5_000_000 {
            std::hint::spin_loop();
        }
        assert!(meter.tick() >= Duration::from_millis(5));
    }

    /// The future yields once, is woken at once, and is polled late.
    #[tokio::test]
    async fn ready_call_that_does_not_run_waits_for_processor() {
        for woken in [false, true] {
            let meter = Meter::start();
            let mut yielded = false;
            let future = std::future::poll_fn(|context| {
                if std::mem::replace(&mut yielded, true) {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            });
            let mut run = pin!(Metered {
                meter: &meter,
                woken: woken.then(|| meter.woken()),
                future: pin!(future),
            });
            let first = futures_util::poll!(run.as_mut());
            assert!(first.is_pending());
            std::thread::sleep(TICK * 30);
            run.await;
            let spent = meter.spent(meter.started, true);
            assert!(spent.waited >= TICK * 30, "{woken}: {spent:?}");
            assert!(spent.slept < TICK * 15, "{woken}: {spent:?}");
        }
    }

    #[tokio::test]
    async fn call_that_waits_for_timer_sleeps() {
        let meter = Meter::start();
        let run = Metered {
            meter: &meter,
            woken: Some(meter.woken()),
            future: pin!(tokio::time::sleep(TICK * 60)),
        };
        run.await;
        let spent = meter.spent(meter.started, true);
        assert!(spent.slept >= TICK * 50, "{spent:?}");
    }

    #[test]
    fn explains_largest_part_of_time() {
        let milliseconds = Duration::from_millis;
        let spent = |queued, cpu, waited, slept| {
            let spent = Spent {
                queued: milliseconds(queued),
                cpu: milliseconds(cpu),
                waited: milliseconds(waited),
                slept: milliseconds(slept),
            };
            spent.to_string()
        };
        assert_eq!(
            spent(0, 490, 9, 0),
            "the plugin ran for 490 ms, waited for a processor for 9.0 ms: an endless loop, or too much work"
        );
        assert_eq!(
            spent(0, 47, 153, 0),
            "the plugin ran for 47 ms, waited for a processor for 153 ms: other calls and processes used the processors"
        );
        assert_eq!(
            spent(120, 20, 60, 0),
            "the plugin ran for 20 ms, waited for a processor for 60 ms, waited for a free slot for 120 ms: too many \
             concurrent calls of this plugin (limits.concurrency)"
        );
        assert_eq!(
            spent(0, 0, 0, 200),
            "the plugin ran for 0.0 ms, slept for 200 ms: the plugin waits for a timer"
        );
    }
}
