//! Which of a plugin's reasons are new.

use serde_json::{Value, json};

use super::*;
use crate::review::decode::decode;

fn request(object: &Value, old_object: &Value) -> AdmissionRequest {
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u", "operation": "UPDATE", "name": "web",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": object, "oldObject": old_object,
        }
    });
    decode(review.to_string().as_bytes(), 32).unwrap().request
}

fn pod(containers: &[&str]) -> Value {
    let containers: Vec<Value> = containers
        .iter()
        .map(|name| json!({"name": name}))
        .collect();
    json!({"spec": {"containers": containers}})
}

fn denial(message: &str, causes: &[(&str, &str)]) -> Denial {
    let causes = causes.iter().map(|(field, message)| Cause {
        field: Some((*field).to_owned()).filter(|field| !field.is_empty()),
        message: (*message).to_owned(),
        reason: None,
    });
    Denial {
        message: message.to_owned(),
        code: Some(422),
        reason: None,
        causes: causes.collect(),
    }
}

/// The new and the existing causes' fields, and the message of what is new.
fn split_of(new: &Denial, old: &Denial, request: &AdmissionRequest) -> (String, String, String) {
    let split = split(new.clone(), old, request);
    let fields = |denial: &Option<Denial>| {
        let causes = denial.iter().flat_map(|denial| &denial.causes);
        let fields: Vec<&str> = causes.filter_map(|cause| cause.field.as_deref()).collect();
        fields.join(" ")
    };
    let message = split.new.as_ref().map(|denial| denial.message.clone());
    (
        fields(&split.new),
        fields(&split.existing),
        message.unwrap_or_else(|| "allowed".to_owned()),
    )
}

#[test]
fn the_same_reason_in_the_same_place_is_not_new() {
    let request = request(&pod(&["app"]), &pod(&["app"]));
    let here = denial("not good", &[("/spec/hostNetwork", "is set")]);
    for (old, expected) in [
        (&here, ("", "/spec/hostNetwork", "allowed")),
        (
            &denial("other words", &[("/spec/hostNetwork", "is set")]),
            ("", "/spec/hostNetwork", "allowed"),
        ),
        (
            &denial("not good", &[("/spec/hostNetwork", "is something else")]),
            ("/spec/hostNetwork", "", "not good"),
        ),
        (
            &denial("not good", &[("/spec/hostPID", "is set")]),
            ("/spec/hostNetwork", "", "not good"),
        ),
        (
            &denial("not good", &[]),
            ("/spec/hostNetwork", "", "not good"),
        ),
    ] {
        let (new, existing, message) = split_of(&here, old, &request);
        assert_eq!(
            (new.as_str(), existing.as_str(), message.as_str()),
            expected
        );
    }
}

#[test]
fn of_old_and_new_reasons_only_the_new_ones_are_named() {
    let request = request(&pod(&["app"]), &pod(&["app"]));
    let old = denial("1 problem", &[("/spec/a", "is bad")]);
    let new = denial(
        "2 problems",
        &[("/spec/a", "is bad"), ("/spec/b", "is bad")],
    );
    assert_eq!(
        split_of(&new, &old, &request),
        ("/spec/b".to_owned(), "/spec/a".to_owned(), String::new())
    );
    assert_eq!(split(new, &old, &request).new.unwrap().code, Some(422));
}

#[test]
fn without_causes_the_message_is_compared() {
    let request = request(&pod(&["app"]), &pod(&["app"]));
    let new = denial("no label team", &[]);
    let compare = |old: &Denial| split_of(&new, old, &request).2;
    assert_eq!(compare(&denial("no label team", &[])), "allowed");
    assert_eq!(compare(&denial("no label owner", &[])), "no label team");
    assert_eq!(
        compare(&denial("no label team", &[("/metadata/labels", "x")])),
        "no label team"
    );
}

#[test]
fn an_element_with_a_name_is_the_same_in_another_position() {
    let moved = request(&pod(&["side", "app"]), &pod(&["app"]));
    let old = denial("", &[("/spec/containers/0/image", "is bad")]);
    let at = |index: usize| {
        let field = format!("/spec/containers/{index}/image");
        let (new, existing, _) = split_of(&denial("", &[(&field, "is bad")]), &old, &moved);
        (new.is_empty(), existing.is_empty())
    };
    assert_eq!(at(1), (true, false), "app has moved");
    assert_eq!(at(0), (false, true), "side is new, and is where app was");
    let twice = request(&pod(&["app", "app"]), &pod(&["app"]));
    let new = denial("", &[("/spec/containers/1/image", "is bad")]);
    assert_eq!(
        split_of(&new, &old, &twice).1,
        "",
        "names that tell nothing apart"
    );
}

#[test]
fn a_reason_without_a_place_is_compared_by_its_words() {
    let request = request(&pod(&["app"]), &pod(&["app"]));
    let old = denial("", &[("", "too many"), ("spec.replicas", "too few")]);
    let new = denial(
        "",
        &[
            ("", "too many"),
            ("spec.replicas", "too few"),
            ("", "too late"),
        ],
    );
    let split = split(new, &old, &request);
    assert_eq!(split.existing.unwrap().causes.len(), 2);
    assert_eq!(split.new.unwrap().causes[0].message, "too late");
}

#[test]
fn an_object_is_being_deleted_when_the_stored_one_says_so() {
    for (metadata, expected) in [
        (json!({"deletionTimestamp": "2026-11-21T08:00:00Z"}), true),
        (json!({"deletionTimestamp": null}), false),
        (json!({}), false),
    ] {
        let object = Json::from(json!({"metadata": metadata}));
        assert_eq!(is_being_deleted(&object), expected, "{metadata}");
    }
}
