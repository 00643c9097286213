//! The gate that the server asks: from a body to a reply.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;

use super::audit::Auditor;
use super::blocking::blocking_if;
use super::merge::merge;
use super::mutate::{MutateError, mutate};
use super::outcome::{Ended, FaultReport, Outcome, Report};
use super::validate::validate;
use crate::config::Mode;
use crate::engine::{Engine, Fault, Phase, chain};
use crate::metrics::Metrics;
use crate::plugin::{PluginSet, PluginState};
use crate::review::decode::{DecodeError, Review, ReviewVersion, decode};
use crate::review::head::decode_head;
use crate::review::request::AdmissionRequest;
use crate::review::respond::respond;
use crate::server::{Body, Call, Endpoint, Gate, Readiness, Reply};

/// Bodies beyond this are parsed where blocking is allowed: it takes some milliseconds.
const PARSE_INLINE_BYTES: usize = 512 * 1024;
/// Where the object lies in the review: below the AdmissionReview and its request.
const DEPTH_OF_OBJECT: u32 = 2;

/// Takes reviews through the plugins that are live.
pub struct Pipeline {
    engine: Engine,
    plugins: ArcSwap<PluginSet>,
    metrics: Arc<Metrics>,
    auditor: Auditor,
    max_depth: u32,
}

// === impl Pipeline ===

impl Pipeline {
    /// A pipeline over a set of plugins.
    #[must_use]
    pub fn new(
        engine: Engine,
        plugins: PluginSet,
        metrics: Arc<Metrics>,
        max_depth: u32,
        max_concurrent_calls: usize,
    ) -> Self {
        let auditor = Auditor::new(
            engine.clone(),
            metrics.clone(),
            max_concurrent_calls,
            max_depth,
        );
        Self {
            engine,
            plugins: ArcSwap::from_pointee(plugins),
            metrics,
            auditor,
            max_depth,
        }
    }

    /// Waits for the audits that are under way.
    pub async fn finish(&self) {
        self.auditor.finish().await;
    }

    async fn take(&self, call: &Call, plugins: &PluginSet, review: Review) -> Reply {
        let Review { version, request } = review;
        let request = Arc::new(request);
        let only = call.plugin.as_deref();
        let (reports, patch, audits) = match call.endpoint {
            Endpoint::Mutate => {
                match mutate(
                    &self.engine,
                    &self.metrics,
                    plugins,
                    only,
                    &request,
                    call.deadline,
                    self.max_depth,
                )
                .await
                {
                    Ok(mutated) => (mutated.reports, mutated.patch, mutated.audits),
                    Err(MutateError::Overload(_)) => return Reply::Overloaded,
                    Err(MutateError::Unproven(what)) => {
                        tracing::error!(
                            uid = request.uid,
                            "{what}; nothing of it was sent. This is a defect: please report it"
                        );
                        return Reply::Internal(format!("tollgate: {what}"));
                    }
                }
            }
            Endpoint::Validate => {
                match validate(
                    &self.engine,
                    &self.metrics,
                    plugins,
                    only,
                    &request,
                    call.deadline,
                )
                .await
                {
                    Ok(validated) => (validated.reports, Vec::new(), validated.audits),
                    Err(_) => return Reply::Overloaded,
                }
            }
        };
        let reply = self.reply(
            call.endpoint,
            version,
            &request,
            merge(&reports, patch, &request),
        );
        self.auditor.start(audits);
        reply
    }

