//! Admission policies have the same results in kube-apiserver and as plugins.
//!
//! The test installs each policy in kube-apiserver, and sends requests. Then it sends the same objects to the plugin
//! `cel-policy` with the same policy as settings, with `tollgate review`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::kubernetes::{Cluster, Start};
use tollgate_tests::{cli, guests};

use crate::fixtures::{configuration, deployment, path_of};

const NAMESPACE: &str = "policies";
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const VERSION: &str = "admissionregistration.k8s.io/v1";
/// The label by which a policy tells whether it is in effect.
const PROBE: &str = "probe";
/// Time limit for a policy to take effect.
const EFFECT_LIMIT: Duration = Duration::from_secs(30);

/// The result of a request.
#[derive(Debug, PartialEq)]
struct Outcome {
    /// The message of the denial from the name of the policy on, and its reason.
    denial: Option<(String, String)>,
    warnings: Vec<String>,
    annotations: BTreeMap<String, String>,
}

/// A policy, and the objects that it is tried on.
struct Case {
    name: &'static str,
    spec: Value,
    actions: &'static [&'static str],
    params: Option<Value>,
}

fn case(name: &'static str, actions: &'static [&'static str], spec: Value) -> Case {
    Case {
        name,
        spec,
        actions,
        params: None,
    }
}

fn cases() -> Vec<Case> {
    let replicas = "object.spec.replicas <= 5";
    let mut with_params = case(
        "params",
        &["Deny"],
        json!({
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "validations": [{
                "expression": "object.spec.replicas <= int(params.data.max)",
                "messageExpression": "'at most ' + params.data.max",
            }],
        }),
    );
    with_params.params = Some(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "limits", "namespace": NAMESPACE},
        "data": {"max": "5"},
    }));
    vec![
        case(
            "plain",
            &["Deny"],
            json!({"validations": [{"expression": replicas}]}),
        ),
        case(
            "message",
            &["Deny"],
            json!({"validations": [{"expression": replicas, "message": "too many", "reason": "Forbidden"}]}),
        ),
        case(
            "composed",
            &["Deny"],
            json!({
                "variables": [{"name": "n", "expression": "object.spec.replicas"}],
                "validations": [{"expression": "variables.n <= 5", "messageExpression": "'%d of %s'.format([variables.n, object.metadata.name])"}],
            }),
        ),
        case(
            "missing",
            &["Deny"],
            json!({"validations": [{"expression": "object.metadata.annotations['team'] == 'a'"}]}),
        ),
        case(
            "ignored",
            &["Deny"],
            json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.metadata.annotations['team'] == 'a'"}]}),
        ),
        case(
            "warned",
            &["Warn", "Audit"],
            json!({
                "validations": [{"expression": replicas, "message": "a <few> & more"}],
                "auditAnnotations": [{"key": "replicas", "valueExpression": "string(object.spec.replicas)"}],
            }),
        ),
        case(
            "conditions",
            &["Deny"],
            json!({
                "matchConditions": [{"name": "large", "expression": "object.spec.replicas > 5"}],
                "validations": [{"expression": "object.metadata.name.startsWith('large-')", "reason": "RequestEntityTooLarge"}],
            }),
        ),
        case(
            "variables",
            &["Deny"],
            json!({
                "variables": [{"name": "team", "expression": "object.metadata.labels['team']"}],
                "validations": [{"expression": "variables.team == 'a'"}],
            }),
        ),
        case(
            "libraries",
            &["Deny"],
            json!({"validations": [{
                "expression": "object.spec.template.spec.containers.all(i, c, quantity(string(object.spec.replicas) + 'Gi').isLessThan(quantity('6G')) && c.image.find(':[0-9]+$') != '')",
            }]}),
        ),
        case(
            "lists",
            &["Deny"],
            json!({"validations": [{"expression": "object.spec.template.spec.containers[object.spec.replicas].name == 'app'"}]}),
        ),
        with_params,
    ]
}

impl Case {
    fn policy(&self) -> Value {
        let mut spec = self.spec.clone();
        spec["matchConstraints"] = json!({"resourceRules": [{
            "operations": ["CREATE"],
            "apiGroups": ["apps"],
            "apiVersions": ["v1"],
            "resources": ["deployments"],
        }]});
        json!({
            "apiVersion": VERSION,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": self.name},
            "spec": spec,
        })
    }

