use super::*;
use crate::document::parse;
use crate::patch::diff;

const WHOLE: AnswerForm = AnswerForm::WholeObject {
    allow_removals: false,
};
const WHOLE_WITH_REMOVALS: AnswerForm = AnswerForm::WholeObject {
    allow_removals: true,
};

fn json(text: &str) -> Json {
    parse(text.as_bytes(), 64).unwrap()
}

fn outcome(before: &str, after: &str, form: AnswerForm) -> Result<(), IntegrityError> {
    let (before, after) = (json(before), json(after));
    check(&before, &after, &diff(&before, &after), form)
}

fn pod(metadata: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{metadata}}}"#)
}

fn refused_at(before: &str, after: &str) -> String {
    outcome(&pod(before), &pod(after), AnswerForm::Operations)
        .unwrap_err()
        .path()
        .to_string()
}

fn accepted(before: &str, after: &str) {
    assert_eq!(
        outcome(&pod(before), &pod(after), AnswerForm::Operations),
        Ok(()),
        "{before} {after}"
    );
}

#[test]
fn rejects_change_of_identity() {
    let metadata = r#"{"name":"a","namespace":"n","uid":"u","managedFields":[{"manager":"m"}]}"#;
    for (after, path) in [
        (
            r#"{"name":"b","namespace":"n","uid":"u","managedFields":[{"manager":"m"}]}"#,
            "/metadata/name",
        ),
        (
            r#"{"namespace":"n","uid":"u","managedFields":[{"manager":"m"}]}"#,
            "/metadata/name",
        ),
        (
            r#"{"name":"a","namespace":"o","uid":"u","managedFields":[{"manager":"m"}]}"#,
            "/metadata/namespace",
        ),
        (
            r#"{"name":"a","namespace":"n","uid":1,"managedFields":[{"manager":"m"}]}"#,
            "/metadata/uid",
        ),
        (
            r#"{"name":"a","namespace":"n","uid":"u"}"#,
            "/metadata/managedFields",
        ),
        (
            r#"{"name":"a","namespace":"n","uid":"u","managedFields":[{}]}"#,
            "/metadata/managedFields",
        ),
        (r#"[]"#, "/metadata/name"),
    ] {
        assert_eq!(refused_at(metadata, after), path, "{after}");
    }
    let refused = |after| outcome(&pod("{}"), after, AnswerForm::Operations).unwrap_err();
    assert_eq!(
        refused(r#"{"apiVersion":"v2","kind":"Pod","metadata":{}}"#)
            .path()
            .as_str(),
        "/apiVersion"
    );
    assert_eq!(
        refused(r#"{"apiVersion":"v1","metadata":{}}"#)
            .path()
            .as_str(),
        "/kind"
    );
    assert_eq!(
        refused("[]"),
        IntegrityError::NotAnObject { found: "array" }
    );
    assert!(!refused("[]").is_lossy());
}

/// kube-apiserver takes an update without a resourceVersion as an update of the newest object. With another
/// resourceVersion it reports a conflict that the user did not cause.
#[test]
fn rejects_changed_resource_version() {
    let read = r#"{"name":"a","resourceVersion":"7"}"#;
    for after in [
        r#"{"name":"a","resourceVersion":"8"}"#,
        r#"{"name":"a","resourceVersion":""}"#,
        r#"{"name":"a","resourceVersion":null}"#,
        r#"{"name":"a"}"#,
    ] {
        assert_eq!(
            refused_at(read, after),
            "/metadata/resourceVersion",
            "{after}"
        );
    }
    let created = r#"{"name":"a"}"#;
    assert_eq!(refused_at(created, read), "/metadata/resourceVersion");
    accepted(created, r#"{"name":"a","resourceVersion":null}"#);
}

#[test]
fn accepts_null_for_absent_and_changed_generate_name() {
    accepted(
        r#"{"name":null,"labels":{}}"#,
        r#"{"uid":null,"labels":null}"#,
    );
    accepted(r#"{"generateName":"a-"}"#, r#"{"generateName":"b-"}"#);
}

#[test]
fn rejects_metadata_that_kubernetes_cannot_decode() {
    for (after, path) in [
        (r#"{"labels":{"a":"b","c":1}}"#, "/metadata/labels/c"),
        (r#"{"labels":{"a":null}}"#, "/metadata/labels/a"),
        (r#"{"labels":[]}"#, "/metadata/labels"),
        (
            r#"{"annotations":{"a/b":true}}"#,
            "/metadata/annotations/a~1b",
        ),
        (r#"{"annotations":"a"}"#, "/metadata/annotations"),
        (r#"{"finalizers":["a",1]}"#, "/metadata/finalizers/1"),
        (r#"{"finalizers":{}}"#, "/metadata/finalizers"),
        (r#"{"generateName":1}"#, "/metadata/generateName"),
        (r#"{"selfLink":1}"#, "/metadata/selfLink"),
        (r#"{"generation":"1"}"#, "/metadata/generation"),
        (r#"{"generation":1.0}"#, "/metadata/generation"),
        (
            r#"{"generation":9223372036854775808}"#,
            "/metadata/generation",
        ),
        (
            r#"{"creationTimestamp":"yesterday"}"#,
            "/metadata/creationTimestamp",
        ),
        (
            r#"{"creationTimestamp":"2024-01-01t00:00:00Z"}"#,
            "/metadata/creationTimestamp",
        ),
        (r#"{"creationTimestamp":""}"#, "/metadata/creationTimestamp"),
        (r#"{"deletionTimestamp":0}"#, "/metadata/deletionTimestamp"),
        (r#"{"ownerReferences":{}}"#, "/metadata/ownerReferences"),
        (
            r#"{"ownerReferences":["a"]}"#,
            "/metadata/ownerReferences/0",
        ),
        (
            r#"{"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n"}]}"#,
            "/metadata/ownerReferences/0/uid",
        ),
        (
            r#"{"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"u","controller":"true"}]}"#,
            "/metadata/ownerReferences/0/controller",
        ),
    ] {
        assert_eq!(refused_at("{}", after), path, "{after}");
    }
    let gone = r#"{"apiVersion":"v1","kind":"Pod","spec":{}}"#;
    assert_eq!(
        outcome(&pod("{}"), gone, AnswerForm::Operations)
            .unwrap_err()
            .path()
            .as_str(),
        "/metadata"
    );
}

#[test]
fn accepts_metadata_that_kubernetes_decodes() {
    accepted(
        "{}",
        r#"{"labels":{"a":"1"},"annotations":null,"finalizers":["x"],"generation":3,
            "creationTimestamp":"2024-01-01T00:00:00.5+01:00","deletionTimestamp":null,"unknown":{"x":1},
            "ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"u","controller":true}]}"#,
    );
}

#[test]
fn accepts_odd_metadata_that_was_there_before() {
    accepted(
        r#"{"labels":{"odd":1},"finalizers":[1],"ownerReferences":[{}],"generation":"x"}"#,
        r#"{"labels":{"odd":1,"new":"x"},"finalizers":["x",1],"ownerReferences":[{}],"generation":"x"}"#,
    );
    assert_eq!(
        outcome(
            r#"{"metadata":[]}"#,
            r#"{"metadata":[],"a":1}"#,
            AnswerForm::Operations
        ),
        Ok(())
    );
    assert_eq!(
        refused_at(r#"{"labels":{"odd":1}}"#, r#"{"labels":{"odd":2}}"#),
        "/metadata/labels/odd"
    );
}

#[test]
fn rejects_whole_object_with_missing_fields() {
    for (before, after, path, others) in [
        (
            r#"{"a":1,"b":{"c":2,"d":3}}"#,
            r#"{"a":1,"b":{}}"#,
            "/b/d",
            1,
        ),
        (r#"{"a":{"b":1}}"#, r#"{"a":null}"#, "/a", 0),
        (r#"{"a":{}}"#, r#"{"c":1}"#, "/a", 0),
        (r#"{"a":{"b":1}}"#, r#"{"a":"x"}"#, "/a", 0),
        (r#"{"a":[1,2,3]}"#, r#"{"a":[1,3]}"#, "/a/1", 0),
        (
            r#"{"a":[{"name":"x"},{"name":"y","z":1}]}"#,
            r#"{"a":[{"name":"y"}]}"#,
            "/a/0/z",
            1,
        ),
        (
            r#"{"a":[{"name":"x","z":1},{"name":"y"}]}"#,
            r#"{"a":[{"name":"y"},{"name":"x"}]}"#,
            "/a/1/z",
            0,
        ),
        (r#"{"a":{"0":"x"}}"#, r#"{"a":{"1":"x"}}"#, "/a/0", 0),
    ] {
        let error = outcome(before, after, WHOLE).unwrap_err();
        assert!(error.is_lossy());
        match error {
            IntegrityError::FieldsDropped {
                path: found,
                others: count,
            } => {
                assert_eq!((found.as_str(), count), (path, others), "{before} {after}");
            }
            other => panic!("{before} {after}: {other}"),
        }
        assert_eq!(
            outcome(before, after, WHOLE_WITH_REMOVALS),
            Ok(()),
            "{before} {after}"
        );
        assert_eq!(
            outcome(before, after, AnswerForm::Operations),
            Ok(()),
            "{before} {after}"
        );
    }
}

#[test]
fn accepts_whole_object_with_changes_moves_and_additions() {
    for (before, after) in [
        (r#"{"a":1,"b":["x"]}"#, r#"{"a":2,"b":["y","x"],"c":{}}"#),
        (r#"{"a":["x","y"]}"#, r#"{"a":["y","x"]}"#),
        (
            r#"{"a":[{"name":"x","n":1},{"name":"y"}]}"#,
            r#"{"a":[{"name":"y"},{"name":"x","n":2}]}"#,
        ),
        (r#"{"a":null,"b":[null]}"#, r#"{"b":[]}"#),
        (r#"{"a":null}"#, r#"{"a":{"b":1}}"#),
    ] {
        assert_eq!(outcome(before, after, WHOLE), Ok(()), "{before} {after}");
    }
}

#[test]
fn rejects_whole_object_with_rounded_number() {
    for (before, after, path) in [
        (
            r#"{"a":9007199254740993}"#,
            r#"{"a":9007199254740992}"#,
            "/a",
        ),
        (r#"{"a":1.0}"#, r#"{"a":1}"#, "/a"),
        (
            r#"{"a":[12345678901234567890123]}"#,
            r#"{"a":[0,1.2345678901234568e22]}"#,
            "/a/1",
        ),
        (
            r#"{"a":[{"id":9007199254740993,"x":1}]}"#,
            r#"{"a":[{"id":9007199254740992,"x":1}]}"#,
            "/a/0/id",
        ),
    ] {
        for form in [WHOLE, WHOLE_WITH_REMOVALS] {
            let error = outcome(before, after, form).unwrap_err();
            assert!(
                error.is_lossy() && matches!(error, IntegrityError::PrecisionLost { .. }),
                "{before}: {error}"
            );
            assert_eq!(error.path().as_str(), path);
        }
        assert_eq!(outcome(before, after, AnswerForm::Operations), Ok(()));
    }
    assert_eq!(outcome(r#"{"a":1.5}"#, r#"{"a":2}"#, WHOLE), Ok(()));
}

#[test]
fn finds_losses_in_arrays_too_large_to_align() {
    let list = |range: std::ops::Range<u32>| {
        let elements: Vec<String> = range.map(|number| format!("[{number}]")).collect();
        format!(r#"{{"a":[{}]}}"#, elements.join(","))
    };
    let error = outcome(&list(0..5000), &list(5001..10001), WHOLE).unwrap_err();
    assert!(
        matches!(error, IntegrityError::FieldsDropped { others: 4999, .. }),
        "{error}"
    );
}

#[test]
fn errors_name_places_and_never_values() {
    let error = outcome(
        &pod("{}"),
        &pod(r#"{"labels":{"a":12345}}"#),
        AnswerForm::Operations,
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "`/metadata/labels/a` is a number, which Kubernetes cannot decode; expected a string (quote numbers and \
         booleans; to drop the value, remove it)"
    );
}
