//! Sends the same requests to kube-apiserver with the policies, and to the plugin with the policies as settings.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use tollgate_tests::kubernetes::{Answer, Cluster};
use tollgate_tests::{cli, guests};

use super::case::{Case, Request, create, map, namespace, namespace_of, validating};
use crate::fixtures::configuration;

/// Time limit for policies to take effect.
const EFFECT_LIMIT: Duration = Duration::from_secs(30);
/// The case that is installed after all others, and denies everything.
const LAST: &str = "last";
/// The policies of kube-apiserver need not have their parameters immediately.
const NOT_READY: &str = "not yet synced";

/// The part of a request's URI that tells it from the others, before a text of its own.
const MARK: &str = "&fieldManager=";

/// The result of a request.
#[derive(Debug, PartialEq)]
pub(super) struct Outcome {
    /// The message of the denial from the name of the policy on, its reason and its status.
    pub(super) denial: Option<(String, String, u64)>,
    warnings: Vec<String>,
    annotations: BTreeMap<String, String>,
    /// The object that a mutating policy has made, or its parts.
    object: Value,
}

/// The numbers of what was tried.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) policies: usize,
    pub(super) requests: usize,
    pub(super) denied: usize,
}

/// Tries all cases on both sides.
pub(super) async fn compare(cluster: &Cluster, cases: &[Case]) -> Counts {
    Box::pin(answers(cluster, cases)).await.0
}

/// Tries all cases on both sides. Returns each AdmissionReview with the answer of kube-apiserver, too.
pub(super) async fn answers(cluster: &Cluster, cases: &[Case]) -> (Counts, Vec<(Value, Outcome)>) {
    prepare(cluster, cases).await;
    let mut prepared = Vec::new();
    for case in cases {
        for request in &case.requests {
            prepared.push(completed(cluster, request).await);
        }
    }
    install(cluster, cases).await;
    let here = offline(cases, &prepared);
    let mut counts = Counts::default();
    let mut differences = Vec::new();
    let mut answers = Vec::new();
    let requests = cases.iter().flat_map(|case| {
        let requests = case.requests.iter();
        requests.map(move |request| (case, request))
    });
    let mut sent = Vec::new();
    for ((case, _), (request, _)) in requests.clone().zip(&prepared) {
        let mark = format!("{}-{}", case.name, sent.len());
        let there = online(cluster, case, request, &mark).await;
        sent.push((mark, there));
    }
    let logged = cluster.audit(|entry| text(&entry["requestURI"]).contains(MARK));
    let logged = logged.iter().map(|entry| {
        let uri = text(&entry["requestURI"]);
        let (_, mark) = uri.split_once(MARK).unwrap_or_default();
        (mark.to_owned(), entry)
    });
    let logged: BTreeMap<String, &Value> = logged.collect();
    let answered = sent.into_iter().zip(prepared.iter().zip(here));
    for ((case, request), ((mark, mut there), ((_, review), here))) in requests.zip(answered) {
        counts.requests += 1;
        counts.denied += usize::from(there.denial.is_some());
        there.annotations = annotations(case, logged[&mark]);
        // The status of a mutating policy that fails differs, as docs/reference/cel.md says.
        if let (Some(here), Some(there), true) =
            (&here.denial, &mut there.denial, case.is_mutating())
        {
            there.2 = here.2;
        }
        // kube-apiserver checks what a mutation made after each one, and then the whole object. The plugin finds some of this
        // itself, with other words. Both refuse the request.
        let is_servers = |(message, _, _): &(String, String, u64)| start_of(message).is_none();
        let is_refused = case.is_mutating()
            && here.denial.is_some()
            && there.denial.as_ref().is_some_and(is_servers);
        if here != there && !is_refused {
            differences.push(format!(
                "{}: {} {}\nhere  {here:#?}\nthere {there:#?}",
                case.name, request.operation, request.object
            ));
        }
        answers.push((review.clone(), there));
    }
    counts.policies = cases.iter().map(|case| case.policies.len()).sum();
    assert!(
        differences.is_empty(),
        "{} of {} requests differ:\n{}",
        differences.len(),
        counts.requests,
        differences.join("\n\n")
    );
    (counts, answers)
}

/// Creates what the cases need.
async fn prepare(cluster: &Cluster, cases: &[Case]) {
    post(cluster, &namespace(LAST, &namespace_of(LAST))).await;
    for case in cases {
        post(cluster, &namespace(case.name, &case.namespace())).await;
        for object in &case.existing {
            post(cluster, object).await;
        }
        for (index, right) in case.rights.iter().enumerate() {
            grant(cluster, &format!("{}-{index}", case.name), right).await;
        }
    }
}

