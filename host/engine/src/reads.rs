//! Records what calls read, for `tollgate test --strict-paths`.
//!
//! The server records nothing: a call then costs one comparison for each read.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tollgate_config::PluginName;

use super::bindings::review::Part;

/// The reads of some calls. A place that is read several times is recorded once.
#[derive(Debug, Default)]
pub struct Reads(Mutex<BTreeSet<Read>>);

/// A place that a plugin has asked for, whether or not there is something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Read {
    /// The plugin's name.
    pub plugin: PluginName,
    /// The part of the review.
    pub document: ReadDocument,
    /// A well-formed JSON Pointer, or a pattern.
    pub at: String,
    /// Whether `*` stands for any member or element.
    pub is_pattern: bool,
}

/// The part of a review that a read is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadDocument {
    /// The object as it would be stored.
    Object,
    /// The object as it is stored.
    OldObject,
    /// The options of the request.
    Options,
    /// The request itself.
    Request,
    /// The Namespace of the object.
    Namespace,
}

/// Maximum number of places that are recorded. No policy reads more by name, and a plugin must not fill the memory.
const MOST: usize = 10_000;
/// Maximum length of a pointer that is recorded, in bytes.
const LONGEST_BYTES: usize = 4096;

// === impl Reads ===

impl Reads {
    /// Returns the places in their order.
    #[must_use]
    pub fn all(&self) -> Vec<Read> {
        let reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reads.iter().cloned().collect()
    }

    /// Records a read. `at` is well-formed.
    pub(super) fn add(&self, plugin: &PluginName, part: Part, at: &str, is_pattern: bool) {
        let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reads.len() < MOST && at.len() <= LONGEST_BYTES {
            reads.insert(Read {
                plugin: plugin.clone(),
                document: part.into(),
                at: at.to_owned(),
                is_pattern,
            });
        }
    }
}

impl From<Part> for ReadDocument {
    fn from(part: Part) -> Self {
        match part {
            Part::Object => Self::Object,
            Part::OldObject => Self::OldObject,
            Part::Options => Self::Options,
            Part::Request => Self::Request,
            Part::Namespace => Self::Namespace,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_recorded_once_and_within_bounds() {
        let reads = Reads::default();
        let plugin = PluginName::parse("a").unwrap();
        for _ in 0..2 {
            reads.add(&plugin, Part::Object, "/spec", false);
            reads.add(&plugin, Part::Object, "/spec", true);
            reads.add(&plugin, Part::OldObject, "/spec", false);
        }
        assert_eq!(reads.all().len(), 3);
        reads.add(&plugin, Part::Object, &"/a".repeat(LONGEST_BYTES), false);
        assert_eq!(reads.all().len(), 3);
        for index in 0..MOST {
            reads.add(&plugin, Part::Object, &format!("/{index}"), false);
        }
        assert_eq!(reads.all().len(), MOST);
    }
}
