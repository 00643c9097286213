use serde_json::{Value as Json, json};
use tollgate_sdk::testing::{Mutated, Outcome, TestReview, configure, manifest};

use super::*;

fn pod(image: &str) -> Json {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": [{"name": "app", "image": image}]}
    })
}

fn settings() -> Json {
    json!({"rewrite": [
        {"from": "k8s.gcr.io/", "to": "registry.k8s.io/"},
        {"from": "docker.io/", "to": "mirror.example.com/hub/"},
        {"from": "registry.example.com/", "to": "new.example.com/"},
    ]})
}

fn mutate(review: TestReview) -> Outcome<Mutated> {
    review.settings(settings()).mutate::<ImageRewrite>()
}

fn image(outcome: &Outcome<Mutated>) -> &Json {
    &outcome.object()["spec"]["containers"][0]["image"]
}

#[test]
fn images_are_rewritten_in_every_kind_of_container() {
    let mut pod = pod("k8s.gcr.io/pause:3.9");
    pod["spec"]["initContainers"] = json!([{"name": "init", "image": "busybox"}]);
    pod["spec"]["ephemeralContainers"] = json!([{"name": "debug", "image": "acme/debug"}]);
    let outcome = mutate(TestReview::create(pod));
    let spec = &outcome.object()["spec"];
    assert_eq!(spec["containers"][0]["image"], "registry.k8s.io/pause:3.9");
    assert_eq!(
        spec["initContainers"][0]["image"],
        "mirror.example.com/hub/library/busybox"
    );
    assert_eq!(
        spec["ephemeralContainers"][0]["image"],
        "mirror.example.com/hub/acme/debug"
    );
    assert_eq!(
        outcome.object()["metadata"]["annotations"],
        json!({
            "original.image-rewrite.tollgate.dev/app": "k8s.gcr.io/pause:3.9",
            "original.image-rewrite.tollgate.dev/init": "busybox",
            "original.image-rewrite.tollgate.dev/debug": "acme/debug",
        })
    );
}

#[test]
fn its_own_output_is_left_as_it_is() {
    for text in ["k8s.gcr.io/pause:3.9", "nginx", "ghcr.io/acme/app"] {
        let review = TestReview::create(pod(text)).settings(settings());
        let once = review.mutate::<ImageRewrite>();
        assert!(
            !review
                .object(once.object().clone())
                .mutate::<ImageRewrite>()
                .is_changed(),
            "{text}"
        );
    }
}

#[test]
fn existing_annotations_stay() {
    let mut pod = pod("nginx");
    pod["metadata"]["annotations"] = json!({"a": "b"});
    let outcome = mutate(TestReview::create(pod));
    let annotations = &outcome.object()["metadata"]["annotations"];
    assert_eq!(
        annotations,
        &json!({"a": "b", "original.image-rewrite.tollgate.dev/app": "nginx"})
    );
}

#[test]
fn a_digest_stays_with_the_image() {
    let digest = "@sha256:1782cafde43390b032f960c0fad3def745fac18994ced169003cb56e9a93c028";
    let outcome = mutate(TestReview::create(pod(&format!(
        "k8s.gcr.io/pause:3.9{digest}"
    ))));
    assert_eq!(
        image(&outcome),
        &format!("registry.k8s.io/pause:3.9{digest}")
    );
}

#[test]
fn lookalikes_and_other_registries_are_left_alone() {
    for text in [
        "registry.example.com.evil.io/app",
        "registry.example.com:5000/app",
        "evil.io/registry.example.com/app",
        "ghcr.io/acme/app",
        "Not A Reference",
    ] {
        let outcome = mutate(TestReview::create(pod(text)));
        assert!(!outcome.is_changed(), "{text}");
    }
}

#[test]
fn mirror_pods_are_left_alone() {
    let mut pod = pod("nginx");
    pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
    assert!(!mutate(TestReview::create(pod)).is_changed());
}

#[test]
fn an_update_rewrites_only_the_images_that_it_changes() {
    let mut relabelled = pod("nginx");
    relabelled["metadata"]["labels"] = json!({"a": "b"});
    assert!(
        !mutate(TestReview::update(pod("nginx"), relabelled)).is_changed(),
        "a running container would restart"
    );
    let outcome = mutate(TestReview::update(pod("nginx:1"), pod("nginx:2")));
    assert_eq!(image(&outcome), "mirror.example.com/hub/library/nginx:2");
}

#[test]
fn of_the_ephemeral_containers_only_new_ones_are_rewritten() {
    let debugged = |names: &[&str]| {
        let mut pod = pod("nginx");
        let containers = names
            .iter()
            .map(|name| json!({"name": name, "image": "busybox"}));
        pod["spec"]["ephemeralContainers"] = containers.collect();
        pod
    };
    let outcome = mutate(
        TestReview::update(debugged(&["a"]), debugged(&["a", "b"]))
            .sub_resource("ephemeralcontainers"),
    );
    let containers = &outcome.object()["spec"]["ephemeralContainers"];
    assert_eq!(containers[0]["image"], "busybox");
    assert_eq!(
        containers[1]["image"],
        "mirror.example.com/hub/library/busybox"
    );
    assert_eq!(image(&outcome), "nginx");
    assert_eq!(
        outcome.object()["metadata"].get("annotations"),
        None,
        "metadata cannot be changed here"
    );
}

#[test]
fn requests_without_a_pod_to_change_are_left_alone() {
    assert!(
        !mutate(TestReview::update(pod("a"), pod("nginx")).sub_resource("status")).is_changed()
    );
    assert!(!mutate(TestReview::delete(pod("nginx"))).is_changed());
    assert!(
        !TestReview::create(pod("nginx"))
            .mutate::<ImageRewrite>()
            .is_changed(),
        "there are no rules"
    );
}

#[test]
fn the_annotation_can_be_turned_off() {
    let settings =
        json!({"rewrite": [{"from": "docker.io", "to": "quay.io/hub"}], "annotateOriginal": false});
    let outcome = TestReview::create(pod("nginx"))
        .settings(settings)
        .mutate::<ImageRewrite>();
    assert_eq!(image(&outcome), "quay.io/hub/library/nginx");
    assert_eq!(outcome.object()["metadata"].get("annotations"), None);
}

#[test]
fn settings_errors_name_their_setting() {
    let errors = configure::<ImageRewrite>(json!({"rewrite": [{"from": "docker.io"}]}))
        .err()
        .unwrap();
    assert_eq!(errors.to_string(), "/rewrite/0: missing field `to`");
    let errors =
        configure::<ImageRewrite>(json!({"rewrite": [{"from": "docker.io", "to": "docker.io/x"}]}))
            .err()
            .unwrap();
    assert!(
        errors.to_string().starts_with("/rewrite/0/to: "),
        "{errors}"
    );
}

#[test]
fn the_settings_schema_is_json() {
    let schema: Json =
        serde_json::from_str(&manifest::<ImageRewrite>().settings_schema.unwrap()).unwrap();
    assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
}
