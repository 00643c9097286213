//! `tollgate review` without a cluster has the same results as kube-apiserver with Tollgate.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::kubernetes::{Cluster, Registration, Start};
use tollgate_tests::server::Server;
use tollgate_tests::{binary, guests};

use crate::fixtures::{configuration, path_of, pod, shows};
use crate::objects::fifty;

const NAMESPACE: &str = "shop";

/// The result for an object.
#[derive(Debug)]
struct Outcome {
    /// The message of the denial. None if the object was allowed.
    denial: Option<String>,
    /// The operations of the patch.
    patch: Vec<Value>,
}

/// Configures the plugins that come with Tollgate, as a user would run them.
fn policies() -> Configuration {
    let mut configuration = configuration();
    let sidecar =
        json!({"containers": [{"name": "proxy", "image": "registry.example.com/proxy:1"}]});
    let rewrite = json!({"rewrite": [{"from": "k8s.gcr.io/", "to": "registry.k8s.io/"}]});
    for (name, settings) in [
        ("image-rewrite", rewrite),
        ("sidecar-inject", sidecar),
        ("always-pull-images", json!({})),
        ("disable-service-links", json!({})),
        ("allow-annotation", json!({})),
        ("required-labels", json!({"labels": {"team": "[a-z]+"}})),
        (
            "pod-security",
            json!({"level": "baseline", "templates": "deny"}),
        ),
        ("deny-service-external-ips", json!({})),
        ("limit-pod-hard-anti-affinity-topology", json!({})),
    ] {
        configuration.plugin(name, &guests::build(name), json!({"settings": settings}));
    }
    configuration
}

/// Reviews the objects with `tollgate review`.
fn offline(configuration: &Configuration, objects: &[Value]) -> Vec<Outcome> {
    let mut child = Command::new(binary::tollgate())
        .args(["review", "-o", "json", "--config"])
        .arg(configuration.write())
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("tollgate can be run");
    let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin
        .write_all(documents.join("\n---\n").as_bytes())
        .expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let reviewed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let documents = reviewed["documents"].as_array().expect("a list");
    let outcome = |document: &Value| {
        let response = |phase: &str| document[phase]["response"]["response"].clone();
        let patch = response("mutate")["patch"].as_str().map(|patch| {
            let json = STANDARD.decode(patch).expect("base64");
            serde_json::from_slice(&json).expect("a patch")
        });
        let denied = [response("mutate"), response("validate")]
            .into_iter()
            .find(|response| response["allowed"] == false);
        Outcome {
            denial: denied.map(|response| without_uid(&text(&response["status"]["message"]))),
            patch: patch.unwrap_or_default(),
        }
    };
    assert!(
        documents.iter().all(|document| document["error"].is_null()),
        "{reviewed:#}"
    );
    documents.iter().map(outcome).collect()
}

/// Reviews the objects with kube-apiserver. Takes its answers, and the patches from its audit log.
async fn online(cluster: &Cluster, objects: &[Value]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for object in objects {
        let path = format!("{}?dryRun=All", path_of(object));
        let (status, answer) = cluster.request(Method::POST, &path, Some(object)).await;
        let denial = (status != 201).then(|| {
            let message = text(&answer["message"]);
            let of_webhook = message.split_once(" denied the request: ");
            without_uid(of_webhook.map_or(&message, |(_, message)| message))
        });
        let name = &object["metadata"]["name"];
        let resource = path_of(object);
        // Take the last entry, because there is also one from before the registration.
        let entries = cluster.audit(|entry| {
            let asked = entry["requestURI"]
                .as_str()
                .is_some_and(|uri| uri.starts_with(&resource));
            asked && entry["requestObject"]["metadata"]["name"] == *name
        });
        let entry = entries.last().expect("it waits for one");
        let recorded =
            entry["annotations"]["patch.webhook.admission.k8s.io/round_0_index_0"].as_str();
        let recorded = recorded.map(|text| serde_json::from_str::<Value>(text).expect("JSON"));
        let patch = recorded.and_then(|recorded| recorded["patch"].as_array().cloned());
        outcomes.push(Outcome {
            denial,
            patch: patch.unwrap_or_default(),
        });
    }
    outcomes
}

