//! Finds plugins that would miss requests in a webhook shared by all plugins.
//!
//! With `matchPolicy: Equivalent`, kube-apiserver converts an object from another API version to the version of a rule.
//! It does so only if no rule of the webhook matches the object as it came (webhook/generic/webhook.go,
//! ShouldCallHook).
//!
//! A shared webhook has the rules of all plugins. If one plugin's rule matches a version that another plugin's rules do
//! not, kube-apiserver does not convert the object. The host then does not call the other plugin, because its rules do
//! not match. In its own webhook, that plugin would have been called.
//!
//! The condition for the resources of nodes does not matter here. It excludes a resource only if every rule that
//! matches it has a wildcard, so no plugin would be called for it in its own webhook either.
//!
//! If a resource is in several groups, groups count like versions. Since Kubernetes 1.22 this is true only of Events.

use std::fmt;

use tollgate_admission::Endpoint;
use tollgate_admission::review::request::Operation;
use tollgate_config::{Pattern, ResourcePattern, Rule, Scope};

use super::Participant;

/// The core group. Its resources will always have the single version `v1`.
const CORE: &str = "";
/// The only version of the core group.
const CORE_VERSION: &str = "v1";
/// The resource that is in two groups, with these groups. An Event created in one group can be converted to the other.
const IN_TWO_GROUPS: (&str, [&str; 2]) = ("events", [CORE, "events.k8s.io"]);
/// Stands for a name that no rule names. Only a wildcard matches it.
const ANY_OTHER: &str = "*";

const OPERATIONS: [Operation; 4] = [
    Operation::Create,
    Operation::Update,
    Operation::Delete,
    Operation::Connect,
];
const SCOPES: [Scope; 2] = [Scope::Cluster, Scope::Namespaced];

/// The plugins of an endpoint that would miss requests in a shared webhook, each with the first plugin that causes it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hiding {
    endpoint: Endpoint,
    first: Hidden,
    others: Vec<Hidden>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Hidden {
    plugin: String,
    /// The plugin whose rules match the other versions.
    by: String,
    /// The resource that both plugins are for, such as `horizontalpodautoscalers.autoscaling`.
    resource: String,
}

/// A group and a resource, with its subresource.
struct Place<'r> {
    group: &'r str,
    resource: &'r str,
    sub_resource: &'r str,
}

/// Finds the plugins of an endpoint that would miss requests in a shared webhook.
pub(super) fn find(endpoint: Endpoint, plugins: &[Participant<'_>]) -> Option<Hiding> {
    let hidden = |plugin: &Participant<'_>| {
        plugins.iter().find_map(|other| {
            let resource = hides(other.matching.rules(), plugin.matching.rules())?;
            Some(Hidden {
                plugin: plugin.name.to_owned(),
                by: other.name.to_owned(),
                resource,
            })
        })
    };
    let mut all = plugins.iter().filter_map(hidden);
    Some(Hiding {
        endpoint,
        first: all.next()?,
        others: all.collect(),
    })
}

/// Returns a resource that `hiding` matches in a version that `rules` does not match, although a rule in `rules` would
/// get it by conversion.
fn hides(hiding: &[Rule], rules: &[Rule]) -> Option<String> {
    hiding
        .iter()
        .flat_map(|hiding| rules.iter().map(move |rule| (hiding, rule)))
        .find_map(|(hiding, rule)| {
            places(hiding, rule).into_iter().find_map(|place| {
                let unmatched = |version: &&str| !is_matched(rules, hiding, rule, &place, version);
                versions(hiding, place.group)
                    .find(unmatched)
                    .map(|_| place.to_string())
            })
        })
}

/// Returns the resources that both rules match, regardless of the version, so that kube-apiserver could convert an
/// object for the second rule.
fn places<'r>(hiding: &'r Rule, rule: &'r Rule) -> Vec<Place<'r>> {
    let mut places = Vec::new();
    let pairs = hiding
        .resources
        .iter()
        .flat_map(|one| rule.resources.iter().map(move |other| (one, other)));
    for (one, other) in pairs {
        let Some(sub_resource) = common(&one.sub_resource, &other.sub_resource) else {
            continue;
        };
        if let Some(resource) = common(&one.resource, &other.resource) {
            let groups = hiding
                .api_groups
                .iter()
                .flat_map(|one| rule.api_groups.iter().map(move |other| (one, other)));
            let groups = groups
                .filter_map(|(one, other)| common(one, other))
                .filter(|group| has_version(rule, group));
            places.extend(groups.map(|group| Place {
                group,
                resource,
                sub_resource,
            }));
        }
        let (resource, [first, second]) = IN_TWO_GROUPS;
        if one.resource.matches(resource) && other.resource.matches(resource) {
            for (group, target) in [(first, second), (second, first)] {
                if in_group(hiding, group) && in_group(rule, target) && has_version(rule, target) {
                    places.push(Place {
                        group,
                        resource,
                        sub_resource,
                    });
                }
            }
        }
    }
    places
}