async fn post(cluster: &Cluster, object: &Value) {
    let path = collection(object);
    let (status, answer) = cluster.request(Method::POST, &path, Some(object)).await;
    assert_eq!(status, 201, "{object:#}: {answer:#}");
}

/// Gives a user a right in the whole cluster.
async fn grant(cluster: &Cluster, name: &str, right: &Value) {
    let group = "rbac.authorization.k8s.io";
    let mut rule = json!({
        "verbs": [right["verb"]],
        "apiGroups": [right["apiGroup"].as_str().unwrap_or_default()],
        "resources": [right["resource"]],
    });
    if right["name"].is_string() {
        rule["resourceNames"] = json!([right["name"]]);
    }
    let version = format!("{group}/v1");
    let role = json!({
        "apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule],
    });
    let binding = json!({
        "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": right["user"]}],
    });
    post(cluster, &role).await;
    post(cluster, &binding).await;
}

/// Installs the policies, and waits until all of them are in effect: the last one is.
async fn install(cluster: &Cluster, cases: &[Case]) {
    let last = validating(LAST, json!({"validations": [{"expression": "false"}]}));
    let mut refused = Vec::new();
    for case in cases.iter().chain([&last]) {
        for policy in &case.policies {
            for object in [policy.written()]
                .into_iter()
                .chain(policy.bindings(case.name))
            {
                let path = collection(&object);
                let (status, answer) = cluster.request(Method::POST, &path, Some(&object)).await;
                if status != 201 {
                    refused.push(text(&answer["message"]));
                }
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    let probe = create(map(LAST, "probe", json!({})));
    let deadline = Instant::now() + EFFECT_LIMIT;
    while send(cluster, &probe, "").await.status == 201 {
        assert!(Instant::now() < deadline, "the policies do not take effect");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with('s') => kind,
        None => format!("{kind}s"),
    }
}

/// The path of the resource of an object.
fn collection(object: &Value) -> String {
    let version = text(&object["apiVersion"]);
    let root = if version.contains('/') { "apis" } else { "api" };
    let resource = plural(&text(&object["kind"]));
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/{root}/{version}/namespaces/{namespace}/{resource}"),
        None => format!("/{root}/{version}/{resource}"),
    }
}

fn path(request: &Request) -> String {
    let mut path = collection(&request.object);
    if request.operation != "CREATE" || request.subresource.is_some() {
        path.push_str(&format!("/{}", text(&request.object["metadata"]["name"])));
    }
    if let Some(subresource) = request.subresource {
        path.push_str(&format!("/{subresource}"));
    }
    path
}

async fn send(cluster: &Cluster, request: &Request, query: &str) -> Answer {
    let method = match request.operation {
        "CREATE" => Method::POST,
        "UPDATE" => Method::PUT,
        _ => Method::DELETE,
    };
    let body = (request.operation != "DELETE").then_some(&request.object);
    let path = format!("{}?dryRun=All{query}", path(request));
    cluster.answer(request.user, method, &path, body).await
}

/// Completes a request with the defaults of kube-apiserver, while no policy is installed. Returns it with the
/// AdmissionReview that kube-apiserver sends for it.
async fn completed(cluster: &Cluster, request: &Request) -> (Request, Value) {
    let mut sent = request.clone();
    let mut old = Value::Null;
    if request.operation != "CREATE" {
        let path = format!(
            "{}/{}",
            collection(&request.object),
            text(&request.object["metadata"]["name"])
        );
        old = cluster.request(Method::GET, &path, None).await.1;
        assert!(old["metadata"]["uid"].is_string(), "{path}: {old:#}");
    }
    if request.operation != "DELETE" {
        let answer = send(cluster, request, "").await;
        assert!(answer.status < 300, "{}: {answer:#?}", request.object);
        let reviews = ["SelfSubjectAccessReview", "SelfSubjectReview"];
        if !reviews.contains(&text(&request.object["kind"]).as_str()) {
            sent.object = without_servers_fields(answer.body);
        }
    }
    let review = review(&sent, &old);
    (sent, review)
}

/// Removes what kube-apiserver sets itself.
fn without_servers_fields(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for name in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "managedFields",
            "generation",
        ] {
            metadata.remove(name);
        }
    }
    object
}

