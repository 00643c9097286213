//! Reads the entry of a plugin of a namespace, confines it, and compares it with what the administrator allows.
//!
//! The result is an entry like any other, with three differences. Its name begins with its namespace, its rules are for
//! namespaced objects, and its lookups are for its namespace. The name confines it: matching compares the namespace in
//! the name with that of each request.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{SettingsSource, Tenancy};
use crate::group::Group;
use crate::kubernetes::resource_named;
use crate::limit::Limits;
use crate::lookup::{Lookup, LookupNamespaces};
use crate::plugin::{Capability, Defaults, PluginConfig, PluginName, Source};
use crate::problem::{Collector, Problems};
use crate::read::{Node, quoted};
use crate::rule::{Match, Pattern, Rule, Scope};
use crate::{Config, Written};

/// Why a plugin of a namespace has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantRefusal {
    /// The configuration has no `tenancy`.
    NoTenancy,
    /// The entry is not valid.
    Invalid(Problems),
    /// The entry is valid, and `tenancy` does not allow it.
    NotAllowed(Problems),
}

/// Longest text of all rules of a plugin together, as JSON. Every plugin's rules are in one webhook configuration, which
/// kube-apiserver stores whole, with a record of them in an annotation.
const MOST_RULE_BYTES: usize = 1024;
/// Most rules of a plugin.
const MOST_RULES: usize = 8;
/// Keys that an entry of the cluster may have.
const NOT_FOR_TENANTS: [(&str, &str); 4] = [
    (
        "signatures",
        "an AdmissionPlugin cannot name its signers: the cluster's administrator names them in tenancy.signatures",
    ),
    (
        "shadow",
        "an AdmissionPlugin has no shadow version: create a second AdmissionPlugin with mode: audit",
    ),
    // A rollout ends in the mode `enforce`, whatever tenancy.modes has.
    (
        "rollout",
        "an AdmissionPlugin has no rollout: create a second AdmissionPlugin with mode: audit, and then change spec.source",
    ),
    (
        "allowNamespaceExceptions",
        "a PluginException of the same namespace always counts for an AdmissionPlugin: leave the key out",
    ),
];

// === impl Config ===

impl Config {
    /// Reads the entry of a plugin or of a group of a namespace. Relative paths start at `folder`. Paths of problems begin with `spec`.
    ///
    /// # Errors
    /// The reason why the plugin has no effect, with all problems of one kind.
    pub fn read_tenant(
        &self,
        namespace: &str,
        name: &str,
        spec: &Value,
        folder: &Path,
    ) -> Result<Vec<PluginConfig>, TenantRefusal> {
        let tenancy = self.tenancy.as_ref().ok_or(TenantRefusal::NoTenancy)?;
        let refused = Collector::default();
        for (key, message) in NOT_FOR_TENANTS {
            if spec.get(key).is_some() {
                refused.add(format!("spec.{key}"), message);
            }
        }
        refused
            .finish(Some(()))
            .map_err(TenantRefusal::NotAllowed)?;
        let name_of_tenant = PluginName::of_tenant(namespace, name).map_err(|error| {
            TenantRefusal::Invalid(Problems::one("metadata.name", error.to_string()))
        })?;
        let defaults = Defaults {
            limits: tenancy.limits.clone(),
            signatures: tenancy.signatures.clone(),
            ..self.defaults(folder)
        };
        let entry = tenancy.completed(spec, name);
        let problems = Collector::default();
        let read = PluginConfig::read(
            &Node::at("spec", &entry, &problems),
            folder,
            &defaults,
            self.engine.max_concurrent_calls,
            &problems,
        );
        if spec.get("match").is_none() {
            let message = "missing, expected rules: an AdmissionPlugin says itself which requests it is called for";
            problems.add("spec.match", message);
        }
        let (plugins, _) = problems.finish(read).map_err(TenantRefusal::Invalid)?;
        let refused = Collector::default();
        for (index, plugin) in plugins.iter().enumerate() {
            match plugin.group {
                None => tenancy.check(plugin, namespace, &refused),
                Some(_) => {
                    let of_member = Collector::default();
                    tenancy.check(plugin, namespace, &of_member);
                    refused.add_at(of_member, |place| place_of_member(place, index));
                }
            }
        }
        check_rules_size(spec, &refused);
        refused
            .finish(Some(()))
            .map_err(TenantRefusal::NotAllowed)?;
        let written = Written::of_entry(&entry, &Value::Null);
        let group = |plugin: &PluginConfig| {
            let group = plugin.group.as_deref()?;
            Some(Arc::new(Group {
                name: name_of_tenant.clone(),
                ..group.clone()
            }))
        };
        let confine = |plugin: PluginConfig| PluginConfig {
            name: match plugin.name.member() {
                Some(member) => name_of_tenant.of_member(member),
                None => name_of_tenant.clone(),
            },
            group: group(&plugin),
            matching: plugin
                .matching
                .map(|matching| confined(matching, namespace)),
            lookups: plugin
                .lookups
                .into_iter()
                .map(|(name, lookup)| (name, confined_lookup(lookup, namespace)))
                .collect(),
            ..plugin
        };
        let plugins = plugins.into_iter().map(confine);
        Ok(plugins.map(|plugin| plugin.written_as(&written)).collect())
    }
}

