//! Namespaces from a list of objects, for reviews without a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_json::document::Json;

use super::{Lookup, Namespace, Namespaces, Pending};

/// A fixed list of Namespaces. A name that is not in the list does not exist.
#[derive(Clone, Debug)]
pub struct FixedNamespaces {
    place: Arc<str>,
    by_name: BTreeMap<String, Namespace>,
}

/// Why objects make no list of Namespaces.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FromObjectsError {
    /// A Namespace has no name.
    #[error("a Namespace has no `metadata.name`")]
    NoName,
    /// Two Namespaces have the same name.
    #[error("the Namespace `{name}` is there twice")]
    Twice {
        /// The name.
        name: String,
    },
    /// The labels of a Namespace are not texts, so no selector could read them.
    #[error(
        "the label `{key}` of the Namespace `{name}` is not a string: write it in quotes, as Kubernetes requires"
    )]
    Label {
        /// The name of the Namespace.
        name: String,
        /// The label's key.
        key: String,
    },
}

// === impl FixedNamespaces ===

impl FixedNamespaces {
    /// Takes the Namespaces from a list of objects. Other objects are left out.
    ///
    /// `place` completes the sentence "the namespace does not exist …", such as "in namespaces.yaml".
    ///
    /// # Errors
    /// When a Namespace has no name or a label that is not a string, or two have the same name.
    pub fn from_objects<'o>(
        place: &str,
        objects: impl IntoIterator<Item = &'o Json>,
    ) -> Result<Self, FromObjectsError> {
        let mut by_name = BTreeMap::new();
        for object in objects.into_iter().filter(|object| is_namespace(object)) {
            let namespace = Namespace::of(object);
            let name = namespace.name().ok_or(FromObjectsError::NoName)?.to_owned();
            let labels = namespace.document().member("metadata");
            let labels = labels.and_then(|metadata| metadata.member("labels"));
            let labels = labels.and_then(Json::as_object).into_iter().flatten();
            if let Some((key, _)) = labels
                .into_iter()
                .find(|(_, value)| value.as_text().is_none())
            {
                let key = key.to_string();
                return Err(FromObjectsError::Label { name, key });
            }
            if by_name.insert(name.clone(), namespace).is_some() {
                return Err(FromObjectsError::Twice { name });
            }
        }
        Ok(Self {
            place: Arc::from(place),
            by_name,
        })
    }

    /// The number of Namespaces.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    fn find(&self, name: &str) -> Lookup {
        match self.by_name.get(name) {
            Some(namespace) => Lookup::Found(namespace.clone()),
            None => Lookup::NotFound {
                place: self.place.clone(),
            },
        }
    }
}

impl Namespaces for FixedNamespaces {
    fn known(&self, name: &str) -> Option<Lookup> {
        Some(self.find(name))
    }

    fn look_up<'a>(&'a self, name: &'a str) -> Pending<'a> {
        Box::pin(std::future::ready(self.find(name)))
    }
}

fn is_namespace(object: &Json) -> bool {
    let text = |name| object.member(name).and_then(Json::as_text);
    text("apiVersion") == Some("v1") && text("kind") == Some("Namespace")
}
