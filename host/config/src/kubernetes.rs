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
    versions: Vec<&'static str>,
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
