//! Plugins that one webhook for all would keep from what they are for.
//!
//! With `matchPolicy: Equivalent` kube-apiserver converts an object that comes by another version of its API to the one
//! of a rule, but only where no rule of the webhook matches it as it came (webhook/generic/webhook.go,
//! ShouldCallHook). What is joined into one webhook has all rules: where one plugin's rule matches a version that
//! another plugin's do not, nothing is converted for the other, and the host does not call it, as its rules do not
//! match. Alone in a webhook it would have been called.
//!
//! Groups count as well as versions where a resource is in several; since Kubernetes 1.22 only Events are.

use std::fmt;

use super::Participant;
use crate::{
    config::{Pattern, ResourcePattern, Rule, Scope},
    review::request::Operation,
    server::Endpoint,
};

/// The group whose resources have one version, `v1`, for good.
const CORE: &str = "";
/// The only version of the core group.
const CORE_VERSION: &str = "v1";
/// The resource that is in two groups, and these: an Event that is created in one can be converted to the other.
const IN_TWO_GROUPS: (&str, [&str; 2]) = ("events", [CORE, "events.k8s.io"]);
/// Stands for a name that no rule names: only a pattern for all matches it.
const ANY_OTHER: &str = "*";

const OPERATIONS: [Operation; 4] = [
    Operation::Create,
    Operation::Update,
    Operation::Delete,
    Operation::Connect,
];
const SCOPES: [Scope; 2] = [Scope::Cluster, Scope::Namespaced];

/// The plugins of an endpoint that one webhook for all would hide, each with the first other one that hides it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hiding {
    endpoint: Endpoint,
    first: Hidden,
    others: Vec<Hidden>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Hidden {
    plugin: String,
    /// The one whose rules match the other versions.
    by: String,
    /// What both are for, such as `horizontalpodautoscalers.autoscaling`.
    resource: String,
}

/// A group and a resource, with its subresource.
struct Place<'r> {
    group: &'r str,
    resource: &'r str,
    sub_resource: &'r str,
}

/// What one webhook for these plugins of an endpoint would hide.
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

/// A resource that some of `hiding` match in a version that none of `rules` matches, while some of these would have it
/// converted.
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

/// What the first rule can match so that the second could have it converted, whatever the version.
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

/// Whether all that both rules are about there is matched by `rules` as it comes.
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

/// The versions of a group that a rule matches.
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

/// A name that both match.
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

/// As kubectl names resources.
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

/// For whoever registers the plugins.
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
            "each of the {plugins} plugins gets a webhook of its own: in one for all, {plugin} would not be called for \
             {resource} in every version, because kube-apiserver converts only what no rule of a webhook matches as it \
             comes, and {by} is for more versions of it"
        )?;
        for Hidden {
            plugin,
            by,
            resource,
        } in &self.others
        {
            write!(f, "; nor {plugin} for {resource}, because of {by}")?;
        }
        f.write_str("; where their rules name the same apiGroups and apiVersions for it, one webhook is enough")
    }
}
