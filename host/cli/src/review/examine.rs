//! Sends one document through `/mutate`. If the request is allowed, `/validate` follows, as in kube-apiserver.

use std::time::Instant;

use anyhow::anyhow;
use bytes::Bytes;
use serde_json::{Value, json};
use tollgate::setup::{self, Examination};
use tollgate_admission::Endpoint;
use tollgate_config::Requests;
use tollgate_config::deadline::deadline_after;
use tollgate_gate::decision::{Called, Decision};
use tollgate_gate::pipeline::Pipeline;
use tollgate_gate::pipeline::outcome::{Ended, Outcome, Report};
use tollgate_json::document::Json;
use tollgate_json::patch::{ApplyLimits, apply};

use super::input::Document;
use super::request::{Prepared, with_object, without_objects};

/// The result of reviewing one document.
pub(crate) struct Finding {
    pub(crate) document: Document,
    pub(crate) prepared: Option<Prepared>,
    /// The endpoints that the document went through.
    pub(crate) steps: Vec<Step>,
    /// The object after all mutators. None if the request was denied before that, or if the review has no object.
    pub(crate) after: Option<Json>,
    /// The reason why the document could not be reviewed.
    pub(crate) error: Option<String>,
}

/// The result of one endpoint.
pub(crate) struct Step {
    pub(crate) endpoint: Endpoint,
    /// The AdmissionReview that the server would answer with.
    pub(crate) response: Value,
    pub(crate) decision: Decision,
    pub(crate) outcome: Outcome,
    /// The report of each plugin, in words for the operator.
    pub(crate) reports: Vec<Report>,
    /// The reports of the plugins in mode audit.
    pub(crate) audits: Vec<Report>,
}

/// The verdict on a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allowed,
    Changed,
    Denied,
    Error,
}

/// Limits for the host's own patch, which has already been checked.
const UNLIMITED: ApplyLimits = ApplyLimits {
    max_depth: u32::MAX,
    max_added_nodes: usize::MAX,
    max_added_bytes: usize::MAX,
    max_steps: usize::MAX,
};

/// Sends a document through the pipeline.
pub(crate) async fn examine(
    pipeline: &Pipeline,
    requests: &Requests,
    document: Document,
    prepared: anyhow::Result<Prepared>,
) -> Finding {
    let mut finding = Finding {
        document,
        prepared: None,
        steps: Vec::new(),
        after: None,
        error: None,
    };
    let result = match prepared {
        Err(error) => Err(error),
        Ok(prepared) => {
            let review = prepared.review.clone();
            finding.prepared = Some(prepared);
            finding.run(pipeline, requests, review).await
        }
    };
    finding.error = result.err().map(|error| format!("{error:#}"));
    finding
}

/// Sends a review through one endpoint.
pub(crate) async fn step(
    pipeline: &Pipeline,
    requests: &Requests,
    endpoint: Endpoint,
    review: &Json,
) -> anyhow::Result<Step> {
    let received = Instant::now();
    let deadline = deadline_after(
        received,
        requests.default_timeout,
        &requests.deadline_margin,
    );
    let Examination {
        response,
        decision,
        outcome,
        reports,
        audits,
    } = setup::examine(
        pipeline,
        requests.max_body_bytes,
        endpoint,
        Bytes::from(review.to_text()),
        received,
        deadline,
    )
    .await?;
    Ok(Step {
        endpoint,
        response: serde_json::from_slice(&response)?,
        decision,
        outcome,
        reports,
        audits,
    })
}

// === impl Finding ===

impl Finding {
    async fn run(
        &mut self,
        pipeline: &Pipeline,
        requests: &Requests,
        mut review: Json,
    ) -> anyhow::Result<()> {
        let mutated = step(pipeline, requests, Endpoint::Mutate, &review).await?;
        let (allowed, patch) = (mutated.outcome.allowed, mutated.outcome.patch.clone());
        self.steps.push(mutated);
        if !allowed {
            return Ok(());
        }
        if let Some(before) = before(&review) {
            let after = apply(before, &patch, &UNLIMITED)
                .map_err(|error| anyhow!("cannot apply the patch: {error}"))?;
            if !patch.is_empty() {
                review = with_object(&review, after.clone());
            }
            self.after = Some(after);
        }
        let validated = step(pipeline, requests, Endpoint::Validate, &review).await?;
        self.steps.push(validated);
        Ok(())
    }

    pub(crate) fn verdict(&self) -> Verdict {
        if self.error.is_some() {
            return Verdict::Error;
        }
        if self.steps.iter().any(|step| !step.outcome.allowed) {
            return Verdict::Denied;
        }
        if self.steps.iter().any(|step| !step.outcome.patch.is_empty()) {
            return Verdict::Changed;
        }
        Verdict::Allowed
    }

    /// Returns the object as it was sent.
    pub(crate) fn before(&self) -> Option<&Json> {
        before(&self.prepared.as_ref()?.review)
    }

    /// Returns the finding as JSON, for machines.
    pub(crate) fn to_json(&self, common: &[String]) -> Value {
        let mut assumed = Vec::new();
        let mut request = Value::Null;
        if let Some(prepared) = &self.prepared {
            if prepared.from_manifest {
                assumed.extend_from_slice(common);
            }
            assumed.extend_from_slice(&prepared.assumed);
            let said = without_objects(&prepared.review).to_text();
            request = serde_json::from_str(&said).unwrap_or_default();
        }
        let verdict = match self.verdict() {
            Verdict::Changed => Verdict::Allowed,
            verdict => verdict,
        };
        json!({
            "file": self.document.file,
            "document": self.document.number,
            "verdict": verdict.as_str(),
            "changed": self.steps.iter().any(|step| !step.outcome.patch.is_empty()),
            "error": self.error,
            "assumed": assumed,
            "request": request,
            "mutate": self.step(Endpoint::Mutate),
            "validate": self.step(Endpoint::Validate),
        })
    }

    fn step(&self, endpoint: Endpoint) -> Value {
        let step = self.steps.iter().find(|step| step.endpoint == endpoint);
        let Some(step) = step else {
            return Value::Null;
        };
        let audits: Vec<Called> = step
            .audits
            .iter()
            .map(|report| Called::of(report, None))
            .collect();
        json!({
            "response": step.response,
            "plugins": step.decision.plugins,
            "notCalled": step.decision.not_called,
            "audits": audits,
            "milliseconds": step.decision.milliseconds,
        })
    }
}

fn before(review: &Json) -> Option<&Json> {
    let object = review.member("request")?.member("object")?;
    (!object.is_null()).then_some(object)
}

// === impl Step ===

impl Step {
    /// Lists the denials and faults of the plugins in mode audit, in words for the operator.
    pub(crate) fn objections(&self) -> impl Iterator<Item = (&str, &str)> {
        self.audits.iter().filter_map(|report| {
            let said = match &report.ended {
                Ended::Denied(denial) => denial.message.as_str(),
                Ended::Faulted(fault) => fault.message.as_str(),
                _ => return None,
            };
            Some((report.plugin.as_str(), said))
        })
    }
}

// === impl Verdict ===

impl Verdict {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Changed => "changed",
            Self::Denied => "denied",
            Self::Error => "error",
        }
    }
}
