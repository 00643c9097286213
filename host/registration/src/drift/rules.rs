//! Compares two lists of webhook rules by the requests that they match.
//!
//! A rule is a product of five sets. The comparison takes the products apart: an atom has one operation, group,
//! version, resource and scope, each of which may be a wildcard. One list is too wide by the atoms that no atom of the
//! other list covers.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::live::{list, texts};

const OPERATIONS: [&str; 4] = ["CREATE", "UPDATE", "DELETE", "CONNECT"];

const SCOPES: [&str; 2] = ["Cluster", "Namespaced"];

/// One element of each set of a rule.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Atom<'r> {
    operation: &'r str,
    group: &'r str,
    version: &'r str,
    resource: &'r str,
    sub_resource: &'r str,
    scope: &'r str,
}

/// Returns the requests that only the registered rules match, and those that only the configured rules match.
pub(super) fn differences(configured: &Value, registered: &Value) -> (Vec<String>, Vec<String>) {
    let (configured, registered) = (atoms(configured), atoms(registered));
    (
        uncovered(&registered, &configured),
        uncovered(&configured, &registered),
    )
}

fn atoms(rules: &Value) -> BTreeSet<Atom<'_>> {
    let mut atoms = BTreeSet::new();
    for rule in list(rules) {
        let operations = texts(&rule["operations"]);
        let operations = if operations.contains(&"*") {
            OPERATIONS.to_vec()
        } else {
            operations
        };
        let scopes = match rule["scope"].as_str().unwrap_or("*") {
            "*" => SCOPES.to_vec(),
            scope => vec![scope],
        };
        for operation in operations {
            for group in texts(&rule["apiGroups"]) {
                for version in texts(&rule["apiVersions"]) {
                    for resource in texts(&rule["resources"]) {
                        let (resource, sub_resource) =
                            resource.split_once('/').unwrap_or((resource, ""));
                        atoms.extend(scopes.iter().map(|&scope| Atom {
                            operation,
                            group,
                            version,
                            resource,
                            sub_resource,
                            scope,
                        }));
                    }
                }
            }
        }
    }
    atoms
}

/// Describes the atoms that `others` do not cover. Atoms that differ in the operation alone share a line, and so do both
/// scopes with the same operations.
fn uncovered(atoms: &BTreeSet<Atom<'_>>, others: &BTreeSet<Atom<'_>>) -> Vec<String> {
    let uncovered: Vec<&Atom<'_>> = atoms
        .iter()
        .filter(|atom| !others.iter().any(|other| other.covers(atom)))
        .collect();
    let places: BTreeSet<String> = uncovered.iter().map(|atom| atom.place()).collect();
    let mut lines = Vec::new();
    for place in places {
        let here: Vec<_> = uncovered
            .iter()
            .filter(|atom| atom.place() == place)
            .collect();
        let mut groups: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
        for scope in SCOPES {
            let is_here = |name: &&str| {
                let mut atoms = here.iter();
                atoms.any(|atom| atom.scope == scope && atom.operation == *name)
            };
            let operations: Vec<&str> = OPERATIONS.into_iter().filter(is_here).collect();
            let mut same = groups.iter_mut().filter(|(of, _)| *of == operations);
            if let Some((_, scopes)) = same.next() {
                scopes.push(scope);
            } else if !operations.is_empty() {
                groups.push((operations, vec![scope]));
            }
        }
        lines.extend(groups.into_iter().map(|(operations, scopes)| {
            let scope = match scopes.as_slice() {
                [one] => format!(" ({one})"),
                _ => String::new(),
            };
            format!("{} {place}{scope}", operations.join(" "))
        }));
    }
    lines
}

// === impl Atom ===

impl Atom<'_> {
    fn covers(&self, other: &Self) -> bool {
        let any = |one: &str, other: &str| one == "*" || one == other;
        self.operation == other.operation
            && self.scope == other.scope
            && any(self.group, other.group)
            && any(self.version, other.version)
            && any(self.resource, other.resource)
            && any(self.sub_resource, other.sub_resource)
    }

    fn place(&self) -> String {
        let group = if self.group.is_empty() {
            "core"
        } else {
            self.group
        };
        let separator = if self.sub_resource.is_empty() {
            ""
        } else {
            "/"
        };
        format!(
            "{group}/{} {}{separator}{}",
            self.version, self.resource, self.sub_resource
        )
    }
}
