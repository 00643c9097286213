//! Whether the texts of a rule make sense, wherever they come from.

use crate::review::request::Operation;

use super::{Operations, Pattern, ResourcePattern, Scope};
use crate::config::problem::Collector;
use crate::config::read::{Node, choice, quoted};

/// A text and the place where it stands.
pub(crate) struct Item {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A list of texts that is yet to be judged.
pub(crate) struct Items {
    pub(crate) path: String,
    pub(crate) items: Vec<Item>,
}

const OPERATIONS: &[&str] = &["CREATE", "UPDATE", "DELETE", "CONNECT", "\"*\""];
const SCOPES: &[&str] = &["Cluster", "Namespaced", "\"*\""];

// === impl Item ===

impl Item {
    pub(crate) fn read(node: &Node<'_>) -> Option<Self> {
        Some(Self {
            path: node.path().to_owned(),
            text: node.quotable_text("text")?.to_owned(),
        })
    }

    pub(crate) fn reject(&self, expected: &str, problems: &Collector) {
        problems.add(
            self.path.clone(),
            format!("got {}, expected {expected}", quoted(&self.text)),
        );
    }
}

// === impl Items ===

impl Items {
    pub(crate) fn read(node: &Node<'_>) -> Option<Self> {
        let nodes = node.elements("texts")?;
        let items: Vec<Item> = nodes.iter().filter_map(Item::read).collect();
        // An element of a wrong type is noted already; its list must not be judged as if it were not there.
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
                format!("\"*\" is all {what}: leave out the others, or the \"*\""),
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

/// Where a rule's objects live.
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
        if item.text == "core" {
            item.reject("\"\", which is the name of the core group", problems);
        } else if item.text.contains('/') {
            item.reject("an API group without its version, such as apps", problems);
        }
    }
    items
        .items
        .iter()
        .map(|item| Pattern::new(&item.text))
        .collect()
}

pub(crate) fn versions(items: &Items, problems: &Collector) -> Vec<Pattern> {
    items.wildcard_alone("API versions", problems);
    for item in &items.items {
        if item.text.is_empty() || item.text.contains('/') {
            item.reject("an API version without its group, such as v1", problems);
        }
    }
    items
        .items
        .iter()
        .map(|item| Pattern::new(&item.text))
        .collect()
}

pub(crate) fn resources(items: &Items, problems: &Collector) -> Vec<ResourcePattern> {
    let mut patterns = Vec::with_capacity(items.items.len());
    for (index, item) in items.items.iter().enumerate() {
        let (resource, sub_resource) = match item.text.split_once('/') {
            Some((resource, sub_resource)) => (resource, Some(sub_resource)),
            None => (item.text.as_str(), None),
        };
        if !is_resource_name(resource) || !sub_resource.is_none_or(is_resource_name) {
            item.reject(
                "a resource in the plural and in lower case, such as pods, pods/status, pods/*, */scale, \"*\" or */*",
                problems,
            );
            continue;
        }
        if let Some(sub_resource) = sub_resource {
            // A wildcard covers what stands beside it; of two that are the same the second is too much.
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
            "*/* is all resources and subresources: leave out the others, or the */*",
        );
    }
    let plain = |item: &Item| item.text != "*" && !item.text.contains('/');
    if items.has("*") && items.items.iter().any(plain) {
        problems.add(
            items.path.clone(),
            "\"*\" is all resources: leave out those without a subresource, or the \"*\"",
        );
    }
    patterns
}

/// `*`, or a name that a resource can have.
fn is_resource_name(name: &str) -> bool {
    name == "*"
        || !name.is_empty()
            && name.bytes().all(|byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
            })
}