/// Returns the place of a key of a member's code. The other keys are those of the group.
fn place_of_member(place: &str, index: usize) -> String {
    const OF_MEMBERS: [&str; 6] = [
        "source",
        "capabilities",
        "limits",
        "lookups",
        "access",
        "images",
    ];
    match place.strip_prefix("spec.") {
        Some(key) if OF_MEMBERS.iter().any(|own| key.starts_with(own)) => {
            format!("spec.group.members[{index}].{key}")
        }
        _ => place.to_owned(),
    }
}

fn check_rules_size(spec: &Value, refused: &Collector) {
    let rules = &spec["match"]["rules"];
    let bytes = rules.to_string().len();
    let count = rules.as_array().map_or(0, Vec::len);
    if bytes > MOST_RULE_BYTES || count > MOST_RULES {
        let message = format!(
            "got {count} rules with {bytes} bytes, expected at most {MOST_RULES} rules with {MOST_RULE_BYTES} bytes as \
             JSON, because the rules of all namespaces are in one webhook configuration: use *, or write a second \
             AdmissionPlugin"
        );
        refused.add("spec.match.rules", message);
    }
}

/// Returns the match with rules for namespaced objects of the namespace only.
fn confined(matching: Match, namespace: &str) -> Match {
    let rules = matching.rules.into_iter();
    let rules = rules.map(|rule| Rule {
        scope: Scope::Namespaced,
        ..rule
    });
    Match {
        rules: rules.collect(),
        namespaces: vec![namespace.into()],
        exclude_namespaces: Vec::new(),
        ..matching
    }
}

fn confined_lookup(lookup: Lookup, namespace: &str) -> Lookup {
    Lookup {
        namespaces: LookupNamespaces::Named(vec![namespace.into()]),
        ..lookup
    }
}

// === impl Tenancy ===

impl Tenancy {
    /// Returns an entry that has every key whose default differs from that of the file's entries.
    fn completed(&self, spec: &Value, name: &str) -> Value {
        let mut entry = spec.clone();
        let Some(keys) = entry.as_object_mut() else {
            return entry;
        };
        keys.insert("name".to_owned(), json!(name));
        let first = [
            ("mode", self.modes.first().map(|mode| mode.as_str())),
            (
                "failurePolicy",
                self.failure_policies.first().map(|policy| policy.as_str()),
            ),
        ];
        for (key, word) in first {
            if let Some(word) = word {
                keys.entry(key).or_insert_with(|| json!(word));
            }
        }
        entry
    }

