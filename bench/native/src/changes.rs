//! Records a native mutator's changes to a tree as operations for kube-apiserver.

use std::sync::Arc;

use tollgate_json::document::{ArrayIndex, Json, Pointer, array_index};
use tollgate_json::patch::Operation;

/// The changes so far. A place that is written twice is reported once.
#[derive(Default)]
pub(crate) struct Changes(Vec<(Pointer, Json)>);

// === impl Changes ===

impl Changes {
    /// Replaces an existing value in place. Does nothing if there is none.
    pub(crate) fn replace(&mut self, object: &mut Json, at: Pointer, value: Json) {
        let Some(place) = find(object, &at) else {
            return;
        };
        *place = value.clone();
        match self.0.iter_mut().find(|(known, _)| *known == at) {
            Some((_, earlier)) => *earlier = value,
            None => self.0.push((at, value)),
        }
    }

    pub(crate) fn into_operations(self) -> Vec<Operation> {
        let replace = |(path, value)| Operation::Replace { path, value };
        self.0.into_iter().map(replace).collect()
    }
}

/// Finds a value. The tree has no other owner, so nothing is copied on the way.
fn find<'tree>(tree: &'tree mut Json, at: &Pointer) -> Option<&'tree mut Json> {
    at.tokens().try_fold(tree, |here, token| match here {
        Json::Object(members) => Arc::make_mut(members).get_mut(&*token),
        Json::Array(elements) => match array_index(&token)? {
            ArrayIndex::At(index) => Arc::make_mut(elements).get_mut(index),
            ArrayIndex::End => None,
        },
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reports_place_written_twice_only_once() {
        let mut object = Json::from(json!({ "a": [{ "b": "one" }], "c": 1 }));
        let mut changes = Changes::default();
        for value in ["two", "three"] {
            let at = Pointer::parse("/a/0/b").unwrap();
            changes.replace(&mut object, at, Json::text(value));
        }
        changes.replace(&mut object, Pointer::parse("/a/1/b").unwrap(), Json::Null);
        assert!(object == Json::from(json!({ "a": [{ "b": "three" }], "c": 1 })));
        let operations = changes.into_operations();
        assert_eq!(
            operations,
            [Operation::Replace {
                path: Pointer::parse("/a/0/b").unwrap(),
                value: Json::text("three"),
            }]
        );
    }
}
