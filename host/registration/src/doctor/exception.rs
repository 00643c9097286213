//! Finds exceptions that are not needed: those that have expired, that name an unknown plugin, or whose objects meet
//! the policy. Such exceptions hide the ones that matter.

mod needed;

use std::time::SystemTime;

use serde_json::Value;
use time::OffsetDateTime;
use tollgate_config::{Exception, PluginConfig, SharedException};

use super::{Finding, Installation, Severity};
use crate::live::{Objects, list, name_of, text};

pub use needed::not_needed;

const CHECK: &str = "exception-expired";
/// The reason in the status of an exception for a plugin that does not exist.
const PLUGIN_UNKNOWN: &str = "PluginUnknown";

/// Finds `PluginException`s of the installation that have expired or name a plugin that does not exist.
pub(super) fn examine(
    objects: &Objects,
    installation: &Installation,
    now: OffsetDateTime,
    findings: &mut Vec<Finding>,
) {
    for object in objects.of_kind("PluginException") {
        let namespace = text(object, "namespace");
        // Tollgate reads those of its own namespace only, and the status says what is wrong with an invalid one.
        let Ok(shared) = SharedException::read(&object["spec"]) else {
            continue;
        };
        if namespace != installation.namespace {
            continue;
        }
        let name = name_of(object);
        if shared.exception.is_active(now.into()) {
            findings.extend(unknown_plugin(object, namespace));
            continue;
        }
        findings.push(finding(
            format!("PluginException {namespace}/{name}"),
            &shared.exception,
            format!("kubectl delete pluginexception {name} -n {namespace}, or change spec.expires"),
        ));
    }
}

/// Returns a finding if the status says that a plugin does not exist. The replicas know the plugins of files, too.
fn unknown_plugin(object: &Value, namespace: &str) -> Option<Finding> {
    let mut conditions = list(&object["status"]["conditions"]);
    let condition = conditions.find(|condition| condition["reason"] == PLUGIN_UNKNOWN)?;
    let message = condition["message"].as_str().unwrap_or_default();
    Some(Finding {
        severity: Severity::Notice,
        check: "exception-unknown-plugin",
        object: format!("PluginException {namespace}/{}", name_of(object)),
        problem: message.to_owned(),
        fix: "correct spec.plugins, or delete the exception".to_owned(),
    })
}

/// Finds expired exceptions of a configuration.
#[must_use]
pub fn expired<'c>(
    plugins: impl Iterator<Item = &'c PluginConfig>,
    now: SystemTime,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for plugin in plugins {
        for (index, exception) in plugin.exceptions.iter().enumerate() {
            if !exception.is_active(now) {
                findings.push(finding(
                    format!("plugin {}, {}", plugin.name, exception.label(index)),
                    exception,
                    "remove the entry, or change `until`".to_owned(),
                ));
            }
        }
    }
    findings
}

fn finding(object: String, exception: &Exception, fix: String) -> Finding {
    Finding {
        severity: Severity::Notice,
        check: CHECK,
        object,
        problem: format!(
            "the exception expired ({}) and has no effect: {}",
            exception.until(),
            exception.reason()
        ),
        fix,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tollgate_config::{PluginName, Source};

    use super::*;

    fn spec(expires: &str) -> serde_json::Value {
        json!({"plugins": ["labels"], "names": ["web"], "reason": "legacy", "expires": expires})
    }

    fn now() -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_800_000_000).expect("a time")
    }

    #[test]
    fn finds_expired_resources_of_its_own_namespace() {
        let exception = |namespace: &str, name: &str, expires: &str| {
            json!({
                "apiVersion": "tollgate.dev/v1alpha1", "kind": "PluginException",
                "metadata": {"name": name, "namespace": namespace}, "spec": spec(expires),
            })
        };
        let mut lost = exception("tollgate-system", "lost", "2099-01-01");
        lost["status"] = json!({"conditions": [
            {"type": "Ready", "status": "False", "reason": "PluginUnknown", "message": "no plugin has the name labels"},
        ]});
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [
            exception("tollgate-system", "over", "2020-01-01"),
            exception("tollgate-system", "active", "2099-01-01"),
            lost,
            exception("shop", "foreign", "2020-01-01"),
        ]});
        let objects = Objects::parse(&list.to_string()).expect("objects");
        let installation = Installation {
            namespace: "tollgate-system".to_owned(),
            service: "tollgate".to_owned(),
            break_glass_group: "g".to_owned(),
        };
        let mut findings = Vec::new();
        examine(&objects, &installation, now(), &mut findings);
        let found: Vec<_> = findings.iter().map(|one| one.object.as_str()).collect();
        assert_eq!(
            found,
            [
                "PluginException tollgate-system/over",
                "PluginException tollgate-system/lost"
            ]
        );
        assert_eq!(findings[0].severity, Severity::Notice);
        assert_eq!(findings[1].check, "exception-unknown-plugin");
        assert!(findings[1].problem.contains("no plugin has the name"));
        assert!(
            findings[0].problem.contains("2020-01-01"),
            "{}",
            findings[0]
        );
    }

    #[test]
    fn finds_expired_entries_of_a_configuration() {
        let name = PluginName::parse("labels").expect("a name");
        let mut plugin = PluginConfig::new(name, Source::File("x.wasm".into()));
        for expires in ["2099-01-01", "2020-01-01"] {
            let shared = SharedException::read(&spec(expires)).expect("an exception");
            plugin.add_exception(shared.exception);
        }
        let findings = expired(std::iter::once(&plugin), now().into());
        let found: Vec<_> = findings.iter().map(|one| one.object.as_str()).collect();
        assert_eq!(found, ["plugin labels, exceptions[1]"]);
    }
}