    /// Adds a problem for everything that the plugin has and may not have.
    fn check(&self, plugin: &PluginConfig, namespace: &str, refused: &Collector) {
        self.check_source(plugin, refused);
        self.check_words(plugin, refused);
        self.check_limits(plugin, refused);
        if let Some(matching) = &plugin.matching {
            check_match(matching, namespace, refused);
        }
        if plugin.access.service_accounts {
            let message =
                "an AdmissionPlugin may ask about the user of the request only: leave the key out";
            refused.add("spec.access.serviceAccounts", message);
        }
        if plugin.images.is_some() || plugin.capabilities.contains(&Capability::Images) {
            let message = "an AdmissionPlugin may not have images verified: the host would send its credentials to \
                           registries that a namespace chooses. Leave the key out";
            refused.add("spec.images", message);
        }
        for (name, lookup) in &plugin.lookups {
            check_lookup(name, lookup, namespace, refused);
        }
    }

    fn check_source(&self, plugin: &PluginConfig, refused: &Collector) {
        let allowed: Vec<&str> = self.registries.iter().map(|allowed| &**allowed).collect();
        let allowed = allowed.join(", ");
        let message = match &plugin.source {
            Source::Oci(reference) if self.allows(reference) => return,
            Source::Oci(_) => format!(
                "the artifact may come from {allowed} (tenancy.registries), and it comes from elsewhere"
            ),
            Source::File(_) => format!(
                "a file of the host, expected an artifact of {allowed} (tenancy.registries)"
            ),
        };
        refused.add("spec.source", message);
    }

    fn check_words(&self, plugin: &PluginConfig, refused: &Collector) {
        for capability in plugin.capabilities.difference(&self.capabilities) {
            let is_of_lookups = *capability == Capability::Cluster && !plugin.lookups.is_empty();
            let place = if is_of_lookups {
                "spec.lookups"
            } else {
                "spec.capabilities"
            };
            let message = format!("got {capability}, which tenancy.capabilities does not have");
            refused.add(place, message);
        }
        if !self.modes.contains(&plugin.mode) {
            let words: Vec<&str> = self.modes.iter().map(|mode| mode.as_str()).collect();
            let (mode, words) = (plugin.mode, words.join(" or "));
            refused.add(
                "spec.mode",
                format!("got {mode}, expected {words} (tenancy.modes)"),
            );
        }
        if !self.failure_policies.contains(&plugin.failure_policy) {
            let words = self.failure_policies.iter().map(|policy| policy.as_str());
            let words: Vec<&str> = words.collect();
            let (policy, words) = (plugin.failure_policy.as_str(), words.join(" or "));
            let message = format!("got {policy}, expected {words} (tenancy.failurePolicies)");
            refused.add("spec.failurePolicy", message);
        }
    }

    fn check_limits(&self, plugin: &PluginConfig, refused: &Collector) {
        let (own, most) = (amounts(&plugin.limits), amounts(&self.limits));
        for (key, amount) in own {
            if most.get(key).is_some_and(|most| amount > *most) {
                let message = format!("is more than tenancy.limits.{key} allows");
                refused.add(format!("spec.limits.{key}"), message);
            }
        }
    }

    /// Says that settings may not come from an object of this kind.
    ///
    /// # Errors
    /// When `settingsFrom` does not have the kind.
    pub fn check_settings_from(&self, source: SettingsSource) -> Result<(), String> {
        if self.settings_from.contains(&source) {
            return Ok(());
        }
        Err(format!(
            "spec.settingsFrom: {source}s are not in tenancy.settingsFrom: write the settings into spec.settings, or ask \
             the administrator of the cluster"
        ))
    }
}

