//! The schema of the configuration file.

use std::path::Path;

use serde_json::{Value, json};

use super::{CONFIG_DESCRIPTIONS, Head, Trace, derive, render};
use crate::read_config;

/// Returns the JSON Schema of the configuration file.
#[must_use]
pub fn config() -> Value {
    let head = Head {
        name: "config",
        title: "Configuration of Tollgate",
        descriptions: &[CONFIG_DESCRIPTIONS],
    };
    render(head, &trace())
}

/// Runs the reader of the configuration file.
pub(super) fn trace() -> Trace {
    derive(&[base(), base_of_group()], |document, collector| {
        let _ = read_config(document, Path::new("/"), true, collector);
    })
}

/// A file with a group, which has keys that no plugin has.
fn base_of_group() -> Value {
    let source = "oci://registry.example.com/a:1";
    json!({ "plugins": [{ "name": "a", "group": {
        "members": [{ "name": "m", "source": source }], "expression": "all", "message": "no",
    } }] })
}

/// A file in which every key can have a meaning: only an artifact has signatures.
pub(super) fn base() -> Value {
    let source = "oci://registry.example.com/a:1";
    json!({ "plugins": [{ "name": "a", "source": source, "shadow": { "source": source },
        "rollout": { "to": { "source": source }, "steps": [{}] } }] })
}
