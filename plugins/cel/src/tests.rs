//! Policies as settings, through the SDK's review.

use serde_json::{Value as Json, json};
use tollgate_sdk::testing::{TestReview, configure, manifest};

use super::*;

fn binding(kind: &str, actions: &[&str]) -> Json {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": format!("{kind}Binding"),
        "metadata": {"name": "everywhere"},
        "spec": {"policyName": "demo", "validationActions": actions},
    })
}

fn validating(spec: Json, actions: &[&str]) -> Json {
    let kind = "ValidatingAdmissionPolicy";
    json!({
        "policy": {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": "demo", "labels": {"a": "b"}},
            "spec": spec,
        },
        "bindings": [binding(kind, actions)],
    })
}

fn mutating(mutations: Json) -> Json {
    let kind = "MutatingAdmissionPolicy";
    let mut binding = binding(kind, &[]);
    binding["spec"]
        .as_object_mut()
        .unwrap()
        .remove("validationActions");
    json!({
        "policy": {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": "demo"},
            "spec": {"mutations": mutations, "reinvocationPolicy": "Never"},
        },
        "bindings": [binding],
    })
}

fn deployment(replicas: i64) -> Json {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"name": "a", "image": "a:1"}]}}},
    })
}

#[test]
fn a_denial_has_the_words_of_kube_apiserver() {
    let settings = validating(
        json!({"validations": [{"expression": "object.spec.replicas <= 5"}]}),
        &["Deny"],
    );
    let review = TestReview::create(deployment(6)).settings(settings);
    let outcome = review.validate::<CelPolicy>();
    assert_eq!(
        outcome.denial().message,
        "ValidatingAdmissionPolicy 'demo' with binding 'everywhere' denied request: failed expression: \
         object.spec.replicas <= 5"
    );
    assert_eq!(outcome.denial().reason.as_deref(), Some("Invalid"));
    assert_eq!(outcome.denial().code, Some(422));
    assert!(
        review
            .object(deployment(5))
            .validate::<CelPolicy>()
            .is_allowed()
    );
}

#[test]
fn warnings_and_annotations_reach_the_host() {
    let settings = validating(
        json!({
            "variables": [{"name": "replicas", "expression": "object.spec.replicas"}],
            "validations": [{
                "expression": "variables.replicas <= 5",
                "messageExpression": "'has ' + string(variables.replicas)",
            }],
            "auditAnnotations": [{"key": "replicas", "valueExpression": "string(variables.replicas)"}],
        }),
        &["Warn", "Audit"],
    );
    let outcome = TestReview::create(deployment(6))
        .settings(settings)
        .validate::<CelPolicy>();
    assert!(outcome.is_allowed());
    assert_eq!(
        outcome.warnings(),
        ["Validation failed for ValidatingAdmissionPolicy 'demo' with binding 'everywhere': has 6"]
    );
    assert_eq!(outcome.annotations()["replicas"], "6");
    assert_eq!(
        outcome.annotations()["validation_failure"],
        "[{\"message\":\"has 6\",\"policy\":\"demo\",\"binding\":\"everywhere\",\"expressionIndex\":0,\
         \"validationActions\":[\"Warn\",\"Audit\"]}]"
    );
}

#[test]
fn both_kinds_of_patches_change_the_object() {
    let settings = mutating(json!([
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
            "Object{metadata: Object.metadata{labels: {'team': 'a'}}, spec: Object.spec{template: \
             Object.spec.template{spec: Object.spec.template.spec{containers: object.spec.template.spec.containers.map(\
             c, Object.spec.template.spec.containers{name: c.name, imagePullPolicy: 'Always'})}}}}"}},
        {"patchType": "JSONPatch", "jsonPatch": {"expression":
            "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/team'), value: \
             object.metadata.labels.team}]"}},
    ]));
    let review = TestReview::create(deployment(1)).settings(settings);
    let outcome = review.mutate::<CelPolicy>();
    let object = outcome.object();
    assert_eq!(
        object["metadata"]["labels"],
        json!({"team": "a", "example.com/team": "a"})
    );
    assert_eq!(
        object["spec"]["template"]["spec"]["containers"],
        json!([{"name": "a", "image": "a:1", "imagePullPolicy": "Always"}])
    );
    // The object that it returned stays as it is.
    let again = review.object(object.clone()).mutate::<CelPolicy>();
    assert!(!again.is_changed());
}

#[test]
fn a_wrong_expression_is_refused_with_its_place() {
    let settings = validating(
        json!({"validations": [
            {"expression": "true"},
            {"expression": "object.spec.replicas <= limit", "messageExpression": "1"},
        ]}),
        &["Deny"],
    );
    let errors = configure::<CelPolicy>(settings).err().unwrap();
    assert_eq!(
        errors.to_string(),
        "/policy/spec/validations/1/expression: line 1, column 25: undeclared reference to 'limit' (in container ''); \
         /policy/spec/validations/1/messageExpression: must evaluate to string but got int"
    );
}

#[test]
fn an_unknown_field_is_refused() {
    let settings = validating(json!({"validation": []}), &["Deny"]);
    let errors = configure::<CelPolicy>(settings).err().unwrap();
    assert!(
        errors.to_string().contains("unknown field `validation`"),
        "{errors}"
    );
}

#[test]
fn the_settings_schema_is_json() {
    let schema = manifest::<CelPolicy>().settings_schema.unwrap();
    let schema: Json = serde_json::from_str(&schema).unwrap();
    assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
}