/// Every limit as a number, by its key.
fn amounts(limits: &Limits) -> BTreeMap<&'static str, u128> {
    // A limit that is added later must be compared, too.
    let Limits {
        fuel,
        cpu_time,
        timeout,
        memory_bytes,
        memories,
        tables,
        table_elements,
        instances,
        output_bytes,
        patch_operations,
        warnings,
        annotations,
        log_lines,
        concurrency,
    } = limits;
    BTreeMap::from([
        ("fuel", (*fuel).into()),
        ("cpuTime", cpu_time.as_nanos()),
        ("timeout", timeout.as_nanos()),
        ("memory", (*memory_bytes).into()),
        ("memories", (*memories).into()),
        ("tables", (*tables).into()),
        ("tableElements", (*table_elements).into()),
        ("instances", (*instances).into()),
        ("output", (*output_bytes).into()),
        ("patchOperations", (*patch_operations).into()),
        ("warnings", (*warnings).into()),
        ("annotations", (*annotations).into()),
        ("logLines", (*log_lines).into()),
        ("concurrency", (*concurrency).into()),
    ])
}

fn check_match(matching: &Match, namespace: &str, refused: &Collector) {
    let is_own = |name: &str| name == namespace;
    if let Some(other) = matching.namespaces.iter().find(|name| !is_own(name)) {
        let message = format!(
            "got {}: an AdmissionPlugin is called for its own namespace only: leave the key out",
            quoted(other)
        );
        refused.add("spec.match.namespaces", message);
    }
    if matching.exclude_namespaces.iter().any(|name| is_own(name)) {
        let message = "has the namespace of the AdmissionPlugin, so that it would never be called: write enabled: false";
        refused.add("spec.match.excludeNamespaces", message);
    }
    if !matching.conditions.is_empty() {
        let message = "an AdmissionPlugin has no match conditions: the host evaluates them, and no budget pays for that. \
                       Make the plugin allow what it does not care about";
        refused.add("spec.match.matchConditions", message);
    }
    for (index, rule) in matching.rules.iter().enumerate() {
        let place = format!("spec.match.rules[{index}]");
        if rule.scope == Scope::Cluster {
            let message = "got Cluster: an AdmissionPlugin is never called for cluster-scoped objects: leave the key out";
            refused.add(format!("{place}.scope"), message);
        }
        if let Some(resource) = cluster_scoped(rule) {
            let message = format!(
                "{resource} are cluster-scoped, and an AdmissionPlugin is never called for cluster-scoped objects"
            );
            refused.add(format!("{place}.resources"), message);
        }
    }
}

fn exact(pattern: &Pattern) -> Option<&str> {
    match pattern {
        Pattern::Any => None,
        Pattern::Exactly(name) => Some(name),
    }
}

/// Returns a resource of the rule that is in no namespace.
fn cluster_scoped(rule: &Rule) -> Option<&str> {
    rule.resources.iter().find_map(|pattern| {
        let name = exact(&pattern.resource)?;
        let mut groups = rule.api_groups.iter().filter_map(exact);
        let is_cluster_scoped = |group| {
            let resource = resource_named(group, name);
            resource.is_some_and(|resource| !resource.namespaced)
        };
        groups.any(is_cluster_scoped).then_some(name)
    })
}

fn check_lookup(name: &str, lookup: &Lookup, namespace: &str, refused: &Collector) {
    let refuse = |what: String| refused.add("spec.lookups", format!("{}: {what}", quoted(name)));
    let resource = resource_named(&lookup.resource.group, &lookup.resource.resource);
    if resource.is_some_and(|resource| !resource.namespaced) {
        refuse(format!(
            "{} are cluster-scoped, and an AdmissionPlugin sees its own namespace only",
            lookup.resource
        ));
    }
    if lookup.secrets {
        refuse("an AdmissionPlugin may not look up Secrets".to_owned());
    }
    if let LookupNamespaces::Named(names) = &lookup.namespaces
        && names.iter().any(|other| **other != *namespace)
    {
        refuse("an AdmissionPlugin sees its own namespace only: leave `namespaces` out".to_owned());
    }
}
