//! The gate that the server calls: turns a request body into a reply.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tollgate_admission::Phase;
use tollgate_admission::canary::Prover;
use tollgate_admission::chain;
use tollgate_admission::review::decode::{DecodeError, Review, ReviewVersion, decode_within};
use tollgate_admission::review::head::decode_head;
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_admission::search::Search;
use tollgate_admission::trace::Observed;
use tollgate_admission::{Body, Call, Endpoint, Gate, Readiness, Reply};
use tollgate_config::{DecisionLimits, Mode};
use tollgate_engine::{Clock, Engine, Fault, together};
use tollgate_json::document::{Account, NoRoom, Room};
use tollgate_telemetry::metrics::Metrics;

use super::audit::{Audit, Auditor};
use super::blocking::blocking_if;
use super::canary;
use super::compare::{Comparer, Comparison};
use super::identity::{Identity, log_request};
use super::merge::merge;
use super::mutate::{MutateError, mutate};
use super::outcome::{Ended, FaultReport, Outcome, Report};
use super::passed_over::PassedOver;
use super::record;
use super::unserved::Watcher;
use super::validate::validate;
use crate::decision::{self, Decision, Ring};
use crate::export::Exports;
use crate::pipeline::respond::respond;
use crate::plugin::{PluginSet, PluginState};
use crate::recording::Recording;

/// Larger bodies are decoded where blocking is allowed, because that takes some milliseconds.
const PARSE_INLINE_BYTES: usize = 2 * 1024 * 1024;
/// Nearly every decoded review takes less memory than this.
const SMALL_DECODED_BYTES: u64 = 1 << 20;
/// Nesting levels above the object: the AdmissionReview and its request.
const DEPTH_OF_OBJECT: u32 = 2;

/// Takes reviews through the live plugins.
pub struct Pipeline {
    engine: Engine,
    plugins: ArcSwap<PluginSet>,
    metrics: Arc<Metrics>,
    auditor: Auditor,
    comparer: Comparer,
    unserved: Watcher,
    /// Recorded decisions, each with the plugin set that it was made with, for as long as that set is in use.
    decisions: Ring<Weak<PluginSet>>,
    /// None if reviews are not recorded.
    recording: Option<Arc<Recording>>,
    /// None if this host's webhooks are registered by hand.
    prover: Option<Arc<dyn Prover>>,
    /// None if neither traces nor decisions are exported.
    exports: Option<Arc<Exports>>,
    max_depth: u32,
    /// Memory for the decoded documents of all reviews. None means no limit.
    room: Option<Arc<Room>>,
}

/// Everything that is known about one review.
#[derive(Debug)]
pub struct Examined {
    /// The reply that the server sends.
    pub reply: Reply,
    /// The record of the decision. None if there was no review to decide about.
    pub decision: Option<Decision>,
    /// The plugins' reports. Empty if the host was out of room.
    pub reports: Vec<Report>,
    /// The merged outcome. None if nothing was decided.
    pub outcome: Option<Outcome>,
    /// The reports of plugins in mode audit, which do not affect the reply.
    pub audits: Vec<Report>,
}

/// A reply, with the work and the records that remain after it.
struct Evaluated {
    reply: Reply,
    /// None if there was no review to decide about.
    review: Option<Reviewed>,
    audits: Vec<Audit>,
    comparisons: Vec<Comparison>,
}

/// A review and its result.
pub(crate) struct Reviewed {
    pub(crate) request: Arc<AdmissionRequest>,
    pub(super) reports: Vec<Report>,
    /// None if nothing was decided, because the host was out of room or failed.
    pub(super) outcome: Option<Outcome>,
    pub(super) passed_over: Vec<PassedOver>,
}

// === impl Pipeline ===

