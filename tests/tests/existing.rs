//! Existing violations: which ones are excused, which only look like existing ones, and the cost of telling them apart.

use serde_json::{Value, json};
use tollgate_tests::checker::{Checked, Endpoint};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::guests;
use tollgate_tests::reviews::{Review, pod};
use tollgate_tests::server::Server;

/// Adds a plugin that changes and denies Pods as its settings say.
fn actor(configuration: &mut Configuration, name: &str, settings: Value, more: Value) {
    let mut keys = json!({"settings": settings});
    for (key, value) in more.as_object().into_iter().flatten() {
        keys[key] = value.clone();
    }
    configuration.plugin(name, &guests::build("actor"), keys);
}

async fn start(configuration: Configuration) -> Server {
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    server
}

async fn updated_at(server: &Server, path: &str, object: &Value, old_object: &Value) -> Checked {
    let review = Review::update(object.clone(), old_object.clone()).build();
    let answer = server.post(path, &review).await;
    answer.checked(Endpoint::Validate, &review)
}

async fn updated(server: &Server, object: &Value, old_object: &Value) -> Checked {
    updated_at(server, "/validate", object, old_object).await
}

/// A plugin that lets only the user `admin` change a Pod. Its denial names `field`, and it reads the places of
/// `looks_at` first.
async fn only_admins(existing_violations: &str, field: &str, looks_at: &[&str]) -> Server {
    let mut configuration = Configuration::new();
    let only = json!({"user": "admin", "field": field, "looks_at": looks_at});
    actor(
        &mut configuration,
        "lock",
        json!({ "only": only }),
        json!({"existingViolations": existing_violations}),
    );
    start(configuration).await
}

fn dying_pod() -> Value {
    let mut object = pod("web");
    let metadata = &mut object["metadata"];
    metadata["deletionTimestamp"] = json!("2026-11-21T08:00:00Z");
    metadata["finalizers"] = json!(["example.com/keep", "example.com/cleanup"]);
    object["spec"]["priority"] = json!(1);
    object
}

/// Returns the object with another label and the same finalizers, and the object with one finalizer removed.
fn labelled_and_released(old: &Value) -> (Value, Value) {
    let (mut labelled, mut released) = (old.clone(), old.clone());
    labelled["metadata"]["labels"]["owner"] = json!("mallory");
    released["metadata"]["finalizers"] = json!(["example.com/cleanup"]);
    (labelled, released)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_rule_applies_to_object_in_deletion() {
    let old = dying_pod();
    let (labelled, released) = labelled_and_released(&old);
    for existing_violations in ["deny", "allow"] {
        for field in ["/spec/priority", ""] {
            let server = only_admins(existing_violations, field, &["/spec/priority"]).await;
            let checked = updated(&server, &labelled, &old).await;
            assert!(
                !checked.allowed,
                "{existing_violations}, {field:?}: keeping a finalizer bypasses the rule"
            );
            let checked = updated(&server, &released, &old).await;
            assert!(
                checked.allowed,
                "{existing_violations}, {field:?}: the object cannot be deleted: {:?}",
                checked.status
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_rule_about_removing_finalizer_applies() {
    let old = dying_pod();
    let (_, released) = labelled_and_released(&old);
    for existing_violations in ["deny", "allow"] {
        for (field, looks_at) in [
            ("/metadata/finalizers", "/kind"),
            ("/kind", "/metadata/finalizers"),
            ("", "/metadata/finalizers"),
        ] {
            let server = only_admins(existing_violations, field, &[looks_at]).await;
            let checked = updated(&server, &released, &old).await;
            assert!(
                !checked.allowed,
                "{existing_violations}: at {field:?}, after a look at {looks_at}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_rule_is_not_excused_as_existing_violation() {
    let mut old = pod("web");
    old["spec"]["priority"] = json!(1);
    let mut other = old.clone();
    other["metadata"]["labels"]["owner"] = json!("mallory");
    for field in ["/spec/priority", ""] {
        let server = only_admins("allow", field, &["/spec/priority"]).await;
        let checked = updated(&server, &other, &old).await;
        assert!(!checked.allowed, "{field:?}");
    }
    // A plugin that denies without reading anything denies the request and not the object.
    let mut configuration = Configuration::new();
    let allow = json!({"existingViolations": "allow"});
    let settings = json!({"deny": "no changes"});
    actor(&mut configuration, "freeze", settings, allow);
    let server = start(configuration).await;
    assert!(!updated(&server, &other, &old).await.allowed);
}

/// Creates a list of 100,000 elements. The last 256 are wrong, and a plugin names each of them.
fn long_list() -> Value {
    let mut object = pod("web");
    let element = |index: usize| {
        let image = if index >= 99_744 { "bad" } else { "good" };
        json!({"name": format!("e{index}"), "image": image})
    };
    object["spec"]["list"] = (0..100_000).map(element).collect();
    object
}

fn much() -> Value {
    json!({"fuel": "100G", "cpuTime": "30s", "timeout": "30s", "memory": "512Mi"})
}

/// Two validators that log each call. The first one excuses existing violations.
async fn two(pattern: &str) -> Server {
    let mut configuration = Configuration::new();
    actor(
        &mut configuration,
        "images",
        json!({"forbid": {pattern: "bad"}, "log": "images is called"}),
        json!({"existingViolations": "allow", "limits": much()}),
    );
    actor(
        &mut configuration,
        "next",
        json!({"forbid": {"/spec/nodeName": "bad"}, "log": "next is called"}),
        json!({"failurePolicy": "Ignore", "limits": much()}),
    );
    start(configuration).await
}

/// The first validator's second call does not wait for the second validator's first answer, however short the calls
/// are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_validator_runs_once_before_any_second_call() {
    let server = two("/spec/containers/0/image").await;
    let mut old = pod("web");
    old["spec"]["containers"][0]["image"] = json!("bad");
    let mut new = old.clone();
    new["metadata"]["labels"]["owner"] = json!("jane");
    const REVIEWS: usize = 20;
    for _ in 0..REVIEWS {
        let checked = updated(&server, &new, &old).await;
        assert!(checked.allowed, "{:?}", checked.status);
    }
    let stopped = server.stop();
    let called: Vec<&str> = stopped
        .logs
        .iter()
        .filter_map(|line| {
            let names = ["images is called", "next is called"];
            names.into_iter().find(|name| line.contains(name))
        })
        .collect();
    assert_eq!(called.len(), 3 * REVIEWS);
    // A timer tick during the second validator's first call can let the first validator's second call log first.
    let last = called
        .chunks(3)
        .filter(|calls| calls[2] == "next is called");
    let last = last.count();
    println!("in {last} of {REVIEWS} reviews the second call came first");
    assert!(last < REVIEWS / 2, "{last} of {REVIEWS}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn distinguishes_many_existing_violations_from_new_ones() {
    let server = two("/spec/list/*/image").await;
    let old = long_list();
    let mut new = old.clone();
    new["metadata"]["labels"]["owner"] = json!("jane");
    let checked = updated_at(&server, "/validate?timeout=30s", &new, &old).await;
    assert!(checked.allowed, "{:?}", checked.status);
    let annotations = &checked.audit_annotations;
    assert!(
        annotations.contains_key("images.existing-violations"),
        "{annotations:?}"
    );
    assert!(
        !annotations.contains_key("next.failed-open"),
        "{annotations:?}"
    );
    // One more violation is new, so the request is denied.
    new["spec"]["list"][0]["image"] = json!("bad");
    let checked = updated_at(&server, "/validate?timeout=30s", &new, &old).await;
    assert!(!checked.allowed);
}
