use k8s_openapi::api::authorization::v1::SubjectAccessReviewStatus;
use tollgate_admission::access::User;

use super::*;

fn question(action: Action) -> Question {
    let user = User {
        name: "anna".to_owned(),
        uid: "7".to_owned(),
        groups: vec!["dev".to_owned()],
        extra: [("scopes".to_owned(), vec!["a".to_owned()])].into(),
    };
    Question {
        user: Arc::new(user),
        action,
    }
}

fn exec() -> Question {
    question(Action::Resource {
        verb: "create".to_owned(),
        group: String::new(),
        resource: "pods".to_owned(),
        subresource: "exec".to_owned(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
    })
}

fn answered(status: SubjectAccessReviewStatus) -> Answer {
    read(SubjectAccessReview {
        status: Some(status),
        ..SubjectAccessReview::default()
    })
}

#[test]
fn review_has_user_and_action() {
    let spec = serde_json::to_value(review(&exec()).spec).expect("it is JSON");
    let expected = serde_json::json!({
        "user": "anna", "uid": "7", "groups": ["dev"], "extra": {"scopes": ["a"]},
        "resourceAttributes": {
            "verb": "create", "version": "*", "resource": "pods", "subresource": "exec",
            "namespace": "shop", "name": "web",
        },
    });
    assert_eq!(spec, expected);
    let path = question(Action::Path {
        verb: "get".to_owned(),
        path: "/metrics".to_owned(),
    });
    let spec = serde_json::to_value(review(&path).spec).expect("it is JSON");
    assert_eq!(spec["nonResourceAttributes"]["path"], "/metrics");
    assert!(spec.get("resourceAttributes").is_none());
}

#[test]
fn only_an_explicit_yes_allows() {
    let status = SubjectAccessReviewStatus::default;
    let allows = |status| answered(status).expect("there is a status").allowed;
    assert!(allows(SubjectAccessReviewStatus {
        allowed: true,
        ..status()
    }));
    assert!(!allows(status()));
    assert!(!allows(SubjectAccessReviewStatus {
        allowed: true,
        denied: Some(true),
        ..status()
    }));
    assert!(read(SubjectAccessReview::default()).is_err());
}

#[test]
fn reason_and_error_are_handed_on() {
    let decision = answered(SubjectAccessReviewStatus {
        reason: Some("RBAC: allowed".to_owned()),
        evaluation_error: Some("a webhook failed".to_owned()),
        ..SubjectAccessReviewStatus::default()
    });
    let decision = decision.expect("there is a status");
    assert_eq!(&*decision.reason, "RBAC: allowed");
    assert_eq!(decision.error.as_deref(), Some("a webhook failed"));
}
