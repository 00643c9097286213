use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::*;

fn review() -> Value {
    json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u-1",
            "operation": "UPDATE",
            "object": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "nginx", "namespace": "default", "uid": "o-1", "labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c"}], "nothing": null}
            }
        }
    })
}

fn encoded(patch: &Value) -> String {
    STANDARD.encode(patch.to_string())
}

fn mutation() -> Value {
    let patch = json!([
        {"op": "add", "path": "/metadata/labels/c~1d", "value": "e"},
        {"op": "replace", "path": "/spec/containers/0/name", "value": "x"},
        {"op": "remove", "path": "/metadata/labels/a"}
    ]);
    json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "response": {
            "uid": "u-1",
            "allowed": true,
            "patchType": "JSONPatch",
            "patch": encoded(&patch),
            "warnings": ["a: old"],
            "auditAnnotations": {"a.patched": "/spec", "plugins": ""}
        }
    })
}

fn denial() -> Value {
    json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "response": {
            "uid": "u-1",
            "allowed": false,
            "status": {
                "metadata": {},
                "status": "Failure",
                "message": "a: no",
                "reason": "Forbidden",
                "details": {
                    "name": "nginx", "group": "", "kind": "Pod", "uid": "o-1",
                    "causes": [{"reason": "FieldValueForbidden", "message": "a: no", "field": "spec.x"}, {"message": "b: no"}]
                },
                "code": 403
            }
        }
    })
}

fn run(endpoint: Endpoint, answer: &Value) -> Result<Checked, Vec<String>> {
    check(
        endpoint,
        &review(),
        200,
        "application/json",
        answer.to_string().as_bytes(),
    )
}

/// Returns the only violation in an answer with `value` at `pointer`, or without a value there if `value` is none.
#[track_caller]
fn violation(endpoint: Endpoint, mut answer: Value, pointer: &str, value: Option<Value>) -> String {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = answer.pointer_mut(parent).unwrap();
    match (value, parent) {
        (Some(value), Value::Array(elements)) => elements[name.parse::<usize>().unwrap()] = value,
        (Some(value), parent) => parent[name] = value,
        (None, parent) => assert!(parent.as_object_mut().unwrap().remove(name).is_some()),
    }
    only(run(endpoint, &answer))
}

#[track_caller]
fn only(result: Result<Checked, Vec<String>>) -> String {
    let mut violations = result.expect_err("nothing was found to be wrong");
    assert_eq!(violations.len(), 1, "{violations:#?}");
    violations.remove(0)
}

#[track_caller]
fn rejects_patch(patch: &Value) -> String {
    violation(
        Endpoint::Mutate,
        mutation(),
        "/response/patch",
        Some(encoded(patch).into()),
    )
}

#[test]
fn accepts_a_mutation() {
    let checked = run(Endpoint::Mutate, &mutation()).unwrap();
    let patched = checked.patched_object.unwrap();
    assert_eq!(patched["metadata"]["labels"], json!({"c/d": "e"}));
    assert_eq!(patched["spec"]["containers"][0]["name"], "x");
    assert_eq!(checked.patch.len(), 3);
    assert_eq!(checked.warnings, ["a: old"]);
    assert_eq!(checked.audit_annotations["a.patched"], "/spec");
    assert!(checked.allowed && checked.status.is_none());
}

#[test]
fn accepts_a_denial_on_both_endpoints() {
    for endpoint in [Endpoint::Mutate, Endpoint::Validate] {
        let checked = run(endpoint, &denial()).unwrap();
        assert!(!checked.allowed);
        assert_eq!(checked.status.unwrap()["code"], 403);
    }
}

#[test]
fn accepts_the_least_there_can_be_in_both_versions() {
    for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
        let mut review = review();
        review["apiVersion"] = version.into();
        let answer = json!({"kind": "AdmissionReview", "apiVersion": version, "response": {"uid": "u-1", "allowed": true}});
        let body = answer.to_string();
        let checked = check(
            Endpoint::Validate,
            &review,
            200,
            "application/json; charset=utf-8",
            body.as_bytes(),
        )
        .unwrap();
        assert!(checked.allowed && checked.patched_object.is_none());
    }
}

