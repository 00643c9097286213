//! Existing violations: no violation is excused if its place held something else before.

use serde_json::{Value, json};
use tollgate_admission::review::decode::decode;
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_gate::fuzzing::existing::{Reason, split_existing};
use tollgate_json::document::Json;

use crate::choices::Choices;
use crate::document;

/// Reads `[old object, new object, old fields, new fields]`, or derives them from the bytes.
pub fn target(data: &[u8]) {
    let (old, new, before, now) = written(data).unwrap_or_else(|| chosen(data));
    let request = request();
    let (old, new) = (Json::from(old), Json::from(new));
    let Some((brought_in, excused)) = split_existing(&request, (&old, &new), (&before, &now))
    else {
        return;
    };
    let mut told: Vec<&Reason> = brought_in.iter().chain(&excused).collect();
    let mut all: Vec<&Reason> = now.iter().collect();
    told.sort();
    all.sort();
    assert_eq!(told, all, "a reason is lost or made up");
    for (field, message) in &excused {
        let Some(field) = field.as_deref().filter(|field| field.starts_with('/')) else {
            continue;
        };
        let Ok(value) = new.at(field) else {
            continue;
        };
        let held = before.iter().any(|(place, words)| {
            let place = place.as_deref().unwrap_or_default();
            words == message && old.at(place).is_ok_and(|before| before == value)
        });
        assert!(held, "{field} is excused, and held something else before");
    }
}

type Chosen = (Value, Value, Vec<Reason>, Vec<Reason>);

fn written(data: &[u8]) -> Option<Chosen> {
    let documents: Vec<Value> = serde_json::from_slice(data).ok()?;
    let [old, new, before, now] = documents.try_into().ok()?;
    let reasons = |fields: Value| -> Option<Vec<Reason>> {
        let reason = |field: &Value| Some((Some(field.as_str()?.to_owned()), "bad".to_owned()));
        fields.as_array()?.iter().map(reason).collect()
    };
    Some((old, new, reasons(before)?, reasons(now)?))
}

fn chosen(data: &[u8]) -> Chosen {
    let mut choices = Choices::new(data);
    let old = document::object(&mut choices);
    let new = document::changed(&old, &mut choices);
    let mut reasons = |document: &Value| -> Vec<Reason> {
        let count = choices.below(6);
        let reason = |choices: &mut Choices<'_>| {
            let place = document::pointer(document, choices);
            let field = (!choices.chance(5)).then_some(place);
            let message = choices.word(&["bad", "bad", "worse"]);
            (field, message.to_owned())
        };
        (0..count).map(|_| reason(&mut choices)).collect()
    };
    let mut before = reasons(&old);
    let now = reasons(&new);
    // In most cases the plugin reports the same fields for the old object as for the new one.
    if choices.chance(70) {
        before.extend(now.iter().cloned());
    }
    (old, new, before, now)
}

fn request() -> AdmissionRequest {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "name": "a",
            "namespace": "b",
            "operation": "UPDATE",
            "object": {},
            "oldObject": {},
        },
    });
    decode(review.to_string().as_bytes(), 32)
        .expect("it is a review")
        .request
}