impl Pipeline {
    /// Creates a pipeline for a set of plugins.
    #[must_use]
    pub fn new(
        engine: Engine,
        plugins: PluginSet,
        metrics: Arc<Metrics>,
        max_depth: u32,
        max_concurrent_calls: usize,
    ) -> Self {
        plugins.announce(&PluginSet::default(), &metrics);
        let unserved = Watcher::new(metrics.clone());
        unserved.knows(names(&plugins));
        let comparer = Comparer::new(&engine, metrics.clone(), max_depth);
        let auditor = Auditor::new(
            engine.clone(),
            metrics.clone(),
            comparer.clone(),
            max_concurrent_calls,
            max_depth,
        );
        Self {
            engine,
            plugins: ArcSwap::from_pointee(plugins),
            metrics,
            auditor,
            comparer,
            unserved,
            decisions: Ring::new(DecisionLimits::default()),
            recording: None,
            prover: None,
            exports: None,
            max_depth,
            room: None,
        }
    }

    /// Limits the memory that the decoded documents of all reviews take together.
    #[must_use]
    pub fn with_room(self, max_decoded_bytes: u64) -> Self {
        let gauge = self.metrics.decoded_bytes.clone();
        Self {
            room: Some(Room::new(max_decoded_bytes, SMALL_DECODED_BYTES, gauge)),
            ..self
        }
    }

    /// Sets how many decisions are kept.
    #[must_use]
    pub fn with_decisions(self, limits: DecisionLimits) -> Self {
        Self {
            decisions: Ring::new(limits),
            ..self
        }
    }

    /// Sets where reviews are recorded.
    #[must_use]
    pub fn with_recording(self, recording: Option<Arc<Recording>>) -> Self {
        Self { recording, ..self }
    }

    /// Sets who proves to kube-apiserver's clients that a webhook is called.
    #[must_use]
    pub fn with_prover(self, prover: Option<Arc<dyn Prover>>) -> Self {
        Self { prover, ..self }
    }

    /// Sets where traces and decisions are exported.
    #[must_use]
    pub fn with_exports(self, exports: Option<Arc<Exports>>) -> Self {
        Self { exports, ..self }
    }

    /// Evaluates one review like [`Gate::review`], including audits, and returns everything about it. The pipeline
    /// keeps no record of the review and calls no shadow.
    pub async fn examine(&self, call: Call) -> Examined {
        self.examine_in(&self.engine, call).await
    }

    /// Like [`Pipeline::examine`], but plugins that may read the time get this one.
    pub async fn examine_at(&self, call: Call, time: SystemTime) -> Examined {
        let engine = self.engine.clone().with_clock(Clock::Fixed(time));
        self.examine_in(&engine, call).await
    }

    async fn examine_in(&self, engine: &Engine, call: Call) -> Examined {
        let plugins = self.plugins.load_full();
        let Evaluated {
            reply,
            review,
            audits,
            comparisons: _,
        } = self
            .evaluate(engine, &call, &plugins, Observed::default())
            .await;
        let mut decision = review
            .as_ref()
            .map(|review| record::decision(&call, &plugins, review, &reply));
        if let Some(decision) = &mut decision {
            decision.not_called = record::not_called(decision, &plugins);
        }
        let mut audited = Vec::new();
        for audit in audits {
            let report = audit.run(engine, self.max_depth).await;
            audited.extend(report.map(|(report, _)| report));
        }
        let (reports, outcome) =
            review.map_or_else(Default::default, |review| (review.reports, review.outcome));
        Examined {
            reply,
            decision,
            reports,
            outcome,
            audits: audited,
        }
    }

    /// Returns the plugin set that the next request will use.
    #[must_use]
    pub fn live(&self) -> Arc<PluginSet> {
        self.plugins.load_full()
    }

    /// Serves this plugin set from the next request on. Requests in flight keep the set that they began with.
    pub(crate) fn publish(&self, plugins: PluginSet) {
        let plugins = Arc::new(plugins.continuing(&self.plugins.load()));
        self.unserved.knows(names(&plugins));
        let earlier = self.plugins.swap(plugins.clone());
        plugins.announce(&earlier, &self.metrics);
    }

