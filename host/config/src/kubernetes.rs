//! Kubernetes' own API: its resources, and the rules that can match none of them.
//!
//! A rule that matches nothing protects nothing, and nobody notices. Kubernetes' own resources are known without a
//! cluster, so Tollgate finds such a rule before anybody relies on it. Custom resources are in groups with a dot in
//! their names. Such groups may contain any resource.

mod check;
mod kinds;
mod suggest;

use std::sync::LazyLock;

pub use check::{Finding, check_rules};
pub use kinds::{Kinds, Known, ResourceOfKind};

/// A resource of Kubernetes itself.
#[derive(Debug)]
pub struct Resource {
    /// The API group. It is empty for the core group.
    pub(crate) group: &'static str,
    /// The plural name, such as `pods`.
    pub name: &'static str,
    /// The kind, such as `Pod`.
    pub(crate) kind: &'static str,
    /// Whether the resource's objects are in namespaces.
    pub namespaced: bool,
    /// The versions in which the resource is served.
    pub versions: Vec<&'static str>,
    /// Whether other releases serve the resource in further versions.
    other_versions: bool,
    /// Subresources such as `status`.
    sub_resources: Vec<&'static str>,
    /// Short names for kubectl, such as `po`.
    short_names: Vec<&'static str>,
}

/// The Kubernetes release of the table, for messages.
pub(crate) const RELEASE: &str = "1.36";
/// The table, with one line per resource.
const TABLE: &str = include_str!("kubernetes/resources.txt");
const CORE: &str = "core";
const OTHER_VERSIONS: &str = "...";

static RESOURCES: LazyLock<Vec<Resource>> =
    LazyLock::new(|| TABLE.lines().filter_map(Resource::read).collect());

/// Returns every resource, in the order of groups.
pub(crate) fn resources() -> &'static [Resource] {
    &RESOURCES
}

/// Returns the resource of a kind.
pub fn resource_of(group: &str, kind: &str) -> Option<&'static Resource> {
    let mut resources = resources().iter();
    resources.find(|resource| resource.group == group && resource.kind == kind)
}

/// Returns a group and a version as an object's `apiVersion` has them.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    }
}

/// Returns the reason why kube-apiserver would refuse a kind of a group of Kubernetes itself. None for the kinds that it
/// has, and for all kinds in groups of custom resources.
pub fn refused_kind(group: &str, version: &str, kind: &str) -> Option<String> {
    let api_version = api_version(group, version);
    let Some(resource) = resource_of(group, kind) else {
        let is_own = resources().iter().any(|resource| resource.group == group);
        let is_preview = version.contains("alpha") || version.contains("beta");
        // Another release may have more kinds in the previews of a group.
        if group.contains('.') && !is_own || is_own && is_preview {
            return None;
        }
        let meant = resources_of_kind(kind).chain(suggest::by_other_name(kind));
        let kinds = resources()
            .iter()
            .filter(|resource| resource.group == group);
        let near = suggest::closest(kind, kinds.map(|resource| resource.kind));
        let near = near.and_then(|kind| resource_of(group, kind));
        let meant = meant.chain(near).next();
        let meant = meant.map(|resource| format!(": did you mean {}?", resource.named()));
        let meant = meant.unwrap_or_default();
        return Some(format!(
            "Kubernetes {RELEASE} has no kind {kind} in {api_version}{meant}"
        ));
    };
    if resource.versions.contains(&version) || resource.other_versions {
        return None;
    }
    Some(format!(
        "Kubernetes {RELEASE} does not serve {kind} in {api_version}: did you mean {}?",
        resource.named()
    ))
}

/// Returns a resource by its plural name.
pub fn resource_named(group: &str, name: &str) -> Option<&'static Resource> {
    let mut resources = resources().iter();
    resources.find(|resource| resource.group == group && resource.name == name)
}

