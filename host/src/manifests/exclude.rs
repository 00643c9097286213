//! What is never asked about, because a webhook that does not answer would then take the cluster down, or keep an
//! administrator from mending it. Selectors cannot say these things; conditions in CEL can.

use std::collections::BTreeSet;

use super::{DOMAIN, rules::RegisteredRule, webhook::MatchCondition};

/// Namespaces that a cluster lives by.
pub(crate) const NAMESPACES: [&str; 2] = ["kube-system", "kube-node-lease"];

/// Heartbeats and leader elections.
const LEASES: (&str, &str) = ("coordination.k8s.io", "leases");

/// Where kube-apiserver is asked who somebody is and what they may do, by components as well.
const REVIEW_GROUPS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// The conditions, each only where the rules could match what it leaves out. Break-glass is first: it is the one
/// that somebody looks for in a hurry.
pub(super) fn conditions(
    rules: &[RegisteredRule],
    break_glass_groups: &BTreeSet<String>,
) -> Vec<MatchCondition> {
    let can_match =
        |group: &str, resource: &str| rules.iter().any(|rule| rule.can_match(group, resource));
    let mut conditions = Vec::new();
    if !break_glass_groups.is_empty() {
        let is_member = |group: &String| format!("'{group}' in request.userInfo.groups");
        let memberships: Vec<String> = break_glass_groups.iter().map(is_member).collect();
        conditions.push(MatchCondition {
            name: "exclude-break-glass".to_owned(),
            expression: format!(
                "!has(request.userInfo.groups) || !({})",
                memberships.join(" || ")
            ),
        });
    }
    let (group, resource) = LEASES;
    if can_match(group, resource) {
        conditions.push(MatchCondition {
            name: "exclude-leases".to_owned(),
            expression: format!(
                "request.resource.group != '{group}' || request.resource.resource != '{resource}'"
            ),
        });
    }
    if REVIEW_GROUPS.iter().any(|group| can_match(group, "*")) {
        let [first, second] = REVIEW_GROUPS;
        conditions.push(MatchCondition {
            name: "exclude-access-reviews".to_owned(),
            expression: format!("!(request.resource.group in ['{first}', '{second}'])"),
        });
    }
    if can_match(DOMAIN, "*") {
        conditions.push(MatchCondition {
            name: "exclude-tollgate".to_owned(),
            expression: format!("request.resource.group != '{DOMAIN}'"),
        });
    }
    conditions
}
