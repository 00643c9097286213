//! `lookups` of an entry under `plugins`: the objects of the cluster that the plugin may see.
//!
//! An entry names a resource, and which of its objects and fields the plugin sees. Entries that grant the same share
//! one table, whatever their names are. [`Lookup`] therefore has no name.

mod pattern;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use super::kubernetes::{api_version, check_rules, resource_named};
use super::plugin::is_label;
use super::problem::Collector;
use super::read::{Fields, Node, child, quoted};
use super::rule::{Match, Operations, Pattern, ResourcePattern, Rule, Scope};
use super::schema::{Shape, Values};
use super::selector::LabelSelector;

pub use pattern::FieldPattern;

/// The lookups of a plugin by their names.
pub type Lookups = BTreeMap<Box<str>, Lookup>;

/// The objects and fields that one lookup grants. Two equal grants share one table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lookup {
    /// The resource of the objects.
    pub resource: LookupResource,
    /// The namespaces of the objects.
    pub namespaces: LookupNamespaces,
    /// The labels of the objects.
    pub label_selector: LabelSelector,
    /// The fields that the host keeps of each object, in order and without doubles. Empty means names only.
    pub fields: Vec<FieldPattern>,
    /// The indexes: by name, the places of the keys. An index keeps its keys whether or not `fields` covers them.
    pub indexes: BTreeMap<Box<str>, FieldPattern>,
    /// Whether the objects are Secrets, and the administrator has said that the plugin may read them.
    pub secrets: bool,
}

/// A resource of Kubernetes' API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LookupResource {
    /// The API group. The core group is the empty string.
    pub group: Box<str>,
    /// The version, such as `v1`.
    pub version: Box<str>,
    /// The plural name, such as `ingresses`.
    pub resource: Box<str>,
}

/// The namespaces whose objects a lookup contains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum LookupNamespaces {
    /// All namespaces, and objects without a namespace.
    #[default]
    All,
    /// The named namespaces, in order and without duplicates. The list is never empty.
    Named(Vec<Box<str>>),
}

/// The largest number of lookups that a plugin may have.
pub const MOST_LOOKUPS: usize = 16;
/// The largest number of indexes that a lookup may have.
pub const MOST_INDEXES: usize = 8;
/// The largest number of fields that a lookup may have.
pub const MOST_FIELDS: usize = 64;
/// The largest number of namespaces that a lookup may name. Each of them takes a watch.
pub const MOST_NAMESPACES: usize = 64;

const LONGEST_NAME: usize = 63;
const LONGEST_GROUP: usize = 253;
const NAME_EXPECTED: &str = "a name of at most 63 characters of a-z, 0-9 and -, such as ingresses";
const RESOURCE_EXPECTED: &str = "the resource of the objects, such as {group: networking.k8s.io, version: v1, resource: ingresses}";
const GROUP_EXPECTED: &str =
    "an API group such as networking.k8s.io, or \"\", which is the name of the core group";
const VERSION_EXPECTED: &str = "an API version without its group, such as v1";
const PLURAL_EXPECTED: &str =
    "a resource in the plural and in lower case, without a subresource, such as ingresses";
const NAMESPACES_EXPECTED: &str = "all, or a list of names of namespaces";
const NAMESPACE_EXPECTED: &str = "the name of a namespace; patterns are not supported";
const SECRETS: &str = "secrets";

// === impl Lookup ===

impl Lookup {
    /// Creates a lookup of all objects of a resource. It keeps their names only.
    #[must_use]
    pub fn names_of(resource: LookupResource) -> Self {
        Self {
            resource,
            namespaces: LookupNamespaces::All,
            label_selector: LabelSelector::default(),
            fields: Vec::new(),
            indexes: BTreeMap::new(),
            secrets: false,
        }
    }

    /// Whether the kept fields and keys are all metadata. A watch of metadata alone is enough then.
    #[must_use]
    pub fn is_metadata_only(&self) -> bool {
        let mut patterns = self.fields.iter().chain(self.indexes.values());
        patterns.all(|pattern| pattern.tokens().next().as_deref() == Some("metadata"))
    }

