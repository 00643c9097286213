//! Decides when each plugin is prepared, and at which priority.
//!
//! The goals are:
//!
//! - A small change does not wait behind a plugin that takes a minute to compile.
//! - A small change does not wait for a processor that requests keep busy.
//! - Preparing plugins does not slow down requests.
//!
//! Every plugin needs a turn to enter, and the number of turns equals the number of processors. A plugin moves to the
//! slow lane and frees its turn after two seconds of CPU time, or when it does nothing for 300 ms. If the slow lane is
//! full, the plugin keeps its turn.
//!
//! The floor has permits for half as many plugins as there are processors, rounded up. A plugin with such a permit
//! begins at the normal priority, and its children are niced after those two seconds. The children of other plugins are
//! niced from the beginning.

use std::time::{Duration, Instant};

use rustix::process::{Pid, getpriority_process, setpriority_pgrp};
use tokio::sync::{Semaphore, SemaphorePermit};

/// CPU time that all children of one plugin together have at the normal priority.
pub(super) const FLOOR: Duration = Duration::from_secs(2);
/// Amount by which children are nicer after that time. Requests come first.
const NICE: i32 = 10;
/// Time after which a child that does not use the processor counts as waiting for something else.
const IDLE: Duration = Duration::from_millis(300);

/// Unit of CPU times in `/proc`. Every system that Linux runs on today uses the same unit.
const PROC_TICK: Duration = Duration::from_millis(10);

/// The permits for preparing plugins. Together they allow twice as many plugins at once as there are processors.
#[derive(Debug)]
pub(super) struct Lanes {
    turns: Semaphore,
    slow: Semaphore,
    floor: Semaphore,
}

/// The place of one plugin. Its children use the place one after the other.
#[derive(Debug)]
pub(super) struct Pace<'l> {
    lanes: &'l Lanes,
    turn: Option<SemaphorePermit<'l>>,
    _slow: Option<SemaphorePermit<'l>>,
    floor: Option<SemaphorePermit<'l>>,
    /// CPU time of the children that have ended.
    spent: Duration,
}

/// A child that is being watched.
#[derive(Debug)]
pub(super) struct Watched<'p, 'l> {
    pace: &'p mut Pace<'l>,
    process: Option<Pid>,
    cpu: Duration,
    progressed: Instant,
}

// === impl Lanes ===

impl Lanes {
    pub(super) fn new(processors: usize) -> Self {
        Self {
            turns: Semaphore::new(processors),
            slow: Semaphore::new(processors),
            floor: Semaphore::new(processors.div_ceil(2)),
        }
    }

    pub(super) async fn enter(&self) -> Pace<'_> {
        let niced = self.enter_niced().await;
        Pace {
            floor: self.floor.try_acquire().ok(),
            ..niced
        }
    }

    /// Like [`Self::enter`], with children that are niced from the beginning.
    pub(super) async fn enter_niced(&self) -> Pace<'_> {
        Pace {
            lanes: self,
            // The semaphore is never closed.
            turn: self.turns.acquire().await.ok(),
            _slow: None,
            floor: None,
            spent: Duration::ZERO,
        }
    }
}

// === impl Pace ===

impl<'l> Pace<'l> {
    /// Watches a child that leads its own process group.
    pub(super) fn watch<'p>(&'p mut self, process: Option<u32>) -> Watched<'p, 'l> {
        let process = process.and_then(|id| Pid::from_raw(id.try_into().ok()?));
        if self.floor.is_none() {
            nice(process);
        }
        Watched {
            pace: self,
            process,
            cpu: Duration::ZERO,
            progressed: Instant::now(),
        }
    }
}

// === impl Watched ===

impl Watched<'_, '_> {
    /// Records that the child has sent something.
    pub(super) fn heard(&mut self) {
        self.progressed = Instant::now();
    }

