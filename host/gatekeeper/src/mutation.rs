//! Gatekeeper's mutators: Assign, AssignMetadata, ModifySet and AssignImage.
//!
//! As in Gatekeeper, all mutators change the object in the order of their kinds and names, again and again until nothing
//! changes. A mutator sees the object as the others left it, in its `match`, too.

mod apply_to;
mod change;
mod image;
mod mutator;
mod parameters;
mod path;

use serde_json::Value as Json;

use crate::{Match, Pointer, Problems, Subject};

pub use mutator::Mutator;

/// Mutators in their order.
#[derive(Clone, Debug, Default)]
pub struct Mutators(Vec<Mutator>);

/// The facts about a request that mutators depend on.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// `CREATE` or `UPDATE`. Mutators change nothing in other requests.
    pub operation: &'a str,
    /// API group of the object's kind.
    pub group: &'a str,
    /// Version of the object.
    pub version: &'a str,
    /// The object's kind.
    pub kind: &'a str,
    /// The object's namespace, or empty.
    pub namespace: &'a str,
}

/// Decides whether a match selects an object. The text names the mutator.
pub type Selects<'a> = &'a dyn Fn(&Match, &Subject, &str) -> bool;

// === impl Mutators ===

impl Mutators {
    /// Reads the mutators under `mutators`.
    #[must_use]
    pub fn read(list: &[Json], problems: &mut Problems) -> Self {
        let at = Pointer::root().child("mutators");
        let mut mutators: Vec<Mutator> = Vec::new();
        for (index, written) in list.iter().enumerate() {
            let at = at.child(index);
            let Some(mutator) = Mutator::read(written, &at, problems) else {
                continue;
            };
            if let Some(other) = mutators.iter().find(|other| other.conflicts_with(&mutator)) {
                let message = format!(
                    "conflicts with {other}: the locations take a field for different types, and Gatekeeper applies \
                     neither"
                );
                problems.at(at.below(&["spec", "location"]), message);
            }
            mutators.push(mutator);
        }
        mutators.sort_by(|a, b| a.order().cmp(&b.order()));
        Self(mutators)
    }

    /// Changes an object. Returns whether it differs from before.
    ///
    /// # Errors
    /// When the object does not have the shape that a location needs, or when the mutators undo each other. The text
    /// has no value of the object.
    pub fn apply(
        &self,
        object: &mut Json,
        request: Request<'_>,
        selects: Selects<'_>,
    ) -> Result<bool, String> {
        let original = object.clone();
        for _ in 0..=self.0.len() {
            let before = object.clone();
            for mutator in &self.0 {
                if mutator.matches(object, request, selects) {
                    mutator
                        .change(object, request.namespace)
                        .map_err(|error| format!("{mutator}: {error}"))?;
                }
            }
            if *object == before {
                return Ok(*object != original);
            }
        }
        Err("the mutators undo each other's changes, and the object does not settle".to_owned())
    }
}
