use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const MARKER: &str = "marker-4d1f";

fn redactor(patterns: &[&str]) -> Redactor {
    let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
    Redactor::new(&patterns).unwrap()
}

fn request(kind: &str, object: Value, old: Value) -> Value {
    let resource = format!("{}s", kind.to_lowercase());
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u-1",
            "kind": {"group": "", "version": "v1", "kind": kind},
            "resource": {"group": "", "version": "v1", "resource": resource},
            "name": "s", "namespace": "shop", "operation": "UPDATE",
            "userInfo": {"username": "jane"},
            "object": object, "oldObject": old,
        },
    })
}

fn secret(data: Value, string_data: Value, annotations: Value) -> Value {
    json!({
        "kind": "Secret", "apiVersion": "v1", "type": "Opaque",
        "metadata": {"name": "s", "namespace": "shop", "labels": {"a": "b"}, "annotations": annotations},
        "data": data, "stringData": string_data,
    })
}

fn redact(redactor: &Redactor, review: &Value, answer: &Value) -> (Value, Value) {
    let redacted = redactor
        .redact(&Json::from(review.clone()), &Json::from(answer.clone()))
        .unwrap();
    let value = |json: &Json| serde_json::from_str(&json.to_text()).unwrap();
    (value(&redacted.review), value(&redacted.answer))
}

fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

#[test]
fn replaces_content_of_secret_and_keeps_the_rest() {
    let applied = json!({
        "kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"}, "stringData": {"a": MARKER},
    });
    let object = secret(
        json!({"a": base64(MARKER), "b": base64("other")}),
        json!({"c": MARKER}),
        json!({LAST_APPLIED: applied.to_string(), "tool": "anything"}),
    );
    let review = request("Secret", object.clone(), object);
    let (redacted, _) = redact(
        &redactor(&[]),
        &review,
        &json!({"uid": "u-1", "allowed": true}),
    );
    let text = redacted.to_string();
    assert!(!text.contains(MARKER) && !text.contains(&base64(MARKER)));
    assert!(!text.contains("anything"));
    let object = &redacted["request"]["object"];
    assert_eq!(object["metadata"]["labels"]["a"], "b");
    assert_eq!(object["type"], "Opaque");
    assert_eq!(redacted["request"]["userInfo"]["username"], "jane");
    // Equality is kept: between the objects, and between both ways to write a value.
    assert_eq!(object, &redacted["request"]["oldObject"]);
    let token = object["stringData"]["c"].as_str().unwrap();
    assert_eq!(object["data"]["a"], base64(token));
    assert_ne!(object["data"]["a"], object["data"]["b"]);
    let applied = object["metadata"]["annotations"][LAST_APPLIED]
        .as_str()
        .unwrap();
    let applied: Value = serde_json::from_str(applied).unwrap();
    assert_eq!(applied["stringData"]["a"], token);
}

#[test]
fn hashes_of_two_redactors_differ() {
    let review = request(
        "Secret",
        secret(json!({"a": base64(MARKER)}), json!({}), json!({})),
        Value::Null,
    );
    let answer = json!({"uid": "u-1", "allowed": true});
    let one = redact(&redactor(&[]), &review, &answer);
    let other = redact(&redactor(&[]), &review, &answer);
    assert_ne!(one.0, other.0);
}

#[test]
fn replaces_copies_in_patch_message_and_labels() {
    let mut object = secret(json!({"a": base64(MARKER)}), json!({}), json!({}));
    object["metadata"]["labels"]["copy"] = MARKER.into();
    let review = request("Secret", object, Value::Null);
    let patch = json!([
        {"op": "add", "path": "/data/b", "value": base64(MARKER)},
        {"op": "add", "path": "/metadata/annotations", "value": {"hash": "0123456789abcdef"}},
        {"op": "add", "path": "/metadata/labels/x", "value": MARKER},
        {"op": "replace", "path": "/stringData", "value": {"new": "a value of the plugin"}},
    ]);
    let answer = json!({
        "uid": "u-1", "allowed": true, "patchType": "JSONPatch", "patch": base64(&patch.to_string()),
        "warnings": [format!("the password {MARKER} is weak")],
        "status": {"message": format!("got {}", base64(MARKER))},
    });
    let (review, answer) = redact(&redactor(&[]), &review, &answer);
    let text = format!("{review}{answer}");
    for part in [
        MARKER,
        &base64(MARKER),
        "0123456789abcdef",
        "a value of the plugin",
    ] {
        assert!(!text.contains(part), "{part}: {text}");
    }
    assert_eq!(
        answer["patch"][0]["value"],
        review["request"]["object"]["data"]["a"]
    );
    assert_eq!(answer["patch"][0]["path"], "/data/b");
}

