//! Finds webhooks and policies that could keep a cluster, its nodes or Tollgate from starting again.

use serde_json::Value;

use super::catcher::Catcher;
use super::probe::{Dependent, Probe, all};
use super::{Finding, Installation, Registered, Severity, webhooks};
use crate::live::{Objects, name_of};

/// Kinds of policies, each with the kind of its bindings.
const POLICIES: [(&str, &str); 2] = [
    (
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ),
    ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
];

pub(super) fn examine(objects: &Objects, installation: &Installation, findings: &mut Vec<Finding>) {
    let probes = all(installation);
    for registered in webhooks(objects).filter(|registered| registered.must_answer()) {
        let webhook = registered.webhook;
        let catcher = Catcher {
            rules: &webhook["rules"],
            exclude_rules: &Value::Null,
            namespace_selector: &webhook["namespaceSelector"],
            object_selector: &webhook["objectSelector"],
            conditions: &webhook["matchConditions"],
        };
        for (dependent, caught) in caught(&catcher, &probes, objects) {
            findings.push(of_webhook(registered, installation, dependent, &caught));
        }
    }
    for (kind, bindings) in POLICIES {
        for policy in objects.of_kind(kind) {
            of_policy(policy, bindings, objects, installation, &probes, findings);
        }
    }
}

/// Groups the requests that arrive by what depends on them.
fn caught<'p>(
    catcher: &Catcher<'_>,
    probes: &'p [Probe],
    objects: &Objects,
) -> Vec<(Dependent, Vec<&'p Probe>)> {
    [
        Dependent::Tollgate,
        Dependent::Nodes,
        Dependent::ControlPlane,
    ]
    .into_iter()
    .filter_map(|dependent| {
        let of_dependent = probes.iter().filter(|probe| probe.dependent == dependent);
        let caught: Vec<&Probe> = of_dependent
            .filter(|probe| catcher.catches(probe, objects))
            .collect();
        (!caught.is_empty()).then_some((dependent, caught))
    })
    .collect()
}

fn of_webhook(
    registered: Registered<'_>,
    installation: &Installation,
    dependent: Dependent,
    caught: &[&Probe],
) -> Finding {
    let is_own = registered.is_of(installation);
    let backend = match (is_own, registered.backend()) {
        (true, _) => "no replica of Tollgate answers".to_owned(),
        (false, Some(backend)) => format!("the Service {backend} does not answer"),
        (false, None) => "its URL does not answer".to_owned(),
    };
    // A host outside of the cluster does not depend on the pods and nodes in it.
    let severity = if registered.backend().is_some() {
        Severity::Error
    } else {
        Severity::Warning
    };
    let namespace = &installation.namespace;
    let fix = match (is_own, dependent) {
        (true, _) => "apply the output of `tollgate manifests`; if a rule names these resources, remove them from the \
                      rule or set `failurePolicy: Ignore`"
            .to_owned(),
        (false, Dependent::Tollgate) => format!(
            "exclude the namespace from the webhook: namespaceSelector.matchExpressions: [{{key: \
             kubernetes.io/metadata.name, operator: NotIn, values: [{namespace}]}}]"
        ),
        (false, Dependent::Nodes) => format!(
            "exclude the resources by a matchCondition, because a namespaceSelector does not exclude cluster-scoped \
             resources: {}",
            condition(caught)
        ),
        (false, Dependent::ControlPlane) => "exclude the namespaces from the webhook: \
             namespaceSelector.matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: \
             [kube-node-lease, kube-system]}]"
            .to_owned(),
    };
    Finding {
        severity,
        check: check(dependent, is_own),
        object: registered.to_string(),
        problem: format!(
            "under failurePolicy Fail, this webhook is called for {}; while {backend}, {}",
            shown(caught),
            dependent.consequence()
        ),
        fix,
    }
}

