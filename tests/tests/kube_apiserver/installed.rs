//! An installation of two replicas that registers itself: plugins come as custom resources, and nobody applies a webhook
//! configuration. The replicas have the chart's service account and its rights, and nothing more.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_tests::chart::{Objects, deploy};
use tollgate_tests::kubernetes::service::Service;
use tollgate_tests::kubernetes::{Cluster, Start as ClusterStart};
use tollgate_tests::server::{Server, Start};

use crate::fixtures::{config_map, configuration, rules};
use crate::plugins_as_resources::{apply, define, get, plugin, wait_for};

/// The namespace of the installation.
pub(crate) const SYSTEM: &str = "tollgate-system";
/// Time limit for a change. A dead replica counts for 30 seconds.
const LIMIT: Duration = Duration::from_secs(90);
/// The namespace that the plugin is for.
pub(crate) const SHOP: &str = "shop";
/// The user that the replicas are.
pub(crate) const USER: &str = "system:serviceaccount:tollgate-system:tollgate";
/// The kinds of the manifests that are about rights.
const RIGHTS: [&str; 5] = [
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
];

/// Creates the service account of the manifests with its rights. Returns a kubeconfig with its token.
pub(crate) fn service_account(cluster: &Cluster) -> PathBuf {
    let manifests = deploy().join("manifests/tollgate.yaml");
    let manifests = std::fs::read_to_string(manifests).expect("the manifests are there");
    let objects = Objects::parse(&manifests);
    let items: Vec<&Value> = RIGHTS
        .iter()
        .flat_map(|kind| objects.of_kind(kind))
        .collect();
    assert!(items.len() >= 8, "{:?}", objects.names());
    apply(
        cluster,
        &json!({"apiVersion": "v1", "kind": "List", "items": items}),
    );
    // A TokenRequest, as kubelet sends one for a pod.
    let token = ["create", "token", "tollgate", "-n", SYSTEM];
    let token = cluster.kubectl(&token).succeed();
    let text = std::fs::read_to_string(cluster.folder().join("kubeconfig"));
    let text = text.expect("the cluster has a kubeconfig");
    let mut kubeconfig: Value = serde_saphyr::from_str(&text).expect("the kubeconfig is YAML");
    kubeconfig["users"][0]["user"] = json!({"token": token.trim()});
    let path = cluster.folder().join("replica.kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).expect("the kubeconfig can be written");
    path
}

/// Counts the writes of status by the replicas.
fn status_writes(cluster: &Cluster) -> usize {
    let of_replicas = |entry: &Value| {
        entry["user"]["username"] == USER
            && entry["objectRef"]["resource"] == "clusteradmissionplugins"
            && entry["objectRef"]["subresource"] == "status"
    };
    cluster.audit(of_replicas).len()
}

/// Returns the status and the reason of a condition of the plugin.
fn condition(cluster: &Cluster, kind: &str) -> Option<(String, String)> {
    let object = get(cluster, &["clusteradmissionplugin", "guard"]);
    let conditions = object["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|one| one["type"] == kind)?;
    let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason")))
}

/// Waits until a condition of the plugin has this status and reason.
fn wait_for_condition(cluster: &Cluster, kind: &str, status: &str, reason: &str) -> Duration {
    let expected = Some((status.to_owned(), reason.to_owned()));
    let what = format!("{kind} is {status} ({reason})");
    let is_it = || (condition(cluster, kind) == expected).then_some(());
    wait_until(&what, is_it).1
}

/// Starts a replica that gets its certificate from the installation's Secret.
pub(crate) fn replica(kubeconfig: &Path, service: &Service, name: &str, admin: Value) -> Server {
    let configuration = configuration().with("admin", admin).with(
        "cluster",
        json!({
            "enabled": true,
            "namespace": SYSTEM,
            "replica": name,
            "registration": {
                "service": format!("gate:{}", service.port()),
                "anchor": "tollgate-anchor",
            },
        }),
    );
    let ca = configuration.folder().join("tls/ca.crt");
    let server = Start::default()
        .environment("KUBECONFIG", &kubeconfig.display().to_string())
        .trusting(ca)
        .start(configuration);
    service.add(server.address());
    server
}

/// Creates a ConfigMap as a dry run. Returns the denial.
pub(crate) fn denial(cluster: &Cluster, name: &str) -> Option<String> {
    let arguments = ["create", "--dry-run=server", "-f", "-"];
    let object = config_map(SHOP, name, "a");
    let printed = cluster.kubectl(&arguments).input(&object).run();
    (!printed.succeeded()).then_some(printed.errors)
}

pub(crate) fn wait_until<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> (T, Duration) {
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
    let kubeconfig = service_account(cluster);
    let admin = json!({"listen": "127.0.0.1:0"});
    let begin = |name: &str| {
        tokio::task::block_in_place(|| replica(&kubeconfig, &service, name, admin.clone()))
    };
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
    let took = wait_for_condition(cluster, "Registered", "True", "Registered");
    println!("registered, says the status, after {took:?}");
    wait_for_condition(cluster, "Verified", "Unknown", "NotRequired");
    let took = wait_for_condition(cluster, "Effective", "True", "Effective");
    println!("effective, says the status, after {took:?}");
    let table = cluster.kubectl(&["get", "caps", "-o", "wide"]).succeed();
    for column in ["READY", "REGISTERED", "EFFECTIVE", "VERIFIED"] {
        assert!(table.contains(column), "{table}");
    }

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

    // The entry of the dead replica goes.
    let before = status_writes(cluster);
    let (_, took) = wait_until("the dead replica is gone from the status", || {
        let object = get(cluster, &["clusteradmissionplugin", "guard"]);
        (object["status"]["replicas"].as_array().map(Vec::len) == Some(1)).then_some(())
    });
    println!("entry of the dead replica gone {took:?} later");
    wait_for(cluster, &guarded, "True", "Serving");
    wait_for_condition(cluster, "Registered", "True", "Registered");
    wait_for_condition(cluster, "Effective", "True", "Effective");
    let (writes, all) = (status_writes(cluster) - before, status_writes(cluster));
    println!("{writes} status writes since the wider rules, {all} in all");
    // The new leader also writes its words about the registration and about the effect.
    assert!(writes <= 10, "{writes} status writes for one dead replica");

    // Somebody changes the configuration again and again.
    let webhook = webhook["name"].as_str().expect("a webhook has a name");
    let patch = json!({"webhooks": [{"name": webhook, "failurePolicy": "Ignore"}]}).to_string();
    let name = ["patch", "validatingwebhookconfiguration", "tollgate"];
    let patch = [&name[..], &["--type=strategic", "-p", &patch]].concat();
    wait_until("the fight shows in the status", || {
        cluster.kubectl(&patch).succeed();
        std::thread::sleep(Duration::from_millis(200));
        let changed = ("False".to_owned(), "ForeignChange".to_owned());
        (condition(cluster, "Registered") == Some(changed)).then_some(())
    });
    let object = get(cluster, &["clusteradmissionplugin", "guard"]);
    let said = object["status"]["conditions"].to_string();
    assert!(said.contains("failurePolicy"), "{said}");

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
    // The chart's rights were enough for every write.
    let of_replicas = |entry: &Value| entry["user"]["username"] == USER;
    for entry in cluster.audit(of_replicas) {
        assert_ne!(entry["responseStatus"]["code"], 403, "{entry:#}");
    }
    assert_eq!(denial(cluster, "web"), None);
    assert!(other.stop().status.success());
}
