//! Applies RFC 6902 patches strictly, all or nothing, within limits.
//!
//! The patch comes from a plugin that may be broken or hostile. This code runs outside the sandbox, where neither
//! fuel nor epochs stop it. Therefore everything is counted: the depth, the size of the added values, and the steps.

mod error;

pub use error::{ApplyError, ApplyErrorKind};

use std::borrow::Cow;
use std::sync::Arc;

use super::Operation;
use super::measure::{Size, measure};
use crate::document::{Account, ArrayIndex, Json, Level, Object, Pointer, array_index, room};

/// Limits on what a patch may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApplyLimits {
    /// Most levels of nested containers in the result.
    pub max_depth: u32,
    /// Most values that `add`, `replace` and `copy` put in, all together, even if a later operation removes them
    /// again. The result has at most this many values more than the document had.
    pub max_added_nodes: usize,
    /// Most bytes in those values, before escaping.
    pub max_added_bytes: usize,
    /// Most steps, of a few nanoseconds each. A step is a path token walked, an array element or a member moved or
    /// copied, or a value measured or compared.
    pub max_steps: usize,
}

/// Applies operations one by one and counts their cost.
pub(super) struct Applier {
    limits: ApplyLimits,
    memory: Account,
    nodes: usize,
    bytes: usize,
    steps: usize,
}

/// The place that a path leads to.
enum Place<'d, 'p> {
    Root(&'d mut Json),
    In(&'d mut Json, Cow<'p, str>),
}

/// Applies all operations, as defined by RFC 6902, and returns the result. `document` stays unchanged.
///
/// Parts that the patch does not change stay shared with `document`. Where RFC 6902 leaves a choice: the root can be
/// replaced, also by `add`, but not removed.
///
/// # Errors
/// Names the first operation that does not apply, and the reason.
pub fn apply(
    document: &Json,
    operations: &[Operation],
    limits: &ApplyLimits,
) -> Result<Json, ApplyError> {
    apply_within(document, operations, limits, &Account::unlimited())
}

/// Like [`apply`], but charges an account for every container that is copied.
///
/// # Errors
/// Names the first operation that does not apply, and the reason.
pub fn apply_within(
    document: &Json,
    operations: &[Operation],
    limits: &ApplyLimits,
    memory: &Account,
) -> Result<Json, ApplyError> {
    let mut result = document.clone();
    let mut applier = Applier {
        memory: memory.clone(),
        ..Applier::new(*limits)
    };
    for (index, operation) in operations.iter().enumerate() {
        applier
            .operation(&mut result, operation)
            .map_err(|kind| ApplyError {
                index,
                operation: operation.name(),
                path: operation.path().clone(),
                kind,
            })?;
    }
    Ok(result)
}

// === impl ApplyLimits ===

impl ApplyLimits {
    /// For operations that the host wrote itself.
    pub(super) const NONE: Self = Self {
        max_depth: u32::MAX,
        max_added_nodes: usize::MAX,
        max_added_bytes: usize::MAX,
        max_steps: usize::MAX,
    };
}

impl Default for ApplyLimits {
    /// Allows 256 levels, a million values, 16 MiB and 32 million steps. These bytes are five times the largest
    /// object that kube-apiserver takes, and these steps take a tenth of a second.
    fn default() -> Self {
        Self {
            max_depth: 256,
            max_added_nodes: 1_000_000,
            max_added_bytes: 16 * 1024 * 1024,
            max_steps: 32_000_000,
        }
    }
}

// === impl Applier ===

impl Applier {
    pub(super) fn new(limits: ApplyLimits) -> Self {
        Self {
            limits,
            memory: Account::unlimited(),
            nodes: 0,
            bytes: 0,
            steps: 0,
        }
    }

    /// Applies one operation in place, and returns the value that it removed or replaced. After an error the document
    /// is only partly changed and must be dropped.
    pub(super) fn operation(
        &mut self,
        document: &mut Json,
        operation: &Operation,
    ) -> Result<Option<Json>, ApplyErrorKind> {
        match operation {
            Operation::Add { path, value } => {
                self.put_in(path, value)?;
                self.add(document, path, value.clone())
            }
            Operation::Remove { path } => self.remove(document, path).map(Some),
            Operation::Replace { path, value } => {
                self.put_in(path, value)?;
                self.replace(document, path, value.clone()).map(Some)
            }
            Operation::Move { from, path } => {
                if from == path {
                    return self.find(document, from).map(|_| None);
                }
                if from.is_prefix_of(path) {
                    return Err(ApplyErrorKind::MoveIntoOwnChild { from: from.clone() });
                }
                let value = self.remove(document, from)?;
                if path.tokens().count() > from.tokens().count() {
                    let size = self.measure(&value)?;
                    self.check_depth(path, size.depth)?;
                }
                self.add(document, path, value)
            }
            Operation::Copy { from, path } => {
                let value = self.find(document, from)?.clone();
                self.put_in(path, &value)?;
                self.add(document, path, value)
            }
            Operation::Test { path, value } => {
                let found = self.find(document, path)?.clone();
                self.count_comparison(&found, value)?;
                if found.equivalent(value) {
                    Ok(None)
                } else {
                    Err(ApplyErrorKind::TestFailed)
                }
            }
        }
    }

