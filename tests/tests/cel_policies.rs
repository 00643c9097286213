//! Kubernetes' admission policies as plugins, through `tollgate review` and `tollgate check`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::{cli, guests};

const PACKAGE: &str = "cel-policy";

/// The settings of a policy with one binding.
fn settings(kind: &str, name: &str, spec: Value, binding: Value) -> Value {
    let mut bound = binding;
    bound["policyName"] = json!(name);
    let version = "admissionregistration.k8s.io/v1";
    json!({
        "policy": {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec},
        "bindings": [{
            "apiVersion": version,
            "kind": format!("{kind}Binding"),
            "metadata": {"name": format!("{name}-everywhere")},
            "spec": bound,
        }],
    })
}

fn plugin(configuration: &mut Configuration, name: &str, settings: &Value) {
    let rules = json!([{
        "operations": ["CREATE", "UPDATE"],
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "resources": ["deployments"],
    }]);
    let more = json!({"settings": settings, "match": {"rules": rules}});
    configuration.plugin(name, &guests::build(PACKAGE), more);
}

fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "app", "image": "registry.example.com/app:1"}]},
            },
        },
    })
}

/// Reviews an object. Returns the response of each phase.
fn review(configuration: &Configuration, object: &Value) -> (Value, Value) {
    let mut command = cli::command(&["review", "-o", "json", "--config"]);
    command.arg(configuration.write()).arg("-");
    let reviewed = cli::run_with(&mut command, &object.to_string()).json();
    let response = |phase: &str| reviewed["documents"][0][phase]["response"]["response"].clone();
    (response("mutate"), response("validate"))
}

fn patch(response: &Value) -> Value {
    let patch = response["patch"]
        .as_str()
        .unwrap_or_else(|| panic!("no patch: {response:#}"));
    serde_json::from_slice(&STANDARD.decode(patch).expect("base64")).expect("a patch")
}

#[test]
fn policies_change_and_deny_objects() {
    let mut configuration = Configuration::new();
    let labels = settings(
        "MutatingAdmissionPolicy",
        "labels",
        json!({
            "reinvocationPolicy": "Never",
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
                    "Object{metadata: Object.metadata{labels: {'replicas': string(object.spec.replicas)}}}"}},
                {"patchType": "JSONPatch", "jsonPatch": {"expression":
                    "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/by'), value: \
                     object.metadata.labels.replicas}]"}},
            ],
        }),
        json!({}),
    );
    let replicas = settings(
        "ValidatingAdmissionPolicy",
        "replicas",
        json!({
            "variables": [{"name": "replicas", "expression": "object.spec.replicas"}],
            "validations": [{
                "expression": "variables.replicas <= 5",
                "messageExpression": "'%d replicas, at most 5'.format([variables.replicas])",
                "reason": "Forbidden",
            }],
            "auditAnnotations": [{"key": "replicas", "valueExpression": "string(variables.replicas)"}],
        }),
        json!({"validationActions": ["Deny"]}),
    );
    let images = settings(
        "ValidatingAdmissionPolicy",
        "images",
        json!({"validations": [{
            "expression": "object.spec.template.spec.containers.all(c, c.image.matches('@sha256:[0-9a-f]{64}$'))",
            "message": "images need a digest",
        }]}),
        json!({"validationActions": ["Warn"]}),
    );
    plugin(&mut configuration, "labels", &labels);
    plugin(&mut configuration, "replicas", &replicas);
    plugin(&mut configuration, "images", &images);

    let (mutate, validate) = review(&configuration, &deployment("web", 3));
    assert_eq!(mutate["allowed"], json!(true), "{mutate:#}");
    let patched = patch(&mutate).to_string();
    assert!(
        patched.contains("example.com/by") && patched.contains("\"replicas\":\"3\""),
        "{patched}"
    );
    assert_eq!(validate["allowed"], json!(true), "{validate:#}");
    assert_eq!(
        validate["auditAnnotations"]["replicas.replicas"],
        json!("3")
    );
    assert_eq!(
        validate["warnings"],
        json!([
            "images: Validation failed for ValidatingAdmissionPolicy 'images' with binding 'images-everywhere': images \
             need a digest"
        ])
    );

    let (_, validate) = review(&configuration, &deployment("web", 6));
    let message = validate["status"]["message"].as_str().unwrap_or_default();
    let wanted = "ValidatingAdmissionPolicy 'replicas' with binding 'replicas-everywhere' denied request: 6 replicas, \
                  at most 5";
    assert!(message.contains(wanted), "{validate:#}");
    assert_eq!(validate["status"]["reason"], json!("Forbidden"));
    assert_eq!(validate["status"]["code"], json!(403));
}

#[test]
fn mutators_of_gatekeeper_change_objects() {
    let mutator = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "mutations.gatekeeper.sh/v1", "kind": kind, "metadata": {"name": "m"}, "spec": spec,
        })
    };
    let applies_to = json!([{"groups": ["apps"], "versions": ["v1"], "kinds": ["Deployment"]}]);
    let mutators = json!({"mutators": [
        mutator("AssignImage", json!({
            "applyTo": applies_to,
            "location": "spec.template.spec.containers[name: *].image",
            "parameters": {"assignDomain": "mirror.example.com"},
        })),
        mutator("AssignMetadata", json!({
            "location": "metadata.labels.from",
            "parameters": {"assign": {"fromMetadata": {"field": "namespace"}}},
        })),
    ]});
    let mut configuration = Configuration::new();
    plugin(&mut configuration, "mutators", &mutators);
    let (mutate, _) = review(&configuration, &deployment("web", 3));
    assert_eq!(mutate["allowed"], json!(true), "{mutate:#}");
    let patched = patch(&mutate).to_string();
    assert!(
        patched.contains("mirror.example.com/app:1") && patched.contains("\"from\":\"shop\""),
        "{patched}"
    );
}

#[test]
fn a_wrong_policy_is_refused_with_its_place() {
    let mut configuration = Configuration::new();
    let wrong = settings(
        "ValidatingAdmissionPolicy",
        "wrong",
        json!({"validations": [
            {"expression": "object.spec.replicas <= limit"},
            {"expression": "authorizer.group('').resource('pods').check('get').allowed()"},
        ]}),
        json!({"validationActions": ["Deny"]}),
    );
    plugin(&mut configuration, "wrong", &wrong);
    let mut command = cli::command(&["check", "--config"]);
    let checked = cli::run(command.arg(configuration.write()));
    checked.assert(
        1,
        &[
            "settings.policy.spec.validations.0.expression",
            "line 1, column 25: undeclared reference to 'limit'",
            "authorizer is not available",
        ],
    );
}
