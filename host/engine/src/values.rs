//! The values of the contract that host functions hand out.
//!
//! The generated bindings would copy each text. These types share it with the document. When wasmtime links a plugin, it compares
//! these types with the contract.

use std::sync::Arc;

use tollgate_json::document::{Json, Number};
use wasmtime::component::{ComponentType, Lower};

/// The variant `value`.
#[derive(Clone, ComponentType, Lower)]
#[component(variant)]
pub(super) enum Value {
    #[component(name = "null")]
    Null,
    #[component(name = "boolean")]
    Boolean(bool),
    #[component(name = "integer")]
    Integer(i64),
    #[component(name = "number")]
    Number(f64),
    #[component(name = "text")]
    Text(Arc<str>),
    #[component(name = "array")]
    Array(u32),
    #[component(name = "object")]
    Object(u32),
}

/// The record `node`.
#[derive(ComponentType, Lower)]
#[component(record)]
pub(super) struct Node {
    #[component(name = "pointer")]
    pub(super) pointer: String,
    #[component(name = "value")]
    pub(super) value: Value,
}

// === impl Value ===

impl Value {
    pub(super) fn of(value: &Json) -> Self {
        match value {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Boolean(*value),
            Json::Number(Number::Integer(integer)) => Self::Integer(*integer),
            Json::Number(number) => match integer_text(number) {
                Some(integer) => Self::Integer(integer),
                None => Self::Number(number.as_f64()),
            },
            Json::Text(text) => Self::Text(text.clone()),
            Json::Array(elements) => Self::Array(length(elements.len())),
            Json::Object(members) => Self::Object(length(members.len())),
        }
    }
}

fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Reads an integer that is not written canonically. The only such integer here is `-0`.
fn integer_text(number: &Number) -> Option<i64> {
    match number {
        Number::Integer(integer) => Some(*integer),
        Number::Text(text) => text.parse().ok(),
    }
}
