//! Computes the union of rules: it matches exactly what any of the rules matches, with as few rules as this method
//! finds.
//!
//! A rule is a product of sets. The method has three steps:
//!
//! - A rule that another rule covers is removed.
//! - Two rules that differ in only one set are joined. The joined rule has the union of that set, and matches exactly
//!   what both rules matched.
//! - An element is removed from a rule if another rule already covers it.
//!
//! No other rules are joined, because the result would match more.

use serde::Serialize;
use tollgate_admission::review::request::Operation;
use tollgate_config::{Operations, Pattern, ResourcePattern, Rule, Scope};

const OPERATIONS: [Operation; 4] = [
    Operation::Create,
    Operation::Update,
    Operation::Delete,
    Operation::Connect,
];

/// Kubernetes' RuleWithOperations.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RegisteredRule {
    operations: Vec<&'static str>,
    api_groups: Vec<String>,
    api_versions: Vec<String>,
    resources: Vec<String>,
    scope: &'static str,
}

/// The sets of one rule. No element covers another element of the same set.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Product {
    operations: Vec<&'static str>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<(String, String)>,
    scope: Scope,
}

/// Returns the union of the rules.
pub(super) fn union<'a>(rules: impl Iterator<Item = &'a Rule>) -> Vec<RegisteredRule> {
    let mut products: Vec<Product> = rules.map(Product::of).collect();
    while reduce(&mut products) || trim(&mut products) {}
    products.into_iter().map(Product::registered).collect()
}

/// Removes one product if another one covers it or can be joined with it. Returns false if there is none.
fn reduce(products: &mut Vec<Product>) -> bool {
    for first in 0..products.len() {
        for second in 0..products.len() {
            if first == second {
                continue;
            }
            if products[first].covers(&products[second]) {
                products.remove(second);
                return true;
            }
            if let Some(joined) = products[first].joined(&products[second]) {
                // The joined product takes the earlier place of the two.
                products[first.min(second)] = joined;
                products.remove(first.max(second));
                return true;
            }
        }
    }
    false
}

/// Removes one element from a set of a product if another product covers it. Returns false if there is none.
fn trim(products: &mut [Product]) -> bool {
    for index in 0..products.len() {
        for (slice, rest) in products[index].slices() {
            let repeated =
                |(other, product): (usize, &Product)| other != index && product.covers(&slice);
            if products.iter().enumerate().any(repeated) {
                products[index] = rest;
                return true;
            }
        }
    }
    false
}

// === impl RegisteredRule ===

impl RegisteredRule {
    /// Returns whether the rule can match a resource of a group, or one of its subresources.
    pub(super) fn can_match(&self, group: &str, resource: &str) -> bool {
        let in_group = |name: &String| name == "*" || name == group;
        let of_resource = |pattern: &String| {
            let name = pattern.split('/').next().unwrap_or_default();
            name == "*" || resource == "*" || name == resource
        };
        self.api_groups.iter().any(in_group) && self.resources.iter().any(of_resource)
    }
}

// === impl Product ===

impl Product {
    fn of(rule: &Rule) -> Self {
        let operations = OPERATIONS
            .into_iter()
            .filter(|operation| rule.operations.contains(*operation))
            .map(Operation::as_str)
            .collect();
        let resource =
            |pattern: &ResourcePattern| (text(&pattern.resource), text(&pattern.sub_resource));
        Self {
            operations: if rule.operations == Operations::ALL {
                vec!["*"]
            } else {
                operations
            },
            groups: names(rule.api_groups.iter().map(text).collect()),
            versions: names(rule.api_versions.iter().map(text).collect()),
            resources: resources(rule.resources.iter().map(resource).collect()),
            scope: rule.scope,
        }
    }

    fn covers(&self, other: &Self) -> bool {
        let resource = |inner| self.resources.iter().any(|outer| covers(outer, inner));
        all_in(&other.operations, &self.operations)
            && all_in(&other.groups, &self.groups)
            && all_in(&other.versions, &self.versions)
            && other.resources.iter().all(resource)
            && (self.scope == Scope::All || self.scope == other.scope)
    }