/// Returns the kind of a resource, such as `Pod` for `pods`.
pub fn kind_of(group: &str, name: &str) -> Option<&'static str> {
    let mut resources = resources().iter();
    let found = resources.find(|resource| resource.group == group && resource.name == name);
    found.map(|resource| resource.kind)
}

/// Returns the resources of a kind in all groups.
pub fn resources_of_kind(kind: &str) -> impl Iterator<Item = &'static Resource> {
    resources()
        .iter()
        .filter(move |resource| resource.kind == kind)
}

// === impl Resource ===

impl Resource {
    /// The kind with a version in which it is served.
    fn named(&self) -> String {
        let version = self.versions.first().copied().unwrap_or_default();
        format!("{} in {}", self.kind, api_version(self.group, version))
    }

    /// Reads a line of the table. None for a comment.
    fn read(line: &'static str) -> Option<Self> {
        let mut columns = line.split_ascii_whitespace();
        let group = columns.next().filter(|group| !group.starts_with('#'))?;
        let list = |column: Option<&'static str>| -> Vec<&'static str> {
            let column = column.filter(|column| *column != "-").unwrap_or_default();
            column.split(',').filter(|item| !item.is_empty()).collect()
        };
        let name = columns.next()?;
        let kind = columns.next()?;
        let namespaced = columns.next()? == "Namespaced";
        let mut versions = list(columns.next());
        let other_versions = versions.contains(&OTHER_VERSIONS);
        versions.retain(|version| *version != OTHER_VERSIONS);
        Some(Self {
            group: if group == CORE { "" } else { group },
            name,
            kind,
            namespaced,
            versions,
            other_versions,
            sub_resources: list(columns.next()),
            short_names: list(columns.next()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_that_kubernetes_does_not_have_is_refused() {
        for (group, version, kind, expected) in [
            (
                "",
                "v1",
                "Deployment",
                "has no kind Deployment in v1: did you mean Deployment in apps/v1?",
            ),
            (
                "",
                "v1",
                "Pods",
                "has no kind Pods in v1: did you mean Pod in v1?",
            ),
            (
                "apps",
                "v1beta1",
                "Deployment",
                "does not serve Deployment in apps/v1beta1: did you mean Deployment in apps/v1?",
            ),
            (
                "extensions",
                "v1beta1",
                "Ingress",
                "has no kind Ingress in extensions/v1beta1: did you mean Ingress in networking.k8s.io/v1?",
            ),
            (
                "networking.k8s.io",
                "v1",
                "Ingres",
                "has no kind Ingres in networking.k8s.io/v1: did you mean Ingress in networking.k8s.io/v1?",
            ),
            ("batch", "v1", "Xyz", "has no kind Xyz in batch/v1"),
        ] {
            let refused = refused_kind(group, version, kind).expect(kind);
            assert_eq!(refused, format!("Kubernetes {RELEASE} {expected}"));
        }
        for (group, version, kind) in [
            ("", "v1", "Pod"),
            ("autoscaling", "v1", "HorizontalPodAutoscaler"),
            ("example.com", "v1", "Pod"),
            ("networking.k8s.io", "v1alpha1", "ClusterCIDR"),
            ("gateway.networking.k8s.io", "v1", "Gateway"),
        ] {
            assert_eq!(refused_kind(group, version, kind), None);
        }
    }

    #[test]
    fn every_line_of_the_table_is_a_resource() {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(lines.count(), resources().len());
        for resource in resources() {
            assert!(!resource.versions.is_empty(), "{resource:?}");
            assert!(
                resource
                    .kind
                    .starts_with(|first: char| first.is_uppercase()),
                "{resource:?}"
            );
        }
        let pod = resource_of("", "Pod").expect("there are Pods");
        assert_eq!((pod.name, pod.namespaced), ("pods", true));
        assert!(pod.sub_resources.contains(&"exec"));
        assert_eq!(pod.short_names, ["po"]);
        assert!(resource_of("apps", "Pod").is_none());
    }
}
