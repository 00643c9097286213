//! The deletions that an uninstallation needs. Does no IO.
//!
//! Without replicas, kube-apiserver denies the requests that webhooks under `Fail` match. The webhooks exclude the
//! namespace of the installation and its custom resources. They also exclude deletions of the other objects of the
//! chart, by name. Otherwise nobody could remove an installation with a plugin for everything once its replicas are
//! gone.

use serde_json::{Value, json};
use tollgate_registration::DOMAIN;

const RBAC: &str = "rbac.authorization.k8s.io";
const EXTENSIONS: &str = "apiextensions.k8s.io";
/// The endings of the names of the chart's objects outside the namespace of the installation.
const ENDINGS: [&str; 5] = ["", "-anchor", "-reader", "-auth-delegator", "-events"];

/// Adds the condition to a webhook whose rules can match such a deletion.
pub(super) fn exclude(webhook: &mut Value, installation: &str) {
    let rules = webhook["rules"].as_array();
    let mut rules = rules.into_iter().flatten();
    if !rules.any(|rule| can_match(rule, RBAC) || can_match(rule, EXTENSIONS)) {
        return;
    }
    let names = ENDINGS.map(|ending| format!("'{installation}{ending}'"));
    let expression = format!(
        "request.operation != 'DELETE' || !(request.resource.group == '{RBAC}' && request.name in [{}] || \
         request.resource.group == '{EXTENSIONS}' && request.name.endsWith('.{DOMAIN}'))",
        names.join(", ")
    );
    let condition = json!({ "name": "exclude-uninstall", "expression": expression });
    match webhook["matchConditions"].as_array_mut() {
        // Break-glass stays first, and conditions of the plugin come last.
        Some(conditions) => {
            let of_plugin =
                |one: &Value| one["name"].as_str().is_some_and(|name| name.contains('/'));
            let index = conditions.iter().position(of_plugin);
            conditions.insert(index.unwrap_or(conditions.len()), condition);
        }
        None => webhook["matchConditions"] = json!([condition]),
    }
}

/// Whether a rule can match deletions in a group.
fn can_match(rule: &Value, group: &str) -> bool {
    let has = |key: &str, wanted: &str| {
        let words = rule[key].as_array();
        let mut words = words.into_iter().flatten();
        words.any(|word| word == "*" || word == wanted)
    };
    has("operations", "DELETE") && has("apiGroups", group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webhook(operation: &str, group: &str) -> Value {
        json!({
            "rules": [{"operations": [operation], "apiGroups": [group], "apiVersions": ["*"], "resources": ["*"]}],
            "matchConditions": [{"name": "exclude-break-glass", "expression": "a"}],
        })
    }

    #[test]
    fn only_webhooks_that_could_match_get_the_condition() {
        for (operation, group, is_added) in [
            ("*", "*", true),
            ("DELETE", RBAC, true),
            ("DELETE", EXTENSIONS, true),
            ("CREATE", "*", false),
            ("*", "apps", false),
        ] {
            let mut webhook = webhook(operation, group);
            exclude(&mut webhook, "gate");
            let count = webhook["matchConditions"].as_array().map(Vec::len);
            assert_eq!(
                count,
                Some(1 + usize::from(is_added)),
                "{operation} {group}"
            );
        }
    }

    #[test]
    fn objects_are_excluded_by_their_exact_names_and_from_deletion_only() {
        let mut everything = webhook("*", "*");
        exclude(&mut everything, "gate");
        let expression = everything["matchConditions"][1]["expression"].as_str();
        let expected = "request.operation != 'DELETE' || !(request.resource.group == 'rbac.authorization.k8s.io' && \
                        request.name in ['gate', 'gate-anchor', 'gate-reader', 'gate-auth-delegator', 'gate-events'] || \
                        request.resource.group == 'apiextensions.k8s.io' && request.name.endsWith('.tollgate.dev'))";
        assert_eq!(expression, Some(expected));
    }
}
