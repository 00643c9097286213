//! Exclusions for requests that must never depend on a webhook. If the webhook did not answer, the cluster could fail,
//! or an administrator could not repair it. Selectors cannot express these exclusions. CEL conditions can.

use std::collections::BTreeSet;

use super::{DOMAIN, rules::RegisteredRule, webhook::MatchCondition};

/// Namespaces that a cluster depends on.
pub(crate) const NAMESPACES: [&str; 2] = ["kube-system", "kube-node-lease"];

/// Leases, used for heartbeats and leader elections.
const LEASES: (&str, &str) = ("coordination.k8s.io", "leases");

/// API groups for authentication and authorization checks. Components use them too.
const REVIEW_GROUPS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// Returns the conditions. Each is included only if the rules could match the excluded requests. Break-glass comes
/// first, because somebody may look for it in a hurry.
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
