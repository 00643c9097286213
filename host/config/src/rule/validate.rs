//! Validates the texts of a rule, from any source.

use tollgate_admission::review::request::Operation;

use super::{Operations, Pattern, ResourcePattern, Scope};
use crate::plugin::is_label;
use crate::problem::Collector;
use crate::read::{Node, choice, quoted};
use crate::schema::Shape;

/// A text and its place.
pub(crate) struct Item {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A list of texts that has not been validated yet.
pub(crate) struct Items {
    pub(crate) path: String,
    pub(crate) items: Vec<Item>,
}

pub(super) const OPERATIONS: &[&str] = &["CREATE", "UPDATE", "DELETE", "CONNECT", "\"*\""];
/// Kubernetes' limits for names.
const LONGEST_GROUP_BYTES: usize = 253;
const LONGEST_VERSION_BYTES: usize = 63;
pub(super) const SCOPES: &[&str] = &["Cluster", "Namespaced", "\"*\""];

/// Notes the words that are accepted at a place, for the schema. In messages, `*` is in quotes.
pub(super) fn note_words(node: &Node<'_>, words: &[&str]) {
    let words = words.iter().map(|word| word.trim_matches('"').to_owned());
    node.accepts(Shape::Words(words.collect()));
}

// === impl Item ===

impl Item {
    pub(super) fn read(node: &Node<'_>) -> Option<Self> {
        Some(Self {
            path: node.path().to_owned(),
            text: node.quotable_text("text")?.to_owned(),
        })
    }

    pub(super) fn reject(&self, expected: &str, problems: &Collector) {
        problems.add(
            self.path.clone(),
            format!("got {}, expected {expected}", quoted(&self.text)),
        );
    }
}

// === impl Items ===

impl Items {
    pub(super) fn read(node: &Node<'_>) -> Option<Self> {
        Self::read_words(node, &[])
    }

    /// Reads a list of texts that should be among these words. Without words, any text is read.
    pub(super) fn read_words(node: &Node<'_>, words: &[&str]) -> Option<Self> {
        let nodes = node.elements("texts")?;
        if !words.is_empty() {
            nodes.iter().for_each(|node| note_words(node, words));
        }
        let items: Vec<Item> = nodes.iter().filter_map(Item::read).collect();
        // The wrong type of an element is already reported. The list must not be validated as if the element were
        // missing.
        (items.len() == nodes.len()).then(|| Self {
            path: node.path().to_owned(),
            items,
        })
    }

    fn has(&self, text: &str) -> bool {
        self.items.iter().any(|item| item.text == text)
    }

    pub(crate) fn require_one(&self, problems: &Collector) {
        if self.items.is_empty() {
            problems.add(
                self.path.clone(),
                "got an empty list, expected at least one; \"*\" stands for all",
            );
        }
    }

