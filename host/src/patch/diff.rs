//! The difference between two documents, as the fewest and smallest operations that make one of the other.
//!
//! Only `add`, `replace` and `remove`, and only forms that strict RFC 6902 and kube-apiserver's library apply
//! alike: canonical indices (never `-`), every parent there and a container, nothing removed or replaced that
//! does not exist, nothing added at the root.
//!
//! - Equal places are not touched. An object is never replaced by an object nor an array by an array, save for
//!   the fallback below: the difference is made inside them.
//! - Arrays are aligned: see [`align`].
//! - Operations come in the order of the arrays they are about, left to right, with a run of removals last to
//!   first. So the path of every operation but such a removal is also its place in the final document.
//! - `1` and `1.0` differ: a number is its text.
//!
//! **Bounds.** Time is linear in what differs, save for arrays, where it is that of Myers' algorithm up to some
//! ten million comparisons; an array that would need more is replaced as a whole. Each array operation costs whoever applies it the array's length, so where operations
//! times length exceed [`MAX_MOVES`], the container is replaced as a whole.

mod align;
mod fingerprint;
mod identity;

pub(super) use fingerprint::Fingerprints;
pub(super) use identity::{Identity, identity};

use std::borrow::Cow;

use align::{Step, align};

use super::Operation;
use crate::document::{Json, Object, Pointer};

/// Elements moved by all insertions and removals in one container, past which it is replaced instead: 4 million
/// are some 10 milliseconds in kube-apiserver, and let an array of 2,000 change completely.
const MAX_MOVES: usize = 4_000_000;

/// The operations that make `target` of `original`; none when they are equal. Deterministic.
#[must_use]
pub fn diff(original: &Json, target: &Json) -> Vec<Operation> {
    let mut differ = Differ::default();
    differ.value(original, target);
    differ.operations
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
        if before.is_same(after) {
            return;
        }
        match (before, after) {
            (Json::Object(before), Json::Object(members)) => self.object(before, members, after),
            (Json::Array(before), Json::Array(elements)) => self.array(before, elements, after),
            (Json::Text(before), Json::Text(text)) if before == text => {}
            _ => self.replace(after),
        }
    }

    fn object(&mut self, before: &'d Object, after: &'d Object, whole: &Json) {
        let removed = before
            .keys()
            .filter(|name| !after.contains_key(&***name))
            .count();
        if removed.saturating_mul(before.len()) > MAX_MOVES {
            return self.replace(whole);
        }
        // Last to first: an object keeps its order, so a removal moves the members behind it.
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
        // So many have to move whatever the alignment, which need not be looked for then.
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
        let path = self.here();
        self.operations.push(Operation::Add {
            path,
            value: value.clone(),
        });
    }

    fn replace(&mut self, value: &Json) {
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

fn index(position: usize) -> Cow<'static, str> {
    Cow::Owned(position.to_string())
}
