use crate::read::Recording;

use super::*;

fn event(verb: &str, code: u64, message: &str) -> Value {
    json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse",
        "auditID": "a-1", "stage": "ResponseComplete", "verb": verb,
        "requestURI": "/api/v1/namespaces/shop/pods",
        "user": {"username": "jane", "groups": ["dev"]},
        "objectRef": {"resource": "pods", "namespace": "shop", "name": "web", "apiVersion": "v1"},
        "responseStatus": {"code": code, "message": message},
        "requestObject": {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web"}, "spec": {"a": "sent"}},
        "responseObject": {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web", "managedFields": []}, "spec": {"a": "stored"}},
        "requestReceivedTimestamp": "2026-03-01T10:00:00.123456Z",
    })
}

fn imported(events: &[Value]) -> (Imported, Vec<Record>) {
    let folder = tempfile::tempdir().unwrap();
    let log: Vec<String> = events.iter().map(Value::to_string).collect();
    let log = log.join("\n");
    let result = import(log.as_bytes(), folder.path(), 1 << 20, "test", &[]).unwrap();
    let mut records = Recording::open(folder.path()).unwrap().records();
    let found: Vec<_> = records.by_ref().collect();
    assert!(records.damages().is_empty());
    assert!(
        found
            .iter()
            .all(|entry| entry.header.origin == Origin::AuditLog)
    );
    (
        result,
        found.into_iter().map(|entry| entry.record).collect(),
    )
}

#[test]
fn rebuilds_reviews_from_events() {
    let denied = "admission webhook \"validate.tollgate.dev\" denied the request: no";
    let (result, records) = imported(&[
        event("create", 201, ""),
        event("patch", 200, ""),
        event("delete", 200, ""),
        event("create", 403, denied),
    ]);
    assert_eq!((result.reviews, result.skipped.len()), (4, 0));
    let at = |index: usize, pointer: &str| {
        let found = records[index].review.at(pointer).unwrap().cloned();
        found.map(|value| value.to_text()).unwrap_or_default()
    };
    assert_eq!(at(0, "/request/object/spec/a"), "\"sent\"");
    assert_eq!(at(0, "/request/object/metadata/namespace"), "\"shop\"");
    assert_eq!(at(0, "/request/userInfo/username"), "\"jane\"");
    assert_eq!(at(1, "/request/object/spec/a"), "\"stored\"");
    assert_eq!(at(1, "/request/operation"), "\"UPDATE\"");
    assert_eq!(at(1, "/request/object/metadata/managedFields"), "");
    assert_eq!(at(2, "/request/object"), "null");
    assert_eq!(at(2, "/request/oldObject/spec/a"), "\"stored\"");
    let allowed = records.iter().map(|record| {
        let allowed = record.answer.member("allowed");
        allowed.and_then(Json::as_bool).unwrap()
    });
    assert_eq!(allowed.collect::<Vec<_>>(), [true, true, true, false]);
}

#[test]
fn says_what_was_left_out() {
    let mut metadata = event("create", 201, "");
    metadata["level"] = "Metadata".into();
    let mut begun = event("create", 201, "");
    begun["stage"] = "RequestReceived".into();
    let mut status = event("delete", 200, "");
    status["responseObject"] = json!({"kind": "Status"});
    let (result, records) = imported(&[
        metadata,
        begun,
        status,
        event("get", 200, ""),
        event("create", 403, "pods is forbidden"),
        json!({"kind": "Pod"}),
    ]);
    assert!(records.is_empty());
    let reasons: Vec<_> = result.skipped.into_iter().collect();
    assert_eq!(
        reasons,
        [
            ("a deletion without the object", 1),
            ("a verb without admission", 1),
            ("failed for another reason than admission", 1),
            ("not an event of an audit log", 1),
            ("not of level RequestResponse", 1),
            ("not the last stage of a request", 1),
        ]
    );
}
