//! A review whose documents are in memory.

use crate::eval::{Found, Source};
use crate::json;
use crate::node::Document;
use crate::value::Value;

/// The documents of a review, as values.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    documents: Vec<(Document, Value)>,
}

// === impl Tree ===

impl Tree {
    /// Creates a review without documents.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the object.
    #[must_use]
    pub fn object(self, object: &serde_json::Value) -> Self {
        self.with(Document::Object, json::from_json(object))
    }

    /// Sets the old object.
    #[must_use]
    pub fn old_object(self, object: &serde_json::Value) -> Self {
        self.with(Document::OldObject, json::from_json(object))
    }

    /// Sets the request.
    #[must_use]
    pub fn request(self, request: &serde_json::Value) -> Self {
        self.with(Document::Request, json::from_json(request))
    }

    /// Sets a document.
    #[must_use]
    pub fn with(mut self, document: Document, value: Value) -> Self {
        self.documents.retain(|(known, _)| *known != document);
        self.documents.push((document, value));
        self
    }
}

impl Source for Tree {
    fn value(&self, document: Document, pointer: &str) -> Option<Found> {
        let mut documents = self.documents.iter();
        let (_, value) = documents.find(|(known, _)| *known == document)?;
        value.at(pointer).cloned().map(Found::Value)
    }
}
