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
//!
//! A patch reads as well: `test` compares, `copy` and `move` take along, and any operation that needs something to be
//! there fails where it is not ([`goes_by_content`]).

use crate::document::{Json, Pointer};
use crate::patch::Operation;

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

    /// Takes note that there is something at a pointer, whatever it is: a name among those of its parent's members.
    /// `pointer` is well formed.
    pub(super) fn finds(&mut self, pointer: &str) {
        if *self == Self::Sealed
            && let Some((parent, _)) = pointer.rsplit_once('/')
        {
            self.reads_names(parent);
        }
    }

    /// Takes note that a value with content – not only its type or its member names – is handed out.
    /// `pointer` is well formed.
    pub(super) fn reads(&mut self, pointer: &str, value: &Json) {
        let tells_nothing = matches!(value, Json::Null | Json::Bool(_));
        if *self == Self::Sealed && !tells_nothing && !is_outside(pointer) {
            *self = Self::Broken;
        }
    }

    /// As it is for a mutator whose patch copies content without having read it, or goes by what the content is.
    #[must_use]
    pub fn going_by_content(self) -> Self {
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

/// Whether a patch's operation copies content of a Secret, or whether it can be carried out says something of that
/// content: a plugin would find out one guess in each call.
#[must_use]
pub fn goes_by_content(operation: &Operation) -> bool {
    // Like a read of all that stands there.
    let reads_value = |pointer: &Pointer| !is_outside(pointer.as_str());
    // It fails where there is nothing: where it does not, something was found.
    let needs = |pointer: &str| {
        let mut secrecy = Secrecy::Sealed;
        secrecy.finds(pointer);
        secrecy.withholds()
    };
    let needs_parent = |pointer: &Pointer| {
        let parent = pointer.as_str().rsplit_once('/');
        parent.is_some_and(|(parent, _)| needs(parent))
    };
    match operation {
        Operation::Test { path, .. } => reads_value(path) || needs(path.as_str()),
        Operation::Copy { from, path } | Operation::Move { from, path } => {
            reads_value(from) || needs(from.as_str()) || needs_parent(path)
        }
        Operation::Replace { path, .. } | Operation::Remove { path } => needs(path.as_str()),
        Operation::Add { path, .. } => needs_parent(path),
    }
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
mod tests;
