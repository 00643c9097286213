//! An installation whose replicas are all dead, with a plugin for everything under Fail: nodes join, the plugin is
//! repaired, and the installation goes in any order of deletion.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tollgate_kube_apiserver::controllers;
use tollgate_tests::kubernetes::kubectl::Printed;
use tollgate_tests::kubernetes::service::Service;
use tollgate_tests::kubernetes::{Cluster, Start as ClusterStart};
use tollgate_tests::left_out;

use crate::away::NODE_REQUEST;
use crate::fixtures::{config_map, pod};
use crate::installed::{SHOP, SYSTEM, replica, service_account, wait_until};
use crate::plugins_as_resources::{apply, define, get, plugin};

const KINDS: [&str; 2] = [
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
];
/// The chart's objects about rights that are outside the namespace of the installation, without the anchor.
const RIGHTS: [&[&str]; 4] = [
    &["clusterrolebinding", "tollgate"],
    &["clusterrole", "tollgate"],
    &["rolebinding", "tollgate-events", "-n", "default"],
    &["role", "tollgate-events", "-n", "default"],
];
const ANCHOR: &[&str] = &["clusterrole", "tollgate-anchor"];
const NAMESPACE: &[&str] = &["namespace", SYSTEM];
const DEFINITIONS: [&[&str]; 4] = [
    &["crd", "clusteradmissionplugins.tollgate.dev"],
    &["crd", "admissionplugins.tollgate.dev"],
    &["crd", "pluginexceptions.tollgate.dev"],
    &["crd", "canaries.tollgate.dev"],
];

/// A running kube-controller-manager. It ends when this is dropped or the test binary ends.
struct Controllers(Child);

impl Controllers {
    /// Starts the garbage collector and the namespace controller.
    fn start(program: &PathBuf, cluster: &Cluster) -> Self {
        let kubeconfig = cluster.folder().join("kubeconfig").display().to_string();
        let of = |flag: &str| format!("--{flag}={kubeconfig}");
        let child = Command::new("sh")
            .args(["-c", "\"$@\" & read -r line; kill -KILL $!", "guard"])
            .arg(program)
            .args([
                of("kubeconfig"),
                of("authentication-kubeconfig"),
                of("authorization-kubeconfig"),
            ])
            .arg("--controllers=garbage-collector-controller,namespace-controller")
            .args([
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
                "--secure-port=0",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.expect("sh can be run"))
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // An error means that the process has already ended.
        drop(self.0.wait());
    }
}

fn configurations(cluster: &Cluster) -> Vec<Value> {
    let lists = KINDS.map(|kind| get(cluster, &[kind])["items"].as_array().cloned());
    lists.into_iter().flatten().flatten().collect()
}

fn create(cluster: &Cluster, object: &Value) -> Printed {
    cluster.kubectl(&["create", "-f", "-"]).input(object).run()
}

/// Installs Tollgate with a plugin for everything under Fail, and kills the only replica.
async fn install_and_die(cluster: &Cluster) {
    define(cluster);
    cluster.namespace(SYSTEM);
    let service = Service::new(cluster, SYSTEM, "gate").await;
    let kubeconfig = service_account(cluster);
    let admin = json!({"listen": "127.0.0.1:0"});
    let server = tokio::task::block_in_place(|| replica(&kubeconfig, &service, "replica-0", admin));
    let mut everything = plugin("everything", json!({"settings": {}}));
    everything["spec"]["match"] = json!({"rules": [{
        "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"],
    }]});
    apply(cluster, &everything);
    wait_until(
        "the plugin is registered, and the anchor has its owner",
        || {
            let anchor = get(cluster, ANCHOR);
            let is_tied = anchor["metadata"]["ownerReferences"][0]["kind"] == "Namespace";
            (is_tied && configurations(cluster).len() == KINDS.len()).then_some(())
        },
    );
    for configuration in configurations(cluster) {
        let owner = &configuration["metadata"]["ownerReferences"][0];
        assert_eq!(owner["name"], "tollgate-anchor", "{configuration:#}");
    }
    drop(server.kill());
    drop(service);
    wait_until("without a replica, kube-apiserver denies", || {
        let denied = create(cluster, &config_map(SHOP, "probe", ""));
        if denied.succeeded() {
            let delete = ["delete", "configmap", "probe", "-n", SHOP];
            // It may be denied by now. Another look follows.
            drop(cluster.kubectl(&delete).run());
            return None;
        }
        denied
            .errors
            .contains("failed calling webhook")
            .then_some(())
    });
}

