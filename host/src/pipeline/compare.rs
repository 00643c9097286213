//! Candidates: called behind the answers, with what their plugins were called with, and compared with them.
//!
//! All of it happens on one thread of the lowest priority, which has a quarter of a processor at most: calls rest at
//! every tick, and those that are over before it are paid for by pauses between them. So a candidate that spins takes
//! neither a place in the engine from a call that counts, nor a thread, nor more than that of what the host may use
//! where processors are rationed.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::outcome::Ended;
use super::{mutate, validate};
use crate::comparison::{Call, Verdict};
use crate::engine::{CANDIDATE_CALLS, Engine, Overload, Phase, Secrecy, Subject};
use crate::metrics::{Comparison as Counted, Metrics};
use crate::plugin::{PluginState, Shadow};

/// A call that a candidate is to repeat.
pub(super) struct Comparison {
    pub(super) shadow: Arc<Shadow>,
    pub(super) phase: Phase,
    /// What the plugin was called with.
    pub(super) subject: Subject,
    /// What the plugin made of it.
    pub(super) live: Verdict,
    pub(super) live_fuel: u64,
}

/// Takes comparisons and makes them when there is time, within bounds: past them they are dropped and counted.
#[derive(Clone)]
pub(super) struct Comparer {
    shared: Arc<Shared>,
    /// Starts with the first comparison; none where there is no thread to be had.
    queue: Arc<OnceLock<Option<mpsc::Sender<Waiting>>>>,
}

struct Shared {
    engine: Engine,
    metrics: Arc<Metrics>,
    max_depth: u32,
    /// Comparisons that wait or run.
    places: Arc<Semaphore>,
    /// What their reviews have, as they came, in KiB.
    room: Arc<Semaphore>,
}

struct Waiting {
    comparison: Comparison,
    _place: OwnedSemaphorePermit,
    _room: Arc<OwnedSemaphorePermit>,
}

/// How much of a processor has been used, and when there is more.
struct Share {
    /// Until when what has been used is paid for.
    paid: Instant,
    /// CPU time of the thread when it was last looked at.
    spent: Duration,
}

/// Comparisons that may wait or run.
const PLACES: usize = 256;
/// Of the reviews that they hold on to: in memory they have several times as much.
const ROOM_KIB: u32 = 16 << 10;
const KIB: usize = 1 << 10;
/// One in so many parts of a processor's time.
const PART: u32 = 4;
/// What was not used counts for so long.
const CREDIT: Duration = Duration::from_millis(100);
/// As nice as can be.
const NICE: i32 = 19;

// === impl Comparison ===

impl Comparison {
    fn dropped(&self, metrics: &Metrics) {
        self.shadow.tally.dropped();
        metrics.compared(self.shadow.live_name(), self.phase, Counted::Dropped);
    }

    /// Calls the candidate and takes note of what comes of it.
    async fn run(self, shared: &Shared) {
        let Ok((candidate, fuel)) = self.call(shared).await else {
            self.dropped(&shared.metrics);
            return;
        };
        let request = &self.subject.request;
        let call = Call {
            uid: &request.uid,
            phase: self.phase.name(),
            user: request.object.as_ref(),
            live: (&self.live, self.live_fuel),
            candidate: (&candidate, fuel),
        };
        let limits = &self.shadow.plugin.config.limits;
        let compared = self.shadow.tally.take(&call, limits);
        let plugin = self.shadow.live_name();
        let result = match &compared.difference {
            _ if compared.unfinished => Counted::Unfinished,
            Some(_) => Counted::Different,
            None => Counted::Same,
        };
        shared.metrics.compared(plugin, self.phase, result);
        if let Some(difference) = &compared.difference {
            let (live, candidate) = difference.ends();
            tracing::info!(
                plugin,
                uid = request.uid,
                phase = self.phase.name(),
                live,
                candidate,
                pointers = difference.line(),
                "the candidate differs"
            );
        }
        let Some(near) = compared.near else { return };
        shared.metrics.candidate_near_fuel_limit(plugin);
        // Seldom enough to be read.
        if near.is_power_of_two() {
            tracing::warn!(
                plugin,
                uid = request.uid,
                phase = self.phase.name(),
                fuel,
                limit = limits.fuel,
                times = near,
                "the candidate took more than 80 % of its limits.fuel"
            );
        }
    }

    async fn call(&self, shared: &Shared) -> Result<(Verdict, u64), Overload> {
        let plugin = &self.shadow.plugin;
        let subject = self.subject.clone();
        if !self.candidate_exports_it() {
            // As a plugin it would not be called, which leaves everything as it is.
            let secrecy = Secrecy::of(subject.request.is_secret());
            let verdict = Verdict::new(&Ok(Ended::Unchanged), subject.object, secrecy);
            return Ok((verdict, 0));
        }
        let engine = &shared.engine;
        let deadline = engine.longest(&plugin.config.limits);
        let (report, verdict) = match self.phase {
            Phase::Mutate => {
                mutate::alone(engine, plugin, subject, deadline, shared.max_depth).await?
            }
            Phase::Validate => validate::run(engine, plugin, subject, deadline, None).await?,
        };
        Ok((verdict, report.cost.fuel))
    }

