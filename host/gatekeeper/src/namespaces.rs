//! Namespaces of the settings, which replace those of the host. Suites of `gator verify` bring their own.

use serde_json::{Map, Value as Json};

use crate::{Pointer, Problems};

/// The label that kube-apiserver sets on every Namespace to its name.
pub(crate) const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Namespaces by their names.
#[derive(Clone, Debug, Default)]
pub struct Namespaces(Map<String, Json>);

// === impl Namespaces ===

impl Namespaces {
    /// Reads the Namespaces under `namespaces`.
    #[must_use]
    pub fn read(list: &[Json], problems: &mut Problems) -> Self {
        let mut namespaces = Map::new();
        for (index, namespace) in list.iter().enumerate() {
            match namespace.pointer("/metadata/name").and_then(Json::as_str) {
                Some(name) => {
                    namespaces.insert(name.to_owned(), namespace.clone());
                }
                None => problems.at(
                    Pointer::root().child("namespaces").child(index),
                    "is no Namespace with metadata.name",
                ),
            }
        }
        Self(namespaces)
    }

    /// Returns a Namespace.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.0.get(name)
    }

    /// Returns the labels of a Namespace, with its name. `live` returns those of the Namespace in the cluster. None if
    /// nothing knows the Namespace.
    #[must_use]
    pub fn labels(
        &self,
        name: &str,
        live: impl FnOnce() -> Option<Map<String, Json>>,
    ) -> Option<Map<String, Json>> {
        let mut labels = match self.0.get(name) {
            Some(namespace) => {
                let labels = namespace.pointer("/metadata/labels");
                labels
                    .and_then(Json::as_object)
                    .cloned()
                    .unwrap_or_default()
            }
            None => live()?,
        };
        labels.insert(NAME_LABEL.to_owned(), name.into());
        Some(labels)
    }
}