    /// Checks the child; call this several times a second. Returns the time for which the child has neither sent
    /// anything nor used the processor.
    pub(super) fn poll(&mut self) -> Duration {
        match self.process.and_then(activity) {
            Some(Activity { cpu, is_waiting }) if is_waiting && cpu <= self.cpu => {}
            Some(Activity { cpu, .. }) => {
                self.cpu = cpu;
                self.progressed = Instant::now();
            }
            // The system does not tell, so only the wall-clock limit is left.
            None => self.progressed = Instant::now(),
        }
        let idle = self.progressed.elapsed();
        let is_past_floor = self.pace.spent + self.cpu >= FLOOR;
        if is_past_floor && self.pace.floor.take().is_some() {
            nice(self.process);
        }
        if (is_past_floor || idle >= IDLE)
            && self.pace.turn.is_some()
            && let Ok(slow) = self.pace.lanes.slow.try_acquire()
        {
            (self.pace.turn, self.pace._slow) = (None, Some(slow));
        }
        idle
    }
}

impl Drop for Watched<'_, '_> {
    fn drop(&mut self) {
        self.pace.spent += self.cpu;
    }
}

/// Lowers the priority of all threads in a process group.
fn nice(process: Option<Pid>) {
    // Without a process id, the call would apply to this process's own group.
    if process.is_some() {
        // A child that has already ended needs no priority.
        let _: Result<(), _> = setpriority_pgrp(process, niced());
    }
}

/// The nice value of this process plus [`NICE`], 19 at most.
pub(super) fn niced() -> i32 {
    (getpriority_process(None).unwrap_or_default() + NICE).min(19)
}

/// The CPU use and state of a process.
struct Activity {
    /// CPU time of all threads, to a hundredth of a second.
    cpu: Duration,
    /// Whether all threads are waiting, so that none would run on a free processor.
    is_waiting: bool,
}

fn activity(process: Pid) -> Option<Activity> {
    let folder = format!("/proc/{}", process.as_raw_nonzero());
    let stat = std::fs::read_to_string(format!("{folder}/stat")).ok()?;
    let (_, times) = fields(&stat)?;
    let [user, system]: [u32; 2] = [times.first()?.parse().ok()?, times.get(1)?.parse().ok()?];
    let threads = std::fs::read_dir(format!("{folder}/task")).ok()?;
    let mut states = threads.filter_map(Result::ok).filter_map(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
        fields(&stat).map(|(state, _)| state)
    });
    Some(Activity {
        cpu: PROC_TICK * user.saturating_add(system),
        // A waiting thread sleeps, is stopped or has ended. It neither runs nor waits for a processor or a disk.
        is_waiting: states.all(|state| !matches!(state, 'R' | 'D')),
    })
}

/// The state in a line of `stat`, and the fields from the CPU times on.
fn fields(stat: &str) -> Option<(char, Vec<&str>)> {
    // The name, in parentheses, may contain any character.
    let (_, rest) = stat.rsplit_once(')')?;
    let state = rest.trim_start().chars().next()?;
    Some((state, rest.split_ascii_whitespace().skip(11).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_process_statistics_of_kernel() {
        let stat = "4711 (a) R (b) S 1 4711 4711 0 -1 4194304 80 0 0 0 12 34 0 0 20 0 1 0";
        let (state, times) = fields(stat).unwrap();
        assert_eq!((state, &times[..2]), ('S', ["12", "34"].as_slice()));
        assert!(fields("").is_none());
    }

    #[tokio::test]
    async fn plugin_waits_only_for_quick_plugins() {
        let lanes = Lanes::new(1);
        let mut first = lanes.enter().await;
        assert!(lanes.turns.try_acquire().is_err());
        let mut watched = first.watch(None);
        watched.cpu = FLOOR;
        watched.poll();
        drop(watched);
        assert!(first.turn.is_none() && first.floor.is_none());
        let second = lanes.enter().await;
        assert!(second.floor.is_some());
        assert!(
            lanes.slow.try_acquire().is_err(),
            "at most two plugins are prepared at once"
        );
    }
}
