//! Exceptions that have expired: they have no effect, and only hide those that have.

use std::time::SystemTime;

use time::OffsetDateTime;
use tollgate_config::{Exception, PluginConfig, SharedException};

use super::{Finding, Installation, Severity};
use crate::live::{Objects, name_of, text};

const CHECK: &str = "exception-expired";

/// Finds expired `PluginException`s of the installation.
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
        if namespace != installation.namespace || shared.exception.is_active(now.into()) {
            continue;
        }
        let name = name_of(object);
        findings.push(finding(
            format!("PluginException {namespace}/{name}"),
            &shared.exception,
            format!("kubectl delete pluginexception {name} -n {namespace}, or change spec.expires"),
        ));
    }
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
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [
            exception("tollgate-system", "over", "2020-01-01"),
            exception("tollgate-system", "active", "2099-01-01"),
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
        assert_eq!(found, ["PluginException tollgate-system/over"]);
        assert_eq!(findings[0].severity, Severity::Notice);
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
