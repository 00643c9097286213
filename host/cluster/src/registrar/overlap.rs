//! Computes the requests that both the registered and the desired rules match.
//!
//! While the rules of a plugin change, some replicas serve the old rules and some the new ones. All of them serve the
//! overlap.

use tollgate_config::Match;

use super::record::{Recorded, RecordedRule};

/// Returns the rules that are both registered and desired. None if there are none.
///
/// The labels and conditions are those of the desired state: each replica evaluates its own ones in any case.
pub(super) fn overlap(registered: &Recorded, desired: &Match) -> Option<Match> {
    let rules: Vec<_> = desired
        .rules
        .iter()
        .map(RecordedRule::of)
        .flat_map(|desired| {
            let joint = |registered: &RecordedRule| of_rules(registered, &desired)?.rule();
            registered
                .rules
                .iter()
                .filter_map(joint)
                .collect::<Vec<_>>()
        })
        .collect();
    if rules.is_empty() {
        return None;
    }
    let mut namespaces = desired.namespaces.clone();
    if namespaces.is_empty() {
        namespaces = registered
            .namespaces
            .iter()
            .map(|name| name.as_str().into())
            .collect();
    } else if !registered.namespaces.is_empty() {
        namespaces.retain(|name| registered.namespaces.iter().any(|other| **other == **name));
        if namespaces.is_empty() {
            return None;
        }
    }
    let mut exclude_namespaces = desired.exclude_namespaces.clone();
    for name in &registered.exclude_namespaces {
        if !exclude_namespaces.iter().any(|other| **other == **name) {
            exclude_namespaces.push(name.as_str().into());
        }
    }
    Some(Match {
        rules,
        namespaces,
        exclude_namespaces,
        ..desired.clone()
    })
}

/// Returns the rule that matches what both rules match. None if one of its sets is empty.
fn of_rules(first: &RecordedRule, second: &RecordedRule) -> Option<RecordedRule> {
    let rule = RecordedRule {
        operations: of_names(&first.operations, &second.operations),
        api_groups: of_names(&first.api_groups, &second.api_groups),
        api_versions: of_names(&first.api_versions, &second.api_versions),
        resources: of_resources(&first.resources, &second.resources),
        scope: match (first.scope.as_str(), second.scope.as_str()) {
            ("*", scope) | (scope, "*") => scope.to_owned(),
            (first, second) if first == second => first.to_owned(),
            _ => return None,
        },
    };
    let sets = [
        &rule.operations,
        &rule.api_groups,
        &rule.api_versions,
        &rule.resources,
    ];
    sets.iter().all(|set| !set.is_empty()).then_some(rule)
}

fn of_names(first: &[String], second: &[String]) -> Vec<String> {
    let is_any = |set: &[String]| set.iter().any(|name| name == "*");
    if is_any(first) {
        return second.to_vec();
    }
    if is_any(second) {
        return first.to_vec();
    }
    let both = first.iter().filter(|name| second.contains(name));
    both.cloned().collect()
}

fn of_resources(first: &[String], second: &[String]) -> Vec<String> {
    let pairs = first
        .iter()
        .flat_map(|one| second.iter().map(move |other| (one, other)));
    let mut joint: Vec<String> = pairs
        .filter_map(|(one, other)| {
            let ((name, sub), (other_name, other_sub)) = (parts(one), parts(other));
            let name = of_parts(name, other_name)?;
            let sub = of_parts(sub, other_sub)?;
            Some(if sub.is_empty() {
                name.to_owned()
            } else {
                format!("{name}/{sub}")
            })
        })
        .collect();
    joint.sort_unstable();
    joint.dedup();
    let all = joint.clone();
    joint.retain(|one| !all.iter().any(|other| other != one && covers(other, one)));
    joint
}

/// The name and the subresource. The empty subresource is the resource itself.
fn parts(resource: &str) -> (&str, &str) {
    resource.split_once('/').unwrap_or((resource, ""))
}

/// The part that matches what both match. `*` matches the empty subresource too.
fn of_parts<'a>(first: &'a str, second: &'a str) -> Option<&'a str> {
    match (first, second) {
        ("*", part) | (part, "*") => Some(part),
        (first, second) if first == second => Some(first),
        _ => None,
    }
}

fn covers(outer: &str, inner: &str) -> bool {
    let ((name, sub), (inner_name, inner_sub)) = (parts(outer), parts(inner));
    (name == "*" || name == inner_name) && (sub == "*" || sub == inner_sub)
}
