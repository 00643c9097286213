//! Groups that callers belong to automatically. Excluding such a group excludes nearly every request.

/// Groups that Kubernetes adds callers to automatically.
const EVERYBODY: [(&str, &str); 4] = [
    (
        "system:authenticated",
        "all authenticated users are members",
    ),
    (
        "system:unauthenticated",
        "all unauthenticated users are members",
    ),
    (
        "system:serviceaccounts",
        "all service accounts of all namespaces are members, including controllers that create Pods for others",
    ),
    ("system:nodes", "all kubelets are members"),
];
const OF_NAMESPACE: &str = "system:serviceaccounts:";

/// Returns why callers belong to a group automatically. None for any other group.
pub fn why_everybody(group: &str) -> Option<&'static str> {
    let known = EVERYBODY.iter().find(|(known, _)| *known == group);
    known.map(|(_, why)| *why)
}

/// Returns whether a group contains all service accounts of a namespace. Anybody who may create one there can join it.
pub fn is_of_namespace(group: &str) -> bool {
    group.starts_with(OF_NAMESPACE)
}
