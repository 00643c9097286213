//! Places in documents, while an analysis of a policy finds out what the policy reads of them.

use std::collections::BTreeMap;

use crate::{Need, Shape};

/// A place in a document: the document itself, a member, or every element.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Place(usize);

/// The places that a policy refers to, from any number of documents.
#[derive(Clone, Debug, Default)]
pub struct Places {
    nodes: Vec<Node>,
    /// Whether something has been added since the last look.
    has_changed: bool,
}

#[derive(Clone, Debug, Default)]
struct Node {
    depth: usize,
    need: Need,
    members: BTreeMap<String, Place>,
    each: Option<Place>,
}

/// Below this depth everything counts as read, so that an analysis of recursive flows ends.
const DEEPEST: usize = 24;

// === impl Places ===

impl Places {
    /// Creates a set without places.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a document.
    pub fn root(&mut self) -> Place {
        self.add(0)
    }

    /// Returns the place of a member.
    pub fn member(&mut self, of: Place, name: &str) -> Place {
        if let Some(known) = self.nodes[of.0].members.get(name) {
            return *known;
        }
        let Some(depth) = self.below(of) else {
            return of;
        };
        let place = self.add(depth);
        self.nodes[of.0].members.insert(name.to_owned(), place);
        place
    }

    /// Returns the place of every element or member.
    pub fn each(&mut self, of: Place) -> Place {
        if let Some(known) = self.nodes[of.0].each {
            return known;
        }
        let Some(depth) = self.below(of) else {
            return of;
        };
        let place = self.add(depth);
        self.nodes[of.0].each = Some(place);
        place
    }

    /// The policy reads whether the value exists, and its type.
    pub fn look(&mut self, at: Place) {
        self.need(at, Need::Kind);
    }

    /// The policy reads the value as a whole.
    pub fn take(&mut self, at: Place) {
        self.need(at, Need::Whole);
    }

    /// Whether something has been added since the last question.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Returns what the policy reads at a place.
    #[must_use]
    pub fn shape(&self, at: Place) -> Shape {
        let mut shape = self.unsettled(at);
        shape.settle();
        shape
    }

    fn unsettled(&self, at: Place) -> Shape {
        let node = &self.nodes[at.0];
        let members = node.members.iter();
        Shape {
            need: node.need,
            members: members
                .map(|(name, place)| (name.clone(), self.unsettled(*place)))
                .collect(),
            each: node.each.map(|place| Box::new(self.unsettled(place))),
        }
    }

    fn add(&mut self, depth: usize) -> Place {
        self.has_changed = true;
        self.nodes.push(Node {
            depth,
            ..Node::default()
        });
        Place(self.nodes.len() - 1)
    }

    /// The depth of a new place, or none at the end of all depths.
    fn below(&mut self, of: Place) -> Option<usize> {
        let depth = self.nodes[of.0].depth + 1;
        if depth > DEEPEST {
            self.take(of);
            return None;
        }
        Some(depth)
    }

    fn need(&mut self, at: Place, need: Need) {
        let node = &mut self.nodes[at.0];
        if node.need < need {
            node.need = need;
            self.has_changed = true;
        }
    }
}
