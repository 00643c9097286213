//! Finds entries of a rule that cannot match any request of Kubernetes.
//!
//! A finding is certain if the entry is a mistake in every release. The certain mistakes are:
//!
//! - a misspelt name, or another name of a resource such as its kind
//! - a resource of another group
//! - a version that was removed
//! - an operation that never occurs with a subresource
//!
//! Two findings are only suspected. An unknown name that resembles no known name may belong to a later release. An
//! unknown group with a dot in its name may be a group of custom resources.

use std::fmt;

use tollgate_admission::review::request::Operation;

use super::suggest::{by_other_name, closest};
use super::{RELEASE, Resource, resources};
use crate::{Match, Operations, Pattern, ResourcePattern, Rule, Scope};

/// An entry of a rule that matches nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The place of the entry, such as `match.rules[0].resources`.
    pub place: String,
    /// The problem, and the probably intended entry.
    pub text: String,
    /// Whether the entry is a mistake in every release of Kubernetes.
    pub is_certain: bool,
}

/// Why an entry matches nothing, before its place is known.
struct Mismatch {
    /// The problem, and the probably intended entry.
    text: String,
    /// Whether the entry is a mistake in every release of Kubernetes.
    is_certain: bool,
}

/// A rule, with the known resources of its groups.
struct ResolvedRule<'r> {
    rule: &'r Rule,
    /// Whether the rule may mean custom resources, which are unknown.
    is_open: bool,
    /// Kubernetes' own resources in the groups of the rule.
    known: Vec<&'static Resource>,
}

/// Subresources for connections. CONNECT occurs only with these.
const CONNECTED: [&str; 4] = ["attach", "exec", "portforward", "proxy"];
/// A subresource that can only be read. Reading never calls a webhook.
const READ_ONLY: &str = "log";

/// Returns everything in a plugin's rules that matches nothing. `is_configured` says whether the rules come from the
/// configuration or from the plugin's own `describe`.
pub fn check_rules(matching: &Match, is_configured: bool) -> Vec<Finding> {
    let whose = if is_configured { "match" } else { "describe" };
    let mut findings = Vec::new();
    for (index, rule) in matching.rules().iter().enumerate() {
        let resolved = ResolvedRule::of(rule);
        let mut add = |key: &str, mismatch: Mismatch| {
            findings.push(Finding {
                place: format!("{whose}.rules[{index}].{key}"),
                text: mismatch.text,
                is_certain: mismatch.is_certain,
            });
        };
        let groups = resolved.groups();
        let has_bad_group = !groups.is_empty();
        groups.into_iter().for_each(|found| add("apiGroups", found));
        for pattern in &rule.resources {
            if let Some((key, found)) = resolved.resource(pattern, has_bad_group) {
                add(key, found);
            }
        }
    }
    findings
}

// === impl ResolvedRule ===

impl<'r> ResolvedRule<'r> {
    fn of(rule: &'r Rule) -> Self {
        let is_open = rule.api_groups.iter().any(|group| match group {
            Pattern::Any => true,
            Pattern::Exactly(name) => !is_known_group(name) && name.contains('.'),
        });
        let in_group = |resource: &&Resource| {
            let mut groups = rule.api_groups.iter();
            groups.any(|group| group.matches(resource.group))
        };
        Self {
            rule,
            is_open,
            known: resources().iter().filter(in_group).collect(),
        }
    }

    /// Finds groups that cannot exist, and groups that are probably misspelt.
    fn groups(&self) -> Vec<Mismatch> {
        let mut found = Vec::new();
        for group in &self.rule.api_groups {
            let Pattern::Exactly(name) = group else {
                continue;
            };
            if is_known_group(name) {
                continue;
            }
            let named = self.groups_of_resources();
            let near = closest(name, groups()).or_else(|| {
                // Suggests `rbac.authorization.k8s.io` for `rbac.k8s.io`, for example.
                let (first, rest) = name.split_once('.')?;
                let mut groups = groups().filter(|_| rest == "k8s.io");
                groups.find(|group| group.split('.').next() == Some(first))
            });
            if name.contains('.') {
                found.extend(near.map(|near| {
                    Mismatch::possible(format!(
                        "{name} is not an API group of Kubernetes {RELEASE}: did you mean {near}?"
                    ))
                }));
                continue;
            }
            let expected = match near {
                Some(near) => near.to_owned(),
                None if named.is_empty() => {
                    "one such as apps, batch or networking.k8s.io".to_owned()
                }
                None => listed(named.iter().map(|group| shown(group))),
            };
            found.push(Mismatch::certain(format!(
                "unknown API group {name}: groups of custom resources have a dot in their names; expected {expected}"
            )));
        }
        found
    }