    fn binding(&self) -> Value {
        let mut spec = json!({
            "policyName": self.name,
            "validationActions": self.actions,
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}},
        });
        if self.params.is_some() {
            spec["paramRef"] = json!({"name": "limits", "parameterNotFoundAction": "Deny"});
        }
        json!({
            "apiVersion": VERSION,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": format!("{}-bound", self.name)},
            "spec": spec,
        })
    }

    /// Configures the plugin with the policy.
    fn configuration(&self) -> Configuration {
        let mut configuration = configuration();
        let params: Vec<&Value> = self.params.iter().collect();
        let settings =
            json!({"policy": self.policy(), "bindings": [self.binding()], "params": params});
        let rules = self.policy()["spec"]["matchConstraints"]["resourceRules"].clone();
        configuration.plugin(
            "cel",
            &guests::build("cel-policy"),
            json!({"settings": settings, "match": {"rules": rules}}),
        );
        configuration
    }
}

fn objects() -> Vec<Value> {
    let sized = |name: &str, replicas: u32| {
        let mut object = deployment(NAMESPACE, name);
        object["spec"]["replicas"] = json!(replicas);
        object
    };
    let mut labelled = sized("labelled", 1);
    labelled["metadata"]["labels"] = json!({"team": "a"});
    labelled["metadata"]["annotations"] = json!({"team": "a"});
    vec![
        sized("small", 1),
        sized("large", 6),
        sized("large-one", 6),
        sized("none", 0),
        labelled,
    ]
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Cuts a message to the part that both sides have.
fn from_policy(message: &str) -> String {
    let start = message.find("ValidatingAdmissionPolicy '").unwrap_or(0);
    let message = &message[start..];
    let end = message.rfind(" (review ").unwrap_or(message.len());
    message[..end].to_owned()
}

/// Sends an object to kube-apiserver.
async fn online(cluster: &Cluster, case: &Case, object: &Value) -> Outcome {
    let path = format!("{}?dryRun=All", path_of(object));
    let (status, answer) = cluster.request(Method::POST, &path, Some(object)).await;
    let denial = (status != 201).then(|| {
        (
            from_policy(&text(&answer["message"])),
            text(&answer["reason"]),
        )
    });
    let name = object["metadata"]["name"].clone();
    let entries = cluster.audit(|entry| {
        text(&entry["requestURI"]).starts_with(&path_of(object))
            && entry["requestObject"]["metadata"]["name"] == name
    });
    let entry = entries.last().expect("it waits for one");
    let mut annotations = BTreeMap::new();
    for (key, value) in entry["annotations"].as_object().into_iter().flatten() {
        let own = key.strip_prefix(&format!("{}/", case.name));
        let failure = key.strip_prefix("validation.policy.admission.k8s.io/");
        annotations.extend(own.or(failure).map(|key| (key.to_owned(), text(value))));
    }
    let printed = cluster
        .kubectl(&["create", "--dry-run=server", "-f", "-"])
        .input(object)
        .run();
    let warnings = printed
        .errors
        .lines()
        .filter_map(|line| line.strip_prefix("Warning: "));
    Outcome {
        denial,
        warnings: warnings.map(str::to_owned).collect(),
        annotations,
    }
}

/// Reviews an object with the plugin.
fn offline(configuration: &Configuration, object: &Value) -> Outcome {
    let namespaces = configuration.folder().join("namespaces.json");
    let namespace = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {"kubernetes.io/metadata.name": NAMESPACE}},
    });
    std::fs::write(&namespaces, namespace.to_string()).expect("written");
    let mut command = cli::command(&["review", "-", "-o", "json", "--namespaces"]);
    command.arg(&namespaces).arg("--config");
    command.arg(configuration.write());
    let reviewed = cli::run_with(&mut command, &object.to_string()).json();
    let response = &reviewed["documents"][0]["validate"]["response"]["response"];
    assert!(response.is_object(), "{reviewed:#}");
    let denial = (response["allowed"] == false).then(|| {
        let status = &response["status"];
        (
            from_policy(&text(&status["message"])),
            text(&status["reason"]),
        )
    });
    let warnings = response["warnings"].as_array().into_iter().flatten();
    let warnings = warnings.map(|warning| {
        let warning = text(warning);
        warning.strip_prefix("cel: ").unwrap_or(&warning).to_owned()
    });
    let annotations = response["auditAnnotations"]
        .as_object()
        .into_iter()
        .flatten();
    // The host adds annotations of its own.
    let annotations = annotations.filter_map(|(key, value)| {
        let key = key.strip_prefix("cel.")?;
        (key != "denied").then(|| (key.to_owned(), text(value)))
    });
    Outcome {
        denial,
        warnings: warnings.collect(),
        annotations: annotations.collect(),
    }
}

