//! Label selectors, as in kube-apiserver's object matcher.

use crate::{LabelSelector, LabelTest};
use tollgate_json::document::Json;

// === impl LabelSelector ===

impl LabelSelector {
    /// Whether the selector selects at least one of the two objects.
    ///
    /// A selector without requirements selects everything. Any other selector selects only objects with metadata.
    /// It never selects an absent object (the new object of a DELETE, the old object of a CREATE) or the options of
    /// a CONNECT, whatever its requirements are.
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