    fn step(&mut self, steps: usize) -> Result<(), ApplyErrorKind> {
        self.steps = self.steps.saturating_add(steps);
        let max_steps = self.limits.max_steps;
        if self.steps > max_steps {
            Err(ApplyErrorKind::TooManySteps { max_steps })
        } else {
            Ok(())
        }
    }

    /// Measures a value, in a step for each value inside.
    fn measure(&mut self, value: &Json) -> Result<Size, ApplyErrorKind> {
        let left = self.limits.max_steps.saturating_sub(self.steps);
        let (size, visited) = measure(value, left);
        self.step(visited)?;
        Ok(size)
    }

    fn put_in(&mut self, path: &Pointer, value: &Json) -> Result<(), ApplyErrorKind> {
        let size = self.measure(value)?;
        self.check_depth(path, size.depth)?;
        self.nodes = self.nodes.saturating_add(size.nodes);
        self.bytes = self.bytes.saturating_add(size.bytes);
        let ApplyLimits {
            max_added_nodes,
            max_added_bytes,
            ..
        } = self.limits;
        if self.nodes > max_added_nodes {
            return Err(ApplyErrorKind::TooManyNodes { max_added_nodes });
        }
        if self.bytes > max_added_bytes {
            return Err(ApplyErrorKind::TooManyBytes { max_added_bytes });
        }
        Ok(())
    }

    fn count_comparison(&mut self, found: &Json, expected: &Json) -> Result<(), ApplyErrorKind> {
        if matches!(expected, Json::Number(_) | Json::Array(_) | Json::Object(_)) {
            // Numbers are compared digit by digit, and a number can have a million digits.
            for value in [found, expected] {
                let size = self.measure(value)?;
                self.step(size.bytes / 16)?;
            }
        }
        Ok(())
    }

    fn check_depth(&self, path: &Pointer, depth: u32) -> Result<(), ApplyErrorKind> {
        let above = u32::try_from(path.tokens().count()).unwrap_or(u32::MAX);
        let max_depth = self.limits.max_depth;
        // A scalar adds no level of its own, because the container that it stands in is already there.
        if depth > 0 && above.saturating_add(depth) > max_depth {
            return Err(ApplyErrorKind::TooDeep { max_depth });
        }
        Ok(())
    }

    fn add(
        &mut self,
        document: &mut Json,
        path: &Pointer,
        value: Json,
    ) -> Result<Option<Json>, ApplyErrorKind> {
        let (parent, token) = match self.place(document, path)? {
            Place::Root(root) => return Ok(Some(std::mem::replace(root, value))),
            Place::In(parent, token) => (parent, token),
        };
        match parent {
            Json::Object(members) => Ok(self.members(members)?.insert(Arc::from(&*token), value)),
            Json::Array(elements) => {
                let length = elements.len();
                let index = match array_index(&token) {
                    Some(ArrayIndex::End) => length,
                    Some(ArrayIndex::At(index)) if index <= length => index,
                    Some(ArrayIndex::At(_)) => {
                        return Err(ApplyErrorKind::IndexOutOfBounds {
                            array: above(path),
                            length,
                        });
                    }
                    None => return Err(ApplyErrorKind::NotAnIndex { array: above(path) }),
                };
                self.step(length - index)?;
                self.elements(elements)?.insert(index, value);
                Ok(None)
            }
            other => Err(ApplyErrorKind::NotAContainer {
                at: above(path),
                found: other.type_name(),
            }),
        }
    }

    fn remove(&mut self, document: &mut Json, path: &Pointer) -> Result<Json, ApplyErrorKind> {
        let (parent, token) = match self.place(document, path)? {
            Place::Root(_) => return Err(ApplyErrorKind::RemoveRoot),
            Place::In(parent, token) => (parent, token),
        };
        match parent {
            Json::Object(members) => {
                let missing = || ApplyErrorKind::MemberMissing(path.clone());
                let index = members.get_index_of(&*token).ok_or_else(missing)?;
                self.step(members.len() - index)?;
                let removed = self.members(members)?.shift_remove_index(index);
                removed.map(|(_, value)| value).ok_or_else(missing)
            }
            Json::Array(elements) => {
                let index = existing_index(elements.len(), &token, || above(path))?;
                self.step(elements.len() - index)?;
                Ok(self.elements(elements)?.remove(index))
            }
            other => Err(ApplyErrorKind::NotAContainer {
                at: above(path),
                found: other.type_name(),
            }),
        }
    }

