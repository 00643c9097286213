//! Threads of the lowest priority, for work that nobody waits for: shadows, and the background scan.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Keeps the calling thread within a quarter of a processor.
#[derive(Debug)]
pub struct Share {
    /// The instant at which the CPU time used so far is paid for.
    paid: Instant,
    /// CPU time of the thread at the last check.
    spent: Duration,
}

/// The thread gets one part in this many of a processor's time.
const PART: u32 = 4;
/// Unused time is saved up for at most this long.
const CREDIT: Duration = Duration::from_millis(100);
/// The highest nice value, which is the lowest priority.
const NICE: i32 = 19;

/// Gives this thread the lowest priority. On Linux, other threads are not affected.
///
/// A nice value alone is not enough: a serving thread may still have to wait some milliseconds for a nice thread's
/// time slice to end. `SCHED_IDLE` avoids that. If the system refuses it, nothing breaks, because the thread's share
/// of a processor is bounded anyway.
#[expect(unsafe_code, reason = "rustix has no call for it")]
pub fn lower_priority() {
    let _: Result<i32, _> = rustix::process::nice(NICE);
    // The kernel reads one number. musl has a function for this call that only returns ENOSYS.
    let priority: libc::c_int = 0;
    // SAFETY: 0 is the calling thread, and the kernel reads a c_int that outlives the call.
    let _: libc::c_long = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            0,
            libc::SCHED_IDLE,
            &raw const priority,
        )
    };
}

/// Returns the CPU time that this thread has used.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

// === impl Share ===

impl Share {
    /// Begins to count the CPU time of this thread.
    #[must_use]
    pub fn begin() -> Self {
        Self::new(Instant::now(), thread_time())
    }

    /// Returns how long this thread must wait. Returns none if part of its share is left.
    pub fn pause(&mut self) -> Option<Duration> {
        self.pause_at(Instant::now(), thread_time())
    }

    fn new(now: Instant, spent: Duration) -> Self {
        Self { paid: now, spent }
    }

    /// Returns how long to wait if the thread has used `spent` CPU time by now.
    fn pause_at(&mut self, now: Instant, spent: Duration) -> Option<Duration> {
        let more = spent.saturating_sub(self.spent);
        self.spent = spent;
        let earliest = now.checked_sub(CREDIT).unwrap_or(now);
        self.paid = self.paid.max(earliest) + more * PART;
        let pause = self.paid.saturating_duration_since(now);
        (!pause.is_zero()).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowers_the_priority_of_its_own_thread_only() {
        let policy = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            // The name of the thread may contain spaces. The policy is the 39th value after it.
            let (_, values) = stat.rsplit_once(')').unwrap();
            values.split_whitespace().nth(38).unwrap().to_owned()
        };
        let before = policy();
        let lowered = std::thread::spawn(move || {
            lower_priority();
            policy()
        });
        assert_eq!(lowered.join().unwrap(), libc::SCHED_IDLE.to_string());
        assert_eq!(policy(), before);
    }

    #[test]
    fn uses_at_most_a_quarter_of_a_processor() {
        let began = Instant::now();
        let mut share = Share::new(began, Duration::ZERO);
        let (mut now, mut spent) = (began, Duration::ZERO);
        for _ in 0..100 {
            let worked = Duration::from_millis(40);
            now += worked;
            spent += worked;
            now += share.pause_at(now, spent).unwrap_or_default();
        }
        let (used, passed) = (spent.as_secs_f64(), (now - began).as_secs_f64());
        assert!(
            (0.24..0.27).contains(&(used / passed)),
            "{used} of {passed}"
        );
    }

    #[test]
    fn unused_share_does_not_accumulate() {
        let began = Instant::now();
        let mut share = Share::new(began, Duration::ZERO);
        let later = began + Duration::from_secs(3600);
        assert_eq!(share.pause_at(later, Duration::from_millis(20)), None);
        let pause = share.pause_at(later, Duration::from_millis(60));
        assert_eq!(pause, Some(Duration::from_millis(140)));
    }
}