    /// Reads the lookups of an entry.
    pub(super) fn read_all(fields: &mut Fields<'_>, problems: &Collector) -> Lookups {
        let mut lookups = Lookups::new();
        let node = fields.optional("lookups");
        let nodes = node.as_ref().and_then(|node| node.elements("lookups"));
        let nodes = nodes.unwrap_or_default();
        if nodes.len() > MOST_LOOKUPS {
            let count = nodes.len();
            let message = format!("got {count} lookups, expected at most {MOST_LOOKUPS}");
            fields.problem("lookups", message);
        }
        for node in &nodes {
            let Some((name, lookup)) = Self::read(node, problems) else {
                continue;
            };
            if lookups.contains_key(&name) {
                let place = child(node.path(), "name");
                let name = quoted(&name);
                problems.add(place, format!("got {name}, which names another lookup"));
            }
            lookups.insert(name, lookup);
        }
        lookups
    }

    fn read(node: &Node<'_>, problems: &Collector) -> Option<(Box<str>, Self)> {
        let mut fields = node.object()?;
        let name = fields
            .required("name", NAME_EXPECTED)
            .and_then(|node| read_text(&node, NAME_EXPECTED, |name| is_label(name, LONGEST_NAME)));
        let resource = fields
            .required("resource", RESOURCE_EXPECTED)
            .and_then(|node| LookupResource::read(&node, problems));
        let namespaces = fields
            .optional("namespaces")
            .map(|node| LookupNamespaces::read(&node));
        let label_selector = fields
            .optional("labelSelector")
            .and_then(|node| LabelSelector::read(&node, problems));
        let kept = fields
            .optional("fields")
            .map(|node| read_fields(&node, problems));
        let indexes = fields
            .optional("indexes")
            .map(|node| read_indexes(&node, problems));
        let secrets = fields.optional(SECRETS).and_then(|node| node.boolean());
        let lookup = resource.map(|resource| Self {
            namespaces: namespaces.unwrap_or_default(),
            label_selector: label_selector.unwrap_or_default(),
            fields: kept.unwrap_or_default(),
            indexes: indexes.unwrap_or_default(),
            secrets: secrets.unwrap_or_default(),
            ..Self::names_of(resource)
        });
        if let Some(lookup) = &lookup {
            lookup.check_secrets(&fields);
            lookup.check_scope(&fields);
        }
        fields.finish();
        Some((name?, lookup?))
    }

    /// Secrets are granted by an extra word. The word on other resources is a mistake.
    fn check_secrets(&self, fields: &Fields<'_>) {
        let is_secrets = self.resource.is_secrets();
        if is_secrets && !self.secrets {
            let message = "the lookup reads Secrets, expected true. The plugin's texts are withheld after it has read one";
            fields.problem(SECRETS, message);
        }
        if !is_secrets && self.secrets {
            let resource = &self.resource;
            let message = format!("got true, but {resource} are no Secrets: leave the key out");
            fields.problem(SECRETS, message);
        }
    }

    fn check_scope(&self, fields: &Fields<'_>) {
        let resource = resource_named(&self.resource.group, &self.resource.resource);
        let is_cluster_scoped = resource.is_some_and(|resource| !resource.namespaced);
        if is_cluster_scoped && self.namespaces != LookupNamespaces::All {
            let resource = &self.resource;
            let message = format!("{resource} have no namespaces: leave the key out");
            fields.problem("namespaces", message);
        }
    }
}

// === impl LookupResource ===

impl LookupResource {
    /// Creates a resource from its parts.
    #[must_use]
    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        }
    }

    /// The group and the version as an object's `apiVersion` has them, such as `apps/v1` or `v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// Whether these are the Secrets of the core group.
    #[must_use]
    pub fn is_secrets(&self) -> bool {
        self.group.is_empty() && &*self.resource == SECRETS
    }

    fn read(node: &Node<'_>, problems: &Collector) -> Option<Self> {
        let mut fields = node.object()?;
        let group = fields
            .required("group", GROUP_EXPECTED)
            .and_then(|node| read_text(&node, GROUP_EXPECTED, is_group));
        let version = fields
            .required("version", VERSION_EXPECTED)
            .and_then(|node| read_text(&node, VERSION_EXPECTED, is_name));
        let resource = fields
            .required("resource", PLURAL_EXPECTED)
            .and_then(|node| read_text(&node, PLURAL_EXPECTED, is_name));
        fields.finish();
        let resource = Self {
            group: group?,
            version: version?,
            resource: resource?,
        };
        for finding in resource.findings() {
            problems.add(node.path(), finding);
        }
        Some(resource)
    }

    /// Finds resources that Kubernetes does not have, as for the rules of a plugin.
    fn findings(&self) -> Vec<String> {
        let matching = Match::of_rules(vec![Rule {
            operations: Operations::ALL,
            api_groups: vec![Pattern::Exactly(self.group.clone())],
            api_versions: vec![Pattern::Exactly(self.version.clone())],
            resources: vec![ResourcePattern {
                resource: Pattern::Exactly(self.resource.clone()),
                sub_resource: Pattern::Exactly("".into()),
            }],
            scope: Scope::All,
        }]);
        let findings = check_rules(&matching, true).into_iter();
        findings
            .filter(|finding| finding.is_certain)
            .map(|finding| finding.text)
            .collect()
    }
}