#[test]
fn rejects_what_http_makes_a_failed_call() {
    let body = denial().to_string();
    let result = |status, content_type| {
        check(
            Endpoint::Validate,
            &review(),
            status,
            content_type,
            body.as_bytes(),
        )
    };
    for status in [100, 199, 207, 301, 400, 429, 500] {
        assert!(
            only(result(status, "application/json")).contains("HTTP status"),
            "{status}"
        );
    }
    for content_type in ["", "text/plain", "application/yaml", "application/jsonp"] {
        assert!(
            only(result(200, content_type)).contains("Content-Type"),
            "{content_type}"
        );
    }
}

#[test]
fn rejects_a_body_that_is_no_review() {
    for (body, expected) in [("", "empty"), ("{", "not JSON"), ("{} {}", "not JSON")] {
        let result = check(
            Endpoint::Validate,
            &review(),
            200,
            "application/json",
            body.as_bytes(),
        );
        assert!(only(result).contains(expected), "{body}");
    }
    let rejects = |pointer, value| violation(Endpoint::Validate, denial(), pointer, value);
    assert!(rejects("/kind", Some("Status".into())).contains("kind"));
    assert!(rejects("/kind", None).contains("kind"));
    assert!(rejects("/apiVersion", Some("admission.k8s.io/v1beta1".into())).contains("apiVersion"));
    assert!(rejects("/response", None).contains("response is absent"));
    assert!(rejects("/response/Warnings", Some(json!([]))).contains("no member"));
}

#[test]
fn rejects_another_uid() {
    for value in [Some("u-2".into()), Some(json!(1)), None] {
        assert!(violation(Endpoint::Validate, denial(), "/response/uid", value).contains("uid"));
    }
}

#[test]
fn rejects_an_answer_without_a_verdict() {
    for value in [Some("true".into()), Some(Value::Null), None] {
        assert!(
            violation(Endpoint::Validate, denial(), "/response/allowed", value).contains("allowed")
        );
    }
}

#[test]
fn rejects_a_patch_from_a_validating_webhook() {
    assert!(only(run(Endpoint::Validate, &mutation())).contains("validating webhook"));
    let mut answer = mutation();
    answer["response"].as_object_mut().unwrap().remove("patch");
    assert!(only(run(Endpoint::Validate, &answer)).contains("validating webhook"));
}

#[test]
fn rejects_a_patch_without_its_type_and_a_type_without_a_patch() {
    for pointer in ["/response/patch", "/response/patchType"] {
        assert!(violation(Endpoint::Mutate, mutation(), pointer, None).contains("come together"));
    }
    assert!(
        violation(
            Endpoint::Mutate,
            mutation(),
            "/response/patchType",
            Some("MergePatch".into())
        )
        .contains("JSONPatch")
    );
}

#[test]
fn rejects_a_patch_of_a_refused_request() {
    let mut answer = denial();
    answer["response"]["patch"] = mutation()["response"]["patch"].clone();
    answer["response"]["patchType"] = "JSONPatch".into();
    assert!(only(run(Endpoint::Mutate, &answer)).contains("refused request"));
}

#[test]
fn rejects_a_patch_where_there_is_no_object() {
    let mut review = review();
    review["request"]["object"] = Value::Null;
    let body = mutation().to_string();
    let result = check(
        Endpoint::Mutate,
        &review,
        200,
        "application/json",
        body.as_bytes(),
    );
    assert!(only(result).contains("no object"));
}

#[test]
fn rejects_a_patch_that_cannot_be_decoded() {
    let rejects =
        |value: Value| violation(Endpoint::Mutate, mutation(), "/response/patch", Some(value));
    assert!(rejects(json!([])).contains("not a string"));
    assert!(rejects("".into()).contains("empty"));
    assert!(rejects("[{}]".into()).contains("base64"));
    assert!(rejects(STANDARD.encode("[{]").into()).contains("not JSON"));
    assert!(rejects(encoded(&json!({})).into()).contains("array"));
}