/// Returns the AdmissionReview for a request.
fn review(request: &Request, old: &Value) -> Value {
    let object = &request.object;
    let requested = text(&object["apiVersion"]);
    let (group, version) = requested.split_once('/').unwrap_or(("", &requested));
    let (kind, resource) = (text(&object["kind"]), plural(&text(&object["kind"])));
    let passed = request.converted.unwrap_or(version);
    let mut object = object.clone();
    if request.converted.is_some() {
        object["apiVersion"] = json!(format!("{group}/{passed}"));
    }
    let of_kind = |version: &str| json!({"group": group, "version": version, "kind": kind});
    let of_resource =
        |version: &str| json!({"group": group, "version": version, "resource": resource});
    let (groups, user) = match request.user {
        None => (
            json!(["system:masters", "system:authenticated"]),
            "administrator",
        ),
        Some(user) => (json!(["system:authenticated"]), user),
    };
    let options = match request.operation {
        "CREATE" => "CreateOptions",
        "UPDATE" => "UpdateOptions",
        _ => "DeleteOptions",
    };
    let mut review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "0f3c5a1e-9c37-4c6f-8f5a-0d2b6f4c7e11",
            "kind": of_kind(passed),
            "requestKind": of_kind(version),
            "resource": of_resource(passed),
            "requestResource": of_resource(version),
            "name": object["metadata"]["name"],
            "operation": request.operation,
            "userInfo": {"username": user, "groups": groups},
            "object": object,
            "oldObject": old,
            "dryRun": true,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": options, "dryRun": ["All"]},
        },
    });
    let wanted = &mut review["request"];
    if request.operation == "DELETE" {
        wanted["object"] = Value::Null;
    }
    let namespace = match kind.as_str() {
        // A Namespace is in itself.
        "Namespace" => &object["metadata"]["name"],
        _ => &object["metadata"]["namespace"],
    };
    if namespace.is_string() {
        wanted["namespace"] = namespace.clone();
    }
    if wanted["name"].is_null() {
        wanted["name"] = json!("");
    }
    if let Some(subresource) = request.subresource {
        wanted["subResource"] = json!(subresource);
        wanted["requestSubResource"] = json!(subresource);
    }
    review
}

/// Where a message begins to speak of a policy.
fn start_of(message: &str) -> Option<usize> {
    let starts = ["ValidatingAdmissionPolicy '", "policy '", "policy \""];
    starts.iter().filter_map(|one| message.find(one)).min()
}

/// Cuts a message to the part that both sides have.
pub(super) fn from_policy(message: &str) -> String {
    let message = &message[start_of(message).unwrap_or(0)..];
    let end = message.rfind(" (review ").unwrap_or(message.len());
    // Tollgate has every message on one line.
    let words: Vec<&str> = message[..end].split_whitespace().collect();
    words.join(" ")
}

/// Returns the parts of a changed object that are compared.
fn parts(case: &Case, request: &Request, object: &Value) -> Value {
    let is_deleted = request.operation == "DELETE";
    if is_deleted || !case.is_mutating() {
        return Value::Null;
    }
    if case.places.is_empty() {
        return without_servers_fields(object.clone());
    }
    let places = case.places.iter();
    let part = |place: &&str| ((*place).to_owned(), object.pointer(place).cloned());
    places
        .map(part)
        .map(|(place, part)| (place, part.unwrap_or_default()))
        .collect()
}

/// Reads the annotations that policies have made in an entry of the audit log.
fn annotations(case: &Case, entry: &Value) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::new();
    for (key, value) in entry["annotations"].as_object().into_iter().flatten() {
        let own = case.policies.iter();
        let mut own = own.filter_map(|policy| key.strip_prefix(&format!("{}/", policy.name)));
        let failure = key.strip_prefix("validation.policy.admission.k8s.io/");
        let key = own.next().or(failure);
        annotations.extend(key.map(|key| (key.to_owned(), text(value))));
    }
    annotations
}

