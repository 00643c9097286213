//! Records the kinds of information that a call has read: the possible grounds for its answer to an UPDATE.
//!
//! A plugin reads everything through host calls. A plugin that has not asked for the user therefore cannot base a
//! denial on the user.

use super::bindings::review::Part;

/// The kinds of information that a call has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grounds {
    /// The plugin read something of the object or of the old object.
    pub object: bool,
    /// The plugin read finalizers or owners of either object. Garbage collection depends on both.
    pub collection: bool,
    /// The plugin read the user (`userInfo`), or the request's options, which name a field manager.
    pub who: bool,
    /// The plugin read the time.
    pub when: bool,
}

/// How much of the data below a place a read hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// The value only. A container shows its length.
    Value,
    /// The value and the names of its members.
    Names,
    /// The value and everything below it.
    All,
}

const COLLECTION: [&[&str]; 3] = [
    &["metadata", "finalizers"],
    &["metadata", "ownerReferences"],
    // Namespaces have finalizers in their spec.
    &["spec", "finalizers"],
];
const USER: &[&str] = &["userInfo"];

// === impl Grounds ===

impl Grounds {
    /// Combines the information that two calls have read.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            object: self.object || other.object,
            collection: self.collection || other.collection,
            who: self.who || other.who,
            when: self.when || other.when,
        }
    }

    /// Records a read. `at` is a well-formed pointer or pattern.
    pub(super) fn reads(&mut self, part: Part, at: &str, depth: Depth) {
        match part {
            Part::Object | Part::OldObject => {
                self.object = true;
                self.collection |= COLLECTION.iter().any(|place| shows(at, depth, place));
            }
            Part::Request => self.who |= shows(at, depth, USER),
            Part::Options => self.who = true,
            // The namespace is about neither object, and does not say who asks.
            Part::Namespace => {}
        }
    }
}

/// Whether a read at `at` shows something of `place`.
fn shows(at: &str, depth: Depth, place: &[&str]) -> bool {
    let mut tokens = at.split('/').skip(1);
    for (above, name) in place.iter().enumerate() {
        match tokens.next() {
            // Neither name contains a character that a pointer would escape.
            Some(token) if token == *name || token == "*" => {}
            Some(_) => return false,
            None => {
                return match depth {
                    Depth::Value => false,
                    Depth::Names => above + 1 == place.len(),
                    Depth::All => true,
                };
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(part: Part, at: &str, depth: Depth) -> Grounds {
        let mut grounds = Grounds::default();
        grounds.reads(part, at, depth);
        grounds
    }

    #[test]
    fn only_reads_that_show_user_set_who() {
        for (at, depth, expected) in [
            ("/userInfo/username", Depth::Value, true),
            ("/userInfo/groups/*", Depth::Value, true),
            ("/userInfo", Depth::Value, true),
            ("/*/username", Depth::Value, true),
            ("", Depth::All, true),
            ("", Depth::Names, true),
            ("", Depth::Value, false),
            ("/name", Depth::Value, false),
            ("/userInfos", Depth::All, false),
        ] {
            let grounds = after(Part::Request, at, depth);
            assert_eq!(grounds.who, expected, "{at} {depth:?}");
            assert!(!grounds.object && !grounds.collection && !grounds.when);
        }
        assert!(after(Part::Options, "/fieldManager", Depth::Value).who);
        assert!(!after(Part::Object, "/userInfo", Depth::All).who);
    }

    #[test]
    fn only_reads_that_show_finalizers_or_owners_set_collection() {
        for (at, depth, expected) in [
            ("/metadata/finalizers", Depth::Value, true),
            ("/metadata/finalizers/0", Depth::Value, true),
            ("/metadata/ownerReferences/*/name", Depth::Value, true),
            ("/spec/finalizers", Depth::Value, true),
            ("/metadata/*", Depth::Value, true),
            ("/metadata", Depth::Names, true),
            ("/metadata", Depth::All, true),
            ("", Depth::All, true),
            ("", Depth::Names, false),
            ("/metadata", Depth::Value, false),
            ("/metadata/labels", Depth::All, false),
            ("/spec/containers", Depth::All, false),
        ] {
            for part in [Part::Object, Part::OldObject] {
                let grounds = after(part, at, depth);
                assert_eq!(grounds.collection, expected, "{at} {depth:?}");
                assert!(grounds.object && !grounds.who);
            }
        }
    }
}
