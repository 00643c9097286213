//! Shadows: called after the answers, with the same input as their plugins, and compared with them.
//!
//! All comparisons run on one thread of the lowest priority. This thread gets a quarter of a processor at most:
//!
//! - Calls rest at every tick.
//! - For calls that end before their first tick, the thread pauses between calls.
//!
//! A shadow that spins therefore takes no engine slot and no thread from serving calls. If the host's processor time
//! is rationed, the shadow takes no more of it than that quarter.

use std::sync::{Arc, OnceLock};
use std::thread;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tollgate_admission::Phase;
use tollgate_engine::{Engine, Overload, SHADOW_CALLS, Secrecy, Subject};
use tollgate_telemetry::metrics::{Comparison as Counted, Metrics};

use super::outcome::Ended;
use super::{mutate, validate};
use crate::idle::{Share, lower_priority};
use crate::plugin::{PluginState, Shadow};
use crate::shadow::{Call, Verdict};

/// A plugin's call that its shadow is to repeat.
pub(super) struct Comparison {
    pub(super) shadow: Arc<Shadow>,
    pub(super) phase: Phase,
    /// The input that the plugin was called with.
    pub(super) subject: Subject,
    /// The plugin's verdict.
    pub(super) live: Verdict,
    pub(super) live_fuel: u64,
}

/// Queues comparisons and runs them when there is time, within limits. Comparisons over the limits are dropped and
/// counted.
#[derive(Clone)]
pub(super) struct Comparer {
    shared: Arc<Shared>,
    /// The queue's sender, created by the first comparison. Holds none if the thread could not be started.
    queue: Arc<OnceLock<Option<mpsc::Sender<Waiting>>>>,
}

struct Shared {
    engine: Engine,
    metrics: Arc<Metrics>,
    max_depth: u32,
    /// Permits for comparisons that wait or run.
    places: Arc<Semaphore>,
    /// Permits for the reviews that they hold, one per KiB of the body as received.
    room: Arc<Semaphore>,
}

struct Waiting {
    comparison: Comparison,
    _place: OwnedSemaphorePermit,
    _room: Arc<OwnedSemaphorePermit>,
}

/// Most comparisons that may wait or run.
const PLACES: usize = 256;
/// Most KiB of review bodies that these comparisons hold. The decoded reviews take several times as much memory.
const ROOM_KIB: u32 = 16 << 10;
const KIB: usize = 1 << 10;
// === impl Comparison ===

impl Comparison {
    fn dropped(&self, metrics: &Metrics) {
        self.shadow.counts.dropped();
        metrics.compared(self.shadow.live_name(), self.phase, Counted::Dropped);
    }

    /// Calls the shadow and records how its verdict compares.
    async fn run(self, shared: &Shared) {
        let Ok((shadow, fuel)) = self.call(shared).await else {
            self.dropped(&shared.metrics);
            return;
        };
        let request = &self.subject.request;
        let call = Call {
            uid: &request.uid,
            phase: self.phase.name(),
            user: request.object.as_ref(),
            live: (&self.live, self.live_fuel),
            shadow: (&shadow, fuel),
        };
        let limits = &self.shadow.plugin.config.limits;
        let compared = self.shadow.counts.take(&call, limits);
        if let Some(tally) = self.shadow.tally.as_ref().filter(|_| !compared.unfinished) {
            tally.judged(shadow.outcome(), self.live.outcome());
        }
        let plugin = self.shadow.live_name();
        let result = match &compared.difference {
            _ if compared.unfinished => Counted::Unfinished,
            Some(_) => Counted::Different,
            None => Counted::Same,
        };
        shared.metrics.compared(plugin, self.phase, result);
        if let Some(difference) = &compared.difference {
            let (live, shadow) = difference.ends();
            tracing::info!(
                plugin,
                uid = request.uid,
                phase = self.phase.name(),
                live,
                shadow,
                pointers = difference.line(),
                "the shadow's result differs"
            );
        }
        let Some(near) = compared.near else { return };
        shared.metrics.shadow_near_fuel_limit(plugin);
        // Log only at powers of two, so that the log stays readable.
        if near.is_power_of_two() {
            tracing::warn!(
                plugin,
                uid = request.uid,
                phase = self.phase.name(),
                fuel,
                limit = limits.fuel,
                times = near,
                "the shadow used more than 80 % of its limits.fuel"
            );
        }
    }

    async fn call(&self, shared: &Shared) -> Result<(Verdict, u64), Overload> {
        let plugin = &self.shadow.plugin;
        let subject = self.subject.clone();
        if !self.shadow_exports_it() {
            // A plugin that does not export this interface would not be called, and the object would stay unchanged.
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
            Phase::Validate => validate::run(engine, plugin, &subject, deadline).await?,
        };
        Ok((verdict, report.cost.fuel))
    }

    fn shadow_exports_it(&self) -> bool {
        let PluginState::Loaded(loaded) = &self.shadow.plugin.state else {
            return false;
        };
        let interfaces = loaded.interfaces();
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
            engine: engine.for_shadows(),
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

    /// Queues the comparisons of a review whose body has `bytes` bytes.
    pub(super) fn start(&self, comparisons: impl IntoIterator<Item = Comparison>, bytes: usize) {
        let mut comparisons = comparisons.into_iter().peekable();
        if comparisons.peek().is_none() {
            return;
        }
        // A review larger than the whole limit may take all of it.
        let permits = u32::try_from(bytes / KIB + 1)
            .unwrap_or(u32::MAX)
            .min(ROOM_KIB);
        let room = self.shared.room.clone().try_acquire_many_owned(permits);
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
            let thread = thread::Builder::new().name("tollgate-shadows".to_owned());
            match thread.spawn(move || work(receiver, shared)) {
                Ok(_) => Some(sender),
                Err(error) => {
                    tracing::error!(%error, "cannot start the thread for shadows; no results are compared");
                    None
                }
            }
        });
        queue.as_ref()
    }
}

/// Runs comparisons until every sender is gone.
fn work(mut queue: mpsc::Receiver<Waiting>, shared: Arc<Shared>) {
    lower_priority();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "cannot create the runtime for shadows; no results are compared");
            return;
        }
    };
    runtime.block_on(async {
        let calls = Arc::new(Semaphore::new(SHADOW_CALLS as usize));
        let mut share = Share::begin();
        while let Some(waiting) = queue.recv().await {
            // The semaphore is never closed, so this always returns a permit.
            let turn = calls.clone().acquire_owned().await;
            if let Some(pause) = share.pause() {
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