/// Sends a request to kube-apiserver. Its annotations are in the audit log.
async fn online(cluster: &Cluster, case: &Case, request: &Request, mark: &str) -> Outcome {
    let query = format!("{MARK}{mark}");
    let deadline = Instant::now() + EFFECT_LIMIT;
    let answer = loop {
        let answer = send(cluster, request, &query).await;
        if !text(&answer.body["message"]).contains(NOT_READY) {
            break answer;
        }
        assert!(Instant::now() < deadline, "{answer:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let is_denied = answer.status >= 300;
    let denial = is_denied.then(|| {
        (
            from_policy(&text(&answer.body["message"])),
            text(&answer.body["reason"]),
            u64::from(answer.status),
        )
    });
    Outcome {
        denial,
        warnings: answer.warnings,
        annotations: BTreeMap::new(),
        object: match is_denied {
            true => Value::Null,
            false => parts(case, request, &answer.body),
        },
    }
}

/// Reviews all requests with the plugins, in one run.
fn offline(cases: &[Case], prepared: &[(Request, Value)]) -> Vec<Outcome> {
    let mut configuration = configuration();
    // The host calls the plugins of a case alone, which takes a tenth of the time.
    let everything = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]});
    for case in cases {
        for policy in &case.policies {
            let mut entry = json!({
                "settings": policy.settings(case),
                "match": {"rules": [everything], "namespaceSelector": policy.selector(case.name)},
                "access": {"serviceAccounts": true},
                // The costs of expressions count here, and not the second limit of the plugin.
                "limits": {"fuel": 20_000_000_000_u64, "timeout": "9s"},
            });
            if policy.reinvocation().is_string() {
                entry["reinvocationPolicy"] = policy.reinvocation();
            }
            configuration.plugin(&policy.name, &guests::build("cel-policy"), entry);
        }
    }
    let namespaces = cases.iter().flat_map(|case| {
        let own = namespace(case.name, &case.namespace());
        let existing = case.existing.iter();
        let others = existing.filter(|object| object["kind"] == "Namespace");
        others.cloned().chain([own])
    });
    let administrators = [
        json!({"group": "system:masters", "verb": "*", "apiGroup": "*", "resource": "*"}),
        json!({"group": "system:masters", "verb": "*", "path": "*"}),
    ];
    let rights = cases.iter().flat_map(|case| &case.rights);
    let rights: Vec<&Value> = rights.chain(&administrators).collect();
    let file = |name: &str, content: Value| {
        let path = configuration.folder().join(name);
        std::fs::write(&path, content.to_string()).expect("written");
        path
    };
    let list = json!({"apiVersion": "v1", "kind": "List", "items": namespaces.collect::<Vec<_>>()});
    let mut command = cli::command(&["review", "-", "-o", "json", "--namespaces"]);
    command.arg(file("namespaces.json", list)).arg("--access");
    command.arg(file("access.json", json!({"access": rights})));
    command.arg("--config").arg(configuration.write());
    let reviews: Vec<String> = prepared
        .iter()
        .map(|(_, review)| review.to_string())
        .collect();
    let reviewed = cli::run_with(&mut command, &reviews.join("\n")).json();
    let documents = reviewed["documents"].as_array().expect("a list");
    assert_eq!(documents.len(), prepared.len(), "{reviewed:#}");
    let cases = cases
        .iter()
        .flat_map(|case| case.requests.iter().map(move |_| case));
    let documents = documents.iter().zip(cases).zip(prepared);
    documents
        .map(|((document, case), prepared)| answered(document, case, prepared))
        .collect()
}

/// Reads what the plugins have answered to one request.
fn answered(document: &Value, case: &Case, (request, review): &(Request, Value)) -> Outcome {
    let response = |endpoint: &str| &document[endpoint]["response"]["response"];
    let (mutated, validated) = (response("mutate"), response("validate"));
    let last = if validated.is_object() {
        validated
    } else {
        mutated
    };
    assert!(last.is_object(), "{}: {document:#}", case.name);
    let denial = (last["allowed"] == false).then(|| {
        let status = &last["status"];
        (
            from_policy(&text(&status["message"])),
            text(&status["reason"]),
            status["code"].as_u64().unwrap_or_default(),
        )
    });
    let named = |text: &str, after: char| {
        let mut names = case.policies.iter().map(|policy| &policy.name);
        names.find_map(|name| {
            text.strip_prefix(&format!("{name}{after}"))
                .map(str::to_owned)
        })
    };
    let warnings = last["warnings"].as_array().into_iter().flatten();
    let warnings = warnings.map(|warning| {
        let warning = text(warning);
        let own = named(&warning, ':').map(|rest| rest.trim_start().to_owned());
        own.unwrap_or(warning)
    });
    // The host adds annotations of its own.
    let annotations = validated["auditAnnotations"].as_object();
    let annotations = annotations.into_iter().flatten();
    let annotations = annotations.filter_map(|(key, value)| {
        let key = named(key, '.')?;
        (key != "denied").then(|| (key, text(value)))
    });
    let mut object = review["request"]["object"].clone();
    if let Some(patch) = mutated["patch"].as_str() {
        let json = STANDARD.decode(patch).expect("base64");
        let patch: json_patch::Patch = serde_json::from_slice(&json).expect("a patch");
        json_patch::patch(&mut object, &patch).expect("it applies");
    }
    let is_denied = denial.is_some();
    Outcome {
        denial,
        warnings: warnings.collect(),
        annotations: annotations.collect(),
        object: match is_denied {
            true => Value::Null,
            false => parts(case, request, &object),
        },
    }
}
