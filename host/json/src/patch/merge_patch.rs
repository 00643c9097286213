//! Applies RFC 7386 JSON Merge Patches.

use std::sync::Arc;

use crate::document::{Account, Json, NoRoom, room};

/// Applies a merge patch to the document and returns the result. Members of the patch are merged in, and members that
/// are null are removed. A patch that is not an object replaces the value.
///
/// Every patch applies to every document. Parts that the patch does not change stay shared with `document`.
#[must_use]
pub fn merge_patch(document: &Json, patch: &Json) -> Json {
    let Json::Object(changes) = patch else {
        return if document == patch {
            document.clone()
        } else {
            patch.clone()
        };
    };
    let mut members = match document {
        Json::Object(members) => Arc::clone(members),
        _ => Arc::default(),
    };
    if members
        .keys()
        .any(|name| changes.get(name).is_some_and(Json::is_null))
    {
        Arc::make_mut(&mut members).retain(|name, _| !changes.get(name).is_some_and(Json::is_null));
    }
    for (name, change) in changes.iter().filter(|(_, change)| !change.is_null()) {
        let present = members.get(name);
        let merged = merge_patch(present.unwrap_or(&Json::Null), change);
        if !present.is_some_and(|present| present.is_same(&merged)) {
            Arc::make_mut(&mut members).insert(Arc::clone(name), merged);
        }
    }
    Json::Object(members)
}

/// Like [`merge_patch`], but charges an account for every container that may be copied.
///
/// # Errors
/// When the account has no room for the copies.
pub fn merge_patch_within(document: &Json, patch: &Json, memory: &Account) -> Result<Json, NoRoom> {
    take_copies(Some(document), patch, memory)?;
    Ok(merge_patch(document, patch))
}

fn take_copies(document: Option<&Json>, patch: &Json, memory: &Account) -> Result<(), NoRoom> {
    let Some(changes) = patch.as_object() else {
        return Ok(());
    };
    let members = document.and_then(Json::as_object);
    let most = members.map_or(0, |members| members.len()) + changes.len();
    // A table grows by doubling.
    memory.take(room::object(2 * most))?;
    for (name, change) in changes {
        take_copies(
            members.and_then(|members| members.get(name)),
            change,
            memory,
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn agrees_with_the_table_of_rfc_7386_appendix_a() {
        for (original, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b"}),
                json!({"b": "c"}),
                json!({"a": "b", "b": "c"}),
            ),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (
                json!({"a": "b", "b": "c"}),
                json!({"a": null}),
                json!({"b": "c"}),
            ),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": [{"b": "c"}]}),
                json!({"a": [1]}),
                json!({"a": [1]}),
            ),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!({"a": "foo"}), json!("bar"), json!("bar")),
            (
                json!({"e": null}),
                json!({"a": 1}),
                json!({"e": null, "a": 1}),
            ),
            (
                json!([1, 2]),
                json!({"a": "b", "c": null}),
                json!({"a": "b"}),
            ),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ] {
            let merged = merge_patch(&Json::from(original.clone()), &Json::from(patch.clone()));
            assert!(
                merged == Json::from(result.clone()),
                "{original} + {patch} = {}, not {result}",
                merged.to_text()
            );
        }
    }

    #[test]
    fn unchanged_parts_stay_shared() {
        let document = Json::from(json!({"a": {"b": "c"}, "d": ["e"]}));
        let merged = merge_patch(
            &document,
            &Json::from(json!({"a": {"b": "c"}, "d": ["e"], "f": null})),
        );
        assert!(merged.is_same(&document));
        let merged = merge_patch(&document, &Json::from(json!({"a": {"b": "x"}})));
        assert!(
            merged
                .member("d")
                .unwrap()
                .is_same(document.member("d").unwrap())
        );
    }
}
