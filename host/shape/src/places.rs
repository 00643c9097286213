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
    /// The number of the document.
    root: usize,
    depth: usize,
    need: Need,
    members: BTreeMap<String, Place>,
    each: Option<Place>,
}

/// Below this depth everything counts as read, so that an analysis of recursive flows ends.
const DEEPEST: usize = 24;
/// The most places. Beyond that, a document counts as read: functions that call each other can lead to any number of places.
const MOST: usize = 4096;

// === impl Places ===

impl Places {
    /// Creates a set without places.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a document.
    pub fn root(&mut self) -> Place {
        let root = self.nodes.len();
        self.add(Node {
            root,
            ..Node::default()
        })
    }

    /// Returns the place of a member.
    pub fn member(&mut self, of: Place, name: &str) -> Place {
        if let Some(known) = self.nodes[of.0].members.get(name) {
            return *known;
        }
        let place = match self.below(of) {
            Ok(new) => self.add(new),
            Err(whole) => return whole,
        };
        self.nodes[of.0].members.insert(name.to_owned(), place);
        place
    }

    /// Returns the place of every element or member.
    pub fn each(&mut self, of: Place) -> Place {
        if let Some(known) = self.nodes[of.0].each {
            return known;
        }
        let place = match self.below(of) {
            Ok(new) => self.add(new),
            Err(whole) => return whole,
        };
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

    fn add(&mut self, node: Node) -> Place {
        self.has_changed = true;
        self.nodes.push(node);
        Place(self.nodes.len() - 1)
    }

    /// Returns a new place below another one, or the place that is read as a whole instead.
    fn below(&mut self, of: Place) -> Result<Node, Place> {
        let Node { root, depth, .. } = self.nodes[of.0];
        let depth = depth + 1;
        let has_room = self.nodes.len() < MOST && self.nodes[root].need != Need::Whole;
        if has_room && depth <= DEEPEST {
            return Ok(Node {
                root,
                depth,
                ..Node::default()
            });
        }
        let whole = if has_room { of } else { Place(root) };
        self.take(whole);
        Err(whole)
    }

    fn need(&mut self, at: Place, need: Need) {
        let node = &mut self.nodes[at.0];
        if node.need < need {
            node.need = need;
            self.has_changed = true;
        }
    }
}
