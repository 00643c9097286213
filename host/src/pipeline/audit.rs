//! Plugins in `mode: audit`: run after the answer, counted and logged, felt by nobody.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::outcome::Report;
use super::{mutate, validate};
use crate::engine::{Engine, Overload, Phase, Subject};
use crate::metrics::Metrics;
use crate::plugin::Plugin;

/// A call that is still to be made.
pub(super) struct Audit {
    pub(super) plugin: Arc<Plugin>,
    pub(super) phase: Phase,
    pub(super) subject: Subject,
}

/// Runs audits behind the answers, within a bound: past it they are dropped and counted, for nothing waits for
/// them and each holds on to its review.
pub(super) struct Auditor {
    engine: Engine,
    metrics: Arc<Metrics>,
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
    /// Makes the call.
    pub(super) async fn run(self, engine: &Engine, max_depth: u32) -> Result<Report, Overload> {
        let Self {
            plugin,
            phase,
            subject,
        } = self;
        let deadline = Instant::now() + plugin.config.limits.timeout;
        match phase {
            Phase::Mutate => mutate::audit(engine, &plugin, subject, deadline, max_depth).await,
            Phase::Validate => validate::run(engine, &plugin, subject, deadline).await,
        }
    }
}

// === impl Auditor ===

impl Auditor {
    pub(super) fn new(
        engine: Engine,
        metrics: Arc<Metrics>,
        max_concurrent_calls: usize,
        max_depth: u32,
    ) -> Self {
        Self {
            engine,
            metrics,
            places: Arc::new(Semaphore::new(max_concurrent_calls * PLACES_PER_CALL)),
            running: Arc::new(Semaphore::new(
                (max_concurrent_calls / CALLS_PER_AUDIT).max(1),
            )),
            tasks: TaskTracker::new(),
            max_depth,
        }
    }

    pub(super) fn start(&self, audits: Vec<Audit>) {
        for audit in audits {
            let Ok(place) = self.places.clone().try_acquire_owned() else {
                self.metrics.audit_dropped();
                continue;
            };
            let (engine, metrics, max_depth) =
                (self.engine.clone(), self.metrics.clone(), self.max_depth);
            let running = self.running.clone();
            self.tasks.spawn(async move {
                // The answer goes out first.
                tokio::task::yield_now().await;
                let _turn = running.acquire().await;
                if audit.run(&engine, max_depth).await.is_err() {
                    metrics.audit_dropped();
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
