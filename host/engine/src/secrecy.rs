//! Keeps the content of Secrets out of logs, warnings, annotations, denials and faults.
//!
//! A plugin that reviews a Secret can put the content into a message. A search for the value would not find a cut,
//! encoded or hashed copy. Tollgate therefore tracks the plugin's reads. Every call has a fresh instance, so a plugin
//! that has not read the content in this call cannot repeat it. After the first read, Tollgate withholds every text of
//! that call: log lines, warnings, annotations, denial messages and panic texts.
//!
//! A mutator must not move content to a place where the next plugin could read it unnoticed. The next plugin may run in
//! the same call or in a later one; mutate and validate are two calls that share nothing. A mutator that has read or
//! copied content may therefore change only `data`, `stringData` and annotations, which all count as content
//! ([`is_content`]).
//!
//! A plugin can also read other Secrets than that of the review, by a lookup of the capability `cluster`. Users who may
//! read the object of the review may lack the right to read those. Such a mutator may therefore change nothing.
//!
//! A patch can read content too: `test` compares it, `copy` and `move` take it along. An operation that needs an
//! existing value fails where there is none ([`goes_by_content`]).

use tollgate_json::document::{Json, Pointer};
use tollgate_json::patch::Operation;

/// Placeholder for a withheld text.
pub const WITHHELD: &str = "[withheld: the plugin has read the content of a Secret]";

/// Whether a plugin's texts may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Secrecy {
    /// The review is not about a Secret.
    Open,
    /// The review is about a Secret, and the plugin has read only its outside.
    Sealed,
    /// The plugin has read the content of the review's Secret.
    Broken,
    /// The plugin has read Secrets by a lookup. No place of the review's object counts as their content.
    Elsewhere,
}

/// Fields of a Secret that tell nothing about its content.
const OUTSIDE: [&str; 4] = ["apiVersion", "kind", "type", "immutable"];
/// Metadata of a Secret that tells nothing about its content. Annotations are excluded, because `kubectl apply` keeps
/// the whole Secret in one.
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
    /// The secrecy at the start of a review.
    #[must_use]
    pub fn of(is_secret: bool) -> Self {
        if is_secret { Self::Sealed } else { Self::Open }
    }

    /// Records that the plugin learned that something exists at a well-formed `pointer`. Tollgate treats this as a read
    /// of the parent's member names.
    pub(super) fn finds(&mut self, pointer: &str) {
        if *self == Self::Sealed
            && let Some((parent, _)) = pointer.rsplit_once('/')
        {
            self.reads_names(parent);
        }
    }

    /// Records that the plugin got the value at a well-formed `pointer`, not only its type or its member names.
    pub(super) fn reads(&mut self, pointer: &str, value: &Json) {
        let tells_nothing = matches!(value, Json::Null | Json::Bool(_));
        if *self == Self::Sealed && !tells_nothing && !is_outside(pointer) {
            *self = Self::Broken;
        }
    }

    /// The secrecy of a mutator whose patch copies content without a read, or succeeds depending on the content.
    #[must_use]
    pub fn going_by_content(self) -> Self {
        match self {
            Self::Sealed => Self::Broken,
            other => other,
        }
    }

    /// Records that the plugin got member names at a well-formed `pointer`, or learned of one name. An earlier mutator
    /// may have turned a value into a name.
    pub(super) fn reads_names(&mut self, pointer: &str) {
        if *self == Self::Sealed && !matches!(pointer, "" | "/metadata") && !is_outside(pointer) {
            *self = Self::Broken;
        }
    }

    /// Records that the plugin got an answer of a lookup of Secrets.
    pub(super) fn reads_elsewhere(&mut self) {
        *self = Self::Elsewhere;
    }

    /// Whether texts are withheld.
    #[must_use]
    pub fn withholds(self) -> bool {
        matches!(self, Self::Broken | Self::Elsewhere)
    }

    /// Whether a mutator may write to a place of the object without spreading content that it has read.
    #[must_use]
    pub fn may_write(self, pointer: &str) -> bool {
        match self {
            Self::Open | Self::Sealed => true,
            Self::Broken => is_content(pointer),
            Self::Elsewhere => false,
        }
    }

    /// Returns the text, or the placeholder if texts are withheld.
    #[must_use]
    pub fn text(self, text: String) -> String {
        if self.withholds() {
            WITHHELD.to_owned()
        } else {
            text
        }
    }

    /// Returns a pointer that a plugin wrote, cut at the first name that `document` does not have. A plugin can turn a
    /// value into a name.
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

/// Whether a plugin that has read a Secret's content may write to this place of the Secret.
///
/// A value at such a place counts as content for every later plugin, in this call and in the next.
#[must_use]
pub fn is_content(pointer: &str) -> bool {
    let mut tokens = pointer.split('/').skip(1);
    matches!(
        (tokens.next(), tokens.next()),
        (Some("data" | "stringData"), _) | (Some("metadata"), Some("annotations"))
    )
}

/// Whether a patch operation copies content of a Secret, or succeeds depending on that content.
///
/// A plugin could use the success of an operation to test one guess in each call.
#[must_use]
pub fn goes_by_content(operation: &Operation) -> bool {
    // The operation reads the whole value.
    let reads_value = |pointer: &Pointer| !is_outside(pointer.as_str());
    // The operation fails where nothing exists, so its success tells that something exists.
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
