//! Runs plugins in `mode: audit` after the answer is sent. Their results are counted and logged, and affect no
//! answer.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use tollgate_admission::Phase;
use tollgate_engine::{Engine, Overload, Subject};
use tollgate_telemetry::metrics::Metrics;

use super::compare::{Comparer, Comparison};
use super::outcome::Report;
use super::{mutate, validate};
use crate::plugin::{Plugin, Shadow};

/// An audit call that has not been made yet.
pub(super) struct Audit {
    pub(super) plugin: Arc<Plugin>,
    pub(super) phase: Phase,
    pub(super) subject: Subject,
    /// The plugin's shadow, which is called after the plugin.
    pub(super) shadow: Option<Arc<Shadow>>,
}

/// Runs audits after the answers, within limits. Audits over the limit are dropped and counted: nothing waits for
/// them, and each one keeps its review in memory.
pub(super) struct Auditor {
    engine: Engine,
    metrics: Arc<Metrics>,
    comparer: Comparer,
    /// Permits for audits that wait or run.
    places: Arc<Semaphore>,
    /// Permits for audits that run.
    running: Arc<Semaphore>,
    tasks: TaskTracker,
    max_depth: u32,
}

/// Audits that may wait or run, for each concurrent call of the engine.
const PLACES_PER_CALL: usize = 2;
/// One in this many of the engine's concurrent calls may be an audit, because enforcing plugins come first.
const CALLS_PER_AUDIT: usize = 4;

// === impl Audit ===

impl Audit {
    /// Calls the plugin. Returns its report, and the comparison to make if the plugin has a shadow.
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
            Phase::Validate => validate::run(engine, &plugin, &subject, deadline).await?,
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

    /// Starts the audits of a review whose body has `bytes` bytes.
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
                // Let the server send the answer first.
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

    /// Waits until no audit is running or waiting.
    pub(super) async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
