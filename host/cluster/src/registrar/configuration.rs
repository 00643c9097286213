//! The webhook configurations as objects, and how a live one differs from them. Does no IO.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tollgate_admission::Endpoint;
use tollgate_registration::{DOMAIN, Participant, Registration, TooSlow};

use super::owner::OwnerReference;
use super::record::{RECORD_ANNOTATION, Record};
use super::uninstall::exclude;
use crate::Installation;
use crate::api::labels;
use crate::canary;
use crate::plugin::Plugin;

/// The annotation with the namespace of the installation. Two installations of one name must not fight over a
/// configuration.
pub(super) const NAMESPACE_ANNOTATION: &str = "tollgate.dev/namespace";

/// The fields of a webhook that are compared. kube-apiserver may add others in later versions.
const FIELDS: [&str; 11] = [
    "clientConfig",
    "rules",
    "failurePolicy",
    "matchPolicy",
    "namespaceSelector",
    "objectSelector",
    "matchConditions",
    "sideEffects",
    "timeoutSeconds",
    "admissionReviewVersions",
    "reinvocationPolicy",
];

/// Returns the webhook configuration of an endpoint. None if no plugin serves the endpoint.
///
/// The names of the webhooks carry the installation's name. kube-apiserver uses them for audit annotations and metrics.
pub(super) fn configuration(
    endpoint: Endpoint,
    registration: &Registration,
    installation: &Installation,
    owner: &OwnerReference,
    plugins: &[Plugin],
    record: &Record,
) -> Result<Option<Value>, TooSlow> {
    let participants: Vec<Participant<'_>> = plugins.iter().map(Plugin::participant).collect();
    let Some(webhooks) = registration.webhooks(endpoint, &participants)? else {
        return Ok(None);
    };
    let mut object = serde_json::to_value(&webhooks).expect("the keys of the maps are strings");
    if let Some(webhooks) = object["webhooks"].as_array_mut() {
        for webhook in webhooks {
            let name = webhook["name"].as_str().unwrap_or_default();
            let name = name.strip_suffix(DOMAIN).unwrap_or(name);
            webhook["name"] = json!(format!("{name}{}.{DOMAIN}", installation.name));
            // An empty selector is written too, so that a foreign one is noticed and replaced.
            if webhook.get("objectSelector").is_none() {
                webhook["objectSelector"] = json!({});
            }
            exclude(webhook, &installation.name);
            canary::add(webhook);
        }
    }
    let annotations: BTreeMap<&str, String> = [
        (RECORD_ANNOTATION, record.write()),
        (NAMESPACE_ANNOTATION, installation.namespace.clone()),
    ]
    .into();
    object["metadata"] = json!({
        "name": installation.webhook_configuration(),
        "labels": labels(installation),
        "annotations": annotations,
        "ownerReferences": [owner],
    });
    Ok(Some(object))
}

/// Lists how a live configuration differs from the expected one, for people. An empty list means that kube-apiserver
/// calls the host as expected.
pub(super) fn differences(expected: &Value, live: &Value) -> Vec<String> {
    let mut differences = Vec::new();
    for (part, key) in [
        ("labels", None),
        ("annotations", None),
        ("ownerReferences", Some("uid")),
    ] {
        if !contains(&live["metadata"][part], &expected["metadata"][part], key) {
            differences.push(format!("metadata.{part}"));
        }
    }
    let (expected, live) = (webhooks(expected), webhooks(live));
    for (name, webhook) in &expected {
        match live.iter().find(|(other, _)| other == name) {
            None => differences.push(format!("{name}: missing")),
            Some((_, live)) => {
                let fields = differing(webhook, live, &FIELDS).into_iter();
                differences.extend(fields.map(|field| format!("{name}: {field}")));
            }
        }
    }
    for (name, _) in &live {
        if !expected.iter().any(|(other, _)| other == name) {
            differences.push(format!("{name}: unexpected"));
        }
    }
    let names = |webhooks: &[(&str, &Value)]| -> Vec<String> {
        webhooks
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect()
    };
    if differences.is_empty() && names(&expected) != names(&live) {
        differences.push("the order of the webhooks".to_owned());
    }
    differences
}

/// Lists the fields in which two webhooks differ.
pub(crate) fn differing<'f>(expected: &Value, live: &Value, fields: &[&'f str]) -> Vec<&'f str> {
    let differs = |field: &&&str| normal(&expected[**field]) != normal(&live[**field]);
    fields.iter().filter(differs).copied().collect()
}

fn webhooks(object: &Value) -> Vec<(&str, &Value)> {
    let webhooks = object["webhooks"].as_array();
    webhooks
        .into_iter()
        .flatten()
        .map(|webhook| (webhook["name"].as_str().unwrap_or_default(), webhook))
        .collect()
}

/// Whether a map or a list has every expected element. Elements of lists are compared by `key`.
fn contains(live: &Value, expected: &Value, key: Option<&str>) -> bool {
    match (expected, key) {
        (Value::Array(expected), Some(key)) => expected.iter().all(|one| {
            let live = live.as_array();
            live.is_some_and(|live| live.iter().any(|other| other[key] == one[key]))
        }),
        (Value::Object(expected), _) => expected
            .iter()
            .all(|(name, value)| live.get(name) == Some(value)),
        _ => true,
    }
}

/// The value without nulls, empty lists and empty objects, which kube-apiserver adds or leaves out.
fn normal(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields = map.iter().map(|(key, value)| (key.clone(), normal(value)));
            let fields: Map<String, Value> = fields.filter(|(_, value)| !value.is_null()).collect();
            if fields.is_empty() {
                Value::Null
            } else {
                Value::Object(fields)
            }
        }
        Value::Array(list) if list.is_empty() => Value::Null,
        Value::Array(list) => Value::Array(list.iter().map(normal).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests;
