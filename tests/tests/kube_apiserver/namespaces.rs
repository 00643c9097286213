//! Plugins and selectors see the labels of Namespaces as kube-apiserver has them.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tollgate_tests::kubernetes::{Cluster, Registration, Start as ClusterStart};
use tollgate_tests::server::{Server, Start, metric};

use crate::fixtures::{act, configuration, path_of, pod};
use crate::plugins_as_resources::define;

/// The namespace of the installation.
const SYSTEM: &str = "namespaces-system";
const SHOP: &str = "namespaces-shop";
/// The tier of Namespaces that the plugin `reads` refuses. It reads the Namespace.
const CLOSED: &str = "closed";
const CLOSED_TEXT: &str = "objects in this namespace are not wanted";
/// The tier of Namespaces that the selector of the plugin `selects` selects. The plugin denies everything.
const FROZEN: &str = "frozen";
const FROZEN_TEXT: &str = "the selector selects this namespace";
const OPEN: &str = "open";
/// Time within which a change must be seen, as the median of all changes.
const SEEN_WITHIN: Duration = Duration::from_secs(1);
/// Time limit for a single change on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

fn namespace(name: &str, tier: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"tier": tier}}})
}

/// Starts a server with a plugin that reads the Namespace, and one with a selector.
fn serve(cluster: &Cluster) -> Server {
    let rules = json!({"rules": [{
        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
    }]});
    let mut selected = rules.clone();
    selected["namespaceSelector"] = json!({"matchLabels": {"tier": FROZEN}});
    let mut configuration = configuration().with(
        "cluster",
        json!({"enabled": true, "namespace": SYSTEM, "replica": "replica-0", "registration": {"enabled": false}}),
    );
    let unwanted = json!({"forbid_namespace": {"/metadata/labels/tier": CLOSED}});
    act(&mut configuration, "reads", rules, unwanted);
    let denies = json!({"deny": FROZEN_TEXT});
    act(&mut configuration, "selects", selected, denies);
    let kubeconfig = cluster.folder().join("kubeconfig").display().to_string();
    let start = Start::default().environment("KUBECONFIG", &kubeconfig);
    tokio::task::block_in_place(|| start.start(configuration))
}

/// Starts the server and registers it.
async fn begin(cluster: &Cluster) -> (Server, Registration<'_>) {
    define(cluster);
    cluster.namespace(SYSTEM);
    create(cluster, &namespace(SHOP, OPEN)).await;
    let server = serve(cluster);
    let probe = pod(SHOP, "probe");
    let path = path_of(&probe);
    let registration =
        Registration::new(cluster, &server, "namespaces", &[], (&path, &probe)).await;
    server.assert_all_loaded().await;
    (server, registration)
}

async fn create(cluster: &Cluster, object: &Value) {
    let path = path_of(object);
    let (status, answer) = cluster.request(Method::POST, &path, Some(object)).await;
    assert_eq!(status, 201, "{answer}");
}

/// Asks for a Pod without storing it. Returns the message if it is refused.
async fn refusal(cluster: &Cluster, namespace: &str) -> Option<String> {
    let object = pod(namespace, "web");
    let path = format!("{}?dryRun=All", path_of(&object));
    let (status, answer) = cluster.request(Method::POST, &path, Some(&object)).await;
    (status != 201).then(|| answer["message"].as_str().unwrap_or_default().to_owned())
}

fn assert_refused(said: Option<&str>, tier: &str, name: &str) {
    let expected = match tier {
        CLOSED => Some(CLOSED_TEXT),
        FROZEN => Some(FROZEN_TEXT),
        _ => None,
    };
    match (said, expected) {
        (None, None) => {}
        (Some(said), Some(expected)) => assert!(said.contains(expected), "{name}, {tier}: {said}"),
        (said, _) => panic!("{name}, {tier}: {said:?}"),
    }
}

/// Changes the label of a Namespace. Returns when kube-apiserver has stored it.
async fn relabel(cluster: &Cluster, name: &str, tier: &str) {
    let path = format!("/api/v1/namespaces/{name}");
    let (status, mut object) = cluster.request(Method::GET, &path, None).await;
    assert_eq!(status, 200, "{object}");
    object["metadata"]["labels"]["tier"] = json!(tier);
    let (status, answer) = cluster.request(Method::PUT, &path, Some(&object)).await;
    assert_eq!(status, 200, "{answer}");
}

/// Waits until a Pod is refused or accepted as its namespace's tier says. Returns the time that this took.
async fn until_seen(cluster: &Cluster, tier: &str) -> Duration {
    let began = Instant::now();
    loop {
        let said = refusal(cluster, SHOP).await;
        let took = began.elapsed();
        if said.is_some() == (tier != OPEN) {
            assert_refused(said.as_deref(), tier, SHOP);
            return took;
        }
        assert!(took < LIMIT, "{tier} is not seen: {said:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Changes the label of a Namespace again and again.
async fn changed_labels_are_seen_within_a_second(cluster: &Cluster) {
    let mut times = Vec::new();
    for tier in [CLOSED, OPEN, FROZEN, OPEN].repeat(4) {
        relabel(cluster, SHOP, tier).await;
        times.push(until_seen(cluster, tier).await);
    }
    times.sort();
    let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
    println!(
        "{} changes of a label: seen after {median:?} (median), at most {longest:?}",
        times.len()
    );
    assert!(median < SEEN_WITHIN, "{times:?}");
}

/// Creates Namespaces, and a Pod in each of them at once. The watch may not have seen the Namespace when the Pod comes.
/// The Pod must not count as one without labels.
async fn pods_are_reviewed_with_namespaces_created_just_before(cluster: &Cluster) {
    let tiers = [CLOSED, FROZEN, OPEN];
    for round in 0..30 {
        let (name, tier) = (format!("young-{round}"), tiers[round % tiers.len()]);
        create(cluster, &namespace(&name, tier)).await;
        let said = refusal(cluster, &name).await;
        assert_refused(said.as_deref(), tier, &name);
    }
    // The same in one manifest, as users do it.
    for tier in tiers {
        let name = format!("together-{tier}");
        let items = [namespace(&name, tier), pod(&name, "web")];
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        let applied = cluster.kubectl(&["apply", "-f", "-"]).input(&list).run();
        let refused = (!applied.succeeded()).then_some(applied.errors.as_str());
        assert_refused(refused, tier, &name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plugins_and_selectors_follow_the_namespaces_of_the_cluster() {
    let Some(cluster) = ClusterStart::default().start() else {
        return;
    };
    let cluster = &cluster;
    let (server, registration) = begin(cluster).await;
    changed_labels_are_seen_within_a_second(cluster).await;
    pods_are_reviewed_with_namespaces_created_just_before(cluster).await;
    drop(registration);
    let page = server.metrics().await;
    assert_eq!(metric(&page, "tollgate_plugin_faults_total", &[]), 0.0);
}
