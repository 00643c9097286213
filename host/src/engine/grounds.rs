//! What the answer to an UPDATE can rest on, by what the call has asked the host for.
//!
//! Every read is a call of the host's, so a plugin that has not asked who makes the request cannot deny by that.

use super::bindings::review::Part;

/// What a call has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grounds {
    /// Something of the object or of the old one.
    pub object: bool,
    /// What garbage collection goes by, of either object: finalizers and owners.
    pub collection: bool,
    /// Who makes the request (`userInfo`), or with which options, which name a manager of fields.
    pub who: bool,
    /// What time it is.
    pub when: bool,
}

/// How much of what lies below a place is handed out with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// The value alone; of a container its length.
    Value,
    /// The names of its members, too.
    Names,
    /// Everything.
    All,
}

const COLLECTION: [&[&str]; 3] = [
    &["metadata", "finalizers"],
    &["metadata", "ownerReferences"],
    // A Namespace's.
    &["spec", "finalizers"],
];
const USER: &[&str] = &["userInfo"];

// === impl Grounds ===

impl Grounds {
    /// What two calls have asked for.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            object: self.object || other.object,
            collection: self.collection || other.collection,
            who: self.who || other.who,
            when: self.when || other.when,
        }
    }

    /// Takes note of a read. `at` is a well-formed pointer, or a pattern.
    pub(super) fn reads(&mut self, part: Part, at: &str, depth: Depth) {
        match part {
            Part::Object | Part::OldObject => {
                self.object = true;
                self.collection |= COLLECTION.iter().any(|place| shows(at, depth, place));
            }
            Part::Request => self.who |= shows(at, depth, USER),
            Part::Options => self.who = true,
        }
    }
}

/// Whether a read at a place shows something of another one.
fn shows(at: &str, depth: Depth, place: &[&str]) -> bool {
    let mut tokens = at.split('/').skip(1);
    for (above, name) in place.iter().enumerate() {
        match tokens.next() {
            // Neither name has anything that a pointer would escape.
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
    fn only_reads_that_show_the_user_ask_who() {
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
    fn only_reads_that_show_finalizers_or_owners_ask_for_what_is_collected() {
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