/// Nodes join, the plugin is repaired, and Tollgate's own pods start, although everything is under Fail and nobody
/// answers.
#[tokio::test(flavor = "multi_thread")]
async fn dead_installation_with_a_plugin_for_everything_locks_nobody_out() {
    let Some(cluster) = ClusterStart::default().start() else {
        return;
    };
    let cluster = &cluster;
    cluster.namespace(SHOP);
    install_and_die(cluster).await;
    let works = |printed: Printed| assert!(printed.succeeded(), "{printed}");
    let object = |version: &str, kind: &str, spec: Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "joining"}, "spec": spec});
    works(create(cluster, &object("v1", "Node", json!({}))));
    let request = json!({
        "request": STANDARD.encode(NODE_REQUEST),
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["digital signature", "client auth"],
    });
    let certificate = object(
        "certificates.k8s.io/v1",
        "CertificateSigningRequest",
        request,
    );
    works(create(cluster, &certificate));
    works(
        cluster
            .kubectl(&["certificate", "approve", "joining"])
            .run(),
    );
    let driver = json!({"drivers": [{"name": "csi.example.com", "nodeID": "joining"}]});
    works(create(
        cluster,
        &object("storage.k8s.io/v1", "CSINode", driver),
    ));
    let attachment = json!({
        "attacher": "csi.example.com", "nodeName": "joining",
        "source": {"persistentVolumeName": "data"},
    });
    works(create(
        cluster,
        &object("storage.k8s.io/v1", "VolumeAttachment", attachment),
    ));
    let mut lease = object("coordination.k8s.io/v1", "Lease", json!({}));
    lease["metadata"]["namespace"] = json!(SHOP);
    works(create(cluster, &lease));
    works(create(cluster, &pod(SYSTEM, "tollgate")));
    // The plugin is repaired.
    let narrower = json!({"spec": {"failurePolicy": "Ignore"}}).to_string();
    let patch = [
        "patch",
        "clusteradmissionplugin",
        "everything",
        "--type=merge",
        "-p",
        &narrower,
    ];
    works(cluster.kubectl(&patch).run());
    works(
        cluster
            .kubectl(&["delete", "clusteradmissionplugin", "everything"])
            .run(),
    );
    // The names of others are no way around the plugin.
    let others = [
        "create",
        "clusterrole",
        "tollgate-anchors",
        "--verb=get",
        "--resource=pods",
    ];
    assert!(!cluster.kubectl(&others).run().succeeded());
    // An uninstallation without a garbage collector: every deletion passes.
    for object in RIGHTS
        .iter()
        .chain([&ANCHOR])
        .chain(&DEFINITIONS)
        .chain([&NAMESPACE])
    {
        let arguments = [&["delete", "--wait=false"][..], object].concat();
        works(cluster.kubectl(&arguments).run());
    }
    // Nobody collects garbage here, so an administrator deletes what is left. No webhook can keep them from it.
    for kind in [
        "mutatingwebhookconfiguration",
        "validatingwebhookconfiguration",
    ] {
        works(cluster.kubectl(&["delete", kind, "tollgate"]).run());
    }
    wait_until("the cluster works again", || {
        create(cluster, &config_map(SHOP, "after", ""))
            .succeeded()
            .then_some(())
    });
}

/// Kubernetes' garbage collector removes the webhook configurations in each order of deletion, without a replica.
#[tokio::test(flavor = "multi_thread")]
async fn garbage_collector_removes_configurations_in_five_orders() {
    let program = match controllers::find() {
        Ok(program) => program,
        Err(missing) if missing.is_circumstance() => {
            left_out(
                "kube-controller-manager is not built: `cargo xtask kubernetes --controllers` builds it, in some seven minutes of processor time",
            );
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let Some(cluster) = ClusterStart::default().start() else {
        return;
    };
    let cluster = &cluster;
    cluster.namespace(SHOP);
    let _controllers = Controllers::start(&program, cluster);
    let rights: Vec<&[&str]> = RIGHTS.to_vec();
    let definitions: Vec<&[&str]> = DEFINITIONS.to_vec();
    let orders: [(&str, Vec<&[&str]>); 5] = [
        ("helm uninstall", [&rights[..], &[ANCHOR]].concat()),
        ("the namespace alone", vec![NAMESPACE]),
        (
            "the namespace first",
            [&[NAMESPACE], &rights[..], &[ANCHOR]].concat(),
        ),
        (
            "the definitions first",
            [&definitions[..], &[NAMESPACE]].concat(),
        ),
        ("the anchor alone", vec![ANCHOR]),
    ];
    for (name, order) in orders {
        install_and_die(cluster).await;
        for object in order {
            let arguments = [
                &["delete", "--wait=false", "--ignore-not-found"][..],
                object,
            ]
            .concat();
            cluster.kubectl(&arguments).succeed();
        }
        let (_, took) = wait_until(&format!("{name}: the configurations are gone"), || {
            configurations(cluster).is_empty().then_some(())
        });
        println!("{name}: the configurations are gone after {took:?}");
        let probe = format!("after-{}", name.replace(' ', "-"));
        wait_until("the cluster works again", || {
            create(cluster, &config_map(SHOP, &probe, ""))
                .succeeded()
                .then_some(())
        });
        // What the order left.
        let rest = rights
            .iter()
            .chain([&ANCHOR])
            .chain(&definitions)
            .chain([&NAMESPACE]);
        for object in rest {
            let arguments = [
                &["delete", "--ignore-not-found", "--timeout=60s"][..],
                object,
            ]
            .concat();
            let printed = cluster.kubectl(&arguments).run();
            assert!(printed.succeeded(), "{printed}");
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}
