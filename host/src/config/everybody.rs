//! Groups that nobody has to be put into: leaving out their members leaves out nearly every request.

/// Kubernetes puts callers into these by itself.
const EVERYBODY: [(&str, &str); 4] = [
    (
        "system:authenticated",
        "everybody with credentials is in it",
    ),
    (
        "system:unauthenticated",
        "everybody without credentials is in it",
    ),
    (
        "system:serviceaccounts",
        "all service accounts of all namespaces are in it, controllers that create Pods for others included",
    ),
    ("system:nodes", "all kubelets are in it"),
];
const OF_NAMESPACE: &str = "system:serviceaccounts:";

/// Why a group has members that nobody chose; none for any other group.
pub(crate) fn why_everybody(group: &str) -> Option<&'static str> {
    let known = EVERYBODY.iter().find(|(known, _)| *known == group);
    known.map(|(_, why)| *why)
}

/// Whether all service accounts of a namespace are in a group: whoever may create one there is, too.
pub(crate) fn is_of_namespace(group: &str) -> bool {
    group.starts_with(OF_NAMESPACE)
}
