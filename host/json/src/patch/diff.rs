//! Finds the difference between two documents, as the fewest and smallest operations that turn one into the other.
//!
//! The result has only `add`, `replace` and `remove`, in forms that strict RFC 6902 and kube-apiserver's library
//! apply alike:
//!
//! - Indexes are canonical (never `-`).
//! - Every parent exists and is a container.
//! - No operation removes or replaces something that does not exist, and none adds at the root.
//!
//! Further rules:
//!
//! - Equal places are not touched. The difference is made inside objects and arrays. An object replaces an object, or
//!   an array an array, only as the fallback below.
//! - Arrays are aligned: see [`align`].
//! - Operations on an array come from left to right, with a run of removals from last to first. Except for such
//!   removals, the path of an operation is also its place in the final document.
//! - `1` and `1.0` differ: a number is its text.
//!
//! **Bounds.** The time is linear in the size of the difference. Arrays take the time of Myers' algorithm, up to
//! about ten million comparisons. An array that needs more is replaced as a whole.
//!
//! Applying an array operation takes time in proportion to the array's length. If operations times length exceed
//! [`MAX_MOVES`], the container is replaced as a whole.

mod align;
mod fingerprint;
mod identity;

pub(super) use fingerprint::Fingerprints;
pub(super) use identity::{Identity, identity};

use std::borrow::Cow;

use align::{Step, align};

use super::Operation;
use crate::document::{Json, Object, Pointer, is_same_name};

/// Most elements that all insertions and removals in one container may move. Beyond that, the container is replaced.
/// 4 million moves take some 10 milliseconds in kube-apiserver, and are enough to change an array of 2,000
/// completely.
const MAX_MOVES: usize = 4_000_000;

/// Returns the operations that turn `original` into `target`. Empty if they are equal. The result is deterministic.
#[must_use]
pub fn diff(original: &Json, target: &Json) -> Vec<Operation> {
    let mut differ = Differ::default();
    differ.value(original, target);
    differ.operations
}

/// Like [`diff`], but gives up when it would look at more than about `most_values` values. The values in the operations
/// count, too.
#[must_use]
pub fn diff_within(original: &Json, target: &Json, most_values: usize) -> Option<Vec<Operation>> {
    let mut differ = Differ {
        fingerprints: Fingerprints::within(most_values),
        ..Differ::default()
    };
    differ.value(original, target);
    let has_ended = !differ.fingerprints.are_spent();
    has_ended.then_some(differ.operations)
}

#[derive(Default)]
struct Differ<'d> {
    path: Vec<Cow<'d, str>>,
    operations: Vec<Operation>,
    fingerprints: Fingerprints,
}

// === impl Differ ===

impl<'d> Differ<'d> {
    fn value(&mut self, before: &'d Json, after: &'d Json) {
        if before.is_same(after) || self.fingerprints.are_spent() {
            return;
        }
        match (before, after) {
            (Json::Object(before), Json::Object(members)) => {
                if self.fingerprints.spend(before.width() + members.width()) {
                    self.object(before, members, after);
                }
            }
            (Json::Array(before), Json::Array(elements)) => {
                if self.fingerprints.spend(before.len() + elements.len()) {
                    self.array(before, elements, after);
                }
            }
            (Json::Text(before), Json::Text(text)) if before == text => {}
            _ => self.replace(after),
        }
    }

    fn object(&mut self, before: &'d Object, after: &'d Object, whole: &Json) {
        if have_same_names(before, after) {
            for ((name, before), after) in before.iter().zip(after.values()) {
                if !before.is_same(after) {
                    self.at(Cow::Borrowed(name), |differ| differ.value(before, after));
                }
            }
            return;
        }
        let removed = before
            .keys()
            .filter(|name| !after.contains_key(&***name))
            .count();
        if removed.saturating_mul(before.len()) > MAX_MOVES {
            return self.replace(whole);
        }
        // Removals go from last to first: an object keeps its order, so a removal moves the members after it.
        for name in before
            .keys()
            .rev()
            .filter(|name| !after.contains_key(&***name))
        {
            self.at(Cow::Borrowed(name), Self::remove);
        }
        for (name, value) in after {
            self.at(Cow::Borrowed(name), |differ| match before.get(name) {
                Some(before) => differ.value(before, value),
                None => differ.add(value),
            });
        }
    }

    fn array(&mut self, before: &'d [Json], after: &'d [Json], whole: &Json) {
        // At least this many elements change, whatever the alignment is. If that is too many already, no alignment is
        // needed.
        let at_least = before.len().abs_diff(after.len());
        if at_least.saturating_mul(before.len().max(after.len())) > MAX_MOVES {
            return self.replace(whole);
        }
        let Some(steps) = align(before, after, &mut self.fingerprints) else {
            return self.replace(whole);
        };
        let moving = steps
            .iter()
            .filter(|step| matches!(step, Step::Remove | Step::Add))
            .count();
        if moving.saturating_mul(before.len().max(after.len())) > MAX_MOVES {
            return self.replace(whole);
        }
        let (mut old, mut new) = (0, 0);
        let mut steps = steps.into_iter().peekable();
        while let Some(step) = steps.next() {
            match step {
                Step::Keep => {
                    old += 1;
                    new += 1;
                }
                Step::Change => {
                    self.at(index(new), |differ| differ.value(&before[old], &after[new]));
                    old += 1;
                    new += 1;
                }
                Step::Add => {
                    self.at(index(new), |differ| differ.add(&after[new]));
                    new += 1;
                }
                Step::Remove => {
                    let mut run = 1;
                    while steps.next_if(|step| matches!(step, Step::Remove)).is_some() {
                        run += 1;
                    }
                    for position in (new..new + run).rev() {
                        self.at(index(position), Self::remove);
                    }
                    old += run;
                }
            }
        }
    }

    fn at(&mut self, token: Cow<'d, str>, inside: impl FnOnce(&mut Self)) {
        self.path.push(token);
        inside(self);
        self.path.pop();
    }

    fn here(&self) -> Pointer {
        Pointer::from_tokens(&self.path)
    }

    fn add(&mut self, value: &Json) {
        self.fingerprints.spend_whole(value);
        let path = self.here();
        self.operations.push(Operation::Add {
            path,
            value: value.clone(),
        });
    }

    fn replace(&mut self, value: &Json) {
        self.fingerprints.spend_whole(value);
        let path = self.here();
        self.operations.push(Operation::Replace {
            path,
            value: value.clone(),
        });
    }

    fn remove(&mut self) {
        let path = self.here();
        self.operations.push(Operation::Remove { path });
    }
}

/// Whether both have the same names in the same order. Nearly all patches change values alone, and then no name has to be looked
/// up.
fn have_same_names(left: &Object, right: &Object) -> bool {
    let mut names = left.keys().zip(right.keys());
    left.len() == right.len() && names.all(|(left, right)| is_same_name(left, right))
}

fn index(position: usize) -> Cow<'static, str> {
    Cow::Owned(position.to_string())
}