    /// Lists the groups in which Kubernetes has the resources that the rule names.
    fn groups_of_resources(&self) -> Vec<&'static str> {
        let named = resources().iter().filter(|resource| {
            let mut patterns = self.rule.resources.iter();
            patterns.any(
                |pattern| matches!(&pattern.resource, Pattern::Exactly(name) if **name == *resource.name),
            )
        });
        let mut groups: Vec<&str> = named.map(|resource| resource.group).collect();
        groups.dedup();
        groups
    }

    /// Finds the problem of a pattern, and the list of the rule that it is in.
    fn resource(
        &self,
        pattern: &ResourcePattern,
        has_bad_group: bool,
    ) -> Option<(&'static str, Mismatch)> {
        let named: Vec<&Resource> = self
            .known
            .iter()
            .copied()
            .filter(|resource| pattern.resource.matches(resource.name))
            .collect();
        if named.is_empty() {
            // The finding about the group is enough.
            let said = has_bad_group && !self.is_open && self.known.is_empty();
            let found = (!said).then(|| self.unknown_resource(pattern)).flatten()?;
            return Some(("resources", found));
        }
        let with_sub: Vec<&Resource> = named
            .iter()
            .copied()
            .filter(|resource| has_sub_resource(resource, &pattern.sub_resource))
            .collect();
        if with_sub.is_empty() {
            let found = self.unknown_sub_resource(pattern, &named)?;
            return Some(("resources", found));
        }
        if let Some(found) = self.operations(pattern) {
            return Some(("operations", found));
        }
        if self.is_open {
            return None;
        }
        if let Some(found) = self.scope(pattern, &with_sub) {
            return Some(("scope", found));
        }
        let found = self.versions(&with_sub)?;
        Some(("apiVersions", found))
    }

    /// Reports a name that no resource in the rule's groups has.
    fn unknown_resource(&self, pattern: &ResourcePattern) -> Option<Mismatch> {
        let Pattern::Exactly(name) = &pattern.resource else {
            // `"*"` can match resources in open or unknown groups.
            return None;
        };
        let in_rule = |resource: &&Resource| {
            self.known
                .iter()
                .any(|known| std::ptr::eq(*known, *resource))
        };
        if let Some(meant) = by_other_name(name).find(in_rule) {
            // A custom resource may have this name.
            let is_certain = !self.is_open;
            return Some(Mismatch {
                is_certain,
                text: format!(
                    "{name} matches nothing: expected the plural, {}",
                    meant.name
                ),
            });
        }
        if self.is_open {
            return None;
        }
        let elsewhere: Vec<String> = resources()
            .iter()
            .filter(|resource| resource.name == &**name)
            .map(|resource| shown(resource.group))
            .collect();
        if !elsewhere.is_empty() {
            return Some(Mismatch::certain(format!(
                "{name} matches nothing in {}: expected {} in apiGroups",
                self.shown_groups(),
                listed(elsewhere)
            )));
        }
        if let Some(meant) = by_other_name(name).next() {
            return Some(Mismatch::certain(format!(
                "{name} matches nothing: expected the plural, {}, and {} in apiGroups",
                meant.name,
                shown(meant.group)
            )));
        }
        if let Some(near) = closest(name, self.known.iter().map(|resource| resource.name)) {
            return Some(Mismatch::certain(format!(
                "{name} matches nothing: expected {near}"
            )));
        }
        Some(Mismatch::possible(format!(
            "{name} matches nothing: Kubernetes {RELEASE} has no such resource in {}; a later release may",
            self.shown_groups()
        )))
    }

    /// Reports a subresource that none of these resources has.
    fn unknown_sub_resource(
        &self,
        pattern: &ResourcePattern,
        named: &[&Resource],
    ) -> Option<Mismatch> {
        let Pattern::Exactly(sub_resource) = &pattern.sub_resource else {
            return None;
        };
        // An open group may have custom resources of the same name.
        if self.is_open {
            return None;
        }
        let all = named
            .iter()
            .flat_map(|resource| resource.sub_resources.iter().copied());
        let found = match closest(sub_resource, all) {
            Some(READ_ONLY) => Mismatch::certain(format!(
                "{pattern} matches nothing: logs can only be read, and plugins are called only for changes"
            )),
            Some(near) => Mismatch::certain(format!(
                "{pattern} matches nothing: expected {}/{near}",
                pattern.resource
            )),
            None => Mismatch::possible(format!(
                "{pattern} matches nothing: Kubernetes {RELEASE} has no such subresource; a later release may"
            )),
        };
        Some(found)
    }

    /// Reports operations that never occur with a subresource. Subresources for connections occur only with CONNECT,
    /// and all others never do.
    fn operations(&self, pattern: &ResourcePattern) -> Option<Mismatch> {
        let operations = self.rule.operations;
        let Pattern::Exactly(sub_resource) = &pattern.sub_resource else {
            return None;
        };
        let is_connected = CONNECTED.contains(&&**sub_resource);
        if is_connected && !operations.contains(Operation::Connect) {
            return Some(Mismatch::certain(format!(
                "{pattern} has only the operation CONNECT, and the rule has {operations}"
            )));
        }
        let mut connect = Operations::default();
        connect.insert(Operation::Connect);
        (operations == connect && !is_connected && !self.is_open).then(|| {
            Mismatch::certain(format!(
                "{pattern} never has the operation CONNECT, which is for subresources such as pods/exec"
            ))
        })
    }

    fn scope(&self, pattern: &ResourcePattern, named: &[&Resource]) -> Option<Mismatch> {
        let (is_namespaced, expected) = match self.rule.scope {
            Scope::All => return None,
            Scope::Cluster => (false, "Namespaced"),
            Scope::Namespaced => (true, "Cluster"),
        };
        let fits = named
            .iter()
            .any(|resource| resource.namespaced == is_namespaced);
        (!fits).then(|| {
            Mismatch::certain(format!(
                "{pattern} is not matched by scope {:?}: expected {expected}, or no scope",
                self.rule.scope
            ))
        })
    }

    fn versions(&self, named: &[&Resource]) -> Option<Mismatch> {
        let versions = &self.rule.api_versions;
        let served = |resource: &&&Resource| {
            let mut served = resource.versions.iter();
            served.any(|version| versions.iter().any(|pattern| pattern.matches(version)))
        };
        if versions.is_empty() || named.iter().any(|resource| served(&resource)) {
            return None;
        }
        let resource = named.first()?;
        let was_removed =
            |pattern: &Pattern| matches!(pattern, Pattern::Exactly(version) if is_preview(version));
        let is_certain = !resource.other_versions && versions.iter().all(was_removed);
        let given = listed(versions.iter().map(ToString::to_string));
        let expected = listed(
            resource
                .versions
                .iter()
                .map(|version| (*version).to_owned()),
        );
        let full_name = match resource.group {
            "" => resource.name.to_owned(),
            group => format!("{} of {group}", resource.name),
        };
        Some(Mismatch {
            is_certain,
            text: if is_certain {
                format!("{full_name} is not served in {given} any more: expected {expected}")
            } else {
                format!(
                    "Kubernetes {RELEASE} does not serve {full_name} in {given}: expected {expected}"
                )
            },
        })
    }

    fn shown_groups(&self) -> String {
        let groups = self.rule.api_groups.iter().map(ToString::to_string);
        format!("apiGroups {}", listed(groups))
    }
}