    /// Notes plugins that an earlier run of this server had. Reviews to their paths are allowed, as if they had been
    /// removed from the configuration while the server ran.
    pub(crate) fn knew<'n>(&self, names: impl Iterator<Item = &'n str>) {
        self.unserved.knows(names);
    }

    /// Notes the plugins of the configuration that deny while they are not loaded. A review to the path of one that was there
    /// before, and is not loaded yet, is not allowed.
    pub(crate) fn desire(&self, names: BTreeSet<String>) {
        self.unserved.desires(names);
    }

    /// Notes plugins that somebody wants and that cannot be served, because their custom resources are not valid. Their
    /// webhooks' failurePolicy applies to reviews for them.
    pub(crate) fn refuse(&self, names: BTreeSet<String>) {
        self.unserved.refuses(names);
    }

    /// Waits for the audits that are under way.
    pub async fn finish(&self) {
        self.auditor.finish().await;
    }

    async fn take(
        &self,
        engine: &Engine,
        call: &Call,
        plugins: &PluginSet,
        review: Review,
        observed: Observed,
    ) -> Evaluated {
        let Review {
            version,
            mut request,
        } = review;
        request.observed = observed;
        let request = Arc::new(request);
        let only = call.plugin.as_deref();
        let (reports, patch, audits, comparisons, passed_over) = match call.endpoint {
            Endpoint::Mutate => {
                let mutated = {
                    let mutating = pin!(mutate(
                        engine,
                        &self.metrics,
                        plugins,
                        only,
                        &request,
                        call.deadline,
                        self.max_depth,
                    ));
                    together(mutating).await
                };
                match mutated {
                    Ok(mutated) => (
                        mutated.reports,
                        mutated.patch,
                        mutated.audits,
                        mutated.comparisons,
                        mutated.passed_over,
                    ),
                    Err(MutateError::Overload(_)) => {
                        return Evaluated::undecided(Reply::Overloaded, request);
                    }
                    Err(MutateError::Unproven(what)) => {
                        tracing::error!(
                            uid = request.uid,
                            "{what}; no patch was sent; this is a defect of Tollgate, please report it"
                        );
                        let reply = Reply::Internal(format!("tollgate: {what}"));
                        return Evaluated::undecided(reply, request);
                    }
                }
            }
            Endpoint::Validate => {
                let validated = {
                    let validating = pin!(validate(
                        engine,
                        &self.metrics,
                        plugins,
                        only,
                        &request,
                        call.deadline,
                    ));
                    together(validating).await
                };
                match validated {
                    Ok(validated) => (
                        validated.reports,
                        Vec::new(),
                        validated.audits,
                        validated.comparisons,
                        validated.passed_over,
                    ),
                    Err(_) => return Evaluated::undecided(Reply::Overloaded, request),
                }
            }
        };
        let outcome = merge(&reports, patch, &request);
        Evaluated {
            reply: self.reply(call.endpoint, version, &request, &outcome),
            review: Some(Reviewed {
                request,
                reports,
                outcome: Some(outcome),
                passed_over,
            }),
            audits,
            comparisons,
        }
    }

    /// Answers a review that cannot be shown to any plugin. The host applies the failurePolicy of each plugin that
    /// would have been called, as if the plugin had failed.
    fn unreadable(
        &self,
        call: &Call,
        plugins: &PluginSet,
        head: &[u8],
        what: &str,
        account: &Account,
    ) -> Option<Evaluated> {
        let head = decode_head(head, account)?;
        let fault = Fault::Unreadable {
            what: what.to_owned(),
        };
        let phase = phase_of(call.endpoint);
        let reports: Vec<Report> = plugins
            .iter()
            .filter(|plugin| plugin.is_asked_by(call.plugin.as_deref()))
            .map(|plugin| {
                let namespace = head.request.namespace.as_deref();
                plugins.answering(plugin, namespace).plugin
            })
            .filter(|plugin| {
                plugin.config.mode != Mode::Audit && plugin.could_be_asked(phase, &head.request)
            })
            .map(|plugin| {
                plugin
                    .metrics
                    .fault(phase, fault.kind(), plugin.config.failure_policy.as_str());
                let ended = Ended::Faulted(FaultReport {
                    kind: fault.kind(),
                    message: fault.to_string(),
                });
                Report::new(&plugin.config, plugin.digest.clone(), ended)
            })
            .collect();
        let names = plugins.iter().all(|plugin| plugin.config.log_identities);
        log_request!(
            warn,
            Identity::of(&head.request, names),
            fault = fault.kind(),
            plugins = reports.len(),
            "{fault}"
        );
        let outcome = merge(&reports, Vec::new(), &head.request);
        Some(Evaluated {
            reply: self.reply(call.endpoint, head.version, &head.request, &outcome),
            review: Some(Reviewed {
                request: Arc::new(head.request),
                reports,
                outcome: Some(outcome),
                passed_over: Vec::new(),
            }),
            audits: Vec::new(),
            comparisons: Vec::new(),
        })
    }

    fn reply(
        &self,
        endpoint: Endpoint,
        version: ReviewVersion,
        request: &AdmissionRequest,
        outcome: &Outcome,
    ) -> Reply {
        tracing::debug!(
            uid = request.uid,
            operation = request.operation.as_str(),
            resource = request.resource.resource,
            namespace = request.namespace.as_deref().unwrap_or_default(),
            allowed = outcome.allowed,
            operations = outcome.patch.len(),
            "reviewed"
        );
        self.metrics
            .review(endpoint.name(), version.as_str(), verdict(outcome));
        Reply::Review(Bytes::from(respond(
            version,
            &request.uid,
            outcome,
            endpoint,
        )))
    }

    async fn evaluate(
        &self,
        engine: &Engine,
        call: &Call,
        plugins: &PluginSet,
        observed: Observed,
    ) -> Evaluated {
        if let Some(reply) = self.unserved.refusal(call, plugins) {
            return Evaluated::refused(reply);
        }
        let account = self
            .room
            .as_ref()
            .map_or_else(Account::unlimited, Room::account);
        let body = match &call.body {
            Body::Whole(body) => body.clone(),
            Body::TooLarge { head, limit_bytes } => {
                let what =
                    format!("the review has more than {limit_bytes} bytes (requests.maxBody)");
                return self
                    .unreadable(call, plugins, head, &what, &account)
                    .unwrap_or_else(|| Evaluated::refused(Reply::TooLarge(what)));
            }
        };
        let max_depth = self.max_depth + DEPTH_OF_OBJECT;
        let decoded = blocking_if(body.len() > PARSE_INLINE_BYTES, || {
            decode_within(&body, max_depth, &account)
        });
        match decoded {
            Ok(review) if review.request.is_canary() => {
                let prover = self.prover.as_deref();
                Evaluated::refused(canary::answer(call, plugins, &review, prover))
            }
            Ok(review) => {
                let evaluated = self.take(engine, call, plugins, review, observed).await;
                // Other reviews held the memory, so a plugin's answer could not be read or applied. This is neither
                // the plugin's fault nor a verdict.
                if account.was_crowded() {
                    return Evaluated::refused(Reply::Crowded);
                }
                evaluated
            }
            Err(DecodeError::NoRoom(NoRoom::Crowded)) => Evaluated::refused(Reply::Crowded),
            Err(
                error @ (DecodeError::TooDeep { .. }
                | DecodeError::TooMany { .. }
                | DecodeError::NoRoom(NoRoom::TooLarge { .. })),
            ) => {
                let what = match &error {
                    DecodeError::TooMany { .. } | DecodeError::NoRoom(_) => chain(&error),
                    _ => format!(
                        "the object is nested deeper than {} levels (requests.maxDepth)",
                        self.max_depth
                    ),
                };
                self.unreadable(call, plugins, &body, &what, &account)
                    .unwrap_or_else(|| Evaluated::refused(Reply::BadRequest(chain(&error))))
            }
            Err(error) => Evaluated::refused(Reply::BadRequest(chain(&error))),
        }
    }
}

