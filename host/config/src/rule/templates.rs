//! `podTemplates`: shows a plugin for Pods the pod templates of workloads, too.
//!
//! The rules for the workloads are added to the plugin's own. So everything that goes by rules knows about them:
//! registration, scans, records, and the check of what kube-apiserver sends. The host derives the Pod before it compares
//! the request with selectors and conditions.

use tollgate_admission::review::request::Operation;
use tollgate_admission::review::template::{VERSION, WORKLOADS};

use super::{Match, Operations, Pattern, ResourcePattern, Rule, Scope};
use crate::read::{Fields, quoted};

const CREATES_PODS: &str = "expected none, because no rule matches the creation of Pods: the host shows a template as \
    the creation of a Pod, so add a rule with {operations: [CREATE], apiGroups: [\"\"], apiVersions: [v1], resources: \
    [pods]}, or leave the key out";

// === impl Match ===

impl Match {
    /// Reads the key, checks it against the rules, and adds the rules for workloads.
    pub(super) fn read_templates(&mut self, fields: &mut Fields<'_>, given_rules: usize) {
        let given = fields
            .optional("podTemplates")
            .and_then(|node| node.boolean());
        if given != Some(true) {
            return;
        }
        // A rule that cannot be read is a problem already.
        if self.rules.len() == given_rules {
            let creates_pods = |rule: &Rule| rule.matches_creation("", "pods");
            if !self.rules.iter().any(creates_pods) {
                fields.problem("podTemplates", CREATES_PODS);
            }
            if let Some(resource) = self.named_workload() {
                fields.problem(
                    "podTemplates",
                    format!(
                        "expected none, because a rule matches {} itself: the plugin would get the object and not its \
                         template, so name the other resources in the rules, or write a second entry for them",
                        quoted(resource)
                    ),
                );
            }
        }
        self.pod_templates = true;
        self.rules.extend(workload_rules());
    }

    fn named_workload(&self) -> Option<&'static str> {
        let is_named = |group: &str, resource: &str| {
            let mut rules = self.rules.iter();
            rules.any(|rule| rule.matches_resource_of(group, resource))
        };
        let mut workloads = WORKLOADS.iter();
        workloads
            .find(|workload| is_named(workload.group, workload.resource))
            .map(|workload| workload.resource)
    }
}

// === impl Rule ===

impl Rule {
    /// Whether the rule matches the creation of an object in a namespace.
    fn matches_creation(&self, group: &str, resource: &str) -> bool {
        self.operations.contains(Operation::Create)
            && self.scope != Scope::Cluster
            && self.matches_resource_of(group, resource)
    }

    /// Whether the rule matches a namespaced resource itself in version v1, for any operation.
    fn matches_resource_of(&self, group: &str, resource: &str) -> bool {
        let mut groups = self.api_groups.iter();
        let mut versions = self.api_versions.iter();
        let mut resources = self.resources.iter();
        self.scope != Scope::Cluster
            && groups.any(|one| one.matches(group))
            && versions.any(|one| one.matches(VERSION))
            && resources.any(|one| one.resource.matches(resource) && one.sub_resource.matches(""))
    }
}

/// Returns a rule for the workloads of each group.
fn workload_rules() -> Vec<Rule> {
    let mut operations = Operations::default();
    operations.insert(Operation::Create);
    operations.insert(Operation::Update);
    let groups = WORKLOADS.chunk_by(|one, next| one.group == next.group);
    groups
        .map(|workloads| Rule {
            operations,
            api_groups: workloads[..1]
                .iter()
                .map(|workload| Pattern::Exactly(workload.group.into()))
                .collect(),
            api_versions: vec![Pattern::Exactly(VERSION.into())],
            resources: workloads
                .iter()
                .map(|workload| ResourcePattern {
                    resource: Pattern::Exactly(workload.resource.into()),
                    sub_resource: Pattern::Exactly("".into()),
                })
                .collect(),
            scope: Scope::All,
        })
        .collect()
}

#[cfg(test)]
mod tests;