/// Installs a policy and waits until it is in effect. An own validation of the binding tells it.
async fn install(cluster: &Cluster, case: &Case) {
    if let Some(params) = &case.params {
        let (status, answer) = cluster
            .request(Method::POST, &path_of(params), Some(params))
            .await;
        assert_eq!(status, 201, "{answer:#}");
    }
    let mut policy = case.policy();
    // The validation comes last, so that the indices of the others stay.
    let marker = format!("!(has(object.metadata.labels) && '{PROBE}' in object.metadata.labels)");
    let validations = policy["spec"]["validations"].as_array_mut();
    let marker = json!({"expression": marker, "message": "in effect"});
    validations.expect("a list").push(marker);
    for (resource, object) in [
        ("validatingadmissionpolicies", &policy),
        ("validatingadmissionpolicybindings", &case.binding()),
    ] {
        let path = format!("{GROUP}/{resource}");
        let (status, answer) = cluster.request(Method::POST, &path, Some(object)).await;
        assert_eq!(status, 201, "{answer:#}");
    }
    let mut probe = deployment(NAMESPACE, "large-probe");
    probe["spec"]["replicas"] = json!(6);
    probe["metadata"]["labels"] = json!({PROBE: "true", "team": "a"});
    let deadline = Instant::now() + EFFECT_LIMIT;
    loop {
        let printed = cluster
            .kubectl(&["create", "--dry-run=server", "-f", "-"])
            .input(&probe)
            .run();
        if printed.errors.contains(&format!("'{}'", case.name)) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{} has no effect: {}",
            case.name,
            printed.errors
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn remove(cluster: &Cluster, case: &Case) {
    for (resource, name) in [
        (
            "validatingadmissionpolicybindings",
            format!("{}-bound", case.name),
        ),
        ("validatingadmissionpolicies", case.name.to_owned()),
    ] {
        let path = format!("{GROUP}/{resource}/{name}");
        let (status, answer) = cluster.request(Method::DELETE, &path, None).await;
        assert_eq!(status, 200, "{answer:#}");
    }
    // The binding is out of effect when the object that every policy denies is allowed.
    let deadline = Instant::now() + EFFECT_LIMIT;
    loop {
        let mut probe = deployment(NAMESPACE, "large-probe");
        probe["metadata"]["labels"] = json!({PROBE: "true"});
        probe["spec"]["replicas"] = json!(6);
        let path = format!("{}?dryRun=All", path_of(&probe));
        let (status, answer) = cluster.request(Method::POST, &path, Some(&probe)).await;
        if status == 201 {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{} stays in effect: {answer:#}",
            case.name
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn validating_policies_have_the_results_of_plugins() {
    let Some(cluster) = Start::default().start() else {
        return;
    };
    cluster.namespace(NAMESPACE);
    let mut denied = 0;
    for case in cases() {
        install(&cluster, &case).await;
        let configuration = case.configuration();
        for object in objects() {
            let there = online(&cluster, &case, &object).await;
            let here = offline(&configuration, &object);
            assert_eq!(here, there, "{}: {object:#}", case.name);
            denied += usize::from(there.denial.is_some());
        }
        remove(&cluster, &case).await;
    }
    assert!(denied > 15, "{denied} denied: expected more than 15");
}

/// Changes, each with the place that it changes.
fn changes() -> Vec<(&'static str, &'static str, &'static str)> {
    vec![
        (
            "ApplyConfiguration",
            "Object{metadata: Object.metadata{labels: {'n': string(object.spec.replicas)}}}",
            "/metadata/labels",
        ),
        (
            "ApplyConfiguration",
            "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{initContainers: \
             [Object.spec.template.spec.initContainers{name: 'first', image: 'a:1', imagePullPolicy: 'Never', \
             terminationMessagePath: '/x', terminationMessagePolicy: 'File'}]}}}}",
            "/spec/template/spec/initContainers/0/name",
        ),
        (
            "JSONPatch",
            "[JSONPatch{op: 'replace', path: '/spec/replicas', value: object.spec.replicas + 1}]",
            "/spec/replicas",
        ),
        (
            "JSONPatch",
            "[JSONPatch{op: 'test', path: '/spec/replicas', value: 77}, JSONPatch{op: 'replace', path: \
             '/spec/replicas', value: 1}]",
            "/spec/replicas",
        ),
        (
            "JSONPatch",
            "[JSONPatch{op: 'replace', path: '/spec/missing', value: 1}]",
            "/spec/replicas",
        ),
        (
            "ApplyConfiguration",
            "Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'b'}}}}",
            "/spec/selector",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn mutating_policies_have_the_results_of_plugins() {
    let Some(cluster) = Start::default().start() else {
        return;
    };
    let path = format!("{GROUP}/mutatingadmissionpolicies");
    let (status, _) = cluster.request(Method::GET, &path, None).await;
    if status != 200 {
        eprintln!("this kube-apiserver does not serve MutatingAdmissionPolicies");
        return;
    }
    cluster.namespace(NAMESPACE);
    for (index, (kind, expression, place)) in changes().into_iter().enumerate() {
        let name = format!("change-{index}");
        let field = if kind == "JSONPatch" {
            "jsonPatch"
        } else {
            "applyConfiguration"
        };
        let policy = json!({
            "apiVersion": VERSION,
            "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "reinvocationPolicy": "Never",
                "matchConstraints": {"resourceRules": [{
                    "operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"],
                }]},
                "mutations": [
                    {"patchType": kind, field: {"expression": expression}},
                    {"patchType": "JSONPatch", "jsonPatch": {"expression":
                        "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'in': 'effect'}}]"}},
                ],
            },
        });
        let binding = json!({
            "apiVersion": VERSION,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name},
        });
        let objects = [
            ("mutatingadmissionpolicies", &policy),
            ("mutatingadmissionpolicybindings", &binding),
        ];
        for (resource, object) in objects {
            let path = format!("{GROUP}/{resource}");
            let (status, answer) = cluster.request(Method::POST, &path, Some(object)).await;
            assert_eq!(status, 201, "{answer:#}");
        }
        let object = deployment(NAMESPACE, "web");
        let path = format!("{}?dryRun=All", path_of(&object));
        let deadline = Instant::now() + EFFECT_LIMIT;
        let (status, there) = loop {
            let (status, answer) = cluster.request(Method::POST, &path, Some(&object)).await;
            if status != 201 || answer["metadata"]["annotations"]["in"] == "effect" {
                break (status, answer);
            }
            assert!(Instant::now() < deadline, "{name} has no effect");
            tokio::time::sleep(Duration::from_millis(200)).await;
        };

        let mut configuration = configuration();
        let rules = policy["spec"]["matchConstraints"]["resourceRules"].clone();
        let settings = json!({"policy": policy, "bindings": [binding]});
        configuration.plugin(
            "cel",
            &guests::build("cel-policy"),
            json!({"settings": settings, "match": {"rules": rules}}),
        );
        let here = mutated(&configuration, &object);
        match here {
            Ok(here) => {
                assert_eq!(status, 201, "{name}: {there:#}");
                assert_eq!(here.pointer(place), there.pointer(place), "{name}");
            }
            // kube-apiserver decodes what a patch made, and finds a field that no type has. The plugin finds the missing
            // place itself. Both refuse the request.
            Err(_) if status == 500 => {}
            Err(message) => {
                let said = text(&there["message"]);
                assert!(
                    message.contains(&said),
                    "{name}: here {message}, there {said}"
                );
            }
        }
        for (resource, _) in objects {
            let path = format!("{GROUP}/{resource}/{name}");
            cluster.request(Method::DELETE, &path, None).await;
        }
        let deadline = Instant::now() + EFFECT_LIMIT;
        loop {
            let (status, answer) = cluster.request(Method::POST, &path, Some(&object)).await;
            if status == 201 && answer["metadata"]["annotations"].is_null() {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "{name} stays in effect: {answer:#}"
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Returns the object after the plugin, or the message of its denial.
fn mutated(configuration: &Configuration, object: &Value) -> Result<Value, String> {
    let mut command = cli::command(&["review", "-", "-o", "json", "--config"]);
    command.arg(configuration.write());
    let reviewed = cli::run_with(&mut command, &object.to_string()).json();
    let response = &reviewed["documents"][0]["mutate"]["response"]["response"];
    if response["allowed"] == false {
        return Err(text(&response["status"]["message"]));
    }
    let mut object = object.clone();
    if let Some(patch) = response["patch"].as_str() {
        let json = STANDARD.decode(patch).expect("base64");
        let patch: json_patch::Patch = serde_json::from_slice(&json).expect("a patch");
        json_patch::patch(&mut object, &patch).expect("it applies");
    }
    Ok(object)
}
