//! Whether the live configurations let kube-apiserver call each plugin. Does no IO.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tollgate_admission::Endpoint;
use tollgate_admission::namespaces::Namespace;

use super::live::known_of;
use super::plan::Known;
use crate::canary::{Entry, Shortfall, entries, of_configuration, of_namespaces};
use crate::plugin::{Desired, Plugin};

/// The webhooks for canaries, and the plugins that the live configurations leave out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Examined {
    pub(super) entries: Vec<Entry>,
    pub(super) shortfalls: BTreeMap<String, Shortfall>,
    /// The plugins about which nothing can be said, because the registrar has not decided about a configuration.
    pub(super) undecided: BTreeSet<String>,
}

/// The configuration of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Configuration<'c> {
    pub(super) endpoint: Endpoint,
    /// The configuration that the registrar applied. None if it removed the configuration, or left it as it was.
    pub(super) applied: Option<&'c Value>,
    pub(super) live: Option<&'c Value>,
    /// Whether the registrar knows what the configuration should be.
    pub(super) is_decided: bool,
}

// === impl Configuration ===

impl Configuration<'_> {
    /// Whether the registrar has brought the configuration to the expected state, as far as it knows. A write that
    /// failed leaves a configuration whose content is not known.
    fn is_settled(&self) -> bool {
        self.is_decided && (self.applied.is_some() || self.live.is_none())
    }
}

// === impl Examined ===

impl Examined {
    /// Examines the configurations. `excluded` and `namespaces` are the namespaces that the registration excludes, and
    /// those of the cluster.
    pub(super) fn of(
        desired: &Desired,
        configurations: &[Configuration<'_>],
        excluded: &BTreeSet<String>,
        namespaces: &[(String, Namespace)],
    ) -> Self {
        let mut examined = Self::default();
        for Configuration {
            endpoint, applied, ..
        } in configurations
        {
            let Some(applied) = applied else { continue };
            let Some(Known::Recorded(record)) = known_of(applied) else {
                continue;
            };
            let names: Vec<&str> = record.0.keys().map(String::as_str).collect();
            examined.entries.extend(entries(*endpoint, applied, &names));
        }
        for plugin in &desired.plugins {
            let of_plugin = configurations.iter();
            let mut of_plugin = of_plugin.filter(|one| plugin.serves(one.endpoint));
            if of_plugin.clone().any(|one| !one.is_settled()) {
                examined.undecided.insert(plugin.name.clone());
                continue;
            }
            let shortfall = of_plugin
                .find_map(|configuration| examined.shortfall(plugin, *configuration))
                .or_else(|| of_namespaces(&plugin.matching, excluded, namespaces));
            if let Some(shortfall) = shortfall {
                examined.shortfalls.insert(plugin.name.clone(), shortfall);
            }
        }
        examined
    }

    fn shortfall(&self, plugin: &Plugin, configuration: Configuration<'_>) -> Option<Shortfall> {
        let Configuration {
            endpoint,
            applied,
            live,
            is_decided: _,
        } = configuration;
        let mut entries = self.entries.iter();
        let entry = entries
            .find(|entry| entry.endpoint == endpoint && entry.plugins.contains(&plugin.name));
        let (Some(entry), Some(applied)) = (entry, applied) else {
            let message = format!("no webhook for /{} calls the plugin", endpoint.name());
            return Some(Shortfall::new("NotRegistered", message));
        };
        of_configuration(plugin, &entry.webhook, applied, live)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fixtures::{matching, plugin, rule};
    use super::super::record::{RECORD_ANNOTATION, Record, Recorded};
    use super::*;

    const WEBHOOK: &str = "guard.validate.gate.tollgate.dev";

    fn guard() -> Plugin {
        plugin(
            "guard",
            matching(&[rule("", "pods"), rule("apps", "deployments")]),
        )
    }

    fn applied(plugin: &Plugin) -> Value {
        let recorded = (plugin.name.clone(), Recorded::of(plugin, true));
        let record = Record([recorded].into());
        let rules = super::super::record::rules_of(&plugin.matching);
        json!({
            "metadata": {"annotations": {RECORD_ANNOTATION: record.write()}},
            "webhooks": [{
                "name": WEBHOOK,
                "clientConfig": {"service": {"path": "/validate/guard"}, "caBundle": "b25l"},
                "namespaceSelector": {"matchExpressions": []},
                "objectSelector": {},
                "rules": rules,
            }],
        })
    }

    fn examined(applied: Option<&Value>, live: Option<&Value>) -> Examined {
        let desired = Desired {
            plugins: vec![guard()],
            ..Desired::default()
        };
        let configuration = Configuration {
            endpoint: Endpoint::Validate,
            applied,
            live,
            is_decided: true,
        };
        Examined::of(&desired, &[configuration], &BTreeSet::new(), &[])
    }

    #[test]
    fn live_webhook_must_have_the_rules_and_the_selectors() {
        let applied = applied(&guard());
        let reason = |live: Option<&Value>| {
            let examined = examined(Some(&applied), live);
            assert_eq!(examined.entries.len(), 1);
            let shortfall = examined.shortfalls.get("guard");
            shortfall.map(|shortfall| (shortfall.reason, shortfall.message.clone()))
        };
        assert_eq!(reason(Some(&applied)), None);
        let changed = |place: &str, value: Value| {
            let mut live = applied.clone();
            live["webhooks"][0][place] = value;
            reason(Some(&live)).expect("a shortfall")
        };
        let (missing, message) = changed("rules", json!([applied["webhooks"][0]["rules"][0]]));
        assert_eq!(missing, "RulesMissing");
        assert!(message.contains("apps/v1 deployments"), "{message}");
        let client = json!({"service": {"path": "/validate/guard"}, "caBundle": "dHdv"});
        let (differs, message) = changed("clientConfig", client);
        assert_eq!(differs, "RegistrationDiffers");
        assert!(message.contains("clientConfig"), "{message}");
        let excluding = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]});
        assert_eq!(
            changed("namespaceSelector", excluding).0,
            "RegistrationDiffers"
        );
        assert_eq!(changed("name", json!("other")).0, "WebhookMissing");
        assert_eq!(
            reason(None).map(|(reason, _)| reason),
            Some("WebhookMissing")
        );
        // Wider rules call the plugin for everything that it is for.
        let mut wide = applied.clone();
        wide["webhooks"][0]["rules"] = json!([{
            "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "scope": "*",
        }]);
        assert_eq!(reason(Some(&wide)), None);
        // The failure policy is not about whether the plugin is called.
        let mut open = applied.clone();
        open["webhooks"][0]["failurePolicy"] = json!("Ignore");
        assert_eq!(reason(Some(&open)), None);
    }

    #[test]
    fn nothing_is_said_before_the_registrar_has_decided() {
        let desired = Desired {
            plugins: vec![guard()],
            ..Desired::default()
        };
        let of = |is_decided| {
            let configuration = Configuration {
                endpoint: Endpoint::Validate,
                applied: None,
                live: None,
                is_decided,
            };
            Examined::of(&desired, &[configuration], &BTreeSet::new(), &[])
        };
        assert!(of(false).undecided.contains("guard") && of(false).shortfalls.is_empty());
        assert_eq!(of(true).shortfalls["guard"].reason, "NotRegistered");
    }
}
