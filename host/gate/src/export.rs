//! Exports traces and decisions, if the configuration has `telemetry`.
//!
//! The request path pays for the decision whether a review is traced, and for a copy of the exported data. Everything
//! else happens on the exporters' threads. Spans and records are made from [`Decision`]s, which have no part of an
//! object and no text of a plugin, and from the host's measurements.

mod attributes;
mod identities;
mod records;
mod spans;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tollgate_admission::trace::{CallObserver, ObservedCall};
use tollgate_admission::{Call, Endpoint, Reply};
use tollgate_config::{DecisionExport, Telemetry};
use tollgate_otlp::message::Resource;
use tollgate_otlp::{Exporter, Identifiers, Sampler, StartError, TraceContext};
use tollgate_telemetry::metrics::Metrics;

pub use attributes::{PLUGIN_ATTRIBUTES, REVIEW_ATTRIBUTES};

use crate::decision::Decision;
use crate::pipeline::Reviewed;
use crate::plugin::PluginSet;
use records::DecisionRecord;
use spans::{LateSpan, ReviewSpans, SpanItem, TracedCall};

/// Exports the traces and decisions that the configuration selects.
pub struct Exports {
    traces: Option<Traces>,
    decisions: Option<Decisions>,
}

struct Traces {
    sampler: Sampler,
    identifiers: Arc<Identifiers>,
    exporter: Arc<Exporter<SpanItem>>,
}

struct Decisions {
    config: DecisionExport,
    exporter: Exporter<DecisionRecord>,
}

/// A review that is traced.
pub(crate) struct Trace {
    context: TraceContext,
    began: SystemTime,
    identifiers: Arc<Identifiers>,
    exporter: Arc<Exporter<SpanItem>>,
    calls: Mutex<Calls>,
}

/// The calls of a review that is traced.
enum Calls {
    /// The review is under way. Its calls are exported with it.
    Gathered(Vec<TracedCall>),
    /// The review is exported. Later calls are those of plugins in mode audit, and each is exported alone.
    Exported {
        /// Whether names of objects, users and namespaces are exported.
        with_names: bool,
    },
}

// === impl Exports ===

impl Exports {
    /// Starts the threads. Returns none if nothing is exported.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn start(
        telemetry: &Telemetry,
        resource: &Resource,
        metrics: &Arc<Metrics>,
    ) -> Result<Option<Self>, StartError> {
        let traces = match &telemetry.traces {
            None => None,
            Some(config) => Some(Traces {
                sampler: Sampler::new(config.share_percent),
                identifiers: Arc::new(Identifiers::new()),
                exporter: Arc::new(Exporter::start(
                    config.collector.clone(),
                    resource.clone(),
                    metrics.clone(),
                )?),
            }),
        };
        let decisions = match &telemetry.decisions {
            None => None,
            Some(config) => Some(Decisions {
                config: config.clone(),
                exporter: Exporter::start(
                    config.collector.clone(),
                    resource.clone(),
                    metrics.clone(),
                )?,
            }),
        };
        let is_on = traces.is_some() || decisions.is_some();
        Ok(is_on.then_some(Self { traces, decisions }))
    }

    /// Exports everything that waits. Returns false if that takes longer than `patience`.
    pub fn finish(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let left = || until.saturating_duration_since(Instant::now());
        let traces = self.traces.as_ref();
        let traces = traces.is_none_or(|traces| traces.exporter.finish(left()));
        let decisions = self.decisions.as_ref();
        traces & decisions.is_none_or(|decisions| decisions.exporter.finish(left()))
    }

    /// Begins the trace of a review. Returns none if the review is not traced.
    pub(crate) fn begin(&self, call: &Call) -> Option<Arc<Trace>> {
        let traces = self.traces.as_ref()?;
        let context = traces.sampler.sample(&traces.identifiers, call.trace)?;
        let now = SystemTime::now();
        Some(Arc::new(Trace {
            context,
            began: now.checked_sub(call.received.elapsed()).unwrap_or(now),
            identifiers: traces.identifiers.clone(),
            exporter: traces.exporter.clone(),
            calls: Mutex::new(Calls::Gathered(Vec::new())),
        }))
    }

    /// Whether the decision about a review is exported, alone or in a trace.
    pub(crate) fn wants(&self, trace: Option<&Arc<Trace>>, review: &Reviewed) -> bool {
        trace.is_some()
            || self.decisions.as_ref().is_some_and(|decisions| {
                let config = &decisions.config;
                config.selects(review.is_allowed(), &review.request.uid)
            })
    }

    /// Exports a review that was answered. `decision` is none if there was no review to decide about, or if
    /// [`Exports::wants`] is false.
    pub(crate) fn take(
        &self,
        trace: Option<&Arc<Trace>>,
        endpoint: Endpoint,
        decision: Option<&Decision>,
        plugins: &PluginSet,
        reply: &Reply,
    ) {
        let with_names = names_are_allowed(plugins);
        if let (Some(decisions), Some(decision)) = (&self.decisions, decision) {
            let is_allowed = decision.verdict == "allowed";
            if decisions.config.selects(is_allowed, &decision.uid) {
                decisions.exporter.offer(DecisionRecord {
                    decision: Box::new(decision.clone()),
                    with_names,
                    context: trace.map(|trace| trace.context),
                });
            }
        }
        if let Some(trace) = trace {
            trace.export(endpoint, decision, with_names, reply);
        }
    }
}

/// Whether exports may name objects, users and namespaces (`log.identities`). Without plugins, nobody says so.
fn names_are_allowed(plugins: &PluginSet) -> bool {
    let mut plugins = plugins.iter().peekable();
    plugins.peek().is_some() && plugins.all(|plugin| plugin.config.log_identities)
}

// === impl Trace ===

impl Trace {
    fn export(
        &self,
        endpoint: Endpoint,
        decision: Option<&Decision>,
        with_names: bool,
        reply: &Reply,
    ) {
        let calls = std::mem::replace(&mut *self.lock(), Calls::Exported { with_names });
        let calls = match calls {
            Calls::Gathered(calls) => calls,
            Calls::Exported { .. } => Vec::new(),
        };
        self.exporter.offer(SpanItem::Review(Box::new(ReviewSpans {
            context: self.context,
            began: self.began,
            ended: SystemTime::now().max(self.began),
            endpoint,
            reply: word_of(reply),
            decision: decision.cloned(),
            with_names,
            calls,
        })));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallObserver for Trace {
    fn called(&self, call: ObservedCall) {
        let call = TracedCall {
            span_id: self.identifiers.span_id(),
            call,
        };
        let with_names = match &mut *self.lock() {
            Calls::Gathered(calls) => {
                calls.push(call);
                return;
            }
            Calls::Exported { with_names } => *with_names,
        };
        self.exporter.offer(SpanItem::Late(Box::new(LateSpan {
            context: self.context,
            with_names,
            call,
        })));
    }
}

/// The answer, as a word from a fixed list.
fn word_of(reply: &Reply) -> &'static str {
    match reply {
        Reply::Review(_) => "review",
        Reply::Overloaded | Reply::Crowded => "overloaded",
        Reply::Starting => "starting",
        Reply::NotYet(_) => "not-yet",
        Reply::BadRequest(_) => "bad-request",
        Reply::NoSuchPlugin(_) => "no-such-plugin",
        Reply::TooLarge(_) => "too-large",
        Reply::Internal(_) => "internal-error",
    }
}

#[cfg(test)]
mod tests;
