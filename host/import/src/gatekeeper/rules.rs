//! Rules from the kinds of constraints and mutators.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tollgate_config::kubernetes::{resource_of, resources_of_kind};

use crate::{Document, Rule};

/// A document and a kind whose resource is not known.
type Unknown<'d> = (&'d Document, &'d str);

/// Returns rules for all kinds of constraints or mutators, and the kinds whose resource is not known.
pub(super) fn of<'d>(
    documents: &[&'d Document],
    operations: &[&'static str],
) -> (Vec<Rule>, Vec<Unknown<'d>>) {
    let mut groups: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut unknown: Vec<Unknown<'d>> = Vec::new();
    for document in documents {
        let Some(kinds) = kinds(document) else {
            add(&mut groups, "*", "*");
            continue;
        };
        for (group, kind) in kinds {
            let resources = resources(group, kind);
            if resources.is_empty() {
                unknown.push((*document, kind));
                add(&mut groups, group, "*");
            }
            for resource in resources {
                add(&mut groups, group, &resource);
            }
        }
    }
    if groups.get("*").is_some_and(|all| all.contains("*")) {
        groups.retain(|group, _| *group == "*");
    }
    let rules = groups.into_iter().map(|(group, resources)| Rule {
        operations: operations.iter().map(ToString::to_string).collect(),
        api_groups: vec![group.to_owned()],
        api_versions: vec!["*".to_owned()],
        resources: narrowed(resources),
        scope: None,
    });
    (rules.collect(), unknown)
}

/// Returns the groups and kinds of a constraint or a mutator. None for all.
fn kinds(document: &Document) -> Option<Vec<(&str, &str)>> {
    let list = |pointer: &str| {
        let list = document.value.pointer(pointer).and_then(Value::as_array);
        list.filter(|list| !list.is_empty())
    };
    let (entries, groups) = match list("/spec/applyTo") {
        Some(entries) => (entries, "groups"),
        None => (list("/spec/match/kinds")?, "apiGroups"),
    };
    let mut found = Vec::new();
    for entry in entries {
        for group in texts(&entry[groups]) {
            found.extend(texts(&entry["kinds"]).into_iter().map(|kind| (group, kind)));
        }
    }
    Some(found)
}

fn add<'d>(groups: &mut BTreeMap<&'d str, BTreeSet<String>>, group: &'d str, resource: &str) {
    let resources = groups.entry(group).or_default();
    resources.insert(resource.to_owned());
    let has_pods = resource == "pods" || (resource == "*" && ["", "*"].contains(&group));
    if has_pods {
        // Gatekeeper's webhook is called for these, too. Their objects are Pods.
        resources.insert("pods/ephemeralcontainers".to_owned());
    }
}

/// Returns the resources of a kind. Empty if Kubernetes has no such kind.
fn resources(group: &str, kind: &str) -> Vec<String> {
    match (group, kind) {
        (_, "*") => vec!["*".to_owned()],
        ("*", kind) => resources_of_kind(kind)
            .map(|resource| resource.name.to_owned())
            .collect(),
        (group, kind) => resource_of(group, kind)
            .map(|resource| resource.name.to_owned())
            .into_iter()
            .collect(),
    }
}

/// Drops resources that `*` covers.
fn narrowed(resources: BTreeSet<String>) -> Vec<String> {
    let has_all = resources.contains("*");
    let keeps = |resource: &String| !has_all || resource == "*" || resource.contains('/');
    resources.into_iter().filter(keeps).collect()
}

/// Returns the texts of a list. An absent or empty list stands for all.
fn texts(list: &Value) -> Vec<&str> {
    let texts = list.as_array().into_iter().flatten();
    let texts: Vec<&str> = texts.filter_map(Value::as_str).collect();
    match texts.is_empty() {
        true => vec!["*"],
        false => texts,
    }
}