/// Removes the uid at the end of a message, because each review has another one.
fn without_uid(message: &str) -> String {
    let (message, uid) = message
        .rsplit_once(" (review ")
        .expect("it ends with a uid");
    assert!(uid.ends_with(')'), "{uid}");
    message.to_owned()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the object as kube-apiserver would store it without webhooks, with its defaults.
async fn defaulted(cluster: &Cluster, object: &Value) -> Value {
    let path = format!("{}?dryRun=All", path_of(object));
    let (status, mut stored) = cluster.request(Method::POST, &path, Some(object)).await;
    assert_eq!(status, 201, "{object:#}\n{stored:#}");
    let metadata = stored["metadata"]
        .as_object_mut()
        .expect("an object has metadata");
    for name in ["creationTimestamp", "uid", "managedFields"] {
        metadata.remove(name);
    }
    stored
}

/// Formats each operation as a line. The order of operations follows that of the object's members. kube-apiserver
/// writes members in the order of Go's types, this test in alphabetical order.
fn lines(patch: &[Value]) -> BTreeSet<String> {
    patch.iter().map(Value::to_string).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn verdicts_on_fifty_objects_match_without_cluster() {
    let Some(cluster) = Start::default().start() else {
        return;
    };
    cluster.namespace(NAMESPACE);
    let objects = fifty(NAMESPACE);
    assert_eq!(objects.len(), 50);
    let mut with_defaults = Vec::new();
    for object in &objects {
        with_defaults.push(defaulted(&cluster, object).await);
    }
    let server = Server::start(policies());
    server.assert_all_loaded().await;
    let registration = Registration::apply(&cluster, &server, "tollgate", &[]);
    let mut probe = pod(NAMESPACE, "probe");
    probe["metadata"]["labels"] = json!({"team": "shop"});
    registration
        .wait_for_effect(&[&server], (&path_of(&probe), &probe))
        .await;

    let in_cluster = online(&cluster, &objects).await;
    let offline_as_written = offline(server.configuration(), &objects);
    let offline_with_defaults = offline(server.configuration(), &with_defaults);

    let denied = in_cluster
        .iter()
        .filter(|outcome| outcome.denial.is_some())
        .count();
    let patched = in_cluster
        .iter()
        .filter(|outcome| !outcome.patch.is_empty())
        .count();
    assert!(
        denied > 15 && patched > 15,
        "{denied} denied, {patched} patched: expected more than 15 of each"
    );

    let mut differences = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        let name = format!(
            "{} {}",
            text(&object["kind"]),
            text(&object["metadata"]["name"])
        );
        // If the object already has its defaults, both results are the same.
        let with_defaults = &offline_with_defaults[index];
        assert_eq!(with_defaults.denial, in_cluster[index].denial, "{name}");
        assert_eq!(
            lines(&with_defaults.patch),
            lines(&in_cluster[index].patch),
            "{name}"
        );
        assert_eq!(
            offline_as_written[index].denial, in_cluster[index].denial,
            "{name}"
        );
        let (here, there) = (
            lines(&offline_as_written[index].patch),
            lines(&in_cluster[index].patch),
        );
        differences.extend(
            here.difference(&there)
                .map(|line| format!("{name}: offline        {line}")),
        );
        differences.extend(
            there
                .difference(&here)
                .map(|line| format!("{name}: kube-apiserver {line}")),
        );
    }
    let count = format!("{denied} of 50 denied, {patched} patched; differences by defaults only:");
    shows(
        "differences",
        format!("{count}\n{}", differences.join("\n")),
    );
}
