//! A policy that denies objects that contain a text anywhere. It needs the whole object.
//!
//! The benchmarks use it to measure how much it costs a plugin to parse everything.

use serde_json::Value;
use tollgate_sdk::prelude::*;

/// The policy.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForbiddenText {
    text: String,
}

// === impl ForbiddenText ===

impl Policy for ForbiddenText {
    type Settings = Self;

    fn configure(settings: Self) -> Result<Self, SettingsErrors> {
        Ok(settings)
    }
}

impl Validate for ForbiddenText {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        let object: Option<Value> = review
            .object()
            .read("")
            .expect("an object of any shape is a value");
        if object.is_some_and(|object| self.occurs(&object)) {
            return Err(Denial::new("the object mentions what it must not"));
        }
        Ok(())
    }
}

impl ForbiddenText {
    fn occurs(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => text.contains(&self.text),
            Value::Array(elements) => elements.iter().any(|element| self.occurs(element)),
            Value::Object(members) => members.values().any(|member| self.occurs(member)),
            _ => false,
        }
    }
}

tollgate_sdk::validator! {
    ForbiddenText,
    rules: [Rule::on([Operation::Create, Operation::Update], "", "v1", ["pods"])],
}