impl Gate for Pipeline {
    async fn review(&self, call: Call) -> Reply {
        // The review uses this set to its end, even if another one is published meanwhile.
        let plugins = self.plugins.load_full();
        let exports = self.exports.as_ref();
        let trace = exports.and_then(|exports| exports.begin(&call));
        let observed = match &trace {
            Some(trace) => Observed::by(trace.clone()),
            None => Observed::default(),
        };
        let Evaluated {
            reply,
            review,
            audits,
            comparisons,
        } = self.evaluate(&self.engine, &call, &plugins, observed).await;
        let bytes = match &call.body {
            Body::Whole(body) => body.len(),
            Body::TooLarge { .. } => 0,
        };
        // A plugin that was called, or passed over for another reason than its rules, has a rule for the request.
        if let Some(review) = &review
            && review.reports.is_empty()
            && review.passed_over.is_empty()
            && audits.is_empty()
        {
            self.unserved.examine(&call, &plugins, &review.request);
        }
        if let (Some(recording), Some(review)) = (&self.recording, &review) {
            recording.take(&call, &plugins, review, &reply);
        }
        match exports {
            None => {
                if let Some(review) = review.filter(|_| self.decisions.is_on()) {
                    let kept = record::kept(&call, &plugins, &review, &reply);
                    self.decisions.keep(kept, Arc::downgrade(&plugins));
                }
            }
            Some(exports) => {
                let is_wanted = |review: &Reviewed| {
                    self.decisions.is_on() || exports.wants(trace.as_ref(), review)
                };
                let decision = review
                    .filter(is_wanted)
                    .map(|review| record::decision(&call, &plugins, &review, &reply));
                let trace = trace.as_ref();
                exports.take(trace, call.endpoint, decision.as_ref(), &plugins, &reply);
                if let Some(decision) = decision {
                    self.decisions.push(decision, Arc::downgrade(&plugins));
                }
            }
        }
        self.auditor.start(audits, bytes);
        self.comparer.start(comparisons, bytes);
        reply
    }

