//! Decides whether kube-apiserver would call a webhook, or evaluate a policy, for a request.
//!
//! The rules are kube-apiserver's own. An unknown label and a condition that cannot be evaluated count as matching,
//! because a needless finding is better than a missed lock-out.

use serde_json::{Map, Value};
use tollgate_config::condition::{Condition, Decision, decide};

use super::probe::Probe;
use crate::live::{Objects, list, texts};

/// Rules, selectors and conditions of a webhook or a policy.
pub(super) struct Catcher<'o> {
    pub(super) rules: &'o Value,
    /// Rules that exclude requests. Only policies have them.
    pub(super) exclude_rules: &'o Value,
    pub(super) namespace_selector: &'o Value,
    pub(super) object_selector: &'o Value,
    pub(super) conditions: &'o Value,
}

// === impl Catcher ===

impl Catcher<'_> {
    /// Returns whether the request arrives.
    pub(super) fn catches(&self, probe: &Probe, objects: &Objects) -> bool {
        let any = |rules: &Value| list(rules).any(|rule| is_matched(rule, probe));
        any(self.rules)
            && !any(self.exclude_rules)
            && self.is_in_namespace(probe, objects)
            && self.selects_object(probe)
            && self.meets_conditions(probe)
    }

    /// Cluster-scoped objects are in no namespace, so a namespace selector does not exclude them.
    fn is_in_namespace(&self, probe: &Probe, objects: &Objects) -> bool {
        let Some(namespace) = &probe.namespace else {
            return true;
        };
        let labels = objects.find("Namespace", "", namespace);
        let labels = labels.and_then(|object| object["metadata"]["labels"].as_object());
        let mut labels = labels.cloned().unwrap_or_default();
        // kube-apiserver sets this label on every namespace.
        labels.insert(
            "kubernetes.io/metadata.name".to_owned(),
            namespace.as_str().into(),
        );
        selects(self.namespace_selector, &labels)
    }

    /// Only the label that Tollgate's pods have is known. Requirements of other labels count as met.
    fn selects_object(&self, probe: &Probe) -> bool {
        let object = probe
            .request
            .object
            .as_ref()
            .or(probe.request.old_object.as_ref());
        let has_labels = object
            .and_then(|object| object.member("metadata")?.member("labels"))
            .is_some();
        if !has_labels {
            return true;
        }
        let mut known = Map::new();
        known.insert("app.kubernetes.io/name".to_owned(), "tollgate".into());
        let requirements = requirements(self.object_selector);
        requirements
            .iter()
            .filter(|(key, _, _)| known.contains_key(*key))
            .all(|requirement| holds(requirement, &known))
    }

    /// A condition that cannot be evaluated here does not exclude the request.
    fn meets_conditions(&self, probe: &Probe) -> bool {
        let conditions: Vec<Condition> = list(self.conditions)
            .filter_map(|condition| {
                let name = condition["name"].as_str().unwrap_or_default();
                let text = condition["expression"].as_str()?;
                Condition::compile(name, text).ok()
            })
            .collect();
        let object = probe.request.object.as_ref();
        !matches!(
            decide(&conditions, &probe.request, object),
            Decision::Fails(_)
        )
    }
}

fn is_matched(rule: &Value, probe: &Probe) -> bool {
    let one_of = |key: &str, name: &str| {
        let names = texts(&rule[key]);
        names.iter().any(|one| *one == "*" || *one == name)
    };
    let scope = match rule["scope"].as_str().unwrap_or("*") {
        "Cluster" => probe.namespace.is_none(),
        "Namespaced" => probe.namespace.is_some(),
        _ => true,
    };
    let has_resource = texts(&rule["resources"]).into_iter().any(|pattern| {
        let (resource, sub_resource) = pattern.split_once('/').unwrap_or((pattern, ""));
        let sub_resource_of_probe = probe.sub_resource.unwrap_or_default();
        (resource == "*" || resource == probe.resource)
            && (sub_resource == "*" || sub_resource == sub_resource_of_probe)
    });
    // A policy's rule can be limited to names, which a probe does not have.
    let is_of_all_names = texts(&rule["resourceNames"]).is_empty();
    scope
        && has_resource
        && is_of_all_names
        && one_of("operations", probe.operation)
        && one_of("apiGroups", probe.group)
        && one_of("apiVersions", probe.version)
}

/// A key, an operator and values.
type Requirement<'o> = (&'o str, &'o str, Vec<&'o str>);

fn requirements(selector: &Value) -> Vec<Requirement<'_>> {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels =
        labels.map(|(key, value)| (key.as_str(), "In", value.as_str().into_iter().collect()));
    let expressions = list(&selector["matchExpressions"]).map(|expression| {
        (
            expression["key"].as_str().unwrap_or_default(),
            expression["operator"].as_str().unwrap_or_default(),
            texts(&expression["values"]),
        )
    });
    labels.chain(expressions).collect()
}

fn selects(selector: &Value, labels: &Map<String, Value>) -> bool {
    requirements(selector)
        .iter()
        .all(|requirement| holds(requirement, labels))
}

fn holds((key, operator, values): &Requirement<'_>, labels: &Map<String, Value>) -> bool {
    let value = labels.get(*key).and_then(Value::as_str);
    match *operator {
        "In" => value.is_some_and(|value| values.contains(&value)),
        "NotIn" => value.is_none_or(|value| !values.contains(&value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => true,
    }
}
