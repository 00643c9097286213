//! `required-labels` as in a webhook without plugins: works on the host's parsed document, with the plugin's regular
//! expression library.

use regex_lite::Regex;
use serde_json::Value;
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_admission::{Cause, Denial};
use tollgate_json::document::{Json, Pointer};

/// The required fields, each with the pattern of its whole value.
pub struct RequiredLabels {
    demands: Vec<(Pointer, Option<Regex>)>,
}

// === impl RequiredLabels ===

impl RequiredLabels {
    /// Reads the plugin's settings.
    ///
    /// # Panics
    /// Panics if the plugin would reject them too.
    #[must_use]
    pub fn new(settings: &Value) -> Self {
        let labels = settings["labels"].as_object().expect("`labels` is there");
        let demands = labels.iter().map(|(key, pattern)| {
            let pattern = pattern.as_str().map(|text| format!("^(?:{text})$"));
            let pattern =
                pattern.map(|text| Regex::new(&text).expect("the settings have valid patterns"));
            (Pointer::from_tokens(["metadata", "labels", key]), pattern)
        });
        Self {
            demands: demands.collect(),
        }
    }

    /// Checks an object.
    ///
    /// # Errors
    /// Fails if a label is missing or malformed.
    pub fn validate(&self, request: &AdmissionRequest, object: &Json) -> Result<(), Denial> {
        if request.sub_resource.is_some() {
            return Ok(());
        }
        let violates = |(field, pattern): &&(Pointer, Option<Regex>)| match (
            object.lookup(field).and_then(Json::as_text),
            pattern,
        ) {
            (Some(value), Some(pattern)) => !pattern.is_match(value),
            (Some(_), None) => false,
            (None, _) => true,
        };
        let causes: Vec<Cause> = self
            .demands
            .iter()
            .filter(violates)
            .map(|(field, _)| Cause {
                field: Some(field.to_string()),
                message: "is required".to_owned(),
                reason: None,
            })
            .collect();
        if causes.is_empty() {
            return Ok(());
        }
        Err(Denial {
            message: "labels are missing or malformed".to_owned(),
            causes,
            ..Denial::default()
        })
    }
}