#[test]
fn finds_secrets_and_tokens_inside_other_objects() {
    let inner = secret(
        json!({"a": base64(MARKER)}),
        json!({"b": MARKER}),
        json!({}),
    );
    let object = json!({
        "kind": "Bundle", "apiVersion": "example.com/v1", "metadata": {"name": "s"},
        "spec": {"items": [inner], "note": MARKER},
    });
    let (review, _) = redact(
        &redactor(&[]),
        &request("Bundle", object, Value::Null),
        &json!({}),
    );
    assert!(!review.to_string().contains(MARKER), "{review:#}");
    let token_review = json!({
        "kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": {"token": MARKER},
    });
    let (review, _) = redact(
        &redactor(&[]),
        &request("TokenReview", token_review, Value::Null),
        &json!({}),
    );
    assert!(!review.to_string().contains(MARKER), "{review:#}");
}

#[test]
fn replaces_configured_places() {
    let pod = json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "annotations": {
            LAST_APPLIED: json!({"kind": "Pod", "spec": {"containers": [{"env": [{"value": MARKER}]}]}}).to_string(),
        }},
        "spec": {"pin": 123_456_789, "containers": [{"image": "nginx", "env": [{"name": "A", "value": MARKER}]}]},
    });
    let review = request("Pod", pod, Value::Null);
    let answer = json!({"patch": [
        {"op": "replace", "path": "/spec/containers/0/env/0/value", "value": "written by a plugin"},
    ]});
    let redactor = redactor(&["/spec/containers/*/env/*/value", "/spec/pin"]);
    let (redacted, answer) = redact(&redactor, &review, &answer);
    assert!(!redacted.to_string().contains(MARKER), "{redacted:#}");
    assert!(!answer.to_string().contains("written by a plugin"));
    let spec = &redacted["request"]["object"]["spec"];
    assert_eq!(spec["containers"][0]["image"], "nginx");
    assert_eq!(spec["containers"][0]["env"][0]["name"], "A");
    assert!(spec["pin"].is_u64() && spec["pin"] != 123_456_789);
    let error = Redactor::new(&["spec".to_owned()]).err().unwrap();
    assert!(
        error.to_string().contains("`spec` is not a JSON Pointer"),
        "{error}"
    );
}

#[test]
fn review_without_secrets_stays_as_it_is() {
    let text = br#"{"request":{"kind":{"kind":"Pod"},"object":{"kind":"Pod","apiVersion":"v1","n":1.50,"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"a\":  1}"}}}}}"#;
    let review = parse_up_to(text, 20, 100).unwrap();
    let redacted = redactor(&[])
        .redact(&review, &Json::empty_object())
        .unwrap();
    assert_eq!(redacted.review.to_text().as_bytes(), text);
}

#[test]
fn unreadable_patch_is_left_out() {
    let (_, answer) = redact(
        &redactor(&[]),
        &request("Pod", json!({}), Value::Null),
        &json!({"patch": "%%"}),
    );
    assert_eq!(answer["patch"], Value::Null);
}

/// A JSON value in which the marker can stand anywhere.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(MARKER)),
        Just(json!(base64(MARKER))),
        Just(json!(format!("a {MARKER} b"))),
        "[a-z]{0,8}".prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}", inner, 0..4)
                .prop_map(|map| map.into_iter().collect::<Value>()),
        ]
    })
}

proptest! {
    #[test]
    fn no_byte_of_a_secret_is_left(
        place in values(), label in prop_oneof![Just("b"), Just(MARKER)], message in "[a-z ]{0,10}",
        is_update: bool, in_patch: bool,
    ) {
        let object = secret(json!({"k": base64(MARKER), "v": place}), json!({"s": MARKER, "t": place}), json!({
            "any": place, LAST_APPLIED: secret(json!({"v": place}), json!({}), json!({})).to_string(),
        }));
        let mut object = object;
        object["metadata"]["labels"]["l"] = label.into();
        let old = if is_update { object.clone() } else { Value::Null };
        let review = request("Secret", object, old);
        let mut answer = json!({"uid": "u-1", "allowed": false, "status": {"message": format!("{message}{MARKER}{message}")}});
        if in_patch {
            let patch = json!([
                {"op": "add", "path": "", "value": secret(json!({"v": place}), json!({}), json!({}))},
                {"op": "add", "path": "/data/x", "value": place},
            ]);
            answer["patch"] = base64(&patch.to_string()).into();
        }
        let (review, answer) = redact(&redactor(&[]), &review, &answer);
        let text = format!("{review}{answer}");
        prop_assert!(!text.contains(MARKER), "{}", text);
        prop_assert!(!text.contains(&base64(MARKER)), "{}", text);
    }
}
