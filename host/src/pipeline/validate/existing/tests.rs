//! Which of a plugin's reasons are new.

use serde_json::{Value, json};

use super::*;
use crate::review::decode::decode;

fn request(object: &Value, old_object: &Value) -> AdmissionRequest {
    request_for("pods", object, old_object)
}

fn request_for(resource: &str, object: &Value, old_object: &Value) -> AdmissionRequest {
    let (resource, sub_resource) = resource.split_once('/').unwrap_or((resource, ""));
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u", "operation": "UPDATE", "name": "web", "subResource": sub_resource,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": resource},
            "object": object, "oldObject": old_object,
        }
    });
    decode(review.to_string().as_bytes(), 32).unwrap().request
}

/// What `existingViolations: allow` excuses of a request.
fn allowing(request: &AdmissionRequest) -> Excusing<'_> {
    Excusing::of(ExistingViolations::Allow, request).expect("an UPDATE")
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
    let split = split(new.clone(), old, allowing(request));
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
    assert_eq!(
        split(new, &old, allowing(&request)).new.unwrap().code,
        Some(422)
    );
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
    let split = split(new, &old, allowing(&request));
    assert_eq!(split.existing.unwrap().causes.len(), 2);
    assert_eq!(split.new.unwrap().causes[0].message, "too late");
}

#[test]
fn the_same_words_about_another_value_are_new() {
    let with = |spec: Value| json!({"metadata": {}, "spec": spec});
    for (field, spec, old, expected) in [
        (
            "/spec/image",
            json!({"image": "evil:1"}),
            json!({"image": "old:1"}),
            "new",
        ),
        (
            "/spec/image",
            json!({"image": "old:1", "x": 1}),
            json!({"image": "old:1"}),
            "existing",
        ),
        (
            "/spec/paths",
            json!({"paths": ["/", "/var"]}),
            json!({"paths": ["/var"]}),
            "new",
        ),
        ("/spec/team", json!({"x": 1}), json!({}), "existing"),
        ("/spec/team", json!({"team": "x"}), json!({}), "new"),
        ("/spec/team", json!({}), json!({"team": "x"}), "new"),
        (
            "/spec/ports/0/port",
            json!({"ports": [{"port": 22}]}),
            json!({"ports": [{"port": 80}]}),
            "new",
        ),
    ] {
        let request = request(&with(spec.clone()), &with(old.clone()));
        let reason = denial("", &[(field, "is not allowed")]);
        let found = match split_of(&reason, &reason, &request).2.as_str() {
            "allowed" => "existing",
            _ => "new",
        };
        assert_eq!(found, expected, "{field} of {spec}, before {old}");
    }
}

#[test]
fn the_value_of_an_element_that_moved_is_compared_with_its_own() {
    let containers = |containers: Value| json!({"spec": {"containers": containers}});
    let old = containers(json!([{"name": "app", "image": "bad"}]));
    let side = json!({"name": "side", "image": "good"});
    let reason = |index: usize| {
        let field = format!("/spec/containers/{index}/image");
        denial("", &[(&field, "is not allowed")])
    };
    for (image, expected) in [("bad", "allowed"), ("worse", "")] {
        let new = containers(json!([side, {"name": "app", "image": image}]));
        let request = request(&new, &old);
        assert_eq!(
            split_of(&reason(1), &reason(0), &request).2,
            expected,
            "{image}"
        );
    }
}