    /// Answers for a review that cannot be shown to any plugin: each that would have been asked is at its
    /// failurePolicy, as if it had failed.
    fn unreadable(
        &self,
        call: &Call,
        plugins: &PluginSet,
        head: &[u8],
        what: &str,
    ) -> Option<Reply> {
        let head = decode_head(head)?;
        let fault = Fault::Unreadable {
            what: what.to_owned(),
        };
        let phase = phase_of(call.endpoint);
        let reports: Vec<Report> = plugins
            .iter()
            .filter(|plugin| {
                call.plugin
                    .as_deref()
                    .is_none_or(|name| plugin.config.name.as_str() == name)
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
        tracing::warn!(uid = head.request.uid, plugins = reports.len(), "{fault}");
        let outcome = merge(&reports, Vec::new(), &head.request);
        Some(self.reply(call.endpoint, head.version, &head.request, outcome))
    }

    fn reply(
        &self,
        endpoint: Endpoint,
        version: ReviewVersion,
        request: &AdmissionRequest,
        outcome: Outcome,
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
            .review(endpoint.name(), version.as_str(), verdict(&outcome));
        Reply::Review(Bytes::from(respond(
            version,
            &request.uid,
            &outcome,
            endpoint,
        )))
    }
}

impl Gate for Pipeline {
    async fn review(&self, call: Call) -> Reply {
        // One set from here to the end, whatever is swapped in meanwhile.
        let plugins = self.plugins.load_full();
        if let Some(name) = &call.plugin {
            match plugins.get(name) {
                None => {
                    return Reply::NoSuchPlugin(format!(
                        "no plugin of the name `{name}` is configured"
                    ));
                }
                Some(plugin) => {
                    if let PluginState::Loaded(loaded) = &plugin.state {
                        let interfaces = loaded.guest.interfaces();
                        let missing = match call.endpoint {
                            Endpoint::Mutate => !interfaces.mutating,
                            Endpoint::Validate => !interfaces.validating,
                        };
                        if missing {
                            let phase = phase_of(call.endpoint).name();
                            return Reply::NoSuchPlugin(format!(
                                "the plugin `{name}` does not {phase}"
                            ));
                        }
                    }
                }
            }
        }
        let body = match &call.body {
            Body::Whole(body) => body.clone(),
            Body::TooLarge { head, limit_bytes } => {
                let what =
                    format!("the review has more than {limit_bytes} bytes (requests.maxBody)");
                return self
                    .unreadable(&call, &plugins, head, &what)
                    .unwrap_or(Reply::TooLarge(what));
            }
        };
        let max_depth = self.max_depth + DEPTH_OF_OBJECT;
        let decoded = blocking_if(body.len() > PARSE_INLINE_BYTES, || decode(&body, max_depth));
        match decoded {
            Ok(review) => self.take(&call, &plugins, review).await,
            Err(error @ (DecodeError::TooDeep { .. } | DecodeError::TooMany { .. })) => {
                let what = match &error {
                    DecodeError::TooMany { .. } => error.to_string(),
                    _ => format!(
                        "the object is nested deeper than {} levels (requests.maxDepth)",
                        self.max_depth
                    ),
                };
                self.unreadable(&call, &plugins, &body, &what)
                    .unwrap_or_else(|| Reply::BadRequest(error.to_string()))
            }
            Err(error) => Reply::BadRequest(chain(&error)),
        }
    }

    fn plugins(&self) -> serde_json::Value {
        self.plugins.load().status()
    }

    fn readiness(&self) -> Readiness {
        let plugins = self.plugins.load();
        let detail = plugins
            .iter()
            .filter_map(|plugin| match &plugin.state {
                PluginState::Failed { reason } => Some(format!(
                    "plugin {} is not loaded: {reason}",
                    plugin.config.name
                )),
                PluginState::Loaded(_) | PluginState::Disabled => None,
            })
            .collect();
        Readiness {
            ready: true,
            detail,
        }
    }
}

fn phase_of(endpoint: Endpoint) -> Phase {
    match endpoint {
        Endpoint::Mutate => Phase::Mutate,
        Endpoint::Validate => Phase::Validate,
    }
}

fn verdict(outcome: &Outcome) -> &'static str {
    match &outcome.status {
        None => "allowed",
        Some(status) if status.code >= 500 => "error",
        Some(_) => "denied",
    }
}