#[test]
fn rejects_an_operation_that_is_not_well_formed() {
    for (operation, expected) in [
        (json!(1), "not an object"),
        (
            json!({"path": "/spec/x", "value": 1}),
            "not add, remove or replace",
        ),
        (
            json!({"op": "test", "path": "/kind", "value": "Pod"}),
            "not add, remove or replace",
        ),
        (
            json!({"op": "move", "from": "/spec", "path": "/x"}),
            "not add, remove or replace",
        ),
        (
            json!({"op": "copy", "from": "/spec", "path": "/x"}),
            "not add, remove or replace",
        ),
        (json!({"op": "add", "path": "/spec/x"}), "has no value"),
        (
            json!({"op": "remove", "path": "/spec/containers", "value": 1}),
            "has a value",
        ),
        (
            json!({"op": "add", "path": "/spec/x", "from": "/spec", "value": 1}),
            "has a from",
        ),
        (json!({"op": "add", "path": 1, "value": 1}), "not a string"),
        (json!({"op": "add", "path": "", "value": {}}), "root"),
        (json!({"op": "remove", "path": ""}), "root"),
        (
            json!({"op": "add", "path": "spec/x", "value": 1}),
            "JSON Pointer",
        ),
        (
            json!({"op": "add", "path": "/spec/~2", "value": 1}),
            "JSON Pointer",
        ),
        (
            json!({"op": "add", "path": "/spec/x~", "value": 1}),
            "JSON Pointer",
        ),
    ] {
        let violation = rejects_patch(&json!([operation]));
        assert!(violation.contains(expected), "{operation}: {violation}");
    }
}

#[test]
fn rejects_a_patch_that_does_not_apply() {
    for operation in [
        json!({"op": "add", "path": "/status/x", "value": 1}),
        json!({"op": "add", "path": "/spec/nothing/x", "value": 1}),
        json!({"op": "remove", "path": "/spec/x"}),
        json!({"op": "replace", "path": "/spec/x", "value": 1}),
        json!({"op": "add", "path": "/spec/containers/2", "value": {}}),
        json!({"op": "replace", "path": "/spec/containers/-", "value": {}}),
        json!({"op": "replace", "path": "/spec/containers/00", "value": {}}),
        json!({"op": "add", "path": "/spec/containers/01", "value": {}}),
        json!({"op": "add", "path": "/spec/containers/+0", "value": {}}),
        json!({"op": "add", "path": "/spec/containers/-1", "value": {}}),
    ] {
        let violation = rejects_patch(&json!([operation]));
        assert!(
            violation.contains("does not apply"),
            "{operation}: {violation}"
        );
    }
}

#[test]
fn rejects_a_patch_that_makes_another_object_of_it() {
    for pointer in [
        "/apiVersion",
        "/kind",
        "/metadata/name",
        "/metadata/namespace",
        "/metadata/uid",
    ] {
        for operation in [
            json!({"op": "replace", "path": pointer, "value": "x"}),
            json!({"op": "remove", "path": pointer}),
        ] {
            assert!(
                rejects_patch(&json!([operation])).contains("changes"),
                "{operation}"
            );
        }
    }
    assert!(
        rejects_patch(&json!([{"op": "replace", "path": "", "value": []}]))
            .contains("not an object")
    );
}

#[test]
fn rejects_a_patch_after_which_metadata_cannot_be_decoded() {
    for (name, value) in [
        ("labels", json!({"a": true})),
        ("labels", json!([])),
        ("annotations", json!({"a": 1})),
        ("annotations", json!("a")),
        ("finalizers", json!([1])),
        ("finalizers", json!({})),
        ("ownerReferences", json!(["x"])),
    ] {
        let patch = json!([{"op": "add", "path": format!("/metadata/{name}"), "value": value}]);
        assert!(rejects_patch(&patch).contains(name), "{name} {value}");
    }
}

#[test]
fn rejects_a_refusal_that_does_not_explain_itself() {
    let rejects = |pointer, value| violation(Endpoint::Validate, denial(), pointer, value);
    assert!(rejects("/response/status", None).contains("without explanation"));
    assert!(rejects("/response/status", Some("no".into())).contains("without explanation"));
    for value in [Some("".into()), Some(json!(1)), None] {
        assert!(rejects("/response/status/message", value).contains("message"));
    }
    assert!(rejects("/response/status/status", Some("Success".into())).contains("Failure"));
    assert!(rejects("/response/status/metadata", Some(json!([]))).contains("metadata"));
    assert!(rejects("/response/status/causes", Some(json!([]))).contains("not known"));
}

#[test]
fn rejects_a_code_that_kube_apiserver_would_change() {
    let rejects = |value| violation(Endpoint::Validate, denial(), "/response/status/code", value);
    for value in [
        None,
        Some(json!("403")),
        Some(json!(403.5)),
        Some(json!(-1)),
        Some(json!(0)),
        Some(json!(200)),
        Some(json!(600)),
    ] {
        assert!(rejects(value).contains("code"));
    }
    assert!(rejects(Some(json!(500))).contains("belongs to"));
    let reason = |value| {
        violation(
            Endpoint::Validate,
            denial(),
            "/response/status/reason",
            Some(value),
        )
    };
    assert!(reason("Because".into()).contains("StatusReason"));
    assert!(reason(json!(1)).contains("StatusReason"));
    assert!(reason("NotFound".into()).contains("belongs to"));
}

