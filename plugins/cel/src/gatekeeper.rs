//! Gatekeeper's objects on reviews of the host: the facts that `match` looks at, and the Namespace.

use serde_json::{Map, Value as Json};
use tollgate_cel::{Document, Found, Look, Source, Tree, Value, json};
use tollgate_gatekeeper::{Match, Namespaces, Subject, UnknownNamespace};
use tollgate_sdk::prelude::Review;
use tollgate_sdk::{Document as Part, SettingsErrors};

use crate::review::HostReview;

/// A review, with the Namespaces of the settings before those of the host.
pub(crate) struct Reviewed<'a> {
    review: &'a Review,
    namespaces: &'a Namespaces,
    subjects: Vec<Subject>,
    /// The Namespace of the settings that the object is in.
    namespace: Option<Value>,
}

/// Adds problems to the errors of the settings.
pub(crate) fn report(problems: tollgate_gatekeeper::Problems, errors: &mut SettingsErrors) {
    for problem in problems {
        errors.at(problem.pointer.as_str(), problem.message);
    }
}

// === impl Reviewed ===

impl<'a> Reviewed<'a> {
    /// Reads the facts of the object and the old object.
    pub(crate) fn new(review: &'a Review, namespaces: &'a Namespaces) -> Self {
        let kind = review.kind();
        let namespace = review.request_document().text("/namespace");
        let namespace = namespace.unwrap_or_default();
        let of = |document: Part| {
            let labels = document.read("/metadata/labels").ok().flatten();
            Subject::read([&kind.group, &kind.kind], &namespace, labels, &|pointer| {
                document.text(pointer).unwrap_or_default()
            })
        };
        let documents = [review.object(), review.old_object()];
        Self {
            subjects: documents
                .into_iter()
                .filter(|document| document.exists())
                .map(of)
                .collect(),
            namespace: namespaces.get(&namespace).map(json::from_json),
            review,
            namespaces,
        }
    }

    /// Whether a match selects the object or the old object.
    ///
    /// # Errors
    /// When a selector needs the labels of a Namespace that nothing knows.
    pub(crate) fn is_selected(&self, matching: &Match) -> Result<bool, UnknownNamespace> {
        for subject in &self.subjects {
            if self.selects(matching, subject)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a match selects an object.
    ///
    /// # Errors
    /// As [`Reviewed::is_selected`].
    pub(crate) fn selects(
        &self,
        matching: &Match,
        subject: &Subject,
    ) -> Result<bool, UnknownNamespace> {
        matching.selects(subject, &|namespace| self.labels_of(namespace))
    }

    fn labels_of(&self, name: &str) -> Option<Map<String, Json>> {
        self.namespaces.labels(name, || {
            let namespace = self.review.namespace();
            if namespace.text("/metadata/name").as_deref() != Some(name) {
                return None;
            }
            let labels = namespace.read("/metadata/labels").ok().flatten();
            Some(labels.unwrap_or_default())
        })
    }
}

impl Source for Reviewed<'_> {
    fn value(&self, document: Document, pointer: &str) -> Option<Found> {
        match (&self.namespace, document) {
            (Some(namespace), Document::Namespace) => {
                namespace.at(pointer).cloned().map(Found::Value)
            }
            _ => HostReview(self.review).value(document, pointer),
        }
    }

    fn look(&self, document: Document, pointers: &[String]) -> Vec<Option<Look<Value>>> {
        match (&self.namespace, document) {
            (Some(namespace), Document::Namespace) => Tree::new()
                .with(document, namespace.clone())
                .look(document, pointers),
            _ => HostReview(self.review).look(document, pointers),
        }
    }

    fn keys(&self, document: Document, pointer: &str) -> Vec<String> {
        match (&self.namespace, document) {
            (Some(namespace), Document::Namespace) => {
                namespace.at(pointer).map_or_else(Vec::new, Value::names)
            }
            _ => HostReview(self.review).keys(document, pointer),
        }
    }

    fn exists(&self, document: Document, pointer: &str) -> bool {
        match (&self.namespace, document) {
            (Some(namespace), Document::Namespace) => namespace.at(pointer).is_some(),
            _ => HostReview(self.review).exists(document, pointer),
        }
    }
}
