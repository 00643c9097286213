//! The registered rules of each plugin, in an annotation of the webhook configuration.
//!
//! One webhook can have the rules of several plugins, so the rules alone do not tell which plugin they are for. A new
//! leader needs to know this, because it knows only the desired rules, and not the previous ones.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_admission::review::request::Operation;
use tollgate_config::{ManifestRule, Match, Pattern, Rule, Scope};

use crate::lease::RulesDigest;
use crate::plugin::Plugin;

/// The annotation with the record, in JSON.
pub(crate) const RECORD_ANNOTATION: &str = "tollgate.dev/registered";

const OPERATIONS: [Operation; 4] = [
    Operation::Create,
    Operation::Update,
    Operation::Delete,
    Operation::Connect,
];

/// The registered rules of each plugin of one webhook configuration, by the plugin's name.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Record(pub(crate) BTreeMap<String, Recorded>);

/// The registered rules of one plugin.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Recorded {
    /// The digest of the rules, if they are registered as desired. None while only a part of them is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<RulesDigest>,
    /// The registered rules.
    pub(crate) rules: Vec<RecordedRule>,
    /// The namespaces that the rules are limited to. Empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) namespaces: Vec<String>,
    /// The excluded namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) exclude_namespaces: Vec<String>,
}

/// Kubernetes' RuleWithOperations.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RecordedRule {
    pub(crate) operations: Vec<String>,
    pub(crate) api_groups: Vec<String>,
    pub(crate) api_versions: Vec<String>,
    /// Resources with their subresources.
    pub(crate) resources: Vec<String>,
    /// `Cluster`, `Namespaced` or `*`.
    pub(crate) scope: String,
}

// === impl Record ===

impl Record {
    pub(crate) fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub(crate) fn write(&self) -> String {
        serde_json::to_string(self).expect("the keys of the maps are strings")
    }
}

// === impl Recorded ===

impl Recorded {
    /// `is_whole` says whether the plugin's rules are those that are desired, or only a part of them.
    pub(crate) fn of(plugin: &Plugin, is_whole: bool) -> Self {
        let owned = |names: &[Box<str>]| names.iter().map(|name| (**name).to_owned()).collect();
        let Match {
            rules,
            namespaces,
            exclude_namespaces,
            ..
        } = &plugin.matching;
        Self {
            digest: is_whole.then(|| plugin.rules_digest()),
            rules: rules.iter().map(RecordedRule::of).collect(),
            namespaces: owned(namespaces),
            exclude_namespaces: owned(exclude_namespaces),
        }
    }
}

// === impl RecordedRule ===

impl RecordedRule {
    pub(crate) fn of(rule: &Rule) -> Self {
        let texts = |patterns: &[Pattern]| patterns.iter().map(text).collect();
        let resource = |pattern: &tollgate_config::ResourcePattern| {
            let (name, sub) = (text(&pattern.resource), text(&pattern.sub_resource));
            if sub.is_empty() {
                name
            } else {
                format!("{name}/{sub}")
            }
        };
        Self {
            operations: OPERATIONS
                .into_iter()
                .filter(|operation| rule.operations.contains(*operation))
                .map(|operation| operation.as_str().to_owned())
                .collect(),
            api_groups: texts(&rule.api_groups),
            api_versions: texts(&rule.api_versions),
            resources: rule.resources.iter().map(resource).collect(),
            scope: match rule.scope {
                Scope::All => "*",
                Scope::Cluster => "Cluster",
                Scope::Namespaced => "Namespaced",
            }
            .to_owned(),
        }
    }

    /// The rule that this text stands for. None if no request can match it.
    pub(crate) fn rule(&self) -> Option<Rule> {
        let rule = ManifestRule {
            operations: self.operations.clone(),
            api_groups: self.api_groups.clone(),
            api_versions: self.api_versions.clone(),
            resources: self.resources.clone(),
            scope: Some(self.scope.clone()),
        };
        Match::from_manifest_rules(&[rule]).ok()?.rules.pop()
    }
}

/// The rules of a plugin as a webhook has them, whole and not joined with those of others.
pub(crate) fn rules_of(matching: &Match) -> Value {
    let rules = matching.rules.iter().map(RecordedRule::of);
    let rules: Vec<RecordedRule> = rules.collect();
    serde_json::to_value(rules).expect("the keys of the maps are strings")
}

fn text(pattern: &Pattern) -> String {
    match pattern {
        Pattern::Any => "*".to_owned(),
        Pattern::Exactly(name) => name.to_string(),
    }
}
