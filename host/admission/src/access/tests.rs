use serde_json::json;

use super::*;
use crate::review::decode::decode;

fn request() -> AdmissionRequest {
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u", "operation": "CREATE", "name": "web",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "userInfo": {
                "username": "anna", "uid": "7", "groups": ["dev", "system:authenticated"],
                "extra": {"scopes": ["a", "b"]},
            },
        }
    });
    let review = decode(review.to_string().as_bytes(), 32).expect("the review can be read");
    review.request
}

fn anna() -> Arc<User> {
    Arc::new(User::of_request(&request()))
}

fn on(verb: &str, group: &str, resource: &str, namespace: &str, name: &str) -> Action {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    Action::Resource {
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn rule(subject: Subject, verb: &str, api_group: &str, resource: &str) -> Rule {
    Rule {
        subject,
        verb: verb.to_owned(),
        on: On::Resource {
            api_group: api_group.to_owned(),
            resource: resource.to_owned(),
            namespace: None,
            name: None,
        },
    }
}

fn allows(rule: &Rule, user: &Arc<User>, action: Action) -> bool {
    let rights = FixedRights::new([rule.clone()]);
    let user = user.clone();
    let answer = rights.known(&Question { user, action });
    let decision = answer.expect("a list always knows").expect("it answers");
    decision.allowed
}

#[test]
fn user_is_that_of_the_request_with_all_fields() {
    let user = anna();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("anna", "7"));
    assert_eq!(user.groups, ["dev", "system:authenticated"]);
    assert_eq!(user.extra["scopes"], ["a", "b"]);
}

#[test]
fn service_account_has_groups_of_its_namespace() {
    let user = User::service_account("shop", "robot");
    assert_eq!(user.name, "system:serviceaccount:shop:robot");
    assert_eq!(
        user.groups,
        ["system:serviceaccounts", "system:serviceaccounts:shop"]
    );
}

#[test]
fn debug_output_names_no_user() {
    let question = Question {
        user: anna(),
        action: on("get", "", "pods", "", ""),
    };
    let text = format!("{question:?}");
    assert!(!text.contains("anna") && !text.contains("dev"), "{text}");
}

#[test]
fn rules_allow_what_they_name_and_nothing_else() {
    let by_name = |name: &str| Subject::User(name.to_owned());
    let get_pods = rule(by_name("anna"), "get", "", "pods");
    let anna = anna();
    assert!(allows(
        &get_pods,
        &anna,
        on("get", "", "pods", "shop", "web")
    ));
    for other in [
        on("list", "", "pods", "shop", "web"),
        on("get", "apps", "pods", "shop", "web"),
        on("get", "", "pods/exec", "shop", "web"),
        on("get", "", "secrets", "shop", "web"),
    ] {
        assert!(!allows(&get_pods, &anna, other.clone()), "{other:?}");
    }
    let bert = Arc::new(User::default());
    assert!(!allows(&get_pods, &bert, on("get", "", "pods", "", "")));
    let by_group = rule(Subject::Group("dev".to_owned()), "*", "*", "*/scale");
    assert!(allows(
        &by_group,
        &anna,
        on("update", "apps", "deployments/scale", "", "")
    ));
    assert!(!allows(
        &by_group,
        &anna,
        on("update", "apps", "deployments", "", "")
    ));
    let all = rule(by_name("*"), "*", "*", "*");
    assert!(allows(
        &all,
        &bert,
        on("update", "apps", "deployments/scale", "", "")
    ));
}

#[test]
fn rules_can_name_namespace_and_object() {
    let rule = Rule {
        on: On::Resource {
            api_group: String::new(),
            resource: "pods".to_owned(),
            namespace: Some("shop".to_owned()),
            name: Some("web".to_owned()),
        },
        ..rule(Subject::User("anna".to_owned()), "get", "", "")
    };
    let anna = anna();
    assert!(allows(&rule, &anna, on("get", "", "pods", "shop", "web")));
    assert!(!allows(&rule, &anna, on("get", "", "pods", "blog", "web")));
    assert!(!allows(&rule, &anna, on("get", "", "pods", "shop", "")));
    assert!(!allows(&rule, &anna, on("get", "", "pods", "", "")));
}

#[test]
fn rules_about_paths_are_not_about_resources() {
    let path = |path: &str| Action::Path {
        verb: "get".to_owned(),
        path: path.to_owned(),
    };
    let rule = |on: &str| Rule {
        subject: Subject::User("anna".to_owned()),
        verb: "get".to_owned(),
        on: On::Path(on.to_owned()),
    };
    let anna = anna();
    assert!(allows(&rule("/metrics"), &anna, path("/metrics")));
    assert!(!allows(&rule("/metrics"), &anna, path("/metrics/slis")));
    assert!(allows(&rule("/metrics/*"), &anna, path("/metrics/slis")));
    assert!(!allows(&rule("*"), &anna, on("get", "", "pods", "", "")));
}

#[test]
fn without_authorizer_nothing_is_allowed() {
    let nobody = NoAuthorizer::because("this host has no authorizer");
    let question = Question {
        user: anna(),
        action: on("get", "", "pods", "", ""),
    };
    let answer = nobody.known(&question).expect("it always knows");
    assert_eq!(
        answer,
        Err(Unavailable::because("this host has no authorizer"))
    );
}

#[test]
fn incomplete_actions_are_refused() {
    assert_eq!(on("get", "", "pods", "", "").check(), Ok(()));
    assert_eq!(on("", "", "pods", "", "").check(), Err("the verb is empty"));
    assert_eq!(
        on("get", "", "", "", "").check(),
        Err("the resource is empty")
    );
    let path = Action::Path {
        verb: "get".to_owned(),
        path: String::new(),
    };
    assert_eq!(path.check(), Err("the path is empty"));
}

#[test]
fn long_texts_of_authorizers_are_cut() {
    let decision = Decision::new(false, &"ä".repeat(2000), Some(""));
    assert!(decision.reason.len() <= 1024);
    assert_eq!(decision.error, None);
}
