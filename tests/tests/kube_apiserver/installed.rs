//! An installation of two replicas that registers itself: plugins come as custom resources, and nobody applies a webhook
//! configuration.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_tests::kubernetes::service::Service;
use tollgate_tests::kubernetes::{Cluster, Start as ClusterStart};
use tollgate_tests::server::{Server, Start};

use crate::fixtures::{config_map, configuration, rules};
use crate::plugins_as_resources::{apply, define, get, plugin, wait_for};

/// The namespace of the installation.
const SYSTEM: &str = "tollgate-system";
/// Time limit for a change. A dead replica counts for 30 seconds.
const LIMIT: Duration = Duration::from_secs(90);
/// The namespace that the plugin is for.
const SHOP: &str = "shop";

/// Starts a replica that gets its certificate from the installation's Secret.
fn replica(cluster: &Cluster, service: &Service, name: &str) -> Server {
    let configuration = configuration().with("allowEmpty", true).with(
        "cluster",
        json!({
            "enabled": true,
            "namespace": SYSTEM,
            "replica": name,
            "registration": {"service": format!("gate:{}", service.port())},
        }),
    );
    let kubeconfig = cluster.folder().join("kubeconfig").display().to_string();
    let ca = configuration.folder().join("tls/ca.crt");
    let server = Start::default()
        .environment("KUBECONFIG", &kubeconfig)
        .trusting(ca)
        .start(configuration);
    service.add(server.address());
    server
}

/// Creates a ConfigMap as a dry run. Returns the denial.
fn denial(cluster: &Cluster, name: &str) -> Option<String> {
    let arguments = ["create", "--dry-run=server", "-f", "-"];
    let object = config_map(SHOP, name, "a");
    let printed = cluster.kubectl(&arguments).input(&object).run();
    (!printed.succeeded()).then_some(printed.errors)
}

fn wait_until<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> (T, Duration) {
    let began = Instant::now();
    loop {
        if let Some(found) = find() {
            return (found, began.elapsed());
        }
        assert!(began.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The webhook configurations of one kind.
fn webhooks(cluster: &Cluster, kind: &str) -> Vec<Value> {
    let list = get(cluster, &[kind]);
    list["items"].as_array().cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_denies_as_soon_as_kubectl_has_applied_it() {
    let Some(cluster) = ClusterStart::default().start() else {
        return;
    };
    let cluster = &cluster;
    define(cluster);
    cluster.namespace(SYSTEM);
    cluster.namespace(SHOP);
    let service = Service::new(cluster, SYSTEM, "gate").await;
    let begin = |name: &str| tokio::task::block_in_place(|| replica(cluster, &service, name));
    let first = begin("replica-0");
    let second = begin("replica-1");
    assert!(webhooks(cluster, "validatingwebhookconfigurations").is_empty());

    // The first plugin: compiled on both replicas, registered, and called.
    let guard = |text: &str| {
        let mut guard = plugin("guard", json!({"settings": {"deny": text}}));
        guard["spec"]["match"] = rules(SHOP, &[""], &["configmaps"]);
        guard
    };
    apply(cluster, &guard("first"));
    let denied =
        |text: &'static str| move || denial(cluster, "web").filter(|said| said.contains(text));
    let (_, took) = wait_until("the plugin denies", denied("guard: first"));
    println!("denied {took:?} after kubectl apply");
    let registered = webhooks(cluster, "validatingwebhookconfigurations");
    let [registered] = registered.as_slice() else {
        panic!("one configuration: {registered:#?}");
    };
    let webhook = &registered["webhooks"][0];
    assert_eq!(webhook["rules"][0]["resources"], json!(["configmaps"]));
    assert_eq!(webhook["clientConfig"]["service"]["name"], "gate");
    assert!(
        webhook["clientConfig"]["caBundle"].is_string(),
        "{webhook:#}"
    );
    let guarded = ["clusteradmissionplugin", "guard"];
    wait_for(cluster, &guarded, "True", "Serving");
    let (_, took) = wait_until("both replicas are in the status", || {
        let object = get(cluster, &["clusteradmissionplugin", "guard"]);
        (object["status"]["replicas"].as_array().map(Vec::len) == Some(2)).then_some(())
    });
    println!("both replicas in the status after {took:?}");

    // The leader dies. A change is registered by the other replica, and no user notices anything but the change.
    let lease = get(cluster, &["lease", "tollgate-leader", "-n", SYSTEM]);
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    let (leader, other) = match holder.starts_with("replica-0") {
        true => (first, second),
        false => (second, first),
    };
    service.remove(leader.address());
    drop(leader.kill());
    let mut wider = guard("second");
    wider["spec"]["match"] = rules(SHOP, &[""], &["configmaps", "secrets"]);
    apply(cluster, &wider);
    let (_, took) = wait_until("the change is in force", denied("guard: second"));
    println!("change in force {took:?} after the leader's death");
    let (_, took) = wait_until("the wider rules are registered", || {
        let registered = webhooks(cluster, "validatingwebhookconfigurations");
        let resources = &registered.first()?["webhooks"][0]["rules"][0]["resources"];
        (*resources == json!(["configmaps", "secrets"])).then_some(())
    });
    println!("wider rules registered {took:?} later, by another leader");

    // The plugin goes, and its registration with it.
    cluster
        .kubectl(&["delete", "clusteradmissionplugin", "guard"])
        .succeed();
    let (_, took) = wait_until("the configurations are gone", || {
        let kinds = [
            "validatingwebhookconfigurations",
            "mutatingwebhookconfigurations",
        ];
        let left = kinds
            .iter()
            .map(|kind| webhooks(cluster, kind).len())
            .sum::<usize>();
        (left == 0).then_some(())
    });
    println!("registration gone {took:?} after kubectl delete");
    assert_eq!(denial(cluster, "web"), None);
    assert!(other.stop().status.success());
}
