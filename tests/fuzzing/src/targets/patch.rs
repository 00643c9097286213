//! Patches: the difference of two documents turns one into the other, and a patch has the same result elsewhere.

use serde_json::Value;
use tollgate_json::document::{Json, parse};
use tollgate_json::patch::{
    AnswerForm, ApplyLimits, Operation, Provenance, apply, check, diff, merge_patch, write_all,
};

use crate::choices::Choices;
use crate::document;

const MAX_DEPTH: u32 = 64;

/// Reads `[before, after, patch]`, or derives three such documents from the bytes.
pub fn target(data: &[u8]) {
    let written = serde_json::from_slice::<Value>(data).ok();
    let (before, after, patch) = match written.as_ref().and_then(Value::as_array) {
        Some(documents) => {
            let at = |place| documents.get(place).cloned().unwrap_or_default();
            (at(0), at(1), at(2))
        }
        None => {
            let mut choices = Choices::new(data);
            let before = document::value(&mut choices);
            let after = document::changed(&before, &mut choices);
            let patch = document::operations(&before, &mut choices);
            (before, after, patch)
        }
    };
    difference(&before, &after);
    any_patch(&before, &patch);
    let mut merged = before.clone();
    json_patch::merge(&mut merged, &after);
    assert!(
        merge_patch(&Json::from(before), &Json::from(after)) == Json::from(merged),
        "merges differently"
    );
}

fn difference(before: &Value, after: &Value) {
    let (from, to) = (Json::from(before.clone()), Json::from(after.clone()));
    let operations = diff(&from, &to);
    assert_eq!(operations.is_empty(), from == to, "a difference of nothing");
    let result = apply(&from, &operations, &ApplyLimits::default());
    assert!(result.as_ref() == Ok(&to), "the difference leads elsewhere");

    let mut text = Vec::new();
    write_all(&operations, &mut text);
    let read = parse(&text, MAX_DEPTH).expect("a patch is JSON");
    let read = Operation::parse_all(&read).expect("a patch is a patch");
    assert!(
        read == operations,
        "a patch reads differently when it is written"
    );
    let elsewhere: json_patch::Patch = serde_json::from_slice(&text).expect("a patch");
    let mut theirs = before.clone();
    json_patch::patch(&mut theirs, &elsewhere).expect("it applies elsewhere");
    assert!(
        Json::from(theirs.clone()) == to,
        "elsewhere the difference leads elsewhere: {before} becomes {theirs} and not {after}"
    );

    let form = AnswerForm::WholeObject {
        allow_removals: false,
    };
    let _: Result<_, _> = check(&from, &to, &operations, form);
    let mut provenance = Provenance::new();
    assert!(provenance.record(1, &from, &operations).is_empty());
    let back = diff(&to, &from);
    let conflicts = provenance.record(2, &to, &back);
    assert!(conflicts.iter().all(|conflict| conflict.earlier == 1));
}

fn any_patch(before: &Value, patch: &Value) {
    let Ok(operations) = Operation::parse_all(&Json::from(patch.clone())) else {
        return;
    };
    let from = Json::from(before.clone());
    let ours = apply(&from, &operations, &ApplyLimits::default());
    assert!(
        Json::from(before.clone()) == from,
        "the original has changed"
    );
    // The other implementation rejects some patches that this host reads: those with an invalid pointer.
    let Ok(elsewhere) = serde_json::from_value::<json_patch::Patch>(patch.clone()) else {
        return;
    };
    let mut theirs = before.clone();
    // `patch` of that crate panics when it cannot undo the first operations of a patch that fails.
    match (ours, json_patch::patch_unsafe(&mut theirs, &elsewhere)) {
        (Ok(ours), Ok(())) => assert!(ours == Json::from(theirs), "applies differently"),
        (Err(_), Err(_)) => {}
        (Ok(_), Err(error)) => assert!(
            operations.iter().any(is_read_otherwise),
            "applies here alone: {error}"
        ),
        (Err(error), Ok(())) => panic!("applies elsewhere alone: {error}: {}", error.kind),
    }
}

/// Whether the other implementation rejects an operation that RFC 6902 allows: it does not treat `1` and `1.0` as
/// equal, and it does not move the whole document to its own place.
fn is_read_otherwise(operation: &Operation) -> bool {
    match operation {
        Operation::Test { .. } => true,
        Operation::Move { from, .. } => from.is_root(),
        _ => false,
    }
}
