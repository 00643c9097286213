//! Objects of a cluster, as kubectl prints them or as a file holds them.

use serde_json::Value;

/// Objects of any kind.
#[derive(Clone, Debug, Default)]
pub struct Objects(Vec<Value>);

/// Why a text is not a list of Kubernetes objects.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// The text is not YAML or JSON.
    #[error("cannot read the objects: expected YAML or JSON as kubectl prints it: {0}")]
    Syntax(String),
    /// A document is something else than an object with `kind`.
    #[error("cannot read document {0}: expected a Kubernetes object with `kind`")]
    NotAnObject(usize),
}

// === impl Objects ===

impl Objects {
    /// Reads YAML documents or JSON. The items of lists are taken out of the lists.
    ///
    /// # Errors
    ///
    /// When the text has another syntax, or a document is not a Kubernetes object.
    pub fn parse(text: &str) -> Result<Self, ObjectsError> {
        let syntax = |error: &dyn std::fmt::Display| ObjectsError::Syntax(error.to_string());
        let documents: Vec<Value> = if text.trim_start().starts_with('{') {
            let documents = serde_json::Deserializer::from_str(text).into_iter();
            documents
                .collect::<Result<_, _>>()
                .map_err(|error| syntax(&error))?
        } else {
            serde_saphyr::from_multiple(text).map_err(|error| syntax(&error))?
        };
        let mut objects = Vec::new();
        for (index, document) in documents.into_iter().enumerate() {
            add(document, &mut objects).ok_or(ObjectsError::NotAnObject(index + 1))?;
        }
        Ok(Self(objects))
    }

    /// Adds the objects of another list.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Returns whether there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the objects of a kind.
    pub fn of_kind<'o>(&'o self, kind: &'o str) -> impl Iterator<Item = &'o Value> {
        self.0.iter().filter(move |object| object["kind"] == kind)
    }

    /// Finds an object by kind, namespace and name.
    pub(crate) fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.0.iter().find(|object| {
            object["kind"] == kind
                && text(object, "namespace") == namespace
                && name_of(object) == name
        })
    }
}

fn add(document: Value, objects: &mut Vec<Value>) -> Option<()> {
    if document.is_null() {
        return Some(());
    }
    let kind = document.get("kind")?.as_str()?;
    match document.get("items") {
        Some(Value::Array(_)) if kind.ends_with("List") => {
            // The items of a typed list have no kind of their own.
            let of_items = kind.strip_suffix("List").unwrap_or_default().to_owned();
            let Value::Object(mut list) = document else {
                return None;
            };
            let Some(Value::Array(items)) = list.remove("items") else {
                return None;
            };
            for mut item in items {
                if item.get("kind").is_none() && item.is_object() && !of_items.is_empty() {
                    item["kind"] = of_items.clone().into();
                }
                add(item, objects)?;
            }
        }
        _ => objects.push(document),
    }
    Some(())
}

/// Returns the object's name.
pub(crate) fn name_of(object: &Value) -> &str {
    text(object, "name")
}

/// Returns a text in the object's metadata.
pub(crate) fn text<'o>(object: &'o Value, key: &str) -> &'o str {
    object["metadata"][key].as_str().unwrap_or_default()
}

/// Returns the elements of a list. A missing list is empty.
pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns the texts in a list.
pub(crate) fn texts(value: &Value) -> Vec<&str> {
    list(value).filter_map(Value::as_str).collect()
}
