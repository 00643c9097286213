//! The condition `Effective`: it turns False for each way in which kube-apiserver stops calling a plugin, and back. The
//! replicas have the chart's rights, and nothing more.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_tests::kubernetes::authority::Authority;
use tollgate_tests::kubernetes::service::Service;
use tollgate_tests::kubernetes::{Cluster, Start as ClusterStart};
use tollgate_tests::server::{Server, Start, metric};

use crate::fixtures::{configuration, rules};
use crate::installed::{SHOP, SYSTEM, USER, denial, service_account, wait_until};
use crate::plugins_as_resources::{apply, define, get, plugin};

/// Both plugins: the entries of one are under Fail, and those of the other under Ignore.
const PLUGINS: [&str; 2] = ["guard", "soft"];
/// The name under which kube-apiserver calls the replicas.
const HOST: &str = "gate.tollgate-system.svc";

/// Starts a replica whose certificate is in files, with a webhook for each plugin and canaries every five seconds.
fn replica(kubeconfig: &Path, tls: &Path, service: &Service, name: &str) -> Server {
    let files = json!({"certificate": tls.join("tls.crt"), "key": tls.join("tls.key")});
    let registration = json!({
        "service": format!("gate:{}", service.port()),
        "anchor": "tollgate-anchor",
        "perPlugin": true,
        "canaryInterval": "5s",
    });
    let cluster = json!({
        "enabled": true, "namespace": SYSTEM, "replica": name, "registration": registration,
    });
    let configuration = configuration().with("tls", files).with("cluster", cluster);
    Start::default()
        .environment("KUBECONFIG", &kubeconfig.display().to_string())
        .trusting(tls.join("trusted.crt"))
        .start(configuration)
}

/// A plugin for ConfigMaps of a namespace, unless the namespace has the label `policy: off`.
fn selecting(name: &str, more: &Value) -> Value {
    let mut object = plugin(name, json!({"settings": {"deny": "no"}}));
    object["spec"]["match"] = rules(SHOP, &[""], &["configmaps"]);
    object["spec"]["match"]["namespaceSelector"] =
        json!({"matchExpressions": [{"key": "policy", "operator": "NotIn", "values": ["off"]}]});
    object["spec"]["match"]["objectSelector"] =
        json!({"matchExpressions": [{"key": "legacy", "operator": "DoesNotExist"}]});
    // No canary is such an object. The canary passes nevertheless.
    object["spec"]["match"]["matchConditions"] =
        json!([{"name": "data", "expression": "size(object.data) >= 0"}]);
    for (key, value) in more.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    object
}

/// Returns the status and the reason of the condition `Effective`.
fn effective(cluster: &Cluster, name: &str) -> (String, String) {
    let object = get(cluster, &["clusteradmissionplugin", name]);
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let condition = conditions.find(|condition| condition["type"] == "Effective");
    let text = |key: &str| {
        let text = condition.and_then(|condition| condition[key].as_str());
        text.unwrap_or_default().to_owned()
    };
    (text("status"), text("reason"))
}

fn expect(cluster: &Cluster, what: &str, expected: [(&str, &str); 2]) {
    let seen = || PLUGINS.map(|name| effective(cluster, name));
    let is_it = || {
        let seen = seen();
        let mut pairs = seen.iter().zip(&expected);
        pairs
            .all(|((status, reason), (wanted, why))| status == wanted && reason == why)
            .then_some(())
    };
    let what = format!("{what}: {expected:?}");
    let (_, took) = wait_until(&what, is_it);
    println!("{what} after {took:?}");
}

const SHOWN: [(&str, &str); 2] = [("True", "Effective"); 2];

/// Replaces the rules of a plugin's webhook again and again, like another controller, until the status says so.
fn fight(cluster: &Cluster, field: &str, value: &Value, reason: &str) {
    let configuration = get(cluster, &["validatingwebhookconfiguration", "tollgate"]);
    let webhooks = configuration["webhooks"].as_array().expect("webhooks");
    let names = webhooks.iter().map(|webhook| &webhook["name"]);
    let patches: Vec<Value> = names
        .map(|name| json!({"name": name, field: value}))
        .collect();
    let patch = json!({"webhooks": patches}).to_string();
    let patch = [
        "patch",
        "validatingwebhookconfiguration",
        "tollgate",
        "--type=strategic",
        "-p",
        &patch,
    ];
    let (_, took) = wait_until(&format!("the changed {field} shows"), || {
        cluster.kubectl(&patch).succeed();
        std::thread::sleep(Duration::from_millis(100));
        let expected = ("False".to_owned(), reason.to_owned());
        PLUGINS
            .iter()
            .all(|name| effective(cluster, name) == expected)
            .then_some(())
    });
    println!("{field} by hand: False ({reason}) after {took:?}");
}

/// How often the replicas called a plugin.
async fn calls(replicas: &[&Server]) -> f64 {
    let mut calls = 0.0;
    for replica in replicas {
        calls += metric(&replica.metrics().await, "tollgate_plugin_calls_total", &[]);
    }
    calls
}

