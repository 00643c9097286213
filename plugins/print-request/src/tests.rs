use serde_json::{Value as Json, json};
use tollgate_sdk::testing::{TestReview, configure, manifest};

use super::*;

fn pod() -> Json {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": [
            {"name": "app", "env": [{"name": "A", "value": "hunter2"}, {"name": "B"}]},
            {"name": "proxy"},
        ]}
    })
}

/// Returns the log of both phases, which must be equal except for the name of the phase.
fn log(review: TestReview, settings: Json) -> Vec<String> {
    let review = review.settings(settings);
    let lines = |logs: &[(tollgate_sdk::log::Level, String)], phase: &str| -> Vec<String> {
        let lines = logs
            .iter()
            .map(|(_, line)| line.strip_prefix(phase).unwrap());
        lines.map(str::to_owned).collect()
    };
    let validated = review.validate::<PrintRequest>();
    assert!(validated.is_allowed());
    let mutated = review.mutate::<PrintRequest>();
    assert!(!mutated.is_changed());
    let log = lines(validated.logs(), "validate: ");
    assert_eq!(log, lines(mutated.logs(), "mutate: "));
    log
}

#[test]
fn a_request_is_printed_with_its_user_and_its_documents() {
    let review = TestReview::create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}}))
        .user("jane@example.com", &["dev", "system:authenticated"])
        .options(json!({"kind": "CreateOptions"}));
    assert_eq!(
        log(review, json!({})),
        [
            "CREATE v1 pods web in shop by jane@example.com of dev, system:authenticated",
            r#"object: {"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"}}"#,
            r#"options: {"kind":"CreateOptions"}"#,
        ]
    );
}

#[test]
fn everything_about_a_request_that_is_known_is_printed() {
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": ""}});
    let review = TestReview::update(scale.clone(), scale)
        .resource("apps", "v1", "deployments")
        .sub_resource("scale")
        .user("hpa", &[])
        .dry_run();
    let log = log(review, json!({"maxBytes": 0}));
    assert_eq!(
        log,
        ["UPDATE apps/v1 deployments/scale without a name by hpa, dry run"]
    );
}

#[test]
fn the_old_object_is_printed_as_well() {
    let lines = log(TestReview::delete(pod()), json!({}));
    assert_eq!(lines.len(), 2);
    assert!(lines[1].starts_with(r#"oldObject: {"apiVersion":"v1""#));
    assert_eq!(log(TestReview::update(pod(), pod()), json!({})).len(), 3);
}

#[test]
fn of_a_secret_no_content_is_printed() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "loot", "annotations": {"a": "hunter2"}},
        "data": {"password": "aHVudGVyMg=="}, "stringData": {"password": "hunter2"}});
    let as_other_kind =
        json!({"apiVersion": "v1", "kind": "Other", "data": {"password": "hunter2"}});
    for review in [
        TestReview::create(secret.clone()),
        TestReview::update(secret.clone(), secret.clone()),
        TestReview::delete(secret),
        TestReview::create(as_other_kind).resource("", "v1", "secrets"),
        TestReview::create(
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "hunter2"}}),
        ),
    ] {
        let log = log(review, json!({}));
        assert_eq!(log.len(), 2);
        assert_eq!(log[1], "the object is left out, it holds credentials");
        assert!(!log[0].contains("hunter2"));
    }
}

#[test]
fn a_secret_of_another_group_is_not_special() {
    let custom = json!({"apiVersion": "example.com/v1", "kind": "Secret", "metadata": {}});
    assert!(log(TestReview::create(custom), json!({}))[1].starts_with("object: {"));
}

#[test]
fn what_kubectl_keeps_of_the_object_is_redacted() {
    let mut pod = pod();
    pod["metadata"]["managedFields"] = json!([{"manager": "kubectl"}]);
    pod["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": "{\"a\":\"hunter2\"}", "note": "\u{e4}\""});
    pod.as_object_mut().unwrap().remove("spec");
    assert_eq!(
        log(TestReview::create(pod), json!({}))[1],
        concat!(
            r#"object: {"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"#,
            r#""kubectl.kubernetes.io/last-applied-configuration":"[redacted]","note":"ä\""},"#,
            r#""managedFields":"[redacted]","name":"web","namespace":"shop"}}"#
        )
    );
}

#[test]
fn places_of_the_settings_are_redacted_in_every_document() {
    let settings =
        json!({"redact": ["/spec/containers/*/env/*/value", "/spec/containers/1", "/nothing/*"]});
    let log = log(TestReview::update(pod(), pod()), settings);
    for (line, name) in [(&log[1], "object"), (&log[2], "oldObject")] {
        let json = line.strip_prefix(&format!("{name}: ")).unwrap();
        let printed: Json = serde_json::from_str(json).unwrap();
        let env = json!([{"name": "A", "value": "[redacted]"}, {"name": "B"}]);
        assert_eq!(
            printed["spec"]["containers"],
            json!([{"name": "app", "env": env}, "[redacted]"])
        );
    }
}

#[test]
fn a_long_object_goes_over_several_lines_and_is_cut() {
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "\u{e4}".repeat(5000)}});
    let whole = log(TestReview::create(object.clone()), json!({}));
    let parts: Vec<_> = whole[1..]
        .iter()
        .map(|line| line.trim_start_matches("object: ").trim_start_matches('…'))
        .collect();
    assert_eq!(parts.len(), 3);
    assert!(
        whole
            .iter()
            .all(|line| "validate: ".len() + line.len() <= 4096)
    );
    assert_eq!(
        serde_json::from_str::<Json>(&parts.concat()).unwrap(),
        object
    );

    let cut = log(TestReview::create(object), json!({"maxBytes": 50}));
    assert_eq!(cut.len(), 3);
    assert_eq!(cut[2], "object: the rest is left out (maxBytes: 50)");
    assert!(cut[1].len() <= "object: ".len() + 50);
}

#[test]
fn settings_errors_name_their_setting() {
    for (settings, error) in [
        (
            json!({"maxBytes": 1_000_000}),
            "/maxBytes: must be at most 65536",
        ),
        (
            json!({"redact": ["/a", "spec"]}),
            "/redact/1: is no JSON Pointer: it must begin with a slash",
        ),
        (
            json!({"redact": [""]}),
            "/redact/0: must be a place within the object; \"maxBytes\": 0 prints no object at all",
        ),
    ] {
        let errors = configure::<PrintRequest>(settings).err().unwrap();
        assert_eq!(errors.to_string(), error);
    }
}

#[test]
fn the_settings_schema_is_json() {
    let schema: Json =
        serde_json::from_str(&manifest::<PrintRequest>().settings_schema.unwrap()).unwrap();
    assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
}
