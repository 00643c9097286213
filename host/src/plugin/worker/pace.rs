//! Who may prepare when, and how urgently: a small change must neither wait behind a plugin that takes a minute to
//! compile, nor for a processor that requests keep busy, nor be felt by the requests.
//!
//! A plugin enters by a turn, of which there are as many as processors. Once it has used two seconds of CPU time, or does
//! nothing, it moves to the slow lane, and its turn is free. Half of those with a turn begin at the normal priority – the
//! floor – and are niced when those two seconds are over; the others are niced from the beginning.

use std::time::{Duration, Instant};

use rustix::process::{Pid, getpriority_process, setpriority_pgrp};
use tokio::sync::{Semaphore, SemaphorePermit};

/// CPU time that a plugin's children have at the normal priority, all of them together.
pub(super) const FLOOR: Duration = Duration::from_secs(2);
/// What children are nicer by after that: requests come first.
const NICE: i32 = 10;
/// A child that has not used the processor for so long waits for something else.
const IDLE: Duration = Duration::from_millis(300);

/// The unit of times in /proc, the same on every system that Linux runs on today.
const PROC_TICK: Duration = Duration::from_millis(10);

/// As many plugins can be prepared at once as all of these permit together: twice the number of processors.
#[derive(Debug)]
pub(super) struct Lanes {
    turns: Semaphore,
    slow: Semaphore,
    floor: Semaphore,
}

/// One plugin's place, kept by one child after the other.
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
        Pace {
            lanes: self,
            // Never closed.
            turn: self.turns.acquire().await.ok(),
            _slow: None,
            floor: self.floor.try_acquire().ok(),
            spent: Duration::ZERO,
        }
    }
}

// === impl Pace ===

impl<'l> Pace<'l> {
    /// Watches a child, which leads a process group of its own.
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
    /// The child has said something.
    pub(super) fn heard(&mut self) {
        self.progressed = Instant::now();
    }

    /// To be called some times a second. Says for how long the child has neither said anything nor used the processor.
    pub(super) fn look(&mut self) -> Duration {
        match self.process.and_then(activity) {
            Some(Activity { cpu, is_waiting }) if is_waiting && cpu <= self.cpu => {}
            Some(Activity { cpu, .. }) => {
                self.cpu = cpu;
                self.progressed = Instant::now();
            }
            // A system that does not tell: only the limit by the clock is left.
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

/// All threads of a group of processes.
fn nice(process: Option<Pid>) {
    // Without a number it would be this process's own group.
    if process.is_some() {
        // A child that has ended already needs no priority.
        let _: Result<(), _> = setpriority_pgrp(process, niced());
    }
}

/// What this process has, and [`NICE`] more.
pub(super) fn niced() -> i32 {
    (getpriority_process(None).unwrap_or_default() + NICE).min(19)
}

/// What a process has been doing.
struct Activity {
    /// The CPU time of all its threads, to a hundredth of a second.
    cpu: Duration,
    /// None of its threads would run if there was a processor for it.
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
        // Sleeping, stopped or ended; neither running nor waiting for a processor or a disk.
        is_waiting: states.all(|state| !matches!(state, 'R' | 'D')),
    })
}

/// The state in a line of `stat`, and what follows from the CPU times on.
fn fields(stat: &str) -> Option<(char, Vec<&str>)> {
    // The name, in parentheses, may have anything in it.
    let (_, rest) = stat.rsplit_once(')')?;
    let state = rest.trim_start().chars().next()?;
    Some((state, rest.split_ascii_whitespace().skip(11).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_says_of_a_process() {
        let stat = "4711 (a) R (b) S 1 4711 4711 0 -1 4194304 80 0 0 0 12 34 0 0 20 0 1 0";
        let (state, times) = fields(stat).unwrap();
        assert_eq!((state, &times[..2]), ('S', ["12", "34"].as_slice()));
        assert!(fields("").is_none());
    }

    #[tokio::test]
    async fn one_plugin_waits_for_another_only_while_that_one_is_quick() {
        let lanes = Lanes::new(1);
        let mut first = lanes.enter().await;
        assert!(lanes.turns.try_acquire().is_err());
        let mut watched = first.watch(None);
        watched.cpu = FLOOR;
        watched.look();
        drop(watched);
        assert!(first.turn.is_none() && first.floor.is_none());
        let second = lanes.enter().await;
        assert!(second.floor.is_some());
        assert!(
            lanes.slow.try_acquire().is_err(),
            "there are no more than two"
        );
    }
}