/// Writes the resource as `kubectl get` takes it, with its version: `ingresses.v1.networking.k8s.io`.
impl fmt::Display for LookupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.group {
            "" => f.write_str(&self.resource),
            group => write!(f, "{}.{}.{group}", self.resource, self.version),
        }
    }
}

// === impl LookupNamespaces ===

impl LookupNamespaces {
    /// Whether the lookup covers the objects of a namespace.
    #[must_use]
    pub fn covers(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.iter().any(|name| **name == *namespace),
        }
    }

    fn read(node: &Node<'_>) -> Self {
        node.accepts(Shape::Words(vec!["all".to_owned()]));
        node.accepts(Shape::List);
        if let Some(text) = node.value().as_str() {
            if text != "all" {
                node.reject(NAMESPACES_EXPECTED);
            }
            return Self::All;
        }
        if !node.value().is_array() {
            node.reject(NAMESPACES_EXPECTED);
            return Self::All;
        }
        let nodes = node.elements("names of namespaces").unwrap_or_default();
        if nodes.is_empty() || nodes.len() > MOST_NAMESPACES {
            let expected = format!("{NAMESPACES_EXPECTED}, 1 to {MOST_NAMESPACES} of them");
            node.reject(&expected);
        }
        let names = nodes.iter().filter_map(|node| {
            read_text(node, NAMESPACE_EXPECTED, |name| {
                is_label(name, LONGEST_NAME)
            })
        });
        let mut names: Vec<Box<str>> = names.collect();
        names.sort_unstable();
        names.dedup();
        Self::Named(names)
    }
}

fn read_fields(node: &Node<'_>, problems: &Collector) -> Vec<FieldPattern> {
    let nodes = node.elements("places in the objects").unwrap_or_default();
    if nodes.len() > MOST_FIELDS {
        let count = nodes.len();
        let message = format!("got {count} fields, expected at most {MOST_FIELDS}");
        problems.add(node.path(), message);
    }
    let mut fields: Vec<FieldPattern> = nodes.iter().filter_map(FieldPattern::read).collect();
    fields.sort_unstable();
    fields.dedup();
    fields
}

fn read_indexes(node: &Node<'_>, problems: &Collector) -> BTreeMap<Box<str>, FieldPattern> {
    let Some(members) = node.members(Values::Text) else {
        node.reject("an object with the names and the places of keys, such as {host: \"/spec/rules/*/host\"}");
        return BTreeMap::new();
    };
    if members.len() > MOST_INDEXES {
        let count = members.len();
        let message = format!("got {count} indexes, expected at most {MOST_INDEXES}");
        problems.add(node.path(), message);
    }
    let read = |(name, value): (&String, _)| {
        let path = child(node.path(), name);
        if !is_label(name, LONGEST_NAME) {
            problems.add(path, format!("expected {NAME_EXPECTED}"));
            return None;
        }
        let pattern = FieldPattern::read(&Node::at(&path, value, problems))?;
        Some((Box::from(name.as_str()), pattern))
    };
    members.iter().filter_map(read).collect()
}

fn read_text(node: &Node<'_>, expected: &str, is_valid: impl Fn(&str) -> bool) -> Option<Box<str>> {
    let text = node.quotable_text(expected)?;
    if !is_valid(text) {
        node.reject(expected);
        return None;
    }
    Some(text.into())
}

fn is_name(text: &str) -> bool {
    is_label(text, LONGEST_NAME)
}

fn is_group(text: &str) -> bool {
    let mut labels = text.split('.');
    text.is_empty()
        || (text != "core"
            && text.len() <= LONGEST_GROUP
            && labels.all(|label| is_label(label, LONGEST_NAME)))
}
