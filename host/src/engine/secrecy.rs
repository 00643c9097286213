//! Keeps the content of Secrets out of everything that is written down.
//!
//! A plugin that reviews a Secret may well put what it read into a message, and no search for the value finds
//! it once it is cut, encoded or hashed. So what counts is what the plugin has read: an instance is fresh for
//! every call, so one that has not read the content cannot speak of it. From the first read on, every text of
//! that call is withheld: log lines, warnings, annotations, denial messages, the text of a panic.
//!
//! Nor may content be moved to where the next plugin could read it unnoticed, in this call or – mutate and
//! validate are two calls that share nothing – in the next: a mutator that has read or copied content may change
//! `data`, `stringData` and annotations, all of which count as content, and nothing else ([`is_content`]).

use crate::document::Json;

/// Stands where a plugin's own words would.
pub const WITHHELD: &str = "[withheld: the plugin has read the content of a Secret]";

/// Whether a plugin's words can be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Secrecy {
    /// The review is not about a Secret.
    Open,
    /// The review is about a Secret, of which only the outside has been read so far.
    Sealed,
    /// The content of a Secret has been read.
    Broken,
}

/// What may be read of a Secret without being able to tell anything of its content.
const OUTSIDE: [&str; 4] = ["apiVersion", "kind", "type", "immutable"];
/// Likewise, of its metadata. Annotations are not among them: `kubectl apply` keeps the whole Secret in one.
const OUTSIDE_METADATA: [&str; 10] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "finalizers",
];

// === impl Secrecy ===

impl Secrecy {
    /// At the start of a review.
    #[must_use]
    pub fn of(is_secret: bool) -> Self {
        if is_secret { Self::Sealed } else { Self::Open }
    }

    /// Takes note that a value with content – not only its type or its member names – is handed out.
    /// `pointer` is well formed.
    pub(super) fn reads(&mut self, pointer: &str, value: &Json) {
        let tells_nothing = matches!(value, Json::Null | Json::Bool(_));
        if *self == Self::Sealed && !tells_nothing && !is_outside(pointer) {
            *self = Self::Broken;
        }
    }

    /// As it is for a mutator whose patch copies content without having read it.
    #[must_use]
    pub fn copying(self) -> Self {
        match self {
            Self::Sealed => Self::Broken,
            other => other,
        }
    }

    /// Takes note that the names of the members at a pointer, or a name in it, are handed out: a mutator that ran
    /// before can have made one of a value. `pointer` is well formed.
    pub(super) fn reads_names(&mut self, pointer: &str) {
        if *self == Self::Sealed && !matches!(pointer, "" | "/metadata") && !is_outside(pointer) {
            *self = Self::Broken;
        }
    }

    /// Whether texts are withheld.
    #[must_use]
    pub fn withholds(self) -> bool {
        self == Self::Broken
    }

    /// The text, or what stands for it.
    #[must_use]
    pub fn text(self, text: String) -> String {
        if self.withholds() {
            WITHHELD.to_owned()
        } else {
            text
        }
    }

    /// A pointer that a plugin wrote, cut where it leaves the names that `document` already had: a name can be
    /// made of a value.
    #[must_use]
    pub fn pointer(self, pointer: &str, document: Option<&Json>) -> String {
        if !self.withholds() {
            return pointer.to_owned();
        }
        let mut known = String::new();
        let mut here = document;
        for token in pointer.split('/').skip(1) {
            let unescaped = token.replace("~1", "/").replace("~0", "~");
            here = here.and_then(|value| value.child(&unescaped));
            if here.is_none() {
                known.push_str("/[withheld]");
                break;
            }
            known.push('/');
            known.push_str(token);
        }
        known
    }
}

/// Whether a place of a Secret may be written by a plugin that has read its content: what stands here counts as
/// content for every plugin that comes after, in this call and in the next.
#[must_use]
pub fn is_content(pointer: &str) -> bool {
    let mut tokens = pointer.split('/').skip(1);
    matches!(
        (tokens.next(), tokens.next()),
        (Some("data" | "stringData"), _) | (Some("metadata"), Some("annotations"))
    )
}

fn is_outside(pointer: &str) -> bool {
    let mut tokens = pointer.split('/').skip(1);
    match (tokens.next(), tokens.next()) {
        (Some("metadata"), Some(name)) => OUTSIDE_METADATA.contains(&name),
        (Some(name), None) => OUTSIDE.contains(&name),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(pointer: &str, value: serde_json::Value) -> Secrecy {
        let mut secrecy = Secrecy::Sealed;
        secrecy.reads(pointer, &Json::from(value));
        secrecy
    }

    #[test]
    fn the_outside_of_a_secret_may_be_spoken_of() {
        for pointer in [
            "/kind",
            "/type",
            "/metadata/name",
            "/metadata/labels",
            "/metadata/labels/app",
        ] {
            assert_eq!(after(pointer, "x".into()), Secrecy::Sealed, "{pointer}");
        }
    }

    #[test]
    fn its_content_may_not() {
        for pointer in [
            "",
            "/data",
            "/data/password",
            "/stringData/password",
            "/metadata",
            "/metadata/annotations",
            "/metadata/annotations/a",
            "/metadatas/name",
        ] {
            assert_eq!(after(pointer, "x".into()), Secrecy::Broken, "{pointer}");
        }
    }

    #[test]
    fn names_are_content_where_a_mutator_could_have_made_them() {
        let after = |pointer: &str| {
            let mut secrecy = Secrecy::Sealed;
            secrecy.reads_names(pointer);
            secrecy
        };
        for pointer in ["", "/metadata", "/metadata/labels"] {
            assert_eq!(after(pointer), Secrecy::Sealed, "{pointer}");
        }
        for pointer in ["/data", "/stringData", "/metadata/annotations"] {
            assert_eq!(after(pointer), Secrecy::Broken, "{pointer}");
        }
    }

    #[test]
    fn content_may_be_moved_only_to_where_it_counts_as_content() {
        for pointer in [
            "/data",
            "/data/a",
            "/stringData/a",
            "/metadata/annotations/a",
        ] {
            assert!(is_content(pointer), "{pointer}");
        }
        for pointer in [
            "",
            "/metadata",
            "/metadata/labels/a",
            "/type",
            "/metadata/finalizers",
        ] {
            assert!(!is_content(pointer), "{pointer}");
        }
    }

    #[test]
    fn other_objects_are_open() {
        let mut secrecy = Secrecy::of(false);
        secrecy.reads("/data/password", &Json::text("x"));
        assert_eq!(secrecy.text("said".to_owned()), "said");
    }

    #[test]
    fn a_pointer_is_cut_at_the_first_name_that_was_not_there() {
        let secret = Json::from(serde_json::json!({"metadata": {"labels": {"a/b": "x"}}}));
        let broken = Secrecy::Broken;
        assert_eq!(
            broken.pointer("/metadata/labels/a~1b", Some(&secret)),
            "/metadata/labels/a~1b"
        );
        assert_eq!(
            broken.pointer("/metadata/labels/c2VjcmV0/x", Some(&secret)),
            "/metadata/labels/[withheld]"
        );
        assert_eq!(
            Secrecy::Sealed.pointer("/metadata/labels/c", Some(&secret)),
            "/metadata/labels/c"
        );
    }
}
