//! Plugins of namespaces: what they do, and what a namespace tries beyond that.
//!
//! The replica has the chart's rights with `tenancy.enabled`. Every attempt is printed with its answer.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_tests::kubernetes::service::Service;
use tollgate_tests::kubernetes::{Cluster, Start as ClusterStart};
use tollgate_tests::registry::Registry;
use tollgate_tests::server::{Server, Start, metric};
use tollgate_tests::{guests, hostile};

use crate::fixtures::{config_map, configuration, pod};
use crate::installed::{SYSTEM, service_account, wait_until};
use crate::plugins_as_resources::{apply, define, get, plugin, wait_for};

const TEAM_A: &str = "team-a";
const TEAM_B: &str = "team-b";
/// The namespace of a plugin that uses all fuel that it gets.
const HOG: &str = "team-hog";

/// A plugin of a namespace that acts as its settings say.
fn tenant(registry: &Registry, namespace: &str, name: &str, more: &Value) -> Value {
    let mut plugin = json!({
        "apiVersion": "tollgate.dev/v1alpha1",
        "kind": "AdmissionPlugin",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "source": format!("oci://{}/tenants/actor:1", registry.host()),
            "match": rules("", &["v1"], &["configmaps"]),
            "settings": {"deny": format!("no from {name}")},
        },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        plugin["spec"][key] = value.clone();
    }
    plugin
}

fn rules(group: &str, versions: &[&str], resources: &[&str]) -> Value {
    json!({"rules": [{
        "operations": ["*"], "apiGroups": [group], "apiVersions": versions, "resources": resources,
    }]})
}

fn exception(namespace: &str, name: &str, plugin: &str) -> Value {
    json!({
        "apiVersion": "tollgate.dev/v1alpha1",
        "kind": "PluginException",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"plugins": [plugin], "groups": ["system:masters", "system:authenticated"], "reason": "why not"},
    })
}

fn secret(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": "token"},
        "stringData": {"settings": "deny: from the secret"},
    })
}

fn scaler(namespace: &str, version: &str) -> Value {
    json!({
        "apiVersion": format!("autoscaling/{version}"),
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": namespace, "name": "web"},
        "spec": {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
    })
}

/// The rights that the chart adds with `tenancy.enabled`.
fn rights_of_tenancy(cluster: &Cluster) {
    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    let watch = ["get", "list", "watch"];
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "tollgate-tenancy"},
        "rules": [
            rule("tollgate.dev", "admissionplugins", &watch),
            rule("tollgate.dev", "admissionplugins/status", &["patch"]),
            rule("tollgate.dev", "pluginexceptions", &watch),
            rule("tollgate.dev", "pluginexceptions/status", &["patch"]),
            rule("events.k8s.io", "events", &["create", "patch"]),
        ],
    });
    apply(cluster, &role);
    let binding = [
        "create",
        "clusterrolebinding",
        "tollgate-tenancy",
        "--clusterrole=tollgate-tenancy",
        "--serviceaccount=tollgate-system:tollgate",
    ];
    cluster.kubectl(&binding).succeed();
}