#[test]
fn rejects_an_invalid_without_causes() {
    let mut answer = denial();
    answer["response"]["status"]["code"] = json!(422);
    answer["response"]["status"]["reason"] = "Invalid".into();
    assert!(run(Endpoint::Validate, &answer).is_ok());
    assert!(
        violation(
            Endpoint::Validate,
            answer.clone(),
            "/response/status/details/causes",
            None
        )
        .contains("kubectl")
    );
    assert!(
        violation(Endpoint::Validate, answer, "/response/status/details", None).contains("kubectl")
    );
}

#[test]
fn rejects_details_of_another_shape() {
    let rejects = |name: &str, value| {
        violation(
            Endpoint::Validate,
            denial(),
            &format!("/response/status/{name}"),
            Some(value),
        )
    };
    assert!(rejects("details", json!([])).contains("details"));
    for name in [
        "details/name",
        "details/group",
        "details/kind",
        "details/uid",
    ] {
        assert!(rejects(name, json!(1)).contains("not a string"), "{name}");
    }
    assert!(rejects("details/causes", json!({})).contains("not an array"));
    assert!(rejects("details/retryAfterSeconds", "1".into()).contains("whole number"));
    assert!(rejects("details/labels", json!({})).contains("not known"));
    assert!(rejects("details/causes/0", "no".into()).contains("not an object"));
    assert!(rejects("details/causes/0/message", "".into()).contains("message"));
    assert!(rejects("details/causes/0/reason", "Because".into()).contains("CauseType"));
    assert!(rejects("details/causes/0/type", "FieldValueInvalid".into()).contains("not known"));
    for field in [json!(""), json!("/spec/x"), json!(1)] {
        assert!(rejects("details/causes/0/field", field).contains("field path"));
    }
}

#[test]
fn rejects_a_status_of_an_allowed_request() {
    let mut answer = mutation();
    answer["response"]["status"] = denial()["response"]["status"].clone();
    assert!(only(run(Endpoint::Mutate, &answer)).contains("dropped"));
}

#[test]
fn rejects_warnings_that_kube_apiserver_would_drop_or_cut() {
    let rejects = |value| {
        violation(
            Endpoint::Mutate,
            mutation(),
            "/response/warnings",
            Some(value),
        )
    };
    assert!(rejects("w".into()).contains("not an array"));
    assert!(rejects(json!([1])).contains("not a string"));
    assert!(rejects(json!([""])).contains("empty"));
    for text in ["a\nb", "\u{1b}[0m", "\u{85}", "\u{7f}"] {
        assert!(
            rejects(json!([text])).contains("control character"),
            "{text:?}"
        );
    }
    assert!(rejects(json!(["ä".repeat(4097)])).contains("4097 runes in all"));
    assert!(rejects(json!(["a", "b", "a"])).contains("repeats"));
    let many: Vec<String> = (0..17).map(|index| format!("{index:0256}")).collect();
    assert!(rejects(json!(many)).contains("4352 runes in all"));
    let mut answer = mutation();
    for warnings in [json!(many[..16]), json!(["ä".repeat(4096)])] {
        answer["response"]["warnings"] = warnings;
        assert!(run(Endpoint::Mutate, &answer).is_ok());
    }
}

#[test]
fn rejects_audit_annotations_that_kube_apiserver_would_drop() {
    let rejects = |value| {
        violation(
            Endpoint::Mutate,
            mutation(),
            "/response/auditAnnotations",
            Some(value),
        )
    };
    assert!(rejects(json!([])).contains("not an object"));
    assert!(rejects(json!({"a": 1})).contains("not a string"));
    for key in [
        "",
        "a/b",
        "-a",
        "a-",
        ".a",
        "a.",
        "a b",
        "ä",
        "🚪",
        &"k".repeat(64),
    ] {
        assert!(
            rejects(json!({key: "v"})).contains("qualified name"),
            "{key}"
        );
    }
    let mut answer = mutation();
    answer["response"]["auditAnnotations"] = json!({"A_b.c-1": "", "k".repeat(63): "v"});
    assert!(run(Endpoint::Mutate, &answer).is_ok());
}
