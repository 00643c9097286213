//! Canaries: requests that show, through kube-apiserver, that a webhook is called and answered.
//!
//! ```text
//! leader ── creates a Canary as a dry run ──▶ kube-apiserver ── review ──▶ webhook entry ──▶ a replica
//! leader ◀── the proof, in the object or in a warning ── kube-apiserver ◀── proof of this entry ──┘
//! ```
//!
//! A canary is of a kind that Tollgate owns, and no plugin ever sees it. The replica answers with a proof for the path
//! that was called. The proof signs the leader's nonce, so an old answer proves nothing.

use std::fmt;

use tollgate_json::document::Json;

use crate::Endpoint;
use crate::review::request::{AdmissionRequest, Operation};

/// The API group of canaries, which is reserved for Tollgate.
pub const GROUP: &str = "tollgate.dev";
/// The API version of canaries.
pub const VERSION: &str = "v1alpha1";
/// The kind of canaries.
pub const KIND: &str = "Canary";
/// The resource of canaries.
pub const RESOURCE: &str = "canaries";
/// The beginning of the warning with which a validating webhook proves itself.
pub const PREFIX: &str = "tollgate-canary ";
/// The answer to a challenge that no leader of the installation has signed.
pub const UNKNOWN: &str = "unknown";

/// The question of a canary: the leader's words in its `spec`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// The name of the canary, which says which webhook entry is meant.
    pub name: String,
    /// A number that the leader uses once, as text.
    pub nonce: String,
    /// The plugins that the entry calls.
    pub plugins: Vec<String>,
    /// The leader's signature of all of this, as text.
    pub signature: String,
}

/// Answers canaries: proves that the calls of a webhook entry reach this installation.
pub trait Prover: fmt::Debug + Send + Sync {
    /// Returns the proof for a path. `lacking` are the plugins of the challenge that this replica does not call there.
    ///
    /// None if no leader of the installation asks.
    fn prove(&self, challenge: &Challenge, path: &str, lacking: &[&str]) -> Option<String>;
}

/// Returns the path of a webhook entry.
#[must_use]
pub fn path(endpoint: Endpoint, plugin: Option<&str>) -> String {
    match plugin {
        Some(plugin) => format!("/{}/{plugin}", endpoint.name()),
        None => format!("/{}", endpoint.name()),
    }
}

// === impl Challenge ===

impl Challenge {
    /// Reads the question of a canary. None if it has none.
    #[must_use]
    pub fn of(request: &AdmissionRequest) -> Option<Self> {
        let spec = request.object.as_ref()?.member("spec")?;
        let text = |key: &str| spec.member(key).and_then(Json::as_text).map(str::to_owned);
        let plugins = spec.member("plugins").and_then(Json::as_array);
        let plugins = plugins.unwrap_or_default().iter();
        let challenge = Self {
            name: request.name.clone(),
            nonce: text("nonce")?,
            plugins: plugins
                .filter_map(Json::as_text)
                .map(str::to_owned)
                .collect(),
            signature: text("signature")?,
        };
        let is_question = request.dry_run && request.operation == Operation::Create;
        is_question.then_some(challenge)
    }
}

// === impl AdmissionRequest ===

impl AdmissionRequest {
    /// Whether the request is about a canary. Plugins do not see such requests.
    #[must_use]
    pub fn is_canary(&self) -> bool {
        self.resource.group == GROUP && self.resource.resource == RESOURCE
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::review::decode::decode;

    fn review() -> Value {
        json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": "u", "operation": "CREATE", "name": "gate.validate", "dryRun": true,
                "kind": {"group": GROUP, "version": VERSION, "kind": KIND},
                "resource": {"group": GROUP, "version": VERSION, "resource": RESOURCE},
                "object": {"spec": {"nonce": "n", "plugins": ["a", "b"], "signature": "s"}},
            },
        })
    }

    fn request(review: &Value) -> AdmissionRequest {
        let decoded = decode(review.to_string().as_bytes(), 32);
        decoded.expect("a review").request
    }

    #[test]
    fn reads_challenge_of_dry_run_only() {
        let challenge = Challenge::of(&request(&review())).expect("a challenge");
        assert_eq!(
            (challenge.name.as_str(), challenge.nonce.as_str()),
            ("gate.validate", "n")
        );
        assert_eq!(challenge.plugins, ["a", "b"]);
        for (pointer, value) in [
            ("/request/dryRun", json!(false)),
            ("/request/operation", json!("UPDATE")),
            ("/request/object/spec/nonce", json!(1)),
            ("/request/object", Value::Null),
        ] {
            let mut other = review();
            *other.pointer_mut(pointer).expect("the place is there") = value;
            let request = request(&other);
            assert_eq!(Challenge::of(&request), None, "{pointer}");
            assert!(request.is_canary(), "{pointer}");
        }
    }

    #[test]
    fn only_canaries_of_the_group_are_canaries() {
        for pointer in ["/request/resource/group", "/request/resource/resource"] {
            let mut other = review();
            *other.pointer_mut(pointer).expect("the place is there") = json!("others");
            assert!(!request(&other).is_canary(), "{pointer}");
        }
    }

    #[test]
    fn paths_are_those_of_the_server() {
        assert_eq!(path(Endpoint::Mutate, None), "/mutate");
        assert_eq!(path(Endpoint::Validate, Some("guard")), "/validate/guard");
    }
}
