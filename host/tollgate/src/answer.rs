//! The answer to a review.

use bytes::Bytes;
use serde_json::Value;
use tollgate_admission::Endpoint;
use tollgate_admission::review::decode::ReviewVersion;
use tollgate_gate::pipeline::outcome::{Outcome, Report, Status};
use tollgate_gate::pipeline::respond::respond;
use tollgate_json::document::Json;
use tollgate_json::patch::write_all;

use crate::error::ReviewError;
use crate::setup::Examination;

/// The answer to a review.
#[derive(Clone, Debug)]
pub struct Answer {
    outcome: Outcome,
    response: Bytes,
    object: Option<Json>,
    mutate: Reports,
    validate: Reports,
}

/// The reports of one endpoint. Both lists are empty if the endpoint was not used.
#[derive(Clone, Debug, Default)]
struct Reports {
    called: Vec<Report>,
    audits: Vec<Report>,
}

// === impl Answer ===

impl Answer {
    /// Whether the request is allowed.
    #[must_use]
    pub fn allowed(&self) -> bool {
        self.outcome.allowed
    }

    /// Returns why the request is denied. None exactly when it is allowed.
    ///
    /// The reason is a plugin's denial, or a fault of a plugin with failurePolicy Fail. A code of 500 or above says that
    /// only faults were the reason.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        self.outcome.status.as_ref()
    }

    /// Returns the changes as a JSON Patch (RFC 6902). None if there are none, or if the request is denied.
    ///
    /// The patch is for the object of the review, and contains only `add`, `replace` and `remove`.
    #[must_use]
    pub fn patch(&self) -> Option<String> {
        if self.outcome.patch.is_empty() {
            return None;
        }
        let mut text = Vec::new();
        write_all(&self.outcome.patch, &mut text);
        String::from_utf8(text).ok()
    }

    /// Returns the object after all mutators, as JSON.
    ///
    /// Only [`Gate::review`](crate::Gate::review) fills this in. None if a mutator denied the request, or if the review
    /// has no object, as on DELETE.
    #[must_use]
    pub fn object(&self) -> Option<String> {
        self.object.as_ref().map(Json::to_text)
    }

    /// Returns the warnings for the user. Each begins with the plugin's name.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.outcome.warnings
    }

    /// Returns the audit annotations: valid and distinct keys, with their values.
    ///
    /// If mutators and validators have the same key, the value of the validators follows that of the mutators, after a
    /// comma.
    #[must_use]
    pub fn audit_annotations(&self) -> &[(String, String)] {
        &self.outcome.audit_annotations
    }

    /// Returns the AdmissionReview to send back, as JSON in the version of the review.
    ///
    /// An answer of [`Gate::review`](crate::Gate::review) combines both endpoints. kube-apiserver takes a patch only from
    /// a mutating webhook, and calls validating webhooks separately. For a webhook, use the answers of
    /// [`Gate::mutate`](crate::Gate::mutate) and [`Gate::validate`](crate::Gate::validate).
    #[must_use]
    pub fn review_bytes(&self) -> &[u8] {
        &self.response
    }

    /// Returns the reports of the plugins that were called at an endpoint, in the order of the calls. Empty if the
    /// endpoint was not used.
    #[must_use]
    pub fn reports(&self, endpoint: Endpoint) -> &[Report] {
        &self.of(endpoint).called
    }

    /// Returns the reports of the plugins in mode audit at an endpoint. They do not affect the answer.
    #[must_use]
    pub fn audit_reports(&self, endpoint: Endpoint) -> &[Report] {
        &self.of(endpoint).audits
    }

    /// Creates the answer of one endpoint.
    pub(crate) fn of_one(endpoint: Endpoint, examined: Examination) -> Self {
        let Examination {
            response,
            decision: _,
            outcome,
            reports,
            audits,
        } = examined;
        let called = Reports {
            called: reports,
            audits,
        };
        let (mutate, validate) = match endpoint {
            Endpoint::Mutate => (called, Reports::default()),
            Endpoint::Validate => (Reports::default(), called),
        };
        Self {
            outcome,
            response,
            object: None,
            mutate,
            validate,
        }
    }

    /// Combines the answers of both endpoints, after the mutators have allowed the request.
    pub(crate) fn of_both(
        mutated: Examination,
        validated: Examination,
        object: Option<Json>,
    ) -> Result<Self, ReviewError> {
        let (version, uid) = addressee(&mutated.response)?;
        let outcome = combine(mutated.outcome, validated.outcome);
        let response = respond(version, &uid, &outcome, Endpoint::Mutate);
        Ok(Self {
            outcome,
            response: Bytes::from(response),
            object,
            mutate: Reports {
                called: mutated.reports,
                audits: mutated.audits,
            },
            validate: Reports {
                called: validated.reports,
                audits: validated.audits,
            },
        })
    }

    fn of(&self, endpoint: Endpoint) -> &Reports {
        match endpoint {
            Endpoint::Mutate => &self.mutate,
            Endpoint::Validate => &self.validate,
        }
    }
}

