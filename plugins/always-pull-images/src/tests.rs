use serde_json::{Value as Json, json};
use tollgate_sdk::testing::{TestReview, configure, manifest};

use super::*;

fn pod() -> Json {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "initContainers": [{"name": "init", "image": "ghcr.io/acme/init:1", "imagePullPolicy": "IfNotPresent"}],
            "containers": [
                {"name": "app", "image": "ghcr.io/acme/app:1", "imagePullPolicy": "Never"},
                {"name": "proxy", "image": "ghcr.io/acme/proxy:1", "imagePullPolicy": "Always"},
            ],
        }
    })
}

fn with(pod: &Json, pointer: &str, value: Json) -> Json {
    let mut pod = pod.clone();
    *pod.pointer_mut(pointer).unwrap() = value;
    pod
}

fn with_ephemeral(image: &str) -> Json {
    let mut pod = pod();
    pod["spec"]["ephemeralContainers"] =
        json!([{"name": "debug", "image": image, "imagePullPolicy": "IfNotPresent"}]);
    pod
}

#[test]
fn every_kind_of_container_is_set_to_always() {
    let mut pod = with_ephemeral("busybox");
    pod["spec"]["containers"][0]
        .as_object_mut()
        .unwrap()
        .remove("imagePullPolicy");
    pod["spec"]["volumes"] = json!([{"name": "v", "image": {"reference": "ghcr.io/acme/data:1"}}, {"name": "e", "emptyDir": {}}]);
    let outcome = TestReview::create(pod).mutate::<AlwaysPullImages>();
    let spec = &outcome.object()["spec"];
    for pointer in [
        "/initContainers/0/imagePullPolicy",
        "/containers/0/imagePullPolicy",
        "/containers/1/imagePullPolicy",
        "/ephemeralContainers/0/imagePullPolicy",
        "/volumes/0/image/pullPolicy",
    ] {
        assert_eq!(spec.pointer(pointer), Some(&json!("Always")), "{pointer}");
    }
    assert_eq!(
        outcome.operations().len(),
        4,
        "what is Always already is not touched"
    );
}

#[test]
fn its_own_output_is_left_as_it_is_and_allowed() {
    let review = TestReview::create(pod());
    let once = review.mutate::<AlwaysPullImages>();
    let again = review.object(once.object().clone());
    assert!(!again.mutate::<AlwaysPullImages>().is_changed());
    assert!(again.validate::<AlwaysPullImages>().is_allowed());
}

#[test]
fn validation_names_every_container() {
    let outcome = TestReview::create(pod()).validate::<AlwaysPullImages>();
    assert_eq!(
        outcome.causes(),
        [
            ("/spec/initContainers/0/imagePullPolicy", "must be Always"),
            ("/spec/containers/0/imagePullPolicy", "must be Always"),
        ]
    );
}

#[test]
fn an_update_without_a_new_image_is_let_through() {
    let relabelled = {
        let mut pod = pod();
        pod["metadata"]["labels"] = json!({"a": "b"});
        pod
    };
    let review = TestReview::update(pod(), relabelled);
    assert!(review.validate::<AlwaysPullImages>().is_allowed());
    assert!(!review.mutate::<AlwaysPullImages>().is_changed());
}

#[test]
fn an_update_to_an_image_of_another_container_is_let_through() {
    let swapped = with(
        &pod(),
        "/spec/containers/0/image",
        json!("ghcr.io/acme/proxy:1"),
    );
    assert!(
        TestReview::update(pod(), swapped)
            .validate::<AlwaysPullImages>()
            .is_allowed()
    );
}

#[test]
fn an_update_with_a_new_image_is_checked() {
    let updated = with(
        &pod(),
        "/spec/containers/0/image",
        json!("ghcr.io/acme/app:2"),
    );
    let review = TestReview::update(pod(), updated);
    assert_eq!(review.validate::<AlwaysPullImages>().fields().len(), 2);
    assert!(review.mutate::<AlwaysPullImages>().is_changed());
}

#[test]
fn of_an_ephemeral_container_only_the_new_one_is_touched() {
    let review =
        TestReview::update(pod(), with_ephemeral("busybox")).sub_resource("ephemeralcontainers");
    assert_eq!(
        review.validate::<AlwaysPullImages>().fields(),
        ["/spec/ephemeralContainers/0/imagePullPolicy"],
        "the other containers cannot be changed through this subresource"
    );
    assert_eq!(review.mutate::<AlwaysPullImages>().operations().len(), 1);

    let more = {
        let mut pod = with_ephemeral("busybox");
        let second = json!({"name": "second", "image": "alpine", "imagePullPolicy": "Never"});
        pod["spec"]["ephemeralContainers"]
            .as_array_mut()
            .unwrap()
            .push(second);
        pod
    };
    let review =
        TestReview::update(with_ephemeral("busybox"), more).sub_resource("ephemeralcontainers");
    assert_eq!(
        review.validate::<AlwaysPullImages>().fields(),
        ["/spec/ephemeralContainers/1/imagePullPolicy"]
    );
}

#[test]
fn other_subresources_and_resources_are_ignored() {
    let status = TestReview::update(json!({}), pod()).sub_resource("status");
    assert!(status.validate::<AlwaysPullImages>().is_allowed());
    assert!(!status.mutate::<AlwaysPullImages>().is_changed());
    let other = TestReview::create(pod()).resource("example.com", "v1", "pods");
    assert!(other.validate::<AlwaysPullImages>().is_allowed());
    assert!(
        TestReview::delete(pod())
            .validate::<AlwaysPullImages>()
            .is_allowed()
    );
}

#[test]
fn mirror_pods_are_left_alone() {
    let mut pod = pod();
    pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
    let review = TestReview::create(pod);
    assert!(!review.mutate::<AlwaysPullImages>().is_changed());
    assert!(review.validate::<AlwaysPullImages>().is_allowed());
}

#[test]
fn exempt_images_may_have_any_policy() {
    let review = TestReview::create(pod()).settings(json!({"exemptImages": ["ghcr.io/acme/app"]}));
    assert_eq!(
        review.validate::<AlwaysPullImages>().fields(),
        ["/spec/initContainers/0/imagePullPolicy"]
    );
}

#[test]
fn an_exemption_covers_whole_components_only() {
    let lookalike = with(
        &pod(),
        "/spec/containers/0/image",
        json!("ghcr.io.evil.io/acme/app:1"),
    );
    let review = TestReview::create(lookalike).settings(json!({"exemptImages": ["ghcr.io"]}));
    assert_eq!(
        review.validate::<AlwaysPullImages>().fields(),
        ["/spec/containers/0/imagePullPolicy"]
    );
}

#[test]
fn an_exemption_without_a_registry_is_refused() {
    let errors = configure::<AlwaysPullImages>(json!({"exemptImages": ["ghcr.io", "nginx"]}))
        .err()
        .unwrap();
    assert!(
        errors
            .to_string()
            .starts_with("/exemptImages/1: is no image prefix"),
        "{errors}"
    );
}

#[test]
fn the_settings_schema_is_json() {
    let schema: Json =
        serde_json::from_str(&manifest::<AlwaysPullImages>().settings_schema.unwrap()).unwrap();
    assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
}