    fn candidate_exports_it(&self) -> bool {
        let PluginState::Loaded(loaded) = &self.shadow.plugin.state else {
            return false;
        };
        let interfaces = loaded.guest.interfaces();
        match self.phase {
            Phase::Mutate => interfaces.mutating,
            Phase::Validate => interfaces.validating,
        }
    }
}

// === impl Comparer ===

impl Comparer {
    pub(super) fn new(engine: &Engine, metrics: Arc<Metrics>, max_depth: u32) -> Self {
        let shared = Shared {
            engine: engine.for_candidates(),
            metrics,
            max_depth,
            places: Arc::new(Semaphore::new(PLACES)),
            room: Arc::new(Semaphore::new(ROOM_KIB as usize)),
        };
        Self {
            shared: Arc::new(shared),
            queue: Arc::new(OnceLock::new()),
        }
    }

    /// Takes what is to be compared of a review of so many bytes.
    pub(super) fn start(&self, comparisons: impl IntoIterator<Item = Comparison>, bytes: usize) {
        let mut comparisons = comparisons.into_iter().peekable();
        if comparisons.peek().is_none() {
            return;
        }
        // A review that is larger than all of the room may have all of it.
        let wanted = u32::try_from(bytes / KIB + 1)
            .unwrap_or(u32::MAX)
            .min(ROOM_KIB);
        let room = self.shared.room.clone().try_acquire_many_owned(wanted);
        let room = room.ok().map(Arc::new);
        for comparison in comparisons {
            let place = self.shared.places.clone().try_acquire_owned().ok();
            let (Some(room), Some(place), Some(queue)) = (&room, place, self.queue()) else {
                comparison.dropped(&self.shared.metrics);
                continue;
            };
            let waiting = Waiting {
                comparison,
                _place: place,
                _room: room.clone(),
            };
            if let Err(error) = queue.try_send(waiting) {
                let waiting = error.into_inner();
                waiting.comparison.dropped(&self.shared.metrics);
            }
        }
    }

    fn queue(&self) -> Option<&mpsc::Sender<Waiting>> {
        let queue = self.queue.get_or_init(|| {
            let (sender, receiver) = mpsc::channel(PLACES);
            let shared = self.shared.clone();
            let thread = thread::Builder::new().name("tollgate-candidates".to_owned());
            match thread.spawn(move || work(receiver, shared)) {
                Ok(_) => Some(sender),
                Err(error) => {
                    tracing::error!(%error, "there is no thread for candidates: nothing is compared");
                    None
                }
            }
        });
        queue.as_ref()
    }
}

/// Makes comparisons until nobody has any more.
fn work(mut queue: mpsc::Receiver<Waiting>, shared: Arc<Shared>) {
    lower_priority();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "there is no runtime for candidates: nothing is compared");
            return;
        }
    };
    runtime.block_on(async {
        let calls = Arc::new(Semaphore::new(CANDIDATE_CALLS as usize));
        let mut share = Share::new(Instant::now(), thread_time());
        while let Some(waiting) = queue.recv().await {
            // Never closed.
            let turn = calls.clone().acquire_owned().await;
            if let Some(pause) = share.pause(Instant::now(), thread_time()) {
                tokio::time::sleep(pause).await;
            }
            let shared = shared.clone();
            tokio::spawn(async move {
                waiting.comparison.run(&shared).await;
                drop(turn);
            });
        }
    });
}

/// Puts this thread, on Linux this thread alone, behind all others. Being nice is not enough where it can be had: a
/// thread that waits for an answer's sake may have to wait for the end of a nice one's slice, some milliseconds.
/// Refused is as good as before: its share of a processor is bounded all the same.
#[expect(unsafe_code, reason = "rustix has no call for it")]
fn lower_priority() {
    let _: Result<i32, _> = rustix::process::nice(NICE);
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread, and the parameters outlive the call.
    let _: i32 = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) };
}

/// CPU time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

// === impl Share ===

impl Share {
    fn new(now: Instant, spent: Duration) -> Self {
        Self { paid: now, spent }
    }

    /// How long to wait, with so much CPU time spent by now; none where there is some left.
    fn pause(&mut self, now: Instant, spent: Duration) -> Option<Duration> {
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
    fn a_quarter_of_a_processor_is_used_at_most() {
        let began = Instant::now();
        let mut share = Share::new(began, Duration::ZERO);
        let (mut now, mut spent) = (began, Duration::ZERO);
        for _ in 0..100 {
            let worked = Duration::from_millis(40);
            now += worked;
            spent += worked;
            now += share.pause(now, spent).unwrap_or_default();
        }
        let (used, passed) = (spent.as_secs_f64(), (now - began).as_secs_f64());
        assert!(
            (0.24..0.27).contains(&(used / passed)),
            "{used} of {passed}"
        );
    }

    #[test]
    fn what_was_not_used_does_not_add_up() {
        let began = Instant::now();
        let mut share = Share::new(began, Duration::ZERO);
        let later = began + Duration::from_secs(3600);
        assert_eq!(share.pause(later, Duration::from_millis(20)), None);
        let pause = share.pause(later, Duration::from_millis(60));
        assert_eq!(pause, Some(Duration::from_millis(140)));
    }
}
