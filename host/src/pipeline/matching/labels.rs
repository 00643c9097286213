//! Label selectors, as kube-apiserver's object matcher has them.

use crate::config::{LabelSelector, LabelTest};
use crate::document::Json;

// === impl LabelSelector ===

impl LabelSelector {
    /// Whether either of the two objects has such labels.
    ///
    /// A selector without requirements selects anything. Any other selects objects with metadata only: neither
    /// nothing, as both are in a DELETE and a CREATE in turn, nor the options of a CONNECT, whatever its
    /// requirements.
    #[must_use]
    pub fn selects(&self, object: Option<&Json>, old_object: Option<&Json>) -> bool {
        self.requirements.is_empty()
            || object.is_some_and(|object| self.selects_object(object))
            || old_object.is_some_and(|object| self.selects_object(object))
    }

    fn selects_object(&self, object: &Json) -> bool {
        let Some(metadata) = object
            .member("metadata")
            .filter(|json| json.as_object().is_some())
        else {
            return false;
        };
        let labels = metadata.member("labels");
        self.requirements.iter().all(|requirement| {
            let value = labels
                .and_then(|labels| labels.member(&requirement.key))
                .and_then(Json::as_text);
            requirement.test.holds(value)
        })
    }
}

// === impl LabelTest ===

impl LabelTest {
    fn holds(&self, value: Option<&str>) -> bool {
        let among = |values: &[Box<str>]| {
            value.is_some_and(|value| values.iter().any(|one| **one == *value))
        };
        match self {
            Self::In(values) => among(values),
            Self::NotIn(values) => !among(values),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
        }
    }
}
