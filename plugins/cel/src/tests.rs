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

const OWNER: &str = "has(variables.anyObject.metadata.labels) && \
    variables.params.labels.all(key, key in variables.anyObject.metadata.labels)";

fn template(constraint: Json) -> Json {
    json!({
        "template": {
            "apiVersion": "templates.gatekeeper.sh/v1",
            "kind": "ConstraintTemplate",
            "metadata": {"name": "labelled"},
            "spec": {
                "crd": {"spec": {
                    "names": {"kind": "Labelled"},
                    "validation": {"openAPIV3Schema": {"type": "object", "properties": {
                        "labels": {"type": "array", "items": {"type": "string"}},
                    }}},
                }},
                "targets": [{
                    "target": "admission.k8s.gatekeeper.sh",
                    "rego": "package labelled",
                    "code": [{"engine": "K8sNativeValidation", "source": {"validations": [
                        {
                            "expression": OWNER,
                            "messageExpression": "'needs ' + variables.params.labels.join(' and ')",
                        },
                        {"expression": "namespaceObject.metadata.labels.?team.orValue('') == 'a'", "message": "team"},
                    ]}}],
                }],
            },
        },
        "constraints": [{
            "apiVersion": "constraints.gatekeeper.sh/v1beta1",
            "kind": "Labelled",
            "metadata": {"name": "all"},
            "spec": constraint,
        }],
    })
}

fn shop(team: &str) -> Json {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "shop", "labels": {"team": team}},
    })
}

#[test]
fn a_template_with_cel_reports_every_violation_of_a_constraint() {
    let settings = template(json!({"parameters": {"labels": ["owner"]}}));
    let review = TestReview::create(deployment(1)).settings(settings);
    let outcome = review.namespace_object(shop("b")).validate::<CelPolicy>();
    let denial = outcome.denial();
    assert_eq!(denial.message, "[all] 2 violations");
    let causes: Vec<&str> = denial.causes.iter().map(|cause| &*cause.message).collect();
    assert_eq!(causes, ["needs owner", "team"]);
}

#[test]
fn a_constraint_selects_by_the_labels_of_the_live_namespace() {
    let selector = json!({"matchLabels": {"team": "b"}});
    let settings = template(json!({
        "parameters": {"labels": ["owner"]}, "match": {"namespaceSelector": selector},
        "enforcementAction": "warn",
    }));
    let review = TestReview::create(deployment(1)).settings(settings);
    let outcome = review.namespace_object(shop("b")).validate::<CelPolicy>();
    assert!(outcome.is_allowed());
    assert_eq!(outcome.warnings(), ["[all] needs owner", "[all] team"]);
    let settings = template(json!({"match": {"namespaceSelector": selector}}));
    let review = TestReview::create(deployment(1)).settings(settings);
    let outcome = review.namespace_object(shop("a")).validate::<CelPolicy>();
    assert!(outcome.is_allowed());
}

#[test]
fn a_constraint_whose_namespace_is_unknown_is_violated() {
    let selector = json!({"matchLabels": {"team": "b"}});
    let unknown = "namespaceSelector: the host does not know the Namespace shop";
    let review = |constraint: Json| {
        let mut settings = template(constraint);
        // The policy of the template is about expressions that fail.
        let code = "/template/spec/targets/0/code/0/source";
        settings.pointer_mut(code).unwrap()["failurePolicy"] = json!("Ignore");
        let other =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}});
        TestReview::create(deployment(1))
            .settings(settings)
            .namespace_object(other)
    };
    let matching = json!({"namespaceSelector": selector});
    let outcome = review(json!({"match": matching})).validate::<CelPolicy>();
    let message = &outcome.denial().message;
    assert!(
        message.starts_with(&format!("[all] {unknown}")),
        "{message}"
    );
    let warning = json!({"match": matching, "enforcementAction": "warn"});
    let outcome = review(warning).validate::<CelPolicy>();
    assert!(outcome.is_allowed());
    assert!(
        outcome.warnings()[0].starts_with(&format!("[all] {unknown}")),
        "{:?}",
        outcome.warnings()
    );
    // A constraint that is not about the object needs no Namespace.
    let matching = json!({"namespaceSelector": selector, "namespaces": ["elsewhere"]});
    let outcome = review(json!({"match": matching})).validate::<CelPolicy>();
    assert!(outcome.is_allowed());
}

