use serde_json::{Value as Json, json};
use tollgate_sdk::testing::{Mutated, Outcome, TestReview, configure, manifest};

use super::*;

const KEEP: &str = "disable-service-links.tollgate.dev/keep";

fn pod(spec: Json) -> Json {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {}}, "spec": spec})
}

fn deployment(image: &str) -> Json {
    let template = json!({"metadata": {"labels": {}}, "spec": {"containers": [{"name": "app", "image": image}]}});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": {}},
        "spec": {"replicas": 1, "template": template}
    })
}

fn with(object: &Json, pointer: &str, value: Json) -> Json {
    let (parent, member) = pointer.rsplit_once('/').unwrap();
    let mut object = object.clone();
    object.pointer_mut(parent).unwrap()[member.replace("~1", "/")] = value;
    object
}

fn mutate(review: &TestReview) -> Outcome<Mutated> {
    review.mutate::<DisableServiceLinks>()
}

#[test]
fn a_pod_loses_the_links_that_it_did_not_ask_for() {
    for spec in [json!({}), json!({"enableServiceLinks": null})] {
        let outcome = mutate(&TestReview::create(pod(spec)));
        assert_eq!(
            outcome.object()["spec"],
            json!({"enableServiceLinks": false})
        );
    }
}

#[test]
fn so_does_the_template_of_a_deployment() {
    let outcome = mutate(&TestReview::create(deployment("app:1")));
    assert_eq!(
        outcome.object()["spec"]["template"]["spec"]["enableServiceLinks"],
        json!(false)
    );
    assert_eq!(outcome.operations().len(), 1);
}

#[test]
fn its_own_output_is_left_as_it_is() {
    for object in [pod(json!({})), deployment("app:1")] {
        let review = TestReview::create(object).settings(json!({"overrideTrue": true}));
        let once = mutate(&review).object().clone();
        assert!(!mutate(&review.object(once)).is_changed());
    }
}

#[test]
fn links_that_were_asked_for_stay_unless_they_are_overridden() {
    let review = TestReview::create(pod(json!({"enableServiceLinks": true})));
    assert!(!mutate(&review).is_changed());
    let outcome = mutate(&review.settings(json!({"overrideTrue": true})));
    assert_eq!(outcome.object()["spec"]["enableServiceLinks"], json!(false));
}

#[test]
fn a_label_keeps_the_links() {
    let label = format!("/metadata/labels/{}", KEEP.replace('/', "~1"));
    for (object, at) in [
        (pod(json!({})), label.clone()),
        (deployment("app:1"), label.clone()),
        (deployment("app:1"), format!("/spec/template{label}")),
    ] {
        let settings = json!({"overrideTrue": true});
        let labelled = with(&object, &at, json!("true"));
        let review = TestReview::create(labelled).settings(settings.clone());
        assert!(!mutate(&review).is_changed(), "{at}");
        let labelled = with(&object, &at, json!("false"));
        let review = TestReview::create(labelled).settings(settings);
        assert!(mutate(&review).is_changed(), "{at}: only \"true\" keeps");
    }
}

#[test]
fn the_label_can_be_another() {
    let labelled = with(&pod(json!({})), "/metadata/labels/links", json!("true"));
    let review = TestReview::create(labelled);
    assert!(mutate(&review).is_changed());
    assert!(!mutate(&review.settings(json!({"keepLabel": "links"}))).is_changed());
}

#[test]
fn an_update_that_leaves_the_template_alone_restarts_nothing() {
    let scaled = with(&deployment("app:1"), "/spec/replicas", json!(5));
    let review = TestReview::update(deployment("app:1"), scaled);
    assert!(!mutate(&review).is_changed());
    let review = TestReview::update(deployment("app:1"), deployment("app:2"));
    assert!(mutate(&review).is_changed());
}

#[test]
fn a_replaced_deployment_keeps_what_the_mutation_made_of_it() {
    let live = with(
        &deployment("app:1"),
        "/spec/template/spec/enableServiceLinks",
        json!(false),
    );
    let outcome = mutate(&TestReview::update(live.clone(), deployment("app:1")));
    assert_eq!(
        outcome.object(),
        &live,
        "no template that changes to and fro"
    );
}

#[test]
fn what_cannot_be_changed_is_left_alone() {
    let mut mirror = pod(json!({}));
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
    for review in [
        TestReview::create(mirror),
        TestReview::update(pod(json!({})), pod(json!({"activeDeadlineSeconds": 1}))),
        TestReview::create(pod(json!({}))).sub_resource("eviction"),
        TestReview::delete(pod(json!({}))),
        TestReview::create(json!({"apiVersion": "v1", "kind": "Pod"})),
        TestReview::create(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {}})),
    ] {
        assert!(!mutate(&review).is_changed(), "{review:?}");
    }
}

#[test]
fn settings_errors_name_their_setting() {
    let errors = configure::<DisableServiceLinks>(json!({"keepLabel": "no label"}))
        .err()
        .unwrap();
    assert!(
        errors
            .to_string()
            .starts_with("/keepLabel: is no key of a label or annotation"),
        "{errors}"
    );
}

#[test]
fn the_settings_schema_is_json() {
    let schema: Json =
        serde_json::from_str(&manifest::<DisableServiceLinks>().settings_schema.unwrap()).unwrap();
    assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
}
