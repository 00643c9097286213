//! Applies a mutator's answer strictly, like the host. A panic here is a fault in the host.

use serde_json::{Value as Json, json};

use super::Mutated;
use crate::{Mutation, NewValue, PatchOperation};

pub(super) fn apply(object: Option<&Json>, mutation: Mutation) -> Mutated {
    let operations = match &mutation {
        Mutation::Patch(patch) => patch.operations().to_vec(),
        _ => Vec::new(),
    };
    let changed = match mutation {
        Mutation::Unchanged => object.cloned(),
        Mutation::Patch(patch) if patch.is_empty() => object.cloned(),
        Mutation::Patch(patch) => {
            let operations = Json::Array(patch.operations().iter().map(operation).collect());
            let patch: json_patch::Patch =
                serde_json::from_value(operations).expect("the paths are JSON Pointers");
            let mut changed = present(object);
            json_patch::patch(&mut changed, &patch)
                .unwrap_or_else(|error| panic!("the patch does not apply: {error}"));
            Some(changed)
        }
        Mutation::Merge(patch) => {
            let mut changed = present(object);
            json_patch::merge(&mut changed, &parse(&patch));
            Some(changed)
        }
        Mutation::Object(changed) => {
            present(object);
            Some(parse(&changed))
        }
    };
    Mutated {
        is_changed: changed.as_ref() != object,
        object: changed,
        operations,
    }
}

fn present(object: Option<&Json>) -> Json {
    object
        .expect("where there is no object, nothing can be changed")
        .clone()
}

fn operation(operation: &PatchOperation) -> Json {
    match operation {
        PatchOperation::Add(at) => json!({"op": "add", "path": at.path, "value": value(&at.value)}),
        PatchOperation::Remove(path) => json!({"op": "remove", "path": path}),
        PatchOperation::Replace(at) => {
            json!({"op": "replace", "path": at.path, "value": value(&at.value)})
        }
        PatchOperation::Move(places) => {
            json!({"op": "move", "from": places.from, "path": places.path})
        }
        PatchOperation::Copy(places) => {
            json!({"op": "copy", "from": places.from, "path": places.path})
        }
        PatchOperation::Test(at) => {
            json!({"op": "test", "path": at.path, "value": value(&at.value)})
        }
    }
}

fn value(value: &NewValue) -> Json {
    match value {
        NewValue::Json(text) => parse(text),
        NewValue::Text(text) => Json::String(text.clone()),
    }
}

fn parse(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("the answer is not JSON: {error}"))
}