    /// Joins two products that differ in only one set.
    fn joined(&self, other: &Self) -> Option<Self> {
        let same = [
            self.operations == other.operations,
            self.groups == other.groups,
            self.versions == other.versions,
            self.resources == other.resources,
            self.scope == other.scope,
        ];
        if same.into_iter().filter(|same| !same).count() != 1 {
            return None;
        }
        Some(Self {
            operations: operations(concatenated(&self.operations, &other.operations)),
            groups: names(concatenated(&self.groups, &other.groups)),
            versions: names(concatenated(&self.versions, &other.versions)),
            resources: resources(concatenated(&self.resources, &other.resources)),
            scope: if self.scope == other.scope {
                self.scope
            } else {
                Scope::All
            },
        })
    }

    /// Lists the ways to split the product at one set: the product with one element, and the product with the other
    /// elements.
    fn slices(&self) -> Vec<(Self, Self)> {
        let mut slices = Vec::new();
        let mut slice = |one: Self, rest: Self| slices.push((one, rest));
        for (operations, rest) in split(&self.operations) {
            let with = |operations| Self {
                operations,
                ..self.clone()
            };
            slice(with(operations), with(rest));
        }
        for (groups, rest) in split(&self.groups) {
            let with = |groups| Self {
                groups,
                ..self.clone()
            };
            slice(with(groups), with(rest));
        }
        for (versions, rest) in split(&self.versions) {
            let with = |versions| Self {
                versions,
                ..self.clone()
            };
            slice(with(versions), with(rest));
        }
        for (resources, rest) in split(&self.resources) {
            let with = |resources| Self {
                resources,
                ..self.clone()
            };
            slice(with(resources), with(rest));
        }
        slices
    }

    fn registered(self) -> RegisteredRule {
        let resource = |(resource, sub_resource): (String, String)| {
            if sub_resource.is_empty() {
                resource
            } else {
                format!("{resource}/{sub_resource}")
            }
        };
        RegisteredRule {
            operations: self.operations,
            api_groups: self.groups,
            api_versions: self.versions,
            resources: self.resources.into_iter().map(resource).collect(),
            scope: match self.scope {
                Scope::All => "*",
                Scope::Cluster => "Cluster",
                Scope::Namespaced => "Namespaced",
            },
        }
    }
}

fn text(pattern: &Pattern) -> String {
    match pattern {
        Pattern::Any => "*".to_owned(),
        Pattern::Exactly(name) => name.to_string(),
    }
}

fn all_in<T: PartialEq + AsRef<str>>(inner: &[T], outer: &[T]) -> bool {
    outer.iter().any(|name| name.as_ref() == "*") || inner.iter().all(|name| outer.contains(name))
}

/// Returns whether `outer` matches all that `inner` matches. The empty subresource is the resource itself. `/*` matches
/// it too.
fn covers(outer: &(String, String), inner: &(String, String)) -> bool {
    (outer.0 == "*" || outer.0 == inner.0) && (outer.1 == "*" || outer.1 == inner.1)
}

/// Lists each element with the remaining elements. A set with one element gives an empty list.
fn split<T: Clone>(set: &[T]) -> Vec<(Vec<T>, Vec<T>)> {
    if set.len() < 2 {
        return Vec::new();
    }
    let without = |index: usize| [&set[..index], &set[index + 1..]].concat();
    let one = |(index, element): (usize, &T)| (vec![element.clone()], without(index));
    set.iter().enumerate().map(one).collect()
}

fn concatenated<T: Clone>(first: &[T], second: &[T]) -> Vec<T> {
    first.iter().chain(second).cloned().collect()
}

/// Sorts operations in Kubernetes' order. All operations become `*`.
fn operations(given: Vec<&'static str>) -> Vec<&'static str> {
    let of_all = OPERATIONS.map(Operation::as_str);
    let present: Vec<_> = of_all
        .into_iter()
        .filter(|name| given.contains(name))
        .collect();
    if given.contains(&"*") || present.len() == of_all.len() {
        vec!["*"]
    } else {
        present
    }
}

fn names(mut names: Vec<String>) -> Vec<String> {
    if names.iter().any(|name| name == "*") {
        return vec!["*".to_owned()];
    }
    names.sort_unstable();
    names.dedup();
    names
}

fn resources(mut resources: Vec<(String, String)>) -> Vec<(String, String)> {
    resources.sort_unstable();
    resources.dedup();
    let all = resources.clone();
    resources.retain(|one| !all.iter().any(|other| other != one && covers(other, one)));
    resources
}