// === impl Mismatch ===

impl Mismatch {
    /// A mistake in every release of Kubernetes.
    fn certain(text: String) -> Self {
        Self {
            text,
            is_certain: true,
        }
    }

    /// A mistake, unless another release or a custom resource makes the entry valid.
    fn possible(text: String) -> Self {
        Self {
            text,
            is_certain: false,
        }
    }
}

// === impl Finding ===

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

fn groups() -> impl Iterator<Item = &'static str> {
    resources()
        .iter()
        .map(|resource| resource.group)
        .filter(|group| !group.is_empty())
}

fn is_known_group(name: &str) -> bool {
    name.is_empty() || groups().any(|group| group == name)
}

fn has_sub_resource(resource: &Resource, pattern: &Pattern) -> bool {
    match pattern {
        Pattern::Exactly(name) if name.is_empty() => true,
        // `*` matches the resource itself as well.
        Pattern::Any => true,
        Pattern::Exactly(name) => **name != *READ_ONLY && resource.sub_resources.contains(&&**name),
    }
}

/// Returns whether a version is a preview, such as `v1beta1` or `v2alpha1`.
fn is_preview(version: &str) -> bool {
    version.contains("alpha") || version.contains("beta")
}

fn shown(group: &str) -> String {
    if group.is_empty() {
        "\"\"".to_owned()
    } else {
        group.to_owned()
    }
}

fn listed(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().collect();
    items.join(" or ")
}

#[cfg(test)]
mod tests;