#[tokio::test(flavor = "multi_thread")]
async fn effective_turns_false_when_kube_apiserver_stops_calling_and_back() {
    let Some(cluster) = ClusterStart::default().start() else {
        return;
    };
    let cluster = &cluster;
    define(cluster);
    cluster.namespace(SYSTEM);
    cluster.namespace(SHOP);
    let service = Service::new(cluster, SYSTEM, "gate").await;
    let kubeconfig = service_account(cluster);
    let tls = tempfile::tempdir().expect("a temporary folder can be made");
    let (authority, stranger) = (Authority::new("gate CA"), Authority::new("another CA"));
    let issued = authority.server(&[HOST, "localhost", "127.0.0.1"]);
    let write = |name: &str, text: &str| {
        std::fs::write(tls.path().join(name), text).expect("the folder is writable");
    };
    write("tls.crt", &issued.certificate);
    write("tls.key", &issued.key);
    // The CA that is registered first is not the one of the certificate. Later, the registrar would keep the right one.
    write("ca.crt", stranger.certificate());
    write("trusted.crt", authority.certificate());
    let begin = |name: &str| {
        tokio::task::block_in_place(|| replica(&kubeconfig, tls.path(), &service, name))
    };
    let replicas = [begin("replica-0"), begin("replica-1")];
    let serve = || {
        replicas
            .iter()
            .for_each(|replica| service.add(replica.address()))
    };
    serve();

    apply(cluster, &selecting("guard", &json!({})));
    apply(
        cluster,
        &selecting("soft", &json!({"failurePolicy": "Ignore"})),
    );
    expect(
        cluster,
        "wrong CA",
        [("False", "Untrusted"), ("False", "NotCalled")],
    );
    write("ca.crt", authority.certificate());
    expect(cluster, "right CA", SHOWN);
    let table = cluster.kubectl(&["get", "caps"]).succeed();
    assert!(table.contains("EFFECTIVE"), "{table}");

    // No plugin saw a canary, and none is stored.
    assert_eq!(calls(&[&replicas[0], &replicas[1]]).await, 0.0);
    let stored = get(cluster, &["canaries"]);
    assert_eq!(stored["items"], json!([]));
    let is_canary = |entry: &Value| {
        entry["objectRef"]["resource"] == "canaries" && entry["user"]["username"] == USER
    };
    let canaries = cluster.audit(is_canary);
    assert!(!canaries.is_empty());
    for entry in &canaries {
        let uri = entry["requestURI"].as_str().unwrap_or_default();
        assert!(
            entry["verb"] == "create" && uri.contains("dryRun=All"),
            "{entry:#}"
        );
    }
    let is_created = |entry: &Value| entry["responseStatus"]["code"] == 201;
    assert!(canaries.iter().any(is_created));

    // A review by a user shows as the last call, and a canary does not.
    let object = get(cluster, &["clusteradmissionplugin", "guard"]);
    assert!(
        !object["status"]["replicas"]
            .to_string()
            .contains("lastReview"),
        "{object:#}"
    );
    assert!(
        denial(cluster, "web").is_some(),
        "{:#}\n{}",
        get(cluster, &["validatingwebhookconfiguration", "tollgate"]),
        replicas
            .iter()
            .flat_map(Server::logs)
            .collect::<Vec<_>>()
            .join("\n")
    );
    wait_until("the last review is in the status", || {
        let object = get(cluster, &["clusteradmissionplugin", "guard"]);
        object["status"]["replicas"]
            .to_string()
            .contains("lastReview")
            .then_some(())
    });

    // Nobody answers behind the Service.
    service.cut();
    expect(
        cluster,
        "dead service",
        [("False", "Unreachable"), ("False", "NotCalled")],
    );
    serve();
    expect(cluster, "service back", SHOWN);

    // A label of the namespace excludes all that the plugins are for.
    let label = |label: &str| {
        cluster
            .kubectl(&["label", "namespace", SHOP, label])
            .succeed()
    };
    label("policy=off");
    expect(cluster, "label", [("False", "NamespacesExcluded"); 2]);
    label("policy-");
    expect(cluster, "label gone", SHOWN);

    // Somebody takes the rules away. The rule of the canary stays, so the canary alone would show nothing.
    let canary = json!([{
        "operations": ["CREATE"], "apiGroups": ["tollgate.dev"], "apiVersions": ["v1alpha1"],
        "resources": ["canaries"], "scope": "Cluster",
    }]);
    fight(cluster, "rules", &canary, "RulesMissing");
    expect(cluster, "rules repaired", SHOWN);

    // Events tell of each change.
    let events = cluster
        .kubectl(&["describe", "clusteradmissionplugin", "guard"])
        .succeed();
    for reason in [
        "Untrusted",
        "Unreachable",
        "NamespacesExcluded",
        "RulesMissing",
        "Effective",
    ] {
        assert!(events.contains(reason), "{events}");
    }
    // The chart's rights were enough for every request.
    for entry in cluster.audit(|entry: &Value| entry["user"]["username"] == USER) {
        assert_ne!(entry["responseStatus"]["code"], 403, "{entry:#}");
    }
    for replica in replicas {
        assert!(replica.stop().status.success());
    }
}
