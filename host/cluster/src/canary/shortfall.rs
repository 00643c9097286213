//! How the live configurations and the labels of namespaces keep a plugin from being called. Does no IO.

use std::collections::BTreeSet;

use serde_json::Value;
use tollgate_admission::namespaces::Namespace;
use tollgate_config::{Match, Scope};
use tollgate_registration::drift;

use crate::plugin::Plugin;
use crate::registrar::{differing, rules_of};

/// The fields that decide whether kube-apiserver calls a webhook, and whom. `rules` are compared by the requests that
/// they match.
const FIELDS: [&str; 5] = [
    "clientConfig",
    "matchPolicy",
    "namespaceSelector",
    "objectSelector",
    "matchConditions",
];
/// The most names in a text.
const MOST_NAMES: usize = 5;

/// Why kube-apiserver does not call a plugin for every request that the plugin is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shortfall {
    /// The reason in CamelCase.
    pub(crate) reason: &'static str,
    /// The text for people.
    pub(crate) message: String,
}

/// Compares the webhook of a plugin with the live one. `expected` is the configuration that the registrar applied.
pub(crate) fn of_configuration(
    plugin: &Plugin,
    webhook: &str,
    expected: &Value,
    live: Option<&Value>,
) -> Option<Shortfall> {
    let find = |object: &Value| {
        let webhooks = object["webhooks"].as_array();
        let mut webhooks = webhooks.into_iter().flatten();
        webhooks.find(|one| one["name"] == webhook).cloned()
    };
    let Some(live) = live.and_then(find) else {
        return Some(Shortfall::new(
            "WebhookMissing",
            format!("the live configuration has no webhook {webhook}"),
        ));
    };
    let lacking = drift::lacking(&rules_of(&plugin.matching), &live["rules"]);
    if !lacking.is_empty() {
        let lacking = some(lacking.iter().map(String::as_str));
        return Some(Shortfall::new(
            "RulesMissing",
            format!("the live webhook {webhook} has no rule for {lacking}"),
        ));
    }
    let expected = find(expected)?;
    let fields = differing(&expected, &live, &FIELDS);
    (!fields.is_empty()).then(|| {
        let fields = fields.join(", ");
        Shortfall::new(
            "RegistrationDiffers",
            format!("the live webhook {webhook} differs from what Tollgate applied: {fields}"),
        )
    })
}

/// Looks for namespaces that a plugin is for, and that its selectors or the registration exclude. `all` are the
/// namespaces of the cluster, by name.
pub(crate) fn of_namespaces(
    matching: &Match,
    excluded: &BTreeSet<String>,
    all: &[(String, Namespace)],
) -> Option<Shortfall> {
    let is_namespaced = matching
        .rules
        .iter()
        .any(|rule| rule.scope != Scope::Cluster);
    if !is_namespaced || all.is_empty() {
        return None;
    }
    let is_selected = |(name, namespace): &&(String, Namespace)| {
        let document = namespace.document();
        !excluded.contains(name)
            && !matching
                .exclude_namespaces
                .iter()
                .any(|one| **one == **name)
            && matching.namespace_selector.selects(Some(document), None)
    };
    let is_named =
        |(name, _): &&(String, Namespace)| matching.namespaces.iter().any(|one| **one == **name);
    if matching.namespaces.is_empty() {
        let message = "the labels and names of all namespaces exclude them";
        return (!all.iter().any(|one| is_selected(&one)))
            .then(|| Shortfall::new("NamespacesExcluded", message.to_owned()));
    }
    let left_out = all.iter().filter(|one| is_named(one) && !is_selected(one));
    let left_out: Vec<&str> = left_out.map(|(name, _)| name.as_str()).collect();
    (!left_out.is_empty()).then(|| {
        let left_out = some(left_out.into_iter());
        Shortfall::new(
            "NamespacesExcluded",
            format!(
                "match.namespaces names {left_out}, which namespaceSelector, excludeNamespaces or the registration excludes"
            ),
        )
    })
}

/// Joins the first names.
fn some<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    let shown = names[..names.len().min(MOST_NAMES)].join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

// === impl Shortfall ===

impl Shortfall {
    pub(crate) fn new(reason: &'static str, message: String) -> Self {
        Self { reason, message }
    }
}
