//! Exclusions for requests that must never depend on a webhook. If the webhook did not answer, the cluster could fail,
//! or an administrator could not repair it. Selectors cannot express these exclusions. CEL conditions can.

use std::{collections::BTreeSet, fmt};

use tollgate_admission::Endpoint;
use tollgate_admission::review::request::Operation;
use tollgate_config::{Pattern, ResourcePattern, Rule, Scope};

use super::{DOMAIN, Participant, rules::RegisteredRule, webhook::MatchCondition};

/// Namespaces that a cluster depends on.
pub const NAMESPACES: [&str; 2] = ["kube-system", "kube-node-lease"];

/// Leases, used for heartbeats and leader elections.
const LEASES: (&str, &str) = ("coordination.k8s.io", "leases");

/// Resources that a node needs to join the cluster and to attach volumes, with their subresources.
///
/// They are cluster-scoped, so a namespace selector does not exclude them. kubelet writes Nodes, CSINodes and
/// CertificateSigningRequests. Controllers approve the requests and write VolumeAttachments.
const NODE_RESOURCES: [NodeResource; 4] = [
    NodeResource {
        group: "",
        name: "nodes",
    },
    NodeResource {
        group: "certificates.k8s.io",
        name: "certificatesigningrequests",
    },
    NodeResource {
        group: "storage.k8s.io",
        name: "csinodes",
    },
    NodeResource {
        group: "storage.k8s.io",
        name: "volumeattachments",
    },
];

/// Operations that change objects. `CONNECT` does not. A user runs commands in containers through `nodes/proxy`, and
/// no node needs that to join. So rules with wildcards keep it.
const CHANGES: [Operation; 3] = [Operation::Create, Operation::Update, Operation::Delete];

/// The subresource of Nodes that has no other operation than `CONNECT`.
const PROXY: &str = "proxy";

/// The API group of webhook configurations and admission policies. kube-apiserver sends them only to webhooks that it
/// reads from files.
const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";

/// API groups for authentication and authorization checks. Components use them too.
const REVIEW_GROUPS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// The resources that nodes need, and that a webhook under `Fail` is registered for because rules name them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lockout {
    endpoint: Endpoint,
    named: Vec<Named>,
}

/// A resource, with the plugins whose rules name it.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Named {
    resource: NodeResource,
    plugins: Vec<String>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct NodeResource {
    group: &'static str,
    name: &'static str,
}

