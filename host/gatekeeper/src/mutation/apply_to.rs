//! The kinds and operations that a mutator applies to.

use serde::Deserialize;

use super::Request;
use super::mutator::Kind;
use crate::{Pointer, Problems};

/// The operation of requests that a mutator changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
enum Operation {
    /// Requests that create an object.
    #[serde(rename = "CREATE")]
    Create,
    /// Requests that change an object.
    #[serde(rename = "UPDATE")]
    Update,
    /// Both operations.
    #[serde(rename = "*")]
    All,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ApplyTo {
    groups: Vec<String>,
    versions: Vec<String>,
    kinds: Vec<String>,
    operations: Vec<Operation>,
}

/// Refuses kinds that a mutator cannot have.
pub(super) fn check_kinds(
    kind: Kind,
    applies_to: &[ApplyTo],
    at: &Pointer,
    problems: &mut Problems,
) {
    if kind == Kind::AssignMetadata {
        if !applies_to.is_empty() {
            problems.at(at.clone(), "an AssignMetadata has none");
        }
        return;
    }
    if applies_to.is_empty() {
        problems.at(at.clone(), "is required");
    }
    for (index, one) in applies_to.iter().enumerate() {
        if one.groups.is_empty() || one.versions.is_empty() || one.kinds.is_empty() {
            let message = "groups, versions and kinds are required";
            problems.at(at.child(index), message);
        }
    }
}

// === impl ApplyTo ===

impl ApplyTo {
    /// Whether a request is about one of the kinds.
    pub(super) fn covers(&self, request: Request<'_>) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|one| one == wanted);
        let operation = match request.operation {
            "CREATE" => Operation::Create,
            "UPDATE" => Operation::Update,
            _ => return false,
        };
        has(&self.groups, request.group)
            && has(&self.versions, request.version)
            && has(&self.kinds, request.kind)
            && self.has(operation)
    }

    fn has(&self, operation: Operation) -> bool {
        let operations = &self.operations;
        operations.is_empty()
            || operations.contains(&Operation::All)
            || operations.contains(&operation)
    }

    /// Whether both apply to a kind and an operation.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let share = |one: &[String], two: &[String]| one.iter().any(|name| two.contains(name));
        let operations = [Operation::Create, Operation::Update];
        share(&self.groups, &other.groups)
            && share(&self.versions, &other.versions)
            && share(&self.kinds, &other.kinds)
            && operations
                .iter()
                .any(|one| self.has(*one) && other.has(*one))
    }
}
