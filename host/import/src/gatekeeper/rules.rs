//! Rules from the kinds of constraints and mutators.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tollgate_config::kubernetes::{resource_of, resources_of_kind};

use crate::{Document, Rule};

/// A document and a kind whose resource is not known.
type Unknown<'d> = (&'d Document, &'d str);

/// Kinds that exist only as subresources: group and kind, then group and subresource.
const SUBRESOURCES: [(&str, &str, &str, &str); 12] = [
    ("", "Binding", "", "pods/binding"),
    ("policy", "Eviction", "", "pods/eviction"),
    ("autoscaling", "Scale", "", "replicationcontrollers/scale"),
    ("autoscaling", "Scale", "apps", "deployments/scale"),
    ("autoscaling", "Scale", "apps", "replicasets/scale"),
    ("autoscaling", "Scale", "apps", "statefulsets/scale"),
    ("", "PodExecOptions", "", "pods/exec"),
    ("", "PodAttachOptions", "", "pods/attach"),
    ("", "PodPortForwardOptions", "", "pods/portforward"),
    ("", "PodProxyOptions", "", "pods/proxy"),
    ("", "ServiceProxyOptions", "", "services/proxy"),
    ("", "NodeProxyOptions", "", "nodes/proxy"),
];

/// The operation of requests that open a connection.
const CONNECT: &str = "CONNECT";

/// The subresources that are only connected to.
const CONNECTIONS: [&str; 6] = [
    "pods/exec",
    "pods/attach",
    "pods/portforward",
    "pods/proxy",
    "services/proxy",
    "nodes/proxy",
];

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
            let is_subresource = add_subresources(&mut groups, group, kind);
            if resources.is_empty() && !is_subresource {
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
    let mut rules = Vec::new();
    for (group, resources) in groups {
        let rule = |operations: Vec<String>, resources: BTreeSet<String>| Rule {
            operations,
            api_groups: vec![group.to_owned()],
            api_versions: vec!["*".to_owned()],
            resources: narrowed(resources),
            scope: None,
        };
        // Requests to some subresources have no other operation.
        let is_connection = |resource: &String| CONNECTIONS.contains(&resource.as_str());
        let (connections, others): (BTreeSet<_>, BTreeSet<_>) =
            resources.into_iter().partition(is_connection);
        let operations = operations.iter().map(ToString::to_string).collect();
        for (operations, resources) in [
            (operations, others),
            (vec![CONNECT.to_owned()], connections),
        ] {
            if !resources.is_empty() {
                rules.push(rule(operations, resources));
            }
        }
    }
    (rules, unknown)
}

/// Adds the subresources of a kind. Returns whether there is one.
fn add_subresources(
    groups: &mut BTreeMap<&str, BTreeSet<String>>,
    group: &str,
    kind: &str,
) -> bool {
    let mut is_any = false;
    for (its_group, its_kind, group_of_resource, resource) in SUBRESOURCES {
        if its_kind == kind && ["*", its_group].contains(&group) {
            add(groups, group_of_resource, resource);
            is_any = true;
        }
    }
    is_any
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
