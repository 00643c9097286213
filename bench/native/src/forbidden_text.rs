//! `forbidden-text` in native Rust: checks every string of the parsed object.

use serde_json::Value;
use tollgate_admission::Denial;
use tollgate_json::document::Json;

/// The text that must not occur.
pub(crate) struct ForbiddenText {
    text: String,
}

// === impl ForbiddenText ===

impl ForbiddenText {
    /// Reads the plugin's settings.
    pub(crate) fn new(settings: &Value) -> Self {
        let text = settings["text"].as_str().expect("`text` is there");
        Self {
            text: text.to_owned(),
        }
    }

    pub(crate) fn validate(&self, object: &Json) -> Result<(), Denial> {
        if !self.occurs(object) {
            return Ok(());
        }
        Err(Denial {
            message: "the object mentions what it must not".to_owned(),
            ..Denial::default()
        })
    }

    fn occurs(&self, value: &Json) -> bool {
        match value {
            Json::Text(text) => text.contains(&self.text),
            Json::Array(elements) => elements.iter().any(|element| self.occurs(element)),
            Json::Object(members) => members.values().any(|member| self.occurs(member)),
            _ => false,
        }
    }
}