/// Returns the version and the uid of a response. It has both in every case, even if the review could not be read.
fn addressee(response: &[u8]) -> Result<(ReviewVersion, String), ReviewError> {
    let response: Value = serde_json::from_slice(response)
        .map_err(|error| ReviewError::Internal(format!("cannot read the response: {error}")))?;
    let version = response["apiVersion"]
        .as_str()
        .and_then(ReviewVersion::from_api_version);
    let uid = response["response"]["uid"].as_str();
    match (version, uid) {
        (Some(version), Some(uid)) => Ok((version, uid.to_owned())),
        _ => Err(ReviewError::Internal(
            "the response has no version or no uid".to_owned(),
        )),
    }
}

/// Combines the outcomes of both endpoints. The mutators have allowed the request.
fn combine(mutated: Outcome, validated: Outcome) -> Outcome {
    let mut warnings = mutated.warnings;
    for warning in validated.warnings {
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    let mut annotations = mutated.audit_annotations;
    for (key, value) in validated.audit_annotations {
        match annotations.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) if *known == value => {}
            Some((_, known)) => {
                known.push(',');
                known.push_str(&value);
            }
            None => annotations.push((key, value)),
        }
    }
    Outcome {
        allowed: validated.allowed,
        status: validated.status,
        patch: if validated.allowed {
            mutated.patch
        } else {
            Vec::new()
        },
        warnings,
        audit_annotations: annotations,
    }
}

#[cfg(test)]
mod tests {
    use tollgate_json::document::Pointer;
    use tollgate_json::patch::Operation;

    use super::*;

    fn outcome(warnings: &[&str], annotations: &[(&str, &str)]) -> Outcome {
        Outcome {
            allowed: true,
            status: None,
            patch: Vec::new(),
            warnings: warnings.iter().map(ToString::to_string).collect(),
            audit_annotations: annotations
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    #[test]
    fn combines_warnings_and_annotations_of_both_endpoints() {
        let mutated = outcome(&["a: one"], &[("plugins", "a@1"), ("a.seen", "yes")]);
        let validated = outcome(
            &["a: one", "b: two"],
            &[("plugins", "b@2"), ("a.seen", "yes")],
        );
        let combined = combine(mutated, validated);
        assert_eq!(combined.warnings, ["a: one", "b: two"]);
        let annotations = [("plugins", "a@1,b@2"), ("a.seen", "yes")];
        assert_eq!(
            combined.audit_annotations,
            annotations.map(|(key, value)| (key.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn drops_the_patch_of_a_request_that_a_validator_denies() {
        let mut mutated = outcome(&[], &[]);
        mutated.patch.push(Operation::Remove {
            path: Pointer::parse("/spec").expect("it is a pointer"),
        });
        let mut validated = outcome(&[], &[]);
        validated.allowed = false;
        assert!(combine(mutated.clone(), validated).patch.is_empty());
        assert_eq!(combine(mutated, outcome(&[], &[])).patch.len(), 1);
    }

    #[test]
    fn reads_version_and_uid_of_a_response() {
        let body = respond(
            ReviewVersion::V1Beta1,
            "705ab4f5",
            &outcome(&[], &[]),
            Endpoint::Mutate,
        );
        let read = addressee(&body).expect("it is a response");
        assert_eq!(read, (ReviewVersion::V1Beta1, "705ab4f5".to_owned()));
        assert!(addressee(b"{}").is_err());
    }
}
