//! The parts of a JSON document that a policy reads, and a reader of only these parts.
//!
//! ```text
//! configure  references of the policy → [`Places`] → [`Shape`]
//! review     [`read`]: one question to the host for each level of the shape → the value, without the rest
//! ```
//!
//! The plugins `rego` and `cel-policy` use it. The crate is pure, and it builds for `wasm32-unknown-unknown`.

mod places;
mod read;

use std::collections::BTreeMap;
use std::fmt;

pub use places::{Place, Places};
pub use read::{Look, Reader, complete, read};

/// What a policy reads of a value.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Shape {
    need: Need,
    /// What it reads of members, by their names.
    members: BTreeMap<String, Shape>,
    /// What it reads of every element or member. `members` have it, too.
    each: Option<Box<Shape>>,
}

/// How much of a value itself a policy reads.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
enum Need {
    /// Nothing but what is below. Whether the value exists does not matter then.
    #[default]
    Below,
    /// Whether it exists, and its type. A scalar as a whole.
    Kind,
    /// All of it.
    Whole,
}

// === impl Shape ===

impl Shape {
    /// The shape of a value that is read as a whole.
    #[must_use]
    pub fn whole() -> Self {
        Self {
            need: Need::Whole,
            ..Self::default()
        }
    }

    /// Whether the value is read as a whole.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.need == Need::Whole
    }

    /// Whether nothing of the value is read.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        self.need == Need::Below && self.members.is_empty() && self.each.is_none()
    }

    /// Returns the shape of a member.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Self> {
        self.members.get(name).or(self.each.as_deref())
    }

    /// Whether the policy reads members whose names it computes, or the value as a whole.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_whole() || self.each.is_some()
    }

    fn collect(&self, at: &str, patterns: &mut Vec<String>) {
        match self.need {
            Need::Below => {}
            Need::Kind => patterns.push(format!("{at}?")),
            Need::Whole => patterns.push(at.to_owned()),
        }
        for (name, shape) in &self.members {
            shape.collect(&format!("{at}/{}", read::escaped(name)), patterns);
        }
        if let Some(each) = &self.each {
            each.collect(&format!("{at}/*"), patterns);
        }
    }

    /// Returns the shape without some members.
    #[must_use]
    pub fn without(mut self, names: &[&str]) -> Self {
        self.members.retain(|name, _| !names.contains(&&**name));
        self
    }

    /// Adds what another shape reads.
    fn join(&mut self, other: &Self) {
        self.need = self.need.max(other.need);
        for (name, shape) in &other.members {
            self.members.entry(name.clone()).or_default().join(shape);
        }
        if let Some(each) = &other.each {
            self.each.get_or_insert_default().join(each);
        }
    }

    /// Drops what is below a whole value, and adds to members what is read of every member.
    fn settle(&mut self) {
        if self.need == Need::Whole {
            self.members.clear();
            self.each = None;
            return;
        }
        // A name of digits would lead to an element of an array, too.
        if self.members.keys().any(|name| is_index(name)) {
            self.need = Need::Kind;
        }
        if let Some(each) = &mut self.each {
            for shape in self.members.values_mut() {
                shape.join(each);
            }
            each.settle();
        }
        for shape in self.members.values_mut() {
            shape.settle();
        }
    }
}

/// Writes the places that the policy reads, as patterns with `*` for every element. A `?` at the end means that only the
/// existence and the type matter.
impl fmt::Debug for Shape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut patterns = Vec::new();
        self.collect("", &mut patterns);
        formatter.debug_list().entries(patterns).finish()
    }
}

/// Whether a name could be the number of an element.
fn is_index(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests;