#[test]
fn problems_of_a_template_have_their_place() {
    let mut settings = template(json!({"parameters": {"labels": "owner"}}));
    let code = "/template/spec/targets/0/code/0/source";
    settings.pointer_mut(code).unwrap()["validations"][0]["expression"] = json!("params.x");
    let errors = configure::<CelPolicy>(settings).err().unwrap().to_string();
    assert!(
        errors.contains(
            "/template/spec/targets/0/code/0/source/validations/0/expression: line 1, column 1: "
        ),
        "{errors}"
    );
    assert!(
        errors.contains("/constraints/0/spec/parameters/labels: expected a list, got a string"),
        "{errors}"
    );
}

#[test]
fn a_template_without_constraints_is_refused() {
    let mut settings = template(json!({}));
    settings["constraints"] = json!([]);
    let errors = configure::<CelPolicy>(settings).err().unwrap().to_string();
    let expected = "/constraints: is empty, so the template would allow everything; expected at least one constraint";
    assert_eq!(errors, expected);
}

#[test]
fn settings_are_for_one_policy() {
    let mut settings = template(json!({}));
    settings["params"] = json!([{}]);
    let errors = configure::<CelPolicy>(settings).err().unwrap().to_string();
    assert_eq!(errors, "/params: does not belong to this kind of policy");
    let errors = configure::<CelPolicy>(json!({})).err().unwrap().to_string();
    assert!(
        errors.contains("expected one of `policy` with `bindings`"),
        "{errors}"
    );
}

fn mutator(kind: &str, mut spec: Json) -> Json {
    if kind != "AssignMetadata" {
        spec["applyTo"] =
            json!([{"groups": ["apps"], "versions": ["v1"], "kinds": ["Deployment"]}]);
    }
    json!({
        "apiVersion": "mutations.gatekeeper.sh/v1", "kind": kind,
        "metadata": {"name": "m"}, "spec": spec,
    })
}

#[test]
fn mutators_change_the_object_by_a_patch() {
    let settings = json!({"mutators": [
        mutator("Assign", json!({
            "location": "spec.template.spec.containers[name: *].imagePullPolicy",
            "parameters": {"assign": {"value": "Always"}},
        })),
        mutator("AssignMetadata", json!({
            "location": "metadata.annotations.\"example.com/from\"",
            "parameters": {"assign": {"fromMetadata": {"field": "namespace"}}},
            "match": {"namespaceSelector": {"matchLabels": {"team": "a"}}},
        })),
    ]});
    let review = TestReview::create(deployment(1)).settings(settings);
    let review = review.namespace_object(shop("a"));
    let outcome = review.mutate::<CelPolicy>();
    let object = outcome.object();
    assert_eq!(
        object["metadata"]["annotations"],
        json!({"example.com/from": "shop"})
    );
    assert_eq!(
        object["spec"]["template"]["spec"]["containers"],
        json!([{"name": "a", "image": "a:1", "imagePullPolicy": "Always"}])
    );
    // The object that it returned stays as it is.
    assert!(
        !review
            .object(object.clone())
            .mutate::<CelPolicy>()
            .is_changed()
    );
}

#[test]
fn problems_of_mutators_have_their_place() {
    let settings = json!({"mutators": [mutator("Assign", json!({
        "location": "spec..x", "parameters": {"assign": {"value": 1}},
    }))]});
    let errors = configure::<CelPolicy>(settings).err().unwrap().to_string();
    assert_eq!(
        errors,
        "/mutators/0/spec/location: expected a field at position 6"
    );
}