fn serve(kubeconfig: &Path, service: &Service, registry: &Registry) -> Server {
    let hosts = json!([{"host": registry.host(), "ca": registry.ca()}]);
    let configuration = configuration()
        .with("registries", json!({"pollInterval": "1s", "credentials": registry.credentials(), "hosts": hosts}))
        .with(
            "cluster",
            json!({
                "enabled": true, "namespace": SYSTEM, "replica": "replica-0",
                "registration": {"service": format!("gate:{}", service.port()), "anchor": "tollgate-anchor"},
            }),
        )
        .with(
            "tenancy",
            json!({
                "registries": [format!("{}/tenants", registry.host())],
                "failurePolicies": ["Ignore"],
                "limits": {"fuel": "20M"},
                "budget": {"fuelPerNamespace": "5M"},
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

/// Creates an object as a dry run. Returns what kubectl says if it is refused.
fn refusal(cluster: &Cluster, object: &Value) -> Option<String> {
    let arguments = ["create", "--dry-run=server", "-f", "-"];
    let printed = cluster.kubectl(&arguments).input(object).run();
    (!printed.succeeded()).then_some(printed.errors)
}

/// Prints an attempt with its answer, and compares the answer with a text. None means that it is allowed.
fn attempt(cluster: &Cluster, what: &str, object: &Value, expected: Option<&str>) {
    let said = refusal(cluster, object);
    let line = said.as_deref().unwrap_or("allowed");
    println!("| {what} | {} |", line.lines().next().unwrap_or_default());
    match expected {
        None => assert_eq!(said, None, "{what}"),
        Some(text) => assert!(line.contains(text), "{what}: {line}"),
    }
}

/// Applies a resource, prints the condition `Ready`, and waits for its reason.
fn answered(cluster: &Cluster, what: &str, object: &Value, reason: &str, words: &str) {
    apply(cluster, object);
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    let place = [kind.as_str(), text("name"), "-n", text("namespace")];
    let status = if ["Serving", "Active"].contains(&reason) {
        "True"
    } else {
        "False"
    };
    let object = wait_for(cluster, &place, status, reason);
    let conditions = object["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let ready = conditions
        .iter()
        .find(|condition| condition["type"] == "Ready");
    let message = ready
        .and_then(|ready| ready["message"].as_str())
        .unwrap_or_default();
    println!("| {what} | {reason}: {} |", message.replace('\n', " "));
    assert!(message.contains(words), "{what}: {message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn namespace_reaches_nothing_beyond_itself() {
    let Some(registry) = Registry::start() else {
        return;
    };
    let Some(cluster) = ClusterStart::default().start() else {
        return;
    };
    let cluster = &cluster;
    define(cluster);
    for namespace in [SYSTEM, TEAM_A, TEAM_B, HOG] {
        cluster.namespace(namespace);
    }
    let actor = std::fs::read(guests::build("actor")).expect("the plugin is built");
    registry.push(&actor, &format!("{}/tenants/actor:1", registry.host()));
    let hog = &hostile::all()["validate-loop"];
    registry.push(hog, &format!("{}/tenants/hog:1", registry.host()));
    let service = Service::new(cluster, SYSTEM, "gate").await;
    let kubeconfig = service_account(cluster);
    rights_of_tenancy(cluster);
    let server = tokio::task::block_in_place(|| serve(&kubeconfig, &service, &registry));

    // The plugins of the cluster.
    for (name, allows) in [("closed", false), ("open", true)] {
        let mut matched = rules("", &["v1"], &["secrets"]);
        matched["namespaces"] = json!([TEAM_A, TEAM_B]);
        apply(
            cluster,
            &plugin(
                name,
                json!({"match": matched, "settings": {"deny": "no Secrets"}, "allowNamespaceExceptions": allows}),
            ),
        );
    }

    // A plugin of a namespace works there, in every served version, and nowhere else.
    let both = json!({"match": {"rules": [
        {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]},
        {"operations": ["*"], "apiGroups": ["autoscaling"], "apiVersions": ["v2"], "resources": ["*"]},
    ]}});
    answered(
        cluster,
        "a plugin",
        &tenant(&registry, TEAM_A, "guard", &both),
        "Serving",
        "",
    );
    wait_until("the plugin is registered and denies", || {
        refusal(cluster, &config_map(TEAM_A, "web", "a"))
            .filter(|said| said.contains("no from guard"))
    });
    attempt(
        cluster,
        "own object",
        &config_map(TEAM_A, "web", "a"),
        Some("team-a/guard: no from guard"),
    );
    attempt(
        cluster,
        "object of another namespace",
        &config_map(TEAM_B, "web", "a"),
        None,
    );
    for version in ["v1", "v2"] {
        attempt(
            cluster,
            &format!("own object, autoscaling/{version}"),
            &scaler(TEAM_A, version),
            Some("no from guard"),
        );
        attempt(
            cluster,
            &format!("foreign object, autoscaling/{version}"),
            &scaler(TEAM_B, version),
            None,
        );
    }
    let everything =
        json!({"match": rules("*", &["*"], &["*/*"]), "settings": {"deny": "no at all"}});
    answered(
        cluster,
        "rules for everything",
        &tenant(&registry, TEAM_A, "all", &everything),
        "Serving",
        "",
    );
    wait_until("the wide rules deny", || {
        refusal(cluster, &config_map(TEAM_A, "web", "a")).filter(|said| said.contains("no at all"))
    });
    let labelled = ["label", "namespace", TEAM_A, "seen=no", "--dry-run=server"];
    let labelled = cluster.kubectl(&labelled).run();
    println!(
        "| change of the own Namespace | {} |",
        if labelled.succeeded() {
            "allowed"
        } else {
            "denied"
        }
    );
    assert!(labelled.succeeded(), "{labelled}");
    let other = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-c"}});
    attempt(cluster, "creation of another Namespace", &other, None);
    cluster
        .kubectl(&["delete", "admissionplugin", "all", "-n", TEAM_A])
        .succeed();

    // What tenancy does not allow.
    let attempts = [
        (
            "match of another namespace",
            json!({"match": {"namespaces": [TEAM_B], "rules": both["match"]["rules"]}}),
            "sees",
        ),
        (
            "rule for Namespaces",
            json!({"match": rules("", &["v1"], &["namespaces"])}),
            "namespaces are cluster-scoped",
        ),
        (
            "capability",
            json!({"capabilities": ["clock"]}),
            "got clock",
        ),
        (
            "failurePolicy",
            json!({"failurePolicy": "Fail"}),
            "got Fail",
        ),
        (
            "more fuel",
            json!({"limits": {"fuel": "1G"}}),
            "spec.limits.fuel",
        ),
        (
            "another registry",
            json!({"source": "oci://registry.example.com/a:1"}),
            "tenancy.registries",
        ),
        (
            "settingsFrom a Secret",
            json!({"settingsFrom": [{"secretKeyRef": {"name": "token", "key": "settings"}}]}),
            "tenancy.settingsFrom",
        ),
    ];
    for (what, more, words) in attempts {
        let words = if words == "sees" {
            "its own namespace only"
        } else {
            words
        };
        answered(
            cluster,
            what,
            &tenant(&registry, TEAM_A, "try", &more),
            "NotAllowed",
            words,
        );
    }
    let foreign = json!({"settingsFrom": [{"secretKeyRef": {"name": "token", "key": "settings", "namespace": TEAM_B}}]});
    attempt(
        cluster,
        "settingsFrom a foreign Secret",
        &tenant(&registry, TEAM_A, "foreign", &foreign),
        Some("unknown field"),
    );
    let file = json!({"source": "file:/etc/passwd"});
    attempt(
        cluster,
        "file of the host",
        &tenant(&registry, TEAM_A, "file", &file),
        Some("expected oci://"),
    );

    // Exceptions for plugins of the cluster.
    wait_until("the plugins of the cluster deny", || {
        refusal(cluster, &secret(TEAM_A))
            .filter(|said| said.contains("closed: no") && said.contains("open: no"))
    });
    answered(
        cluster,
        "exception for a closed plugin",
        &exception(TEAM_A, "closed", "closed"),
        "NotAllowed",
        "closed",
    );
    answered(
        cluster,
        "exception for an open plugin",
        &exception(TEAM_A, "open", "open"),
        "Active",
        "",
    );
    wait_until("the exception counts", || {
        refusal(cluster, &secret(TEAM_A))
            .filter(|said| said.contains("closed: no") && !said.contains("open: no"))
    });
    attempt(
        cluster,
        "the same object elsewhere",
        &secret(TEAM_B),
        Some("open: no"),
    );

    hog_disturbs_nobody(cluster, &registry, &server).await;

    // The plugin goes, and its webhook with it.
    cluster
        .kubectl(&["delete", "admissionplugin", "guard", "-n", TEAM_A])
        .succeed();
    wait_until("the rules are gone", || {
        let list = get(cluster, &["validatingwebhookconfigurations"]).to_string();
        (!list.contains("guard.team-a.validate")).then_some(())
    });
    attempt(
        cluster,
        "own object without the plugin",
        &config_map(TEAM_A, "web", "a"),
        None,
    );
}

/// A plugin that uses all fuel uses up its namespace's budget, and is skipped from then on.
async fn hog_disturbs_nobody(cluster: &Cluster, registry: &Registry, server: &Server) {
    let more =
        json!({"source": format!("oci://{}/tenants/hog:1", registry.host()), "settings": {}});
    answered(
        cluster,
        "fuel hog",
        &tenant(registry, HOG, "hog", &more),
        "Serving",
        "",
    );
    let faults = async |kind: &str| {
        let labels = [("plugin", "team-hog/hog"), ("fault", kind)];
        metric(
            &server.metrics().await,
            "tollgate_plugin_faults_total",
            &labels,
        )
    };
    let began = Instant::now();
    while faults("tenant-budget").await < 3.0 {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "the budget is never used up"
        );
        let said = refusal(cluster, &config_map(HOG, "web", "a"));
        assert_eq!(said, None, "its failurePolicy is Ignore");
        attempt(
            cluster,
            "another namespace beside the hog",
            &config_map(TEAM_A, "web", "a"),
            Some("no from guard"),
        );
        attempt(
            cluster,
            "a plugin of the cluster beside the hog",
            &secret(TEAM_B),
            Some("closed: no"),
        );
    }
    println!(
        "| calls of the hog | {} out of fuel, {} without budget |",
        faults("out-of-fuel").await,
        faults("tenant-budget").await
    );
    assert!(faults("out-of-fuel").await >= 1.0);
    let page = server.metrics().await;
    for (plugin, kind) in [("team-a/guard", "tenant-budget"), ("closed", "deadline")] {
        let labels = [("plugin", plugin), ("fault", kind)];
        assert_eq!(
            metric(&page, "tollgate_plugin_faults_total", &labels),
            0.0,
            "{plugin} {kind}"
        );
    }
}

/// A group of a namespace denies Pods. While a member of its next version is missing, the previous version decides.
#[tokio::test(flavor = "multi_thread")]
async fn group_of_a_namespace_changes_as_a_whole() {
    let Some(registry) = Registry::start() else {
        return;
    };
    let Some(cluster) = ClusterStart::default().start() else {
        return;
    };
    let cluster = &cluster;
    define(cluster);
    for namespace in [SYSTEM, TEAM_A] {
        cluster.namespace(namespace);
    }
    let actor = std::fs::read(guests::build("actor")).expect("the plugin is built");
    let source = |tag: &str| format!("oci://{}/tenants/{tag}:1", registry.host());
    registry.push(&actor, &source("actor"));
    let service = Service::new(cluster, SYSTEM, "gate").await;
    let kubeconfig = service_account(cluster);
    rights_of_tenancy(cluster);
    let server = tokio::task::block_in_place(|| serve(&kubeconfig, &service, &registry));

    let group = |members: Value, message: &str| {
        json!({
            "apiVersion": "tollgate.dev/v1alpha1",
            "kind": "AdmissionPlugin",
            "metadata": {"namespace": TEAM_A, "name": "owned"},
            "spec": {
                "group": {"members": members, "expression": "any", "message": message},
                "match": rules("", &["v1"], &["pods"]),
            },
        })
    };
    let member = |name: &str, tag: &str| json!({"name": name, "source": source(tag), "settings": {"deny": format!("no from {name}")}});
    let denied = |words: &str| {
        let said = refusal(cluster, &pod(TEAM_A, "web"));
        said.filter(|said| said.contains(words))
    };
    let first = json!([member("one", "actor"), member("two", "actor")]);
    apply(cluster, &group(first, "name an owner"));
    let (said, _) = wait_until("the group denies", || denied("name an owner"));
    println!("{said}");
    for words in [
        "team-a/owned: name an owner",
        "one: no from one",
        "two: no from two",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }

    let second = json!([member("one", "actor"), member("three", "late")]);
    apply(cluster, &group(second, "name a team"));
    let place = ["admissionplugin", "owned", "-n", TEAM_A];
    wait_until("the status names the missing member", || {
        let object = get(cluster, &place);
        object["status"]
            .to_string()
            .contains("member three")
            .then_some(())
    });
    for _ in 0..20 {
        assert!(denied("team-a/owned: name an owner").is_some());
    }
    registry.push(&actor, &source("late"));
    wait_until("the next version denies", || {
        denied("team-a/owned: name a team")
    });
    drop(server);
}
