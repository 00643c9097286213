//! One case: the review that gator makes of an object, and the assertions about the violations.

use anyhow::anyhow;
use regex::Regex;
use serde_json::{Value, json};
use tollgate_config::kubernetes::resource_of;
use tollgate_gate::pipeline::outcome::Ended;

use crate::review::examine::Finding;
use crate::test::compare::Failure;

/// The expectation about the violations.
#[derive(Debug)]
pub(in crate::test) struct Assertion {
    count: Count,
    /// The assertion counts only violations with such a message.
    message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Count {
    None,
    Some,
    Exactly(u64),
}

/// Returns the AdmissionReview of an object, as gator makes it. An AdmissionReview gets what kube-apiserver would set.
pub(super) fn review_of(object: Value) -> anyhow::Result<Value> {
    if object["kind"] != "AdmissionReview" {
        return Ok(json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": completed(json!({ "operation": "CREATE", "object": object })),
        }));
    }
    let mut review = object;
    let request = review["request"].take();
    if !request.is_object() {
        return Err(anyhow!("the AdmissionReview has no request"));
    }
    review["request"] = completed(request);
    Ok(review)
}

/// Sets what a request lacks, from its object.
fn completed(mut request: Value) -> Value {
    let object = match request["object"].is_object() {
        true => request["object"].clone(),
        false => request["oldObject"].clone(),
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api_version = text(&object["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let kind = text(&object["kind"]);
    let resource = match resource_of(group, &kind) {
        Some(resource) => resource.name.to_owned(),
        None => format!("{}s", kind.to_lowercase()),
    };
    let mut set = |key: &str, value: Value| {
        if request.get(key).is_none_or(Value::is_null) && value != json!("") {
            request[key] = value;
        }
    };
    set("uid", json!("00000000-0000-0000-0000-000000000000"));
    set(
        "kind",
        json!({ "group": group, "version": version, "kind": kind }),
    );
    set(
        "resource",
        json!({ "group": group, "version": version, "resource": resource }),
    );
    set("name", object["metadata"]["name"].clone());
    set("namespace", object["metadata"]["namespace"].clone());
    set("operation", json!("CREATE"));
    set("userInfo", json!({}));
    request
}

/// Returns the messages of the violations, or the fault of the plugin.
pub(super) fn violations(finding: &Finding) -> Result<Vec<String>, String> {
    let reports = finding.steps.iter().flat_map(|step| &step.reports);
    let mut messages = Vec::new();
    for report in reports {
        match &report.ended {
            Ended::Denied(denial) => {
                messages.extend(denial.causes.iter().map(|cause| cause.message.clone()));
            }
            Ended::Faulted(fault) => return Err(format!("{}: {}", fault.kind, fault.message)),
            _ => {}
        }
    }
    Ok(messages)
}

/// Returns the assertions that do not hold.
pub(super) fn mismatches(
    assertions: &[Assertion],
    messages: &[String],
) -> anyhow::Result<Vec<Failure>> {
    let mut failures = Vec::new();
    for assertion in assertions {
        failures.extend(assertion.mismatch(messages)?);
    }
    Ok(failures)
}

// === impl Assertion ===

impl Assertion {
    /// Reads an assertion. Without `violations`, there must be one.
    pub(super) fn read(assertion: &Value) -> anyhow::Result<Self> {
        let count =
            match &assertion["violations"] {
                Value::Null | Value::Bool(true) => Count::Some,
                Value::Bool(false) => Count::None,
                Value::String(word) if word == "yes" => Count::Some,
                Value::String(word) if word == "no" => Count::None,
                other => Count::Exactly(other.as_u64().ok_or_else(|| {
                    anyhow!("violations: expected yes, no or a number, got {other}")
                })?),
            };
        Ok(Self {
            count,
            message: assertion["message"].as_str().map(ToOwned::to_owned),
        })
    }

    fn mismatch(&self, messages: &[String]) -> anyhow::Result<Option<Failure>> {
        let pattern = self.message.as_deref().map(Regex::new).transpose()?;
        let counted = messages.iter().filter(|message| {
            pattern
                .as_ref()
                .is_none_or(|pattern| pattern.is_match(message))
        });
        let got = counted.count() as u64;
        let (holds, expected) = match self.count {
            Count::None => (got == 0, "no violations".to_owned()),
            Count::Some => (got > 0, "violations".to_owned()),
            Count::Exactly(count) => (got == count, format!("{count} violation(s)")),
        };
        if holds {
            return Ok(None);
        }
        let of = match &self.message {
            Some(message) => format!(" with a message like {message:?}"),
            None => String::new(),
        };
        let got = match messages.is_empty() {
            true => "none".to_owned(),
            false => format!("{got} of: {}", messages.join(" | ")),
        };
        Ok(Some(Failure::new(format!(
            "violations: expected {expected}{of}, got {got}"
        ))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(assertion: Value, messages: &[&str]) -> bool {
        let messages: Vec<String> = messages.iter().map(ToString::to_string).collect();
        let assertion = Assertion::read(&assertion).unwrap();
        assertion.mismatch(&messages).unwrap().is_some()
    }

    #[test]
    fn compares_number_of_violations() {
        for (violations, fits) in [
            (json!("no"), [true, false, false]),
            (json!(false), [true, false, false]),
            (json!("yes"), [false, true, true]),
            (json!(true), [false, true, true]),
            (json!(null), [false, true, true]),
            (json!(2), [false, false, true]),
        ] {
            let assertion = json!({ "violations": violations });
            let messages = ["a", "b"];
            for (count, fits) in fits.iter().enumerate() {
                assert_eq!(
                    failed(assertion.clone(), &messages[..count]),
                    !fits,
                    "{assertion}"
                );
            }
        }
    }

    #[test]
    fn counts_violations_with_fitting_message() {
        let assertion = json!({ "violations": 1, "message": "^init" });
        assert!(!failed(assertion.clone(), &["init container", "container"]));
        assert!(failed(assertion, &["an init container"]));
    }

    #[test]
    fn rejects_unknown_number_of_violations() {
        assert!(Assertion::read(&json!({ "violations": "maybe" })).is_err());
    }

    #[test]
    fn completes_an_admission_review() {
        let review = json!({ "kind": "AdmissionReview", "request": {
            "operation": "DELETE", "oldObject": {
                "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
                "metadata": { "name": "a", "namespace": "shop" },
            },
        }});
        let request = review_of(review).unwrap()["request"].take();
        assert_eq!(request["operation"], "DELETE");
        assert_eq!(request["resource"]["resource"], "ingresses");
        assert_eq!(request["namespace"], "shop");
    }
}
