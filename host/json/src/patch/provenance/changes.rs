//! Operations, with the details that depend on the document.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::document::{ArrayIndex, Json, Pointer, array_index};
use crate::patch::Operation;
use crate::patch::apply::{Applier, ApplyLimits};
use crate::patch::diff::{Fingerprints, identity};

/// A path token, with the type of the container that it is looked up in.
#[derive(Clone, Debug)]
pub(super) enum Token {
    Member(Arc<str>),
    Element(usize),
}

/// The features by which an array element is recognised when it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recognition {
    value: u64,
    identity: Option<u64>,
}

/// The effect of an operation on a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Add,
    Replace,
    Remove,
}

/// One operation, with its details.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) tokens: Vec<Token>,
    pub(super) kind: Kind,
    /// The array element that is added.
    pub(super) comes: Option<Recognition>,
    /// The array element that is removed or replaced.
    pub(super) goes: Option<Recognition>,
    /// The index of the operation that removes or adds the same element. The two are a move within the array.
    pub(super) moved: Option<usize>,
}

/// The operations of one mutation.
#[derive(Debug)]
pub(super) struct Changes<'c> {
    operations: &'c [Operation],
    changes: Vec<Change>,
    state: &'c RandomState,
}

// === impl Changes ===

impl<'c> Changes<'c> {
    pub(super) fn resolve(
        before: &Json,
        operations: &'c [Operation],
        state: &'c RandomState,
    ) -> Self {
        let mut document = before.clone();
        let mut applier = Applier::new(ApplyLimits::NONE);
        let mut changes = Vec::with_capacity(operations.len());
        for (index, operation) in operations.iter().enumerate() {
            let Some(tokens) = tokens(&document, operation.path()) else {
                break;
            };
            // Nobody reads the document after the last operation.
            let is_last = index + 1 == operations.len();
            let known = is_last
                .then(|| displaced_by(operation, &document))
                .flatten();
            let displaced = match known {
                Some(displaced) => displaced.cloned(),
                None => match applier.operation(&mut document, operation) {
                    Ok(displaced) => displaced,
                    Err(_) => break,
                },
            };
            let kind = match operation {
                Operation::Add { .. } if displaced.is_none() => Kind::Add,
                Operation::Add { .. } | Operation::Replace { .. } => Kind::Replace,
                Operation::Remove { .. } => Kind::Remove,
                Operation::Move { .. } | Operation::Copy { .. } | Operation::Test { .. } => break,
            };
            let in_array = matches!(tokens.last(), Some(Token::Element(_)));
            let recognition = |element| Recognition::of(element, state);
            let comes = operation.value().filter(|_| in_array).map(recognition);
            let goes = displaced.as_ref().filter(|_| in_array).map(recognition);
            changes.push(Change {
                tokens,
                kind,
                comes,
                goes,
                moved: None,
            });
        }
        let mut resolved = Self {
            operations,
            changes,
            state,
        };
        resolved.find_moves();
        resolved
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    pub(super) fn get(&self, index: usize) -> &Change {
        &self.changes[index]
    }

    pub(super) fn path(&self, index: usize) -> &'c Pointer {
        self.operations[index].path()
    }

    pub(super) fn value(&self, index: usize) -> Option<&'c Json> {
        self.operations[index].value()
    }

    pub(super) fn state(&self) -> &'c RandomState {
        self.state
    }

    /// Pairs equal elements that are added and removed in the same array.
    fn find_moves(&mut self) {
        let mut coming: HashMap<(Pointer, u64), Vec<usize>, RandomState> = HashMap::default();
        let mut going = Vec::new();
        for (index, change) in self.changes.iter().enumerate() {
            let Some((array, _)) = self.operations[index].path().split_last() else {
                continue;
            };
            match (change.comes, change.goes) {
                (Some(element), None) => coming
                    .entry((array, element.value))
                    .or_default()
                    .push(index),
                (None, Some(element)) => going.push((index, (array, element.value))),
                _ => {}
            }
        }
        for (from, key) in going {
            if let Some(to) = coming.get_mut(&key).and_then(Vec::pop) {
                self.changes[from].moved = Some(to);
                self.changes[to].moved = Some(from);
            }
        }
    }
}

// === impl Recognition ===

impl Recognition {
    pub(super) fn of(element: &Json, state: &RandomState) -> Self {
        use std::hash::BuildHasher as _;
        Self {
            // Each element gets a new cache, because some elements are gone before the next one is hashed.
            value: Fingerprints::seeded(state).of(element),
            identity: identity(element).map(|identity| state.hash_one(identity)),
        }
    }

    /// Whether both are the same element, perhaps changed.
    pub(super) fn matches(self, other: Self) -> bool {
        self.value == other.value || (self.identity.is_some() && self.identity == other.identity)
    }
}

/// Returns the value that an operation removes or replaces, which is none for a new member. Returns nothing for an operation
/// that has to be applied to find out, or that does not apply.
fn displaced_by<'d>(operation: &Operation, document: &'d Json) -> Option<Option<&'d Json>> {
    let (container, token) = operation.path().split_last()?;
    let container = document.lookup(&container)?;
    match (operation, container) {
        (Operation::Replace { .. } | Operation::Remove { .. }, _) => {
            container.child(&token).map(Some)
        }
        (Operation::Add { .. }, Json::Object(members)) => Some(members.get(&*token)),
        _ => None,
    }
}

fn tokens(document: &Json, path: &Pointer) -> Option<Vec<Token>> {
    let mut here = Some(document);
    path.tokens()
        .map(|token| {
            let container = here?;
            here = container.child(&token);
            match container {
                Json::Object(_) => Some(Token::Member(Arc::from(&*token))),
                Json::Array(elements) => match array_index(&token)? {
                    ArrayIndex::At(index) => Some(Token::Element(index)),
                    ArrayIndex::End => Some(Token::Element(elements.len())),
                },
                _ => None,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operation_displaces_is_what_applying_it_displaces() {
        let document = Json::from(serde_json::json!({
            "a": {"b": [1, {"c": 2}], "": null}, "d": [], "e/f": "x", "0": "y",
        }));
        let mut known = 0;
        for path in [
            "", "/a", "/a/", "/a/b", "/a/b/0", "/a/b/1", "/a/b/1/c", "/a/b/1/x", "/a/b/2",
            "/a/b/3", "/a/b/-", "/a/b/01", "/a/b/x", "/a/x", "/a/x/y", "/d/0", "/d/-", "/e~1f",
            "/e~1f/x", "/0", "/x", "/x/y",
        ] {
            let path = || Pointer::parse(path).unwrap();
            let value = Json::text("new");
            for operation in [
                Operation::Add {
                    path: path(),
                    value: value.clone(),
                },
                Operation::Replace {
                    path: path(),
                    value,
                },
                Operation::Remove { path: path() },
            ] {
                let Some(displaced) = displaced_by(&operation, &document) else {
                    continue;
                };
                known += 1;
                let mut changed = document.clone();
                let applied = Applier::new(ApplyLimits::NONE).operation(&mut changed, &operation);
                assert_eq!(applied.ok(), Some(displaced.cloned()), "{operation:?}");
            }
        }
        assert_eq!(known, 25);
    }
}