    fn replace(
        &mut self,
        document: &mut Json,
        path: &Pointer,
        value: Json,
    ) -> Result<Json, ApplyErrorKind> {
        let place = match self.place(document, path)? {
            Place::Root(root) => root,
            Place::In(parent, token) => self.child(parent, &token, || above(path))?,
        };
        Ok(std::mem::replace(place, value))
    }

    /// Walks to the container in which a path's last token names a place.
    fn place<'d, 'p>(
        &mut self,
        document: &'d mut Json,
        path: &'p Pointer,
    ) -> Result<Place<'d, 'p>, ApplyErrorKind> {
        let mut tokens = path.tokens();
        let Some(mut token) = tokens.next() else {
            return Ok(Place::Root(document));
        };
        let mut here = document;
        for (depth, next) in tokens.enumerate() {
            here = self
                .child(here, &token, || prefix(path, depth))
                .map_err(|kind| match kind {
                    ApplyErrorKind::MemberMissing(_) | ApplyErrorKind::IndexOutOfBounds { .. } => {
                        ApplyErrorKind::ParentMissing(prefix(path, depth + 1))
                    }
                    other => other,
                })?;
            token = next;
        }
        Ok(Place::In(here, token))
    }

    /// Returns the value at a path, for reading.
    fn find<'d>(&mut self, document: &'d Json, path: &Pointer) -> Result<&'d Json, ApplyErrorKind> {
        let mut here = document;
        let last = path.tokens().count();
        for (depth, token) in path.tokens().enumerate() {
            self.step(1)?;
            here = match here {
                Json::Object(members) => members.get(&*token).ok_or_else(|| {
                    let missing = prefix(path, depth + 1);
                    if depth + 1 == last {
                        ApplyErrorKind::MemberMissing(missing)
                    } else {
                        ApplyErrorKind::ParentMissing(missing)
                    }
                })?,
                Json::Array(elements) => {
                    &elements[existing_index(elements.len(), &token, || prefix(path, depth))?]
                }
                other => {
                    let found = other.type_name();
                    return Err(ApplyErrorKind::NotAContainer {
                        at: prefix(path, depth),
                        found,
                    });
                }
            };
        }
        Ok(here)
    }

    fn child<'d>(
        &mut self,
        container: &'d mut Json,
        token: &str,
        at: impl Fn() -> Pointer,
    ) -> Result<&'d mut Json, ApplyErrorKind> {
        self.step(1)?;
        match container {
            Json::Object(members) => {
                let Some(index) = members.get_index_of(token) else {
                    return Err(ApplyErrorKind::MemberMissing(at().child(token)));
                };
                Ok(&mut self.members(members)?[index])
            }
            Json::Array(elements) => {
                let index = existing_index(elements.len(), token, &at)?;
                Ok(&mut self.elements(elements)?[index])
            }
            other => Err(ApplyErrorKind::NotAContainer {
                at: at(),
                found: other.type_name(),
            }),
        }
    }

    /// Returns the members for changing. If they are shared, they are copied first.
    fn members<'d>(
        &mut self,
        members: &'d mut Arc<Level<Object>>,
    ) -> Result<&'d mut Object, ApplyErrorKind> {
        if Arc::strong_count(members) > 1 {
            self.step(members.len())?;
            self.copies(room::object(with_growth(members.len())))?;
        }
        Ok(&mut *Arc::make_mut(members))
    }

    fn elements<'d>(
        &mut self,
        elements: &'d mut Arc<Level<Vec<Json>>>,
    ) -> Result<&'d mut Vec<Json>, ApplyErrorKind> {
        if Arc::strong_count(elements) > 1 {
            self.step(elements.len())?;
            self.copies(room::array(with_growth(elements.len())))?;
        }
        Ok(&mut *Arc::make_mut(elements))
    }

    fn copies(&self, bytes: u64) -> Result<(), ApplyErrorKind> {
        self.memory.take(bytes).map_err(ApplyErrorKind::NoRoom)
    }
}

/// Returns the capacity that a container of `length` may have after it was copied and something was added.
fn with_growth(length: usize) -> usize {
    2 * length + 4
}

fn existing_index(
    length: usize,
    token: &str,
    array: impl Fn() -> Pointer,
) -> Result<usize, ApplyErrorKind> {
    match array_index(token) {
        Some(ArrayIndex::At(index)) if index < length => Ok(index),
        Some(_) => Err(ApplyErrorKind::IndexOutOfBounds {
            array: array(),
            length,
        }),
        None => Err(ApplyErrorKind::NotAnIndex { array: array() }),
    }
}

/// Returns the first tokens of a path, as a pointer.
fn prefix(path: &Pointer, tokens: usize) -> Pointer {
    Pointer::from_tokens(path.tokens().take(tokens))
}

/// Returns the container in which a path's last token is looked up.
fn above(path: &Pointer) -> Pointer {
    path.split_last()
        .map_or_else(Pointer::root, |(parent, _)| parent)
}

#[cfg(test)]
mod tests;