/// A policy is evaluated in kube-apiserver and needs no pods. But with `paramKind`, kube-apiserver must first have read
/// the parameters. Until then, a policy under `Fail` denies everything that it matches.
fn of_policy(
    policy: &Value,
    bindings: &str,
    objects: &Objects,
    installation: &Installation,
    probes: &[Probe],
    findings: &mut Vec<Finding>,
) {
    let spec = &policy["spec"];
    let parameters = &spec["paramKind"];
    let group = parameters["apiVersion"].as_str().unwrap_or_default();
    let is_custom = group
        .split('/')
        .next()
        .is_some_and(|group| group.contains('.'))
        && !group
            .split('/')
            .next()
            .is_some_and(|group| group.ends_with(".k8s.io"));
    let is_bound = objects
        .of_kind(bindings)
        .any(|binding| binding["spec"]["policyName"] == *name_of(policy));
    let may_be_bound = is_bound || objects.of_kind(bindings).next().is_none();
    if !is_custom || !may_be_bound || spec["failurePolicy"].as_str().unwrap_or("Fail") != "Fail" {
        return;
    }
    let constraints = &spec["matchConstraints"];
    let catcher = Catcher {
        rules: &constraints["resourceRules"],
        exclude_rules: &constraints["excludeResourceRules"],
        namespace_selector: &constraints["namespaceSelector"],
        object_selector: &constraints["objectSelector"],
        conditions: &spec["matchConditions"],
    };
    for (dependent, caught) in caught(&catcher, probes, objects) {
        let kind = policy["kind"].as_str().unwrap_or_default();
        findings.push(Finding {
            severity: Severity::Error,
            check: "policy-needs-parameters",
            object: format!("{kind} {}", name_of(policy)),
            problem: format!(
                "under failurePolicy Fail, this policy needs parameters of kind {} ({group}) for {}; until \
                 kube-apiserver has read them after a restart, or while their CustomResourceDefinition is missing, {}",
                parameters["kind"].as_str().unwrap_or_default(),
                shown(&caught),
                dependent.consequence()
            ),
            fix: format!(
                "set failurePolicy: Ignore in the policy, or exclude the namespaces kube-system, kube-node-lease and \
                 {} in matchConstraints.namespaceSelector and the resources of nodes in \
                 matchConstraints.excludeResourceRules; if another tool generates the policy, change it there",
                installation.namespace
            ),
        });
    }
}

fn check(dependent: Dependent, is_own: bool) -> &'static str {
    match (dependent, is_own) {
        (Dependent::Tollgate, true) => "own-deadlock",
        (Dependent::Tollgate, false) => "blocks-tollgate",
        (Dependent::Nodes, _) => "blocks-nodes",
        (Dependent::ControlPlane, _) => "blocks-control-plane",
    }
}

fn shown(caught: &[&Probe]) -> String {
    let names: Vec<String> = caught.iter().map(ToString::to_string).collect();
    names.join(", ")
}

/// Writes a condition that excludes the resources.
fn condition(caught: &[&Probe]) -> String {
    let mut names: Vec<String> = caught
        .iter()
        .map(|probe| format!("'{}/{}'", probe.group, probe.resource))
        .collect();
    names.sort();
    names.dedup();
    format!(
        "!((request.resource.group + '/' + request.resource.resource) in [{}])",
        names.join(", ")
    )
}

// === impl Dependent ===

impl Dependent {
    fn consequence(self) -> &'static str {
        match self {
            Self::Tollgate => "no pod of Tollgate can start or get traffic",
            Self::Nodes => "no node can join the cluster, report its state or attach volumes",
            Self::ControlPlane => "leaders cannot be elected and system pods cannot be created",
        }
    }
}

// === impl Registered ===

impl Registered<'_> {
    /// Returns the Service that answers, as `NAMESPACE/NAME`. None for a URL.
    fn backend(self) -> Option<String> {
        let service = &self.webhook["clientConfig"]["service"];
        let part = |key: &str| service[key].as_str().unwrap_or_default();
        service
            .is_object()
            .then(|| format!("{}/{}", part("namespace"), part("name")))
    }
}
