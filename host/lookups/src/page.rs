//! Answers to reads.

use std::fmt;
use std::sync::Arc;

/// An object as a plugin sees it. Clones share the texts.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The namespace. None for a cluster-scoped object.
    pub namespace: Option<Arc<str>>,
    /// The name.
    pub name: Arc<str>,
    /// The kept fields at their places in the object, as JSON.
    pub fields: Arc<str>,
}

/// Some of the objects that a read asked for, in the order of namespaces and names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The objects: at most [`MOST_PAGE_OBJECTS`], and fewer when they are large.
    pub objects: Vec<Entry>,
    /// The argument `after` of the next read. None when there are no more objects.
    pub next: Option<String>,
}

/// Why a read has no answer. The text is for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The configuration does not grant what the read asked for.
    #[error("not granted: {0}")]
    NotGranted(String),
    /// The objects are not known, or not any more.
    #[error("not synchronised: {0}")]
    NotSynchronised(String),
}

/// The largest number of objects in a page.
pub const MOST_PAGE_OBJECTS: usize = 500;
/// The largest size of a page's texts in bytes. A single object may be larger.
pub const MOST_PAGE_BYTES: usize = 256 * 1024;

// === impl Entry ===

impl Entry {
    /// The bytes of the texts.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        self.namespace.as_ref().map_or(0, |text| text.len()) + self.name.len() + self.fields.len()
    }

    fn cursor(&self) -> String {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        format!("{namespace}/{}", self.name)
    }
}

/// Shows the name, and the size of the fields. The fields may be a Secret's.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({}, {} bytes)", self.cursor(), self.fields.len())
    }
}

// === impl Page ===

impl Page {
    /// Takes objects until the page is full. The first object is taken whatever its size is.
    pub(crate) fn of(mut entries: impl Iterator<Item = Entry>) -> Self {
        let mut page = Self::default();
        let mut bytes = 0;
        for entry in &mut entries {
            bytes += entry.text_bytes();
            let is_full = page.objects.len() == MOST_PAGE_OBJECTS || bytes > MOST_PAGE_BYTES;
            if is_full && !page.objects.is_empty() {
                page.next = page.objects.last().map(Entry::cursor);
                break;
            }
            page.objects.push(entry);
        }
        page
    }
}

/// Splits what a page's `next` says. No namespace contains a slash, and neither does a name in a path.
pub(crate) fn parse_cursor(after: &str) -> (&str, &str) {
    after.split_once('/').unwrap_or(("", after))
}

// === impl Failure ===

impl Failure {
    /// Puts words in front of the text.
    pub(crate) fn of(self, subject: &str) -> Self {
        match self {
            Self::NotGranted(text) => Self::NotGranted(format!("{subject}: {text}")),
            Self::NotSynchronised(text) => Self::NotSynchronised(format!("{subject}: {text}")),
        }
    }
}
