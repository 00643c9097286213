//! Records which mutator wrote what, and finds a mutator that undoes another's work.
//!
//! Every write is recorded at its place. If array elements are added or removed before it, the place moves along. If
//! an element moves within its array, the writes in it move with it. The cost of recording a mutation depends on the
//! mutation, not on the object or on the number of earlier mutations.
//!
//! A mutator causes a conflict in these cases:
//!
//! - It changes or removes a value that another mutator wrote.
//! - It changes or removes a value inside something that another mutator added as a whole.
//! - It changes or removes something that contains another mutator's writes.
//! - It adds something again that another mutator removed. A member is recognised by its name, an element by its
//!   value or its identity.
//!
//! A mutator causes no conflict in these cases:
//!
//! - It adds a member or an element beside another mutator's write.
//! - It moves an element within its array.
//! - It writes the value that is already there. The diff does not even show this.
//! - It changes its own writes.

mod changes;
mod places;

use std::collections::BTreeMap;

use foldhash::fast::RandomState;

use super::Operation;
use crate::document::{Json, Pointer};
use changes::Changes;
use places::{Place, Recording};

/// The writes of all mutators to one object. `W` identifies a writer.
#[derive(Clone, Debug)]
pub struct Provenance<W> {
    root: Place<W>,
    state: RandomState,
}

/// A mutation that changed or removed an earlier mutator's write, or added again what that one had removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict<W> {
    /// The place in the object after the later mutation. For something removed, the place where it stood.
    pub path: Pointer,
    /// The writer whose work was undone.
    pub earlier: W,
}

// === impl Provenance ===

impl<W: Copy + Eq> Provenance<W> {
    /// Creates an empty record.
    #[must_use]
    pub fn new() -> Self {
        Self {
            root: Place::default(),
            state: RandomState::default(),
        }
    }

    /// Records a mutation, and returns its conflicts: each earlier writer once for each place.
    ///
    /// `changes` has to be [`diff`](super::diff)`(before, after)`, because the recording relies on the order of its
    /// operations. The recording ends at an operation that does not apply to `before`.
    pub fn record(&mut self, writer: W, before: &Json, changes: &[Operation]) -> Vec<Conflict<W>> {
        let changes = Changes::resolve(before, changes, &self.state);
        let mut conflicts = Vec::new();
        let mut recording = Recording {
            writer,
            changes: &changes,
            index: 0,
            earlier: Vec::new(),
            carried: BTreeMap::new(),
        };
        for index in 0..changes.len() {
            recording.index = index;
            self.root.record(&mut recording);
            let mut earlier: Vec<W> = Vec::new();
            for other in recording.earlier.drain(..) {
                if other != writer && !earlier.contains(&other) {
                    earlier.push(other);
                }
            }
            let path = changes.path(index);
            conflicts.extend(earlier.into_iter().map(|earlier| Conflict {
                path: path.clone(),
                earlier,
            }));
        }
        conflicts
    }

    /// Returns the places where one mutator's writes now stand, ordered by names and indexes. Removals by the mutator
    /// are included, but not writes that others overwrote. Something added as a whole is one place.
    #[must_use]
    pub fn paths_of(&self, writer: W) -> Vec<Pointer> {
        let mut paths = Vec::new();
        self.root
            .paths_of(writer, false, &mut Vec::new(), &mut paths);
        paths
    }
}

impl<W: Copy + Eq> Default for Provenance<W> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
