//! Answers canaries: reviews that show that kube-apiserver calls a webhook entry. No plugin is called for them.
//!
//! A mutating webhook proves itself by its patch, and a validating one by a warning: kube-apiserver gives both back to
//! the client of a dry run.

use bytes::Bytes;
use tollgate_admission::canary::{Challenge, PREFIX, Prover, UNKNOWN, path};
use tollgate_admission::review::decode::Review;
use tollgate_admission::{Call, Endpoint, Reply};
use tollgate_json::document::{Json, Pointer};
use tollgate_json::patch::Operation;

use super::gate::phase_of;
use super::outcome::Outcome;
use super::respond::respond;
use crate::plugin::{PluginSet, PluginState};

/// The place of the proof in the object.
const PLACE: &str = "/spec/proof";

/// Answers a canary. Without a prover, the request is allowed without a proof.
pub(super) fn answer(
    call: &Call,
    plugins: &PluginSet,
    review: &Review,
    prover: Option<&dyn Prover>,
) -> Reply {
    let Review { version, request } = review;
    let proof = prover.and_then(|prover| {
        let challenge = Challenge::of(request)?;
        let lacking = lacking(call, plugins, &challenge);
        let path = path(call.endpoint, call.plugin.as_deref());
        let proof = prover.prove(&challenge, &path, &lacking);
        Some(proof.unwrap_or_else(|| UNKNOWN.to_owned()))
    });
    tracing::debug!(
        endpoint = call.endpoint.name(),
        plugin = call.plugin,
        canary = request.name,
        is_proved = proof.is_some(),
        "answered a canary"
    );
    let mut outcome = Outcome {
        allowed: true,
        ..Outcome::default()
    };
    if let Some(proof) = proof {
        match (call.endpoint, Pointer::parse(PLACE)) {
            (Endpoint::Mutate, Ok(path)) => outcome.patch.push(Operation::Add {
                path,
                value: Json::text(&proof),
            }),
            _ => outcome.warnings.push(format!("{PREFIX}{proof}")),
        }
    }
    Reply::Review(Bytes::from(respond(
        *version,
        &request.uid,
        &outcome,
        call.endpoint,
    )))
}

/// The plugins of the challenge that this replica would not call for a request to the path.
fn lacking<'c>(call: &Call, plugins: &PluginSet, challenge: &'c Challenge) -> Vec<&'c str> {
    let phase = phase_of(call.endpoint);
    let is_called = |name: &str| {
        let is_meant = call.plugin.as_deref().is_none_or(|only| only == name);
        let plugin = plugins.get(name).filter(|_| is_meant);
        plugin.is_some_and(|plugin| match &plugin.state {
            PluginState::Loaded(loaded) => loaded.interfaces().exports(phase),
            PluginState::Disabled | PluginState::Failed { .. } => false,
        })
    };
    let names = challenge.plugins.iter().map(String::as_str);
    names.filter(|name| !is_called(name)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use serde_json::{Value, json};
    use tollgate_admission::Body;
    use tollgate_admission::review::decode::decode;

    use super::*;

    /// A prover that repeats the challenge.
    #[derive(Debug)]
    struct Echo;

    impl Prover for Echo {
        fn prove(&self, challenge: &Challenge, path: &str, lacking: &[&str]) -> Option<String> {
            let is_own = challenge.signature == "own";
            is_own.then(|| format!("{} {path} lacks {}", challenge.nonce, lacking.join(",")))
        }
    }

    fn answered(endpoint: Endpoint, signature: &str, prover: Option<&dyn Prover>) -> Value {
        let canary = json!({"group": "tollgate.dev", "version": "v1alpha1", "resource": "canaries", "kind": "Canary"});
        let body = json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": "u", "operation": "CREATE", "name": "gate", "dryRun": true,
                "kind": canary, "resource": canary,
                "object": {"spec": {"nonce": "n", "plugins": ["guard"], "signature": signature}},
            },
        });
        let body = body.to_string();
        let now = Instant::now();
        let call = Call {
            endpoint,
            plugin: Some("guard".to_owned()),
            received: now,
            deadline: now + Duration::from_secs(1),
            body: Body::Whole(body.clone().into()),
            trace: None,
        };
        let review = decode(body.as_bytes(), 32).expect("a review");
        let Reply::Review(reply) = answer(&call, &PluginSet::default(), &review, prover) else {
            panic!("a canary is always reviewed");
        };
        let mut reply: Value = serde_json::from_slice(&reply).expect("JSON");
        reply["response"].take()
    }

    #[test]
    fn mutating_webhook_proves_itself_by_a_patch_and_validating_one_by_a_warning() {
        let mutate = answered(Endpoint::Mutate, "own", Some(&Echo));
        assert!(
            mutate["patch"].is_string() && mutate["warnings"].is_null(),
            "{mutate}"
        );
        let validate = answered(Endpoint::Validate, "own", Some(&Echo));
        assert_eq!(
            validate["warnings"],
            json!(["tollgate-canary n /validate/guard lacks guard"])
        );
        assert_eq!(
            (&mutate["allowed"], &validate["allowed"]),
            (&json!(true), &json!(true))
        );
    }

    #[test]
    fn canary_of_others_is_allowed_without_a_proof() {
        let foreign = answered(Endpoint::Validate, "foreign", Some(&Echo));
        assert_eq!(foreign["warnings"], json!(["tollgate-canary unknown"]));
        let alone = answered(Endpoint::Validate, "own", None);
        assert_eq!(alone["warnings"], Value::Null);
        assert_eq!(
            (&foreign["allowed"], &alone["allowed"]),
            (&json!(true), &json!(true))
        );
    }
}
