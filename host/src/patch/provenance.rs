//! Who wrote what: finds the mutator that undoes another's work.
//!
//! Every write is remembered at the place where it stands. When array elements come or go before it, the place
//! moves along; when an element moves within its array, what was written in it moves with it. The cost of
//! recording a mutation follows the mutation, not the object nor the number of mutations before.
//!
//! A conflict is
//! - a change or removal of a value that another wrote, or of a value inside something that another put in whole,
//!   or of something that has another's writes inside;
//! - putting back what another removed: a member by its name, an element by its value or by its identity.
//!
//! None is: a new member or element beside what another wrote; moving an element within its array; writing the
//! value that stands there, which the difference does not even show; and whatever a writer does to its own.

mod changes;
mod places;

use std::collections::BTreeMap;

use foldhash::fast::RandomState;

use super::Operation;
use crate::document::{Json, Pointer};
use changes::Changes;
use places::{Place, Recording};

/// The writes of all mutators to one object; `W` stands for a writer.
#[derive(Clone, Debug)]
pub struct Provenance<W> {
    root: Place<W>,
    state: RandomState,
}

/// A later mutator changed or removed what an earlier one wrote, or put back what it removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict<W> {
    /// Where, in the object as it is after the later mutation. Of something removed: where it stood.
    pub path: Pointer,
    /// The writer whose work it was.
    pub earlier: W,
}

// === impl Provenance ===

impl<W: Copy + Eq> Provenance<W> {
    /// Nobody has written anything.
    #[must_use]
    pub fn new() -> Self {
        Self {
            root: Place::default(),
            state: RandomState::default(),
        }
    }

    /// Remembers a mutation and says with whose work it conflicts: each earlier writer once for each place.
    ///
    /// `changes` has to be [`diff`](super::diff)`(before, after)`: the order of its operations is relied on. An
    /// operation that does not apply to `before` ends the recording.
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

    /// Where the writes of one mutator now stand, in the order of names and indices; what it removed included,
    /// what others overwrote not. Something put in whole is one place.
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
