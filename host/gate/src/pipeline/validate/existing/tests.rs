//! Tests which of a plugin's reasons are new.

use serde_json::{Value, json};
use tollgate_admission::Cause;
use tollgate_admission::review::decode::decode;

use super::*;

fn request(object: &Value, old_object: &Value) -> Arc<AdmissionRequest> {
    request_for("pods", object, old_object)
}

fn request_for(resource: &str, object: &Value, old_object: &Value) -> Arc<AdmissionRequest> {
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
    Arc::new(decode(review.to_string().as_bytes(), 32).unwrap().request)
}

/// Splits a denial as `existingViolations: allow` does.
fn split_existing(new: &Denial, old: &Denial, request: &AdmissionRequest) -> Split {
    let objects = Objects::of(request).expect("an UPDATE has two objects");
    let steps = &mut Steps::default();
    split(new.clone(), old, objects, false, steps).expect("the comparison stays within its steps")
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

/// Returns the fields of the new and of the existing causes, and the message of the new denial.
fn split_of(new: &Denial, old: &Denial, request: &AdmissionRequest) -> (String, String, String) {
    let split = split_existing(new, old, request);
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
fn same_reason_in_same_place_is_not_new() {
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
fn distinguishes_places_with_similar_names() {
    for (old, new, known, unknown) in [
        (
            json!({"spec": {"a/b": 1}}),
            json!({"spec": {"a/b": 1, "a": {"b": 2}}}),
            "/spec/a~1b",
            "/spec/a/b",
        ),
        (
            json!({"spec": {"list": [{"name": "p", "v": 1}]}}),
            json!({"spec": {"list": [{"name": "p", "v": 2}]}}),
            "/spec/list/[name=\"p\"]",
            "/spec/list/0",
        ),
    ] {
        let request = request(&new, &old);
        let before = denial("not good", &[(known, "is bad")]);
        let now = denial("not good", &[(known, "is bad"), (unknown, "is bad")]);
        let (new, existing, _) = split_of(&now, &before, &request);
        assert_eq!((new.as_str(), existing.as_str()), (unknown, known));
    }
}

#[test]
fn denial_names_only_new_reasons() {
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
        split_existing(&new, &old, &request).new.unwrap().code,
        Some(422)
    );
}

#[test]
fn compares_message_if_there_are_no_causes() {
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
fn named_element_is_same_in_other_position() {
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
fn compares_reason_without_place_by_text() {
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
    let split = split_existing(&new, &old, &request);
    assert_eq!(split.existing.unwrap().causes.len(), 2);
    assert_eq!(split.new.unwrap().causes[0].message, "too late");
}

#[test]
fn same_text_about_other_value_is_new() {
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
fn compares_moved_element_with_its_own_value() {
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
fn excuses_reason_without_place_only_if_metadata_differs() {
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

/// A request that changes an object that is being deleted.
fn deletion(resource: &str, change: impl Fn(&mut Value)) -> Arc<AdmissionRequest> {
    let old = json!({
        "metadata": {
            "deletionTimestamp": "2026-11-21T08:00:00Z", "finalizers": ["a/b", "c/d"],
            "ownerReferences": [{"uid": "x", "blockOwnerDeletion": true}, {"uid": "y"}],
            "labels": {"a": "b"}, "managedFields": [],
        },
        "spec": {"x": 1, "finalizers": ["kubernetes"]},
        "status": {"y": 1},
    });
    let mut object = old.clone();
    change(&mut object);
    request_for(resource, &object, &old)
}

type Change = fn(&mut Value);

#[test]
fn distinguishes_removal_of_finalizers_and_owners() {
    let removals: [(&str, &str, Change); 8] = [
        ("nothing", "pods", |_| ()),
        ("a finalizer", "pods", |object| {
            object["metadata"]["finalizers"] = json!(["c/d"]);
            object["metadata"]["managedFields"] = json!([{"manager": "x"}]);
        }),
        ("all finalizers and owners", "pods", |object| {
            let metadata = object["metadata"].as_object_mut().unwrap();
            metadata.remove("finalizers");
            metadata.remove("ownerReferences");
        }),
        ("finalizers, in another order", "pods", |object| {
            object["metadata"]["finalizers"] = json!(["c/d", "a/b"]);
        }),
        ("one owner", "pods", |object| {
            object["metadata"]["ownerReferences"] = json!([{"uid": "y"}]);
        }),
        ("that an owner waits", "pods", |object| {
            object["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = json!(false);
        }),
        ("a Namespace's finalizer", "namespaces/finalize", |object| {
            object["spec"]["finalizers"] = json!([]);
        }),
        (
            "a finalizer of something with a status",
            "pods/status",
            |object| {
                object["metadata"]["finalizers"] = json!(null);
            },
        ),
    ];
    let others: [(&str, &str, Change); 14] = [
        ("another finalizer", "pods", |object| {
            object["metadata"]["finalizers"] = json!(["e/f"]);
        }),
        ("a finalizer more", "pods", |object| {
            object["metadata"]["finalizers"] = json!(["a/b", "c/d", "e/f"]);
        }),
        ("the same finalizer twice", "pods", |object| {
            object["metadata"]["finalizers"] = json!(["a/b", "a/b"]);
        }),
        ("no list of finalizers", "pods", |object| {
            object["metadata"]["finalizers"] = json!({"a/b": 1});
        }),
        ("another owner", "pods", |object| {
            object["metadata"]["ownerReferences"] = json!([{"uid": "z"}]);
        }),
        ("the same owner twice", "pods", |object| {
            object["metadata"]["ownerReferences"] = json!([{"uid": "y"}, {"uid": "y"}]);
        }),
        ("an owner that waits", "pods", |object| {
            object["metadata"]["ownerReferences"][1]["blockOwnerDeletion"] = json!(true);
        }),
        ("an owner that controls", "pods", |object| {
            object["metadata"]["ownerReferences"][1]["controller"] = json!(true);
        }),
        ("a label", "pods", |object| {
            object["metadata"]["labels"]["a"] = json!("c");
        }),
        ("a label along with a finalizer", "pods", |object| {
            object["metadata"]["labels"]["a"] = json!("c");
            object["metadata"]["finalizers"] = json!([]);
        }),
        ("its status", "pods/status", |object| {
            object["status"]["y"] = json!(2);
        }),
        ("its spec", "pods", |object| object["spec"]["y"] = json!(2)),
        ("whom it grants", "pods", |object| {
            object["subjects"] = json!(["me"])
        }),
        (
            "more of a Namespace than its finalizers",
            "namespaces/finalize",
            |object| object["spec"] = json!({"finalizers": []}),
        ),
    ];
    let all = removals.map(|removal| (removal, true));
    let all = all.into_iter().chain(others.map(|other| (other, false)));
    for ((what, resource, change), expected) in all {
        let request = deletion(resource, change);
        let objects = Objects::of(&request).unwrap();
        let found = only_removes(objects, &mut Steps::default());
        assert_eq!(found, Some(expected), "{what}");
        // Without steps, no request counts as a removal.
        let found = only_removes(objects, &mut Steps::new(0));
        assert_ne!(found, Some(true), "{what}");
    }
}

fn grounds(object: bool, collection: bool, who: bool, when: bool) -> Grounds {
    Grounds {
        object,
        collection,
        who,
        when,
    }
}

#[test]
fn excuses_no_denial_that_can_depend_on_user_or_time() {
    let request = deletion("pods", |_| ());
    let excusable = |setting, only_collects, grounds| {
        let excusing = Excusing::with(setting, &request).unwrap();
        excusing.is_excusable(only_collects, grounds)
    };
    use ExistingViolations::{Allow, Deny};
    for setting in [Allow, Deny] {
        // Garbage collection is excused, unless it is what the plugin asks about.
        for (grounds, expected) in [
            (grounds(false, false, false, false), true),
            (grounds(true, true, false, false), true),
            (grounds(true, false, true, false), true),
            (grounds(true, false, false, true), true),
            (grounds(true, true, true, false), false),
            (grounds(true, true, false, true), false),
        ] {
            assert_eq!(excusable(setting, true, grounds), expected, "{grounds:?}");
        }
    }
    for (grounds, expected) in [
        (grounds(true, false, false, false), true),
        (grounds(true, true, false, false), true),
        (grounds(false, false, false, false), false),
        (grounds(true, false, true, false), false),
        (grounds(true, false, false, true), false),
    ] {
        assert_eq!(excusable(Allow, false, grounds), expected, "{grounds:?}");
        assert!(!excusable(Deny, false, grounds), "{grounds:?}");
    }
}

#[test]
fn removal_excuses_reasons_outside_removed_places() {
    let request = deletion("pods", |object| {
        object["metadata"]["finalizers"] = json!(["c/d"]);
    });
    let objects = Objects::of(&request).unwrap();
    for (reason, expected) in [
        (denial("only the platform team may change this", &[]), true),
        (denial("no", &[("/spec/x", "is not allowed")]), true),
        (denial("no", &[("", "is not allowed")]), true),
        (
            denial("no", &[("/metadata/finalizers", "may not be removed")]),
            false,
        ),
        (
            denial("no", &[("/metadata/finalizers/0", "may not be removed")]),
            false,
        ),
    ] {
        let steps = &mut Steps::default();
        let split = split(reason.clone(), &reason, objects, true, steps).unwrap();
        assert_eq!(split.new.is_none(), expected, "{reason:?}");
    }
}

#[test]
fn by_default_only_deletion_excuses_violations() {
    let request = request(&pod(&["app"]), &pod(&["app"]));
    assert!(Excusing::with(ExistingViolations::Deny, &request).is_none());
    assert!(Excusing::with(ExistingViolations::Allow, &request).is_some());
    let deletion = deletion("pods", |_| ());
    assert!(Excusing::with(ExistingViolations::Deny, &deletion).is_some());
}

#[test]
fn stored_object_decides_whether_deletion_is_in_progress() {
    for (metadata, expected) in [
        (json!({"deletionTimestamp": "2026-11-21T08:00:00Z"}), true),
        (json!({"deletionTimestamp": null}), false),
        (json!({}), false),
    ] {
        let object = Json::from(json!({"metadata": metadata}));
        assert_eq!(is_being_deleted(&object), expected, "{metadata}");
    }
}

/// Splits a denial with as many causes as possible, about a list of 100,000 elements.
#[test]
fn cost_of_long_list_is_independent_of_reasons() {
    const ELEMENTS: usize = 100_000;
    let names: Vec<String> = (0..ELEMENTS).map(|index| format!("c{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let request = request(&pod(&names), &pod(&names));
    let objects = Objects::of(&request).unwrap();
    let fields: Vec<String> = (0..256)
        .map(|index| format!("/spec/containers/{}/name", ELEMENTS - 1 - index))
        .collect();
    let causes: Vec<(&str, &str)> = fields.iter().map(|field| (&**field, "is bad")).collect();
    let reason = denial("", &causes);
    let mut steps = Steps::default();
    let before = steps.left();
    let parts = split(reason.clone(), &reason, objects, false, &mut steps).unwrap();
    assert_eq!(parts.existing.unwrap().causes.len(), 256);
    let used = before - steps.left();
    assert!(used < 3 * ELEMENTS, "{used} steps");
    // With fewer steps, the split fails, and the denial stands.
    assert!(
        split(
            reason.clone(),
            &reason,
            objects,
            false,
            &mut Steps::new(ELEMENTS)
        )
        .is_none()
    );
}

/// Nested places each contain nearly the whole object, and each place is compared.
#[test]
fn denies_when_reasons_at_every_level_cost_too_much() {
    let mut object = json!((0..50_000).collect::<Vec<u32>>());
    for _ in 0..100 {
        object = json!({ "a": object });
    }
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u", "operation": "UPDATE", "name": "web",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": object, "oldObject": object,
        }
    });
    let request = decode(review.to_string().as_bytes(), 200).unwrap().request;
    let objects = Objects::of(&request).unwrap();
    let fields: Vec<String> = (1..100).map(|depth| "/a".repeat(depth)).collect();
    let causes: Vec<(&str, &str)> = fields.iter().map(|field| (&**field, "is bad")).collect();
    let reason = denial("", &causes);
    assert!(
        split(
            reason.clone(),
            &reason,
            objects,
            false,
            &mut Steps::default()
        )
        .is_none()
    );
}