#[test]
fn without_a_place_only_the_metadata_may_differ() {
    let old = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"x": 1}, "status": {"y": 1}});
    let with = |field: &str, value: Value| {
        let mut object = old.clone();
        object[field] = value;
        object
    };
    let excused = |resource: &str, object: &Value| {
        let request = request_for(resource, object, &old);
        [
            denial("not you", &[]),
            denial("no", &[("", "not you")]),
            denial("no", &[("spec.x", "not you")]),
        ]
        .map(|reason| split_of(&reason, &reason, &request).2 == "allowed")
    };
    for (resource, field, expected) in [
        ("pods", "metadata", true),
        ("pods", "spec", false),
        ("pods", "status", false),
        ("pods/status", "status", true),
        ("pods/status", "spec", false),
        ("pods", "data", false),
        ("namespaces/finalize", "spec", true),
        ("gates/finalize", "spec", false),
    ] {
        let object = with(field, json!({"z": 2}));
        assert_eq!(
            excused(resource, &object),
            [expected; 3],
            "{field} of {resource}"
        );
    }
    let mut less = old.clone();
    less.as_object_mut().unwrap().remove("status");
    assert_eq!(excused("pods", &less), [false; 3]);
}

/// Of an object that is being deleted, by what the request changes of it.
fn excused_of_a_deletion(resource: &str, change: impl Fn(&mut Value), reason: &Denial) -> bool {
    let old = json!({
        "metadata": {
            "deletionTimestamp": "2026-11-21T08:00:00Z", "finalizers": ["a/b", "c/d"],
            "ownerReferences": [{"name": "x"}], "labels": {"a": "b"}, "managedFields": [],
        },
        "spec": {"x": 1},
        "status": {"y": 1},
    });
    let mut object = old.clone();
    change(&mut object);
    let request = request_for(resource, &object, &old);
    Excusing::of(ExistingViolations::Deny, &request)
        .is_some_and(|excusing| split(reason.clone(), reason, excusing).new.is_none())
}

#[test]
fn who_is_being_deleted_can_lose_finalizers_and_gain_nothing() {
    let by_user = denial("only the platform team may change this", &[]);
    let in_spec = denial("no", &[("/spec/x", "is not allowed")]);
    let in_labels = denial("no", &[("/metadata/labels/a", "is not allowed")]);
    type Change = fn(&mut Value);
    let changes: [(&str, &str, Change, [bool; 3]); 10] = [
        ("nothing", "pods", |_| (), [true; 3]),
        (
            "a finalizer",
            "pods",
            |object| {
                object["metadata"]["finalizers"] = json!(["c/d"]);
                object["metadata"]["managedFields"] = json!([{"manager": "x"}]);
            },
            [true; 3],
        ),
        (
            "its last finalizer and owner",
            "pods",
            |object| {
                let metadata = object["metadata"].as_object_mut().unwrap();
                metadata.remove("finalizers");
                metadata.remove("ownerReferences");
            },
            [true; 3],
        ),
        (
            "a Namespace's finalizer",
            "namespaces/finalize",
            |object| object["spec"] = json!({}),
            [true, false, true],
        ),
        (
            "a label",
            "pods",
            |object| object["metadata"]["labels"]["a"] = json!("c"),
            [false, true, false],
        ),
        (
            "a label along with a finalizer",
            "pods",
            |object| {
                object["metadata"]["labels"]["a"] = json!("c");
                object["metadata"]["finalizers"] = json!([]);
            },
            [false, true, false],
        ),
        (
            "its status",
            "pods/status",
            |object| object["status"]["y"] = json!(2),
            [false, true, true],
        ),
        (
            "its status, past the subresource",
            "pods",
            |object| object["status"]["y"] = json!(2),
            [false; 3],
        ),
        (
            "its spec",
            "pods",
            |object| object["spec"]["y"] = json!(2),
            [false; 3],
        ),
        (
            "whom it grants",
            "pods",
            |object| object["subjects"] = json!(["me"]),
            [false; 3],
        ),
    ];
    for (what, resource, change, expected) in changes {
        let found = [&by_user, &in_spec, &in_labels]
            .map(|reason| excused_of_a_deletion(resource, change, reason));
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn by_default_only_a_deletion_excuses_anything() {
    let request = request(&pod(&["app"]), &pod(&["app"]));
    assert!(Excusing::of(ExistingViolations::Deny, &request).is_none());
    assert!(Excusing::of(ExistingViolations::Allow, &request).is_some());
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
