//! Plugins that kube-apiserver does not call, as the status of their custom resources says.

use serde_json::Value;

use super::{Finding, Severity};
use crate::live::{Objects, list, name_of};

/// Reasons that call for nothing: somebody else registers the webhooks, the plugin is new, or it is disabled on purpose.
const HARMLESS: [&str; 3] = ["NotManaged", "Pending", "NotDesired"];

/// Reads the condition `Effective` of every `ClusterAdmissionPlugin`.
pub(super) fn examine(objects: &Objects, findings: &mut Vec<Finding>) {
    for object in objects.of_kind("ClusterAdmissionPlugin") {
        let mut conditions = list(&object["status"]["conditions"]);
        let Some(condition) = conditions.find(|one| one["type"] == "Effective") else {
            continue;
        };
        let text = |key: &str| condition[key].as_str().unwrap_or_default();
        let (severity, check, words) = match text("status") {
            "False" => (
                Severity::Error,
                "not-effective",
                "kube-apiserver does not call the plugin",
            ),
            "Unknown" => (
                Severity::Warning,
                "effect-unknown",
                "nobody can tell whether kube-apiserver calls the plugin",
            ),
            _ => continue,
        };
        if !HARMLESS.contains(&text("reason")) {
            findings.push(finding(object, severity, check, words, text("message")));
        }
    }
}

fn finding(
    object: &Value,
    severity: Severity,
    check: &'static str,
    words: &str,
    message: &str,
) -> Finding {
    let name = name_of(object);
    Finding {
        severity,
        check,
        object: format!("ClusterAdmissionPlugin {name}"),
        problem: format!("{words}: {message}"),
        fix: format!(
            "docs/runbooks/TollgatePluginNotEffective.md has a remedy for each reason; kubectl describe clusteradmissionplugin {name}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn finds_plugins_that_are_not_called_or_cannot_be_shown_to_be() {
        let plugin = |name: &str, status: &str, reason: &str| {
            let condition = json!({"type": "Effective", "status": status, "reason": reason, "message": "words"});
            json!({
                "apiVersion": "tollgate.dev/v1alpha1", "kind": "ClusterAdmissionPlugin",
                "metadata": {"name": name}, "status": {"conditions": [condition]},
            })
        };
        let mut fresh = plugin("fresh", "True", "");
        fresh["status"] = json!({});
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [
            plugin("called", "True", "Effective"),
            plugin("untrusted", "False", "Untrusted"),
            plugin("off", "False", "NotDesired"),
            plugin("unshown", "Unknown", "KindMissing"),
            plugin("by-hand", "Unknown", "NotManaged"),
            fresh,
        ]});
        let objects = Objects::parse(&list.to_string()).expect("objects");
        let mut findings = Vec::new();
        examine(&objects, &mut findings);
        let found: Vec<_> = findings
            .iter()
            .map(|one| (one.object.as_str(), one.check, one.severity))
            .collect();
        let expected = [
            (
                "ClusterAdmissionPlugin untrusted",
                "not-effective",
                Severity::Error,
            ),
            (
                "ClusterAdmissionPlugin unshown",
                "effect-unknown",
                Severity::Warning,
            ),
        ];
        assert_eq!(found, expected);
        assert!(
            findings[0].problem.ends_with("words"),
            "{}",
            findings[0].problem
        );
    }
}
