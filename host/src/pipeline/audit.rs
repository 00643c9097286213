//! Plugins in `mode: audit`: run after the answer, counted and logged, felt by nobody.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::{mutate, validate};
use crate::engine::{Engine, Phase, Subject};
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
    slots: Arc<Semaphore>,
    tasks: TaskTracker,
    max_depth: u32,
}

// === impl Auditor ===

impl Auditor {
    pub(super) fn new(
        engine: Engine,
        metrics: Arc<Metrics>,
        at_once: usize,
        max_depth: u32,
    ) -> Self {
        Self {
            engine,
            metrics,
            slots: Arc::new(Semaphore::new(at_once)),
            tasks: TaskTracker::new(),
            max_depth,
        }
    }

    pub(super) fn start(&self, audits: Vec<Audit>) {
        for audit in audits {
            let Ok(permit) = self.slots.clone().try_acquire_owned() else {
                self.metrics.audit_dropped();
                continue;
            };
            let (engine, metrics, max_depth) =
                (self.engine.clone(), self.metrics.clone(), self.max_depth);
            self.tasks.spawn(async move {
                // The answer goes out first.
                tokio::task::yield_now().await;
                let Audit {
                    plugin,
                    phase,
                    subject,
                } = audit;
                let deadline = Instant::now() + plugin.config.limits.timeout;
                let done = match phase {
                    Phase::Mutate => {
                        mutate::audit(&engine, &plugin, subject, deadline, max_depth).await
                    }
                    Phase::Validate => validate::run(&engine, &plugin, subject, deadline).await,
                };
                if done.is_err() {
                    metrics.audit_dropped();
                }
                drop(permit);
            });
        }
    }

    /// Waits until nothing is under way.
    pub(super) async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
