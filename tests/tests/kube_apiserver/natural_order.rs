//! Changes of plugins in the order in which people make them: first the configuration, then the registration. No creation
//! fails meanwhile.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_tests::kubernetes::service::Service;
use tollgate_tests::kubernetes::{Cluster, Start};
use tollgate_tests::server::{Server, until};
use tollgate_tests::{binary, guests};

use crate::creations::{Creations, create, creations, secret};
use crate::fixtures::{act, config_map, configuration, rules};
use crate::installed::{SHOP, SYSTEM, replica, service_account, wait_until};
use crate::plugins_as_resources::{apply, define, get, plugin};

/// The namespace of the objects.
const NAMESPACE: &str = "natural";
const NARROW: &[&str] = &["configmaps"];
const WIDE: &[&str] = &["configmaps", "secrets"];

/// Plugins, each with the resources that it is for.
type Plugins = [(&'static str, &'static [&'static str])];

/// A change: its name, the plugins after it, and whether each plugin then has its own webhook.
type Change = (&'static str, &'static Plugins, bool);

/// Every kind of change, with one webhook for all plugins and with one for each.
const CHANGES: &[Change] = &[
    ("add", &[("first", NARROW), ("second", NARROW)], false),
    ("widen", &[("first", WIDE), ("second", NARROW)], false),
    ("narrow", &[("first", NARROW), ("second", NARROW)], false),
    (
        "one for each",
        &[("first", NARROW), ("second", NARROW)],
        true,
    ),
    ("remove, one for each", &[("first", NARROW)], true),
    (
        "add, one for each",
        &[("first", NARROW), ("third", NARROW)],
        true,
    ),
    (
        "widen, one for each",
        &[("first", NARROW), ("third", WIDE)],
        true,
    ),
    (
        "narrow, one for each",
        &[("first", NARROW), ("third", NARROW)],
        true,
    ),
    (
        "one for all",
        &[("first", NARROW), ("third", NARROW)],
        false,
    ),
    ("remove", &[("first", NARROW)], false),
];

/// The label that a plugin sets.
fn settings(name: &str) -> Value {
    json!({"set": {format!("/metadata/labels/{name}"): "yes"}})
}

/// Changes the configuration file in one step.
fn configure(server: &Server, plugins: &Plugins) {
    let path = server.configuration().path();
    let text = std::fs::read(&path).expect("the configuration is there");
    let mut root: Value = serde_json::from_slice(&text).expect("the suites write it as JSON");
    let source = format!("file:{}", guests::build("actor").display());
    let entry = |(name, resources): &(&'static str, &'static [&'static str])| {
        json!({
            "name": name, "source": source, "settings": settings(name),
            "match": rules(NAMESPACE, &[""], resources),
        })
    };
    root["plugins"] = plugins.iter().map(entry).collect();
    let new = path.with_extension("new");
    std::fs::write(&new, root.to_string()).expect("written");
    std::fs::rename(&new, &path).expect("renamed");
}

/// Applies what `tollgate manifests` prints.
fn register(cluster: &Cluster, server: &Server, per_plugin: bool) {
    let mut command = Command::new(binary::tollgate());
    command
        .args(["manifests", "--name", "natural", "--url", &server.url("")])
        .arg("--config")
        .arg(server.configuration().path());
    if per_plugin {
        command.arg("--per-plugin");
    }
    let output = command.output().expect("tollgate can be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tollgate manifests: {errors}");
    let printed = String::from_utf8_lossy(&output.stdout);
    cluster
        .kubectl(&["apply", "-f", "-"])
        .text(&printed)
        .succeed();
}

/// Waits until exactly these plugins serve. Changed rules may take effect later.
async fn until_served(server: &Server, names: &[&str]) {
    let what = format!("{names:?} serve");
    until(&what, async || {
        let page = server.get_admin("/plugins").await.json();
        let plugins = page["plugins"].as_array().cloned().unwrap_or_default();
        let loaded: Vec<&str> = plugins
            .iter()
            .filter(|plugin| plugin["state"] == "loaded")
            .filter_map(|plugin| plugin["name"].as_str())
            .collect();
        loaded == names && plugins.len() == names.len()
    })
    .await;
}

/// Whether exactly these plugins change an object.
async fn is_changed_by(cluster: &Cluster, object: &Value, names: &[&str]) -> bool {
    let (status, answer) = create(cluster, object).await;
    let labels = answer["metadata"]["labels"].as_object();
    let labels: Vec<&str> = labels
        .into_iter()
        .flat_map(|labels| labels.keys().map(String::as_str))
        .collect();
    status == 201 && labels == names
}

/// Waits until ConfigMaps and Secrets are changed by the plugins whose rules match them.
async fn until_in_force(cluster: &Cluster, namespace: &str, plugins: &Plugins) {
    let objects = [
        ("configmaps", config_map(namespace, "probe", "a")),
        ("secrets", secret(namespace, "probe")),
    ];
    for (resource, object) in &objects {
        let mut names: Vec<&str> = plugins
            .iter()
            .filter(|(_, resources)| resources.contains(resource))
            .map(|(name, _)| *name)
            .collect();
        names.sort_unstable();
        let what = format!("{resource} are changed by {names:?}");
        until(&what, async || is_changed_by(cluster, object, &names).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_configuration_and_then_manifests_fail_no_creation() {
    let Some(cluster) = Start::default().start() else {
        return;
    };
    let cluster = Arc::new(cluster);
    cluster.namespace(NAMESPACE);
    let mut first = configuration();
    let maps = rules(NAMESPACE, &[""], NARROW);
    act(&mut first, "first", maps, settings("first"));
    let server = Server::start(first);
    server.assert_all_loaded().await;
    register(&cluster, &server, false);
    until_in_force(&cluster, NAMESPACE, &[("first", NARROW)]).await;
    let load = Creations::start(&cluster, NAMESPACE);
    let count = creations();
    for (what, plugins, per_plugin) in CHANGES {
        let before = load.answered();
        configure(&server, plugins);
        let names: Vec<&str> = plugins.iter().map(|(name, _)| *name).collect();
        until_served(&server, &names).await;
        register(&cluster, &server, *per_plugin);
        until_in_force(&cluster, NAMESPACE, plugins).await;
        load.until(before, count).await;
        println!("{what}: {} creations", load.answered() - before);
    }
    load.assert_unfelt(&cluster).await;
}

/// The installation registers itself: the configuration is custom resources, and the registrar is the second one to
/// change.
#[tokio::test(flavor = "multi_thread")]
async fn changed_custom_resources_fail_no_creation() {
    let Some(cluster) = Start::default().start() else {
        return;
    };
    let cluster = Arc::new(cluster);
    define(&cluster);
    cluster.namespace(SYSTEM);
    cluster.namespace(SHOP);
    let service = Service::new(&cluster, SYSTEM, "gate").await;
    let kubeconfig = service_account(&cluster);
    let admin = json!({"listen": "127.0.0.1:0"});
    let begin = |name: &str| {
        tokio::task::block_in_place(|| replica(&kubeconfig, &service, name, admin.clone()))
    };
    let _replicas = [begin("replica-0"), begin("replica-1")];
    let put = |name: &str, resources: &[&str]| {
        let mut resource = plugin(name, json!({"settings": settings(name)}));
        resource["spec"]["match"] = rules(SHOP, &[""], resources);
        apply(&cluster, &resource);
    };
    put("first", NARROW);
    until_in_force(&cluster, SHOP, &[("first", NARROW)]).await;
    let load = Creations::start(&cluster, SHOP);
    let count = creations();
    let changes: [(&str, &Plugins); 4] = [
        ("add", &[("first", NARROW), ("second", NARROW)]),
        ("widen", &[("first", NARROW), ("second", WIDE)]),
        ("narrow", &[("first", NARROW), ("second", NARROW)]),
        ("remove", &[("first", NARROW)]),
    ];
    for (what, plugins) in changes {
        let before = load.answered();
        match plugins.iter().find(|(name, _)| *name == "second") {
            Some((name, resources)) => put(name, resources),
            None => drop(
                cluster
                    .kubectl(&["delete", "clusteradmissionplugin", "second"])
                    .succeed(),
            ),
        }
        until_in_force(&cluster, SHOP, plugins).await;
        wait_until("what is registered has settled", || {
            let list = get(&cluster, &["mutatingwebhookconfigurations"]);
            let rules = list["items"][0]["webhooks"][0]["rules"].to_string();
            let is_wide = plugins.iter().any(|(_, resources)| *resources == WIDE);
            (rules.contains("secrets") == is_wide).then_some(())
        });
        load.until(before, count).await;
        println!("{what}: {} creations", load.answered() - before);
    }
    // kube-apiserver may still call what it has learnt last.
    tokio::time::sleep(Duration::from_secs(1)).await;
    load.assert_unfelt(&cluster).await;
}