    fn wildcard_alone(&self, what: &str, problems: &Collector) {
        if self.items.len() > 1 && self.has("*") {
            problems.add(
                self.path.clone(),
                format!("\"*\" covers all {what}: leave out the others, or the \"*\""),
            );
        }
    }
}

pub(crate) fn operations(items: &Items, problems: &Collector) -> Operations {
    items.wildcard_alone("operations", problems);
    let mut operations = Operations::default();
    for item in &items.items {
        match (item.text.as_str(), Operation::parse(&item.text)) {
            ("*", _) => operations = Operations::ALL,
            (_, Some(operation)) => operations.insert(operation),
            (text, None) => item.reject(&choice(OPERATIONS, Some(text)), problems),
        }
    }
    operations
}

/// Reads the scope of a rule.
pub(crate) fn scope(item: &Item, problems: &Collector) -> Scope {
    match item.text.as_str() {
        "Cluster" => Scope::Cluster,
        "Namespaced" => Scope::Namespaced,
        "*" => Scope::All,
        text => {
            item.reject(&choice(SCOPES, Some(text)), problems);
            Scope::All
        }
    }
}

pub(crate) fn groups(items: &Items, problems: &Collector) -> Vec<Pattern> {
    items.wildcard_alone("API groups", problems);
    for item in &items.items {
        if let Some(expected) = expected_group(&item.text) {
            item.reject(&expected, problems);
        }
    }
    items
        .items
        .iter()
        .map(|item| Pattern::new(&item.text))
        .collect()
}

/// Suggests a correction for a text that cannot be an API group. None if it can be one.
fn expected_group(text: &str) -> Option<String> {
    const CORE: &str = "\"\", which is the name of the core group";
    let plain = text.trim().trim_matches('.').to_lowercase();
    let expected = match text {
        "" | "*" => return None,
        "core" => CORE.to_owned(),
        _ if text.trim().is_empty() => CORE.to_owned(),
        _ if text.contains('/') => "an API group without its version, such as apps".to_owned(),
        _ if text.contains(',') => "one API group in each text, such as [apps, batch]".to_owned(),
        _ if text.contains('*') => {
            "\"*\" alone for all, or the whole name of an API group; patterns are not supported"
                .to_owned()
        }
        _ if is_version(&plain) => {
            "an API group, such as apps; versions belong in apiVersions, and the core group is \"\""
                .to_owned()
        }
        _ if is_group(text) => return None,
        _ if is_group(&plain) => plain,
        _ => "an API group, such as apps or networking.k8s.io".to_owned(),
    };
    Some(expected)
}

pub(crate) fn versions(items: &Items, problems: &Collector) -> Vec<Pattern> {
    items.wildcard_alone("API versions", problems);
    for item in &items.items {
        if let Some(expected) = expected_version(&item.text) {
            item.reject(&expected, problems);
        }
    }
    items
        .items
        .iter()
        .map(|item| Pattern::new(&item.text))
        .collect()
}

/// Suggests a correction for a text that cannot be an API version. None if it can be one.
fn expected_version(text: &str) -> Option<String> {
    let plain = text.trim().to_lowercase();
    let expected = match text {
        "*" => return None,
        _ if text.contains('/') => "an API version without its group, such as v1".to_owned(),
        _ if text.contains(',') => "one API version in each text, such as [v1, v1beta1]".to_owned(),
        _ if text.contains('*') => {
            "\"*\" alone for all, or the whole name of an API version; patterns are not supported"
                .to_owned()
        }
        _ if is_version_name(text) => return None,
        _ if is_version_name(&plain) => plain,
        _ => "an API version, such as v1".to_owned(),
    };
    Some(expected)
}

pub(crate) fn resources(items: &Items, problems: &Collector) -> Vec<ResourcePattern> {
    let mut patterns = Vec::with_capacity(items.items.len());
    for (index, item) in items.items.iter().enumerate() {
        let (resource, sub_resource) = match item.text.split_once('/') {
            Some((resource, sub_resource)) => (resource, Some(sub_resource)),
            None => (item.text.as_str(), None),
        };
        if !is_resource_name(resource) || !sub_resource.is_none_or(is_resource_name) {
            item.reject(&expected_resource(&item.text), problems);
            continue;
        }
        if let Some(sub_resource) = sub_resource {
            // A wildcard covers the texts beside it. Of two equal texts, the second one is superfluous.
            let covered = |cover: &str| {
                let mut others = items
                    .items
                    .iter()
                    .enumerate()
                    .filter(|(_, other)| other.text == cover);
                others.any(|(other, _)| other < index || item.text != cover)
            };
            let covers = [format!("{resource}/*"), format!("*/{sub_resource}")];
            for cover in covers
                .iter()
                .filter(|cover| *cover != "*/*" && covered(cover))
            {
                let text = quoted(&item.text);
                problems.add(
                    item.path.clone(),
                    format!("{text} is covered by {cover}: leave one of them out"),
                );
            }
        }
        patterns.push(ResourcePattern {
            resource: Pattern::new(resource),
            sub_resource: Pattern::new(sub_resource.unwrap_or_default()),
        });
    }
    if items.has("*/*") && items.items.len() > 1 {
        problems.add(
            items.path.clone(),
            "*/* covers all resources and subresources: leave out the others, or the */*",
        );
    }
    let plain = |item: &Item| item.text != "*" && !item.text.contains('/');
    if items.has("*") && items.items.iter().any(plain) {
        problems.add(
            items.path.clone(),
            "\"*\" covers all resources: leave out those without a subresource, or the \"*\"",
        );
    }
    patterns
}

/// Suggests a correction for a text that cannot be a resource.
fn expected_resource(text: &str) -> String {
    if let Some((resource, group)) = text.split_once('.')
        && is_resource_name(resource)
        && is_group(group)
    {
        return format!("{resource}, and {group} in apiGroups");
    }
    if text.contains(',') {
        return "one resource in each text, such as [pods, services]".to_owned();
    }
    "a resource in the plural and in lower case, such as pods, pods/status, pods/*, */scale, \"*\" or */*"
        .to_owned()
}

/// Returns whether text is `*` or a possible name of a resource.
fn is_resource_name(name: &str) -> bool {
    name == "*"
        || !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Returns whether text is a DNS-1123 subdomain, which is how Kubernetes names API groups.
fn is_group(text: &str) -> bool {
    text.len() <= LONGEST_GROUP_BYTES
        && text
            .split('.')
            .all(|label| is_label(label, LONGEST_GROUP_BYTES))
}

/// Returns whether text is a DNS-1035 label, which is how Kubernetes names API versions.
fn is_version_name(text: &str) -> bool {
    is_label(text, LONGEST_VERSION_BYTES)
        && text.starts_with(|first: char| first.is_ascii_lowercase())
}

/// Returns whether text looks like `v1` or `v1beta1`. An API group never has such a name.
fn is_version(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('v') else {
        return false;
    };
    let rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let stage = ["alpha", "beta"]
        .into_iter()
        .find_map(|stage| rest.strip_prefix(stage));
    let is_numbered = text[1..].starts_with(|first: char| first.is_ascii_digit());
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_numbered && (rest.is_empty() || stage.is_some_and(is_number))
}
