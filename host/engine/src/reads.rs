//! Records what calls read, for `tollgate test --strict-paths`.
//!
//! The server records nothing: a call then costs one comparison for each read.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_config::PluginName;

use super::bindings::review::Part;

/// The reads of some calls. A place that is read several times is recorded once.
#[derive(Debug, Default)]
pub struct Reads(Mutex<Recorded>);

#[derive(Debug, Default)]
struct Recorded {
    places: BTreeSet<Read>,
    /// The plugins with a read that is not in `places`, because it is one too many or too long.
    overflowed: BTreeSet<PluginName>,
}

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

// === impl Reads ===

impl Reads {
    /// Maximum number of places that are recorded. No policy reads more by name, and a plugin must not fill the memory.
    pub const MOST_PLACES: usize = 10_000;
    /// Maximum length of a pointer that is recorded, in bytes.
    pub const LONGEST_PLACE_BYTES: usize = 4096;

    /// Returns the places in their order.
    #[must_use]
    pub fn all(&self) -> Vec<Read> {
        self.recorded().places.iter().cloned().collect()
    }

    /// Returns the plugins with reads that are not recorded, because they are too many or too long.
    #[must_use]
    pub fn overflowed(&self) -> Vec<PluginName> {
        self.recorded().overflowed.iter().cloned().collect()
    }

    /// Records a read. `at` is well-formed.
    pub(super) fn add(&self, plugin: &PluginName, part: Part, at: &str, is_pattern: bool) {
        let mut recorded = self.recorded();
        if at.len() > Self::LONGEST_PLACE_BYTES {
            recorded.overflowed.insert(plugin.clone());
            return;
        }
        let read = Read {
            plugin: plugin.clone(),
            document: part.into(),
            at: at.to_owned(),
            is_pattern,
        };
        if recorded.places.len() < Self::MOST_PLACES {
            recorded.places.insert(read);
        } else if !recorded.places.contains(&read) {
            recorded.overflowed.insert(read.plugin);
        }
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        for index in 3..Reads::MOST_PLACES {
            reads.add(&plugin, Part::Object, &format!("/{index}"), false);
        }
        // A place that is recorded already fits.
        reads.add(&plugin, Part::Object, "/spec", false);
        assert_eq!(reads.all().len(), Reads::MOST_PLACES);
        assert!(reads.overflowed().is_empty());
        reads.add(&plugin, Part::Object, "/one/more", false);
        assert_eq!(reads.all().len(), Reads::MOST_PLACES);
        assert_eq!(reads.overflowed(), [plugin]);
    }

    #[test]
    fn plugin_with_a_place_that_is_too_long_is_told() {
        let reads = Reads::default();
        let [long, short] = ["long", "short"].map(|name| PluginName::parse(name).unwrap());
        let longest = format!("/{}", "a".repeat(Reads::LONGEST_PLACE_BYTES - 1));
        reads.add(&short, Part::Object, &longest, false);
        assert!(reads.overflowed().is_empty());
        reads.add(&long, Part::Object, &format!("{longest}a"), false);
        assert_eq!(reads.all().len(), 1);
        assert_eq!(reads.overflowed(), [long]);
    }
}
