//! Plugins in `mode: audit`: run after the answer, counted and logged, felt by nobody.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::compare::{Comparer, Comparison};
use super::outcome::Report;
use super::{mutate, validate};
use crate::engine::{Engine, Overload, Phase, Subject};
use crate::metrics::Metrics;
use crate::plugin::{Plugin, Shadow};

/// A call that is still to be made.
pub(super) struct Audit {
    pub(super) plugin: Arc<Plugin>,
    pub(super) phase: Phase,
    pub(super) subject: Subject,
    /// Its candidate, which is called after it.
    pub(super) shadow: Option<Arc<Shadow>>,
}

/// Runs audits behind the answers, within a bound: past it they are dropped and counted, for nothing waits for
/// them and each holds on to its review.
pub(super) struct Auditor {
    engine: Engine,
    metrics: Arc<Metrics>,
    comparer: Comparer,
    /// Audits that have a place, running or not.
    places: Arc<Semaphore>,
    /// Audits that run.
    running: Arc<Semaphore>,
    tasks: TaskTracker,
    max_depth: u32,
}

/// Audits that may wait or run for each call that the engine takes at once.
const PLACES_PER_CALL: usize = 2;
/// Of the calls that the engine takes at once, one in this many may be an audit: enforcing comes first.
const CALLS_PER_AUDIT: usize = 4;

// === impl Audit ===

impl Audit {
    /// Makes the call, and says what is to be compared with it.
    pub(super) async fn run(
        self,
        engine: &Engine,
        max_depth: u32,
    ) -> Result<(Report, Option<Comparison>), Overload> {
        let Self {
            plugin,
            phase,
            subject,
            shadow,
        } = self;
        let deadline = Instant::now() + plugin.config.limits.timeout;
        let (report, verdict) = match phase {
            Phase::Mutate => {
                mutate::alone(engine, &plugin, subject.clone(), deadline, max_depth).await?
            }
            Phase::Validate => {
                validate::run(engine, &plugin, subject.clone(), deadline, None).await?
            }
        };
        let fuel = report.cost.fuel;
        let comparison = shadow.map(|shadow| Comparison {
            shadow,
            phase,
            subject,
            live: verdict,
            live_fuel: fuel,
        });
        Ok((report, comparison))
    }
}

// === impl Auditor ===

impl Auditor {
    pub(super) fn new(
        engine: Engine,
        metrics: Arc<Metrics>,
        comparer: Comparer,
        max_concurrent_calls: usize,
        max_depth: u32,
    ) -> Self {
        Self {
            engine,
            metrics,
            comparer,
            places: Arc::new(Semaphore::new(max_concurrent_calls * PLACES_PER_CALL)),
            running: Arc::new(Semaphore::new(
                (max_concurrent_calls / CALLS_PER_AUDIT).max(1),
            )),
            tasks: TaskTracker::new(),
            max_depth,
        }
    }

    /// Starts the audits of a review of so many bytes.
    pub(super) fn start(&self, audits: Vec<Audit>, bytes: usize) {
        for audit in audits {
            let Ok(place) = self.places.clone().try_acquire_owned() else {
                self.metrics.audit_dropped();
                continue;
            };
            let (engine, metrics, max_depth) =
                (self.engine.clone(), self.metrics.clone(), self.max_depth);
            let running = self.running.clone();
            let comparer = self.comparer.clone();
            self.tasks.spawn(async move {
                // The answer goes out first.
                tokio::task::yield_now().await;
                let _turn = running.acquire().await;
                match audit.run(&engine, max_depth).await {
                    Ok((_, comparison)) => comparer.start(comparison, bytes),
                    Err(_) => metrics.audit_dropped(),
                }
                drop(place);
            });
        }
    }

    /// Waits until nothing is under way.
    pub(super) async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