/// Returns the conditions of a webhook. `rules` is the union of its plugins' rules. Each condition is included only if
/// the rules could match the excluded requests. Break-glass comes first, because somebody may look for it in a hurry.
pub(super) fn conditions(
    rules: &[RegisteredRule],
    plugins: &[Participant<'_>],
    break_glass_groups: &BTreeSet<String>,
) -> Vec<MatchCondition> {
    let can_match =
        |group: &str, resource: &str| rules.iter().any(|rule| rule.can_match(group, resource));
    let mut conditions = Vec::new();
    if !break_glass_groups.is_empty() {
        let is_member = |group: &String| format!("'{group}' in request.userInfo.groups");
        let memberships: Vec<String> = break_glass_groups.iter().map(is_member).collect();
        conditions.push(MatchCondition {
            name: "exclude-break-glass".to_owned(),
            expression: format!(
                "!has(request.userInfo.groups) || !({})",
                memberships.join(" || ")
            ),
        });
    }
    let (group, resource) = LEASES;
    if can_match(group, resource) {
        conditions.push(MatchCondition {
            name: "exclude-leases".to_owned(),
            expression: format!(
                "request.resource.group != '{group}' || request.resource.resource != '{resource}'"
            ),
        });
    }
    conditions.extend(nodes(plugins));
    if REVIEW_GROUPS.iter().any(|group| can_match(group, "*")) {
        let [first, second] = REVIEW_GROUPS;
        conditions.push(MatchCondition {
            name: "exclude-access-reviews".to_owned(),
            expression: format!("!(request.resource.group in ['{first}', '{second}'])"),
        });
    }
    if can_match(DOMAIN, "*") {
        conditions.push(MatchCondition {
            name: "exclude-tollgate".to_owned(),
            expression: format!("request.resource.group != '{DOMAIN}'"),
        });
    }
    conditions
}

/// Returns the condition for webhook configurations and admission policies, for a webhook that kube-apiserver reads from
/// a file. Nobody can delete such a webhook through the API, so it must not deny the repair of others. A rule that names
/// the group keeps it.
pub(super) fn admission(
    rules: &[RegisteredRule],
    plugins: &[Participant<'_>],
) -> Option<MatchCondition> {
    let mut groups = plugins
        .iter()
        .flat_map(|plugin| plugin.matching.rules())
        .flat_map(|rule| rule.api_groups.iter());
    let is_named = groups.any(|group| *group != Pattern::Any && group.matches(ADMISSION_GROUP));
    let can_match = rules
        .iter()
        .any(|rule| rule.can_match(ADMISSION_GROUP, "*"));
    (can_match && !is_named).then(|| MatchCondition {
        name: "exclude-admission".to_owned(),
        expression: format!("request.resource.group != '{ADMISSION_GROUP}'"),
    })
}

/// Returns the resources that nodes need and that the rules of a webhook under `Fail` name. None if there are none.
pub(super) fn lockout(endpoint: Endpoint, plugins: &[Participant<'_>]) -> Option<Lockout> {
    let naming = |resource: NodeResource| {
        let plugins: Vec<String> = plugins
            .iter()
            .filter(|plugin| {
                let mut rules = plugin.matching.rules().iter();
                rules.any(|rule| resource.is_named_by(rule))
            })
            .map(|plugin| plugin.name.to_owned())
            .collect();
        (!plugins.is_empty()).then_some(Named { resource, plugins })
    };
    let named: Vec<Named> = NODE_RESOURCES.into_iter().filter_map(naming).collect();
    (!named.is_empty()).then_some(Lockout { endpoint, named })
}

/// Returns the condition for the resources that nodes need. It excludes those that only wildcards match. The plugins
/// whose rules name a resource must be called for it, so it stays for all plugins of the webhook.
///
/// The decision needs the plugins' own rules: their union drops a name that a wildcard covers.
fn nodes(plugins: &[Participant<'_>]) -> Option<MatchCondition> {
    let rules: Vec<&Rule> = plugins
        .iter()
        .flat_map(|plugin| plugin.matching.rules())
        .collect();
    let excluded: Vec<String> = NODE_RESOURCES
        .into_iter()
        .filter(|resource| rules.iter().any(|rule| resource.is_matched_by(rule)))
        .filter(|resource| !rules.iter().any(|rule| resource.is_named_by(rule)))
        .map(|NodeResource { group, name }| format!("'{group}/{name}'"))
        .collect();
    (!excluded.is_empty()).then(|| MatchCondition {
        name: "exclude-nodes".to_owned(),
        expression: format!(
            "request.operation == 'CONNECT' || !(request.resource.group + '/' + request.resource.resource in [{}])",
            excluded.join(", ")
        ),
    })
}

// === impl Lockout ===

/// Writes a warning for the person who registers the plugins.
impl fmt::Display for Lockout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let webhook = match self.endpoint {
            Endpoint::Mutate => "mutating",
            Endpoint::Validate => "validating",
        };
        write!(
            f,
            "a {webhook} webhook under failurePolicy Fail is registered for resources that nodes need: "
        )?;
        for (index, Named { resource, plugins }) in self.named.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let plugins = plugins.join(", ");
            write!(f, "{separator}{resource} (named in the rules of {plugins})")?;
        }
        f.write_str(
            "; while no replica answers, kube-apiserver denies changes to them, so nodes cannot join the cluster \
             or attach volumes; remove them from the rules unless a plugin must review them",
        )
    }
}

// === impl NodeResource ===

impl NodeResource {
    /// Returns whether the rule matches changes of the resource or of its subresources, by its name or by a wildcard.
    fn is_matched_by(self, rule: &Rule) -> bool {
        self.is_reached_by(rule, |pattern| pattern.resource.matches(self.name))
    }

    /// Returns whether the rule matches changes of the resource or of its subresources, and names the resource. The
    /// group may be a wildcard.
    fn is_named_by(self, rule: &Rule) -> bool {
        self.is_reached_by(rule, |pattern| {
            pattern.resource != Pattern::Any && pattern.resource.matches(self.name)
        })
    }

    fn is_reached_by(self, rule: &Rule, has_name: impl Fn(&ResourcePattern) -> bool) -> bool {
        let has_changes = |pattern: &ResourcePattern| {
            pattern.sub_resource == Pattern::Any || !pattern.sub_resource.matches(PROXY)
        };
        rule.scope != Scope::Namespaced
            && CHANGES
                .into_iter()
                .any(|operation| rule.operations.contains(operation))
            && rule
                .api_groups
                .iter()
                .any(|group| group.matches(self.group))
            && rule
                .resources
                .iter()
                .any(|pattern| has_name(pattern) && has_changes(pattern))
    }
}

/// Writes the resource as kubectl names it.
impl fmt::Display for NodeResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}