/// Returns whether `rules` matches a version of the place without conversion, for every operation and scope that both
/// rules cover.
fn is_matched(
    rules: &[Rule],
    hiding: &Rule,
    rule: &Rule,
    place: &Place<'_>,
    version: &str,
) -> bool {
    let both = |operation: &Operation| {
        hiding.operations.contains(*operation) && rule.operations.contains(*operation)
    };
    let in_both = |scope: &Scope| covers(hiding.scope, *scope) && covers(rule.scope, *scope);
    OPERATIONS.into_iter().filter(both).all(|operation| {
        SCOPES.into_iter().filter(in_both).all(|scope| {
            rules.iter().any(|rule| {
                rule.operations.contains(operation)
                    && covers(rule.scope, scope)
                    && in_group(rule, place.group)
                    && rule.api_versions.iter().any(|one| one.matches(version))
                    && rule.resources.iter().any(|one| place.is_in(one))
            })
        })
    })
}

/// Lists the versions of a group that a rule matches.
fn versions<'r>(rule: &'r Rule, group: &str) -> impl Iterator<Item = &'r str> {
    let in_core = group == CORE;
    rule.api_versions
        .iter()
        .map(move |version| match version {
            Pattern::Any if in_core => CORE_VERSION,
            Pattern::Any => ANY_OTHER,
            Pattern::Exactly(name) => name,
        })
        .filter(move |version| !in_core || *version == CORE_VERSION)
}

fn has_version(rule: &Rule, group: &str) -> bool {
    versions(rule, group).next().is_some()
}

fn in_group(rule: &Rule, group: &str) -> bool {
    rule.api_groups.iter().any(|one| one.matches(group))
}

fn covers(outer: Scope, inner: Scope) -> bool {
    outer == Scope::All || outer == inner
}

/// Returns a name that both patterns match.
fn common<'p>(one: &'p Pattern, other: &'p Pattern) -> Option<&'p str> {
    match (one, other) {
        (Pattern::Any, Pattern::Any) => Some(ANY_OTHER),
        (Pattern::Any, Pattern::Exactly(name)) | (Pattern::Exactly(name), Pattern::Any) => {
            Some(name)
        }
        (Pattern::Exactly(name), Pattern::Exactly(other)) => (name == other).then_some(&**name),
    }
}

// === impl Place ===

impl Place<'_> {
    fn is_in(&self, pattern: &ResourcePattern) -> bool {
        pattern.resource.matches(self.resource) && pattern.sub_resource.matches(self.sub_resource)
    }
}

/// Writes the place as kubectl names resources.
impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.resource)?;
        if !matches!(self.group, CORE | ANY_OTHER) {
            write!(f, ".{}", self.group)?;
        }
        if !matches!(self.sub_resource, "" | ANY_OTHER) {
            write!(f, "/{}", self.sub_resource)?;
        }
        Ok(())
    }
}

// === impl Hiding ===

/// Writes a message for the person who registers the plugins.
impl fmt::Display for Hiding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plugins = match self.endpoint {
            Endpoint::Mutate => "mutating",
            Endpoint::Validate => "validating",
        };
        let Hidden {
            plugin,
            by,
            resource,
        } = &self.first;
        write!(
            f,
            "each of the {plugins} plugins gets its own webhook: in a shared webhook, {plugin} would not be called \
             for {resource} in every version, because {by} has rules for more of its versions, and kube-apiserver \
             converts an object only if no rule of the webhook matches it as it is"
        )?;
        for Hidden {
            plugin,
            by,
            resource,
        } in &self.others
        {
            write!(
                f,
                "; the same holds for {plugin} and {resource}, because of {by}"
            )?;
        }
        f.write_str(
            "; to share one webhook, write the same apiGroups and apiVersions into their rules",
        )
    }
}