    fn plugins(&self) -> serde_json::Value {
        self.plugins.load().status()
    }

    fn shadows(&self) -> serde_json::Value {
        self.plugins.load().comparisons()
    }

    fn decisions(&self, uid: Option<&str>) -> serde_json::Value {
        let decisions: Vec<serde_json::Value> = match uid {
            None => {
                let recent = self.decisions.recent();
                let overview = recent
                    .iter()
                    .map(|(decision, _)| record::overview(&decision.whole()));
                overview.collect()
            }
            Some(uid) => {
                let same = self.decisions.of(uid);
                let whole = same
                    .iter()
                    .map(|(decision, plugins)| record::whole(decision.whole(), plugins.upgrade()));
                whole.collect()
            }
        };
        serde_json::json!({ "decisions": decisions })
    }

    fn search(&self, search: &Search) -> serde_json::Value {
        decision::search(&self.decisions.numbered(), search, record::overview)
    }

    fn costs(&self) -> serde_json::Value {
        decision::costs(&self.decisions.numbered())
    }

    fn readiness(&self) -> Readiness {
        let plugins = self.plugins.load();
        let detail = plugins
            .promoted()
            .filter_map(|plugin| match &plugin.state {
                PluginState::Failed { reason } => Some(format!(
                    "plugin {} is not loaded: {reason}",
                    plugin.config.name
                )),
                PluginState::Loaded(_) => {
                    let waits = plugin.waits_for()?;
                    let name = &plugin.config.name;
                    Some(format!("plugin {name} waits for its objects: {waits}"))
                }
                PluginState::Disabled => None,
            })
            .collect();
        Readiness {
            ready: true,
            complete: plugins.awaited().next().is_none(),
            detail,
        }
    }
}

// === impl Evaluated ===

impl Evaluated {
    /// For a request without a review to decide about.
    fn refused(reply: Reply) -> Self {
        Self {
            reply,
            review: None,
            audits: Vec::new(),
            comparisons: Vec::new(),
        }
    }

    /// For a review that the host could not decide.
    fn undecided(reply: Reply, request: Arc<AdmissionRequest>) -> Self {
        Self {
            reply,
            review: Some(Reviewed {
                request,
                reports: Vec::new(),
                outcome: None,
                passed_over: Vec::new(),
            }),
            audits: Vec::new(),
            comparisons: Vec::new(),
        }
    }
}

fn names(plugins: &PluginSet) -> impl Iterator<Item = &str> {
    plugins.iter().map(|plugin| plugin.config.name.as_str())
}

pub(super) fn phase_of(endpoint: Endpoint) -> Phase {
    match endpoint {
        Endpoint::Mutate => Phase::Mutate,
        Endpoint::Validate => Phase::Validate,
    }
}

pub(super) fn verdict(outcome: &Outcome) -> &'static str {
    match &outcome.status {
        None => "allowed",
        Some(status) if status.code >= 500 => "error",
        Some(_) => "denied",
    }
}
