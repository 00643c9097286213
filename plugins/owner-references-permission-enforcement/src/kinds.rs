//! The resource of a kind: from a table of Kubernetes' own kinds, or from the definition of a custom resource.

use tollgate_sdk::cluster;

/// The lookup of the configuration with the CustomResourceDefinitions.
const LOOKUP: &str = "definitions";

/// A resource.
#[derive(Debug, PartialEq)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) plural: String,
    pub(crate) is_namespaced: bool,
}

/// Kinds in namespaces, by group.
const NAMESPACED: [(&str, &[&str]); 10] = [
    (
        "",
        &[
            "ConfigMap",
            "Endpoints",
            "Event",
            "LimitRange",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "ReplicationController",
            "ResourceQuota",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
    ),
    (
        "apps",
        &[
            "ControllerRevision",
            "DaemonSet",
            "Deployment",
            "ReplicaSet",
            "StatefulSet",
        ],
    ),
    ("autoscaling", &["HorizontalPodAutoscaler"]),
    ("batch", &["CronJob", "Job"]),
    ("coordination.k8s.io", &["Lease"]),
    ("discovery.k8s.io", &["EndpointSlice"]),
    ("networking.k8s.io", &["Ingress", "NetworkPolicy"]),
    ("policy", &["PodDisruptionBudget"]),
    ("rbac.authorization.k8s.io", &["Role", "RoleBinding"]),
    (
        "resource.k8s.io",
        &["ResourceClaim", "ResourceClaimTemplate"],
    ),
];

/// Kinds outside of namespaces, by group.
const CLUSTER_SCOPED: [(&str, &[&str]); 12] = [
    ("", &["Namespace", "Node", "PersistentVolume"]),
    (
        "admissionregistration.k8s.io",
        &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    ("apiextensions.k8s.io", &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io", &["APIService"]),
    ("certificates.k8s.io", &["CertificateSigningRequest"]),
    (
        "flowcontrol.apiserver.k8s.io",
        &["FlowSchema", "PriorityLevelConfiguration"],
    ),
    (
        "networking.k8s.io",
        &["IPAddress", "IngressClass", "ServiceCIDR"],
    ),
    ("node.k8s.io", &["RuntimeClass"]),
    (
        "rbac.authorization.k8s.io",
        &["ClusterRole", "ClusterRoleBinding"],
    ),
    ("resource.k8s.io", &["DeviceClass", "ResourceSlice"]),
    ("scheduling.k8s.io", &["PriorityClass"]),
    (
        "storage.k8s.io",
        &[
            "CSIDriver",
            "CSINode",
            "StorageClass",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ],
    ),
];

/// Returns the resource of a kind. None if nobody knows the kind.
pub(crate) fn resource(api_version: &str, kind: &str) -> Option<Resource> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is_in = |table: &[(&str, &[&str])]| {
        let mut groups = table.iter().filter(|(name, _)| *name == group);
        groups.any(|(_, kinds)| kinds.contains(&kind))
    };
    let is_namespaced = is_in(&NAMESPACED);
    if is_namespaced || is_in(&CLUSTER_SCOPED) {
        return Some(Resource {
            group: group.to_owned(),
            plural: plural(kind),
            is_namespaced,
        });
    }
    cluster::find(LOOKUP, "kind", kind)
        .map(cluster::OrFault::or_fault)
        .find(|definition| {
            let versions = definition.select("/spec/versions/*/name");
            let mut versions = versions.iter().map(|node| node.value.as_text());
            definition.text("/spec/group") == Some(group)
                && versions.any(|name| name == Some(version))
        })
        .map(|definition| Resource {
            group: group.to_owned(),
            plural: definition
                .text("/spec/names/plural")
                .unwrap_or_default()
                .to_owned(),
            is_namespaced: definition.text("/spec/scope") == Some("Namespaced"),
        })
}

/// Forms the plural of one of Kubernetes' own kinds.
fn plural(kind: &str) -> String {
    let singular = kind.to_ascii_lowercase();
    if singular == "endpoints" {
        return singular;
    }
    match singular.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if singular.ends_with('s') => format!("{singular}es"),
        None => format!("{singular}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_resources_of_kube_apiserver() {
        for (version, kind, group, plural, is_namespaced) in [
            ("v1", "Pod", "", "pods", true),
            ("v1", "Endpoints", "", "endpoints", true),
            ("v1", "Node", "", "nodes", false),
            ("apps/v1", "DaemonSet", "apps", "daemonsets", true),
            (
                "networking.k8s.io/v1",
                "Ingress",
                "networking.k8s.io",
                "ingresses",
                true,
            ),
            (
                "networking.k8s.io/v1",
                "NetworkPolicy",
                "networking.k8s.io",
                "networkpolicies",
                true,
            ),
            (
                "networking.k8s.io/v1",
                "IngressClass",
                "networking.k8s.io",
                "ingressclasses",
                false,
            ),
            (
                "networking.k8s.io/v1",
                "IPAddress",
                "networking.k8s.io",
                "ipaddresses",
                false,
            ),
        ] {
            let expected = Resource {
                group: group.to_owned(),
                plural: plural.to_owned(),
                is_namespaced,
            };
            assert_eq!(resource(version, kind), Some(expected), "{kind}");
        }
    }
}
