//! Operations that still work in a cluster while the host is unavailable.

use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tollgate_tests::kubernetes::kubectl::Printed;
use tollgate_tests::kubernetes::service::Service;
use tollgate_tests::kubernetes::{Registration, Start};
use tollgate_tests::server::Server;
use tollgate_tests::{cluster_or_skip, hostile};

use crate::fixtures::{act_with, config_map, configuration, path_of, pod, rules, shows};

#[tokio::test(flavor = "multi_thread")]
async fn without_replicas_fail_denies_and_ignore_allows() {
    let cluster = cluster_or_skip!();
    for (namespace, failure_policy) in [("away-fail", "Fail"), ("away-ignore", "Ignore")] {
        let system = format!("{namespace}-system");
        cluster.namespace(namespace);
        cluster.namespace(&system);
        let shared = tempfile::tempdir().expect("a temporary folder can be made");
        let replica = || {
            let self_signed =
                json!({"directory": shared.path(), "service": format!("gate.{system}")});
            let tls = json!({"selfSigned": self_signed});
            let mut configuration = configuration().with("tls", tls);
            act_with(
                &mut configuration,
                "team",
                rules(namespace, &[""], &["configmaps"]),
                json!({"set": {"/metadata/labels/team": "shop"}}),
                json!({"failurePolicy": failure_policy}),
            );
            Server::start(configuration)
        };
        let replicas = [replica(), replica()];
        let service = Service::new(cluster, &system, "gate").await;
        for replica in &replicas {
            service.add(replica.address());
        }
        let address = format!("{system}/gate:{}", service.port());
        let arguments = ["--service", &address];
        let registration = Registration::apply(cluster, &replicas[0], namespace, &arguments);
        let probe = config_map(namespace, "probe", "");
        let servers = [&replicas[0], &replicas[1]];
        registration
            .wait_for_effect(&servers, (&path_of(&probe), &probe))
            .await;
        let create = |name: &str| {
            let create = cluster.kubectl(&["create", "-f", "-"]);
            create.input(&config_map(namespace, name, "")).run()
        };
        let team = |name: &str| {
            let get = [
                "get",
                "configmap",
                name,
                "-n",
                namespace,
                "-o",
                "jsonpath={.metadata.labels.team}",
            ];
            cluster.kubectl(&get).succeed()
        };
        assert!(create("before").succeeded());
        assert_eq!(team("before"), "shop");

        for replica in replicas {
            service.remove(replica.address());
            assert!(replica.stop().status.success());
        }
        let without = create("without");
        if failure_policy == "Fail" {
            without.assert_failed(&[
                "Error from server (InternalError)",
                "failed calling webhook \"mutate.tollgate.dev\"",
            ]);
        } else {
            assert!(without.succeeded(), "{without}");
            assert_eq!(team("without"), "");
            let entries = cluster.audit(|entry| {
                entry["objectRef"]["namespace"] == namespace
                    && entry["objectRef"]["name"] == "without"
            });
            for phase in ["mutation", "validating"] {
                // The rest of the key is the index of the webhook among those of all tests.
                let key = format!("\"failed-open.{phase}.webhook.admission.k8s.io/round_0_index_");
                let annotations = entries[0]["annotations"].to_string();
                assert!(annotations.contains(&key), "{key} is not in {annotations}");
            }
        }

        let back = replica();
        service.add(back.address());
        let after = create("after");
        assert!(after.succeeded(), "{after}");
        assert_eq!(team("after"), "shop");
    }
}

/// kubelet's certificate request for a node. No test has the key.
pub(crate) const NODE_REQUEST: &str = "-----BEGIN CERTIFICATE REQUEST-----
MIHwMIGXAgEAMDUxFTATBgNVBAoMDHN5c3RlbTpub2RlczEcMBoGA1UEAwwTc3lz
dGVtOm5vZGU6am9pbmluZzBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABAnc9CEI
1f838Hm5dWwcZo3Kebn2VZNhemHyq7rKFP+UOKR/7OSExdz6+9InDU/p9Mdt6cg4
Y9vhZ1ONJ0nfMrygADAKBggqhkjOPQQDAgNIADBFAiEAz4YxwJanZRZslYTJBESj
lOkNecdaMNulqPo6LCL91dACID4EE74Zows2ItPNHFlmyiEgsCcBH2P8vRzfKZFl
Mhf1
-----END CERTIFICATE REQUEST-----
";

/// A plugin for all resources under Fail, without a replica: nodes can still join the cluster.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_join_cluster_without_replicas() {
    let Some(cluster) = Start::default().start() else {
        return;
    };
    cluster.namespace("shop");
    let mut configuration = configuration();
    configuration.plugin_of("everything", &hostile::harmless(), json!({}));
    let server = Server::start(configuration);
    let registration = Registration::apply(&cluster, &server, "tollgate", &[]);
    let probe = config_map("shop", "probe", "");
    registration
        .wait_for_effect(&[&server], (&path_of(&probe), &probe))
        .await;
    assert!(server.stop().status.success());

    let run = |arguments: &[&str]| cluster.kubectl(arguments).run();
    let create = |object: &Value| {
        let create = cluster.kubectl(&["create", "-f", "-"]);
        create.input(object).run()
    };
    let denied = |printed: Printed| {
        printed.assert_failed(&["failed calling webhook \"mutate.tollgate.dev\""]);
    };
    let works = |printed: Printed| assert!(printed.succeeded(), "{printed}");
    denied(create(&config_map("shop", "web", "")));
    denied(run(&["create", "namespace", "new"]));

    let object = |version: &str, kind: &str, spec: Value| {
        let metadata = json!({"name": "joining"});
        json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
    };
    works(create(&object(
        "certificates.k8s.io/v1",
        "CertificateSigningRequest",
        json!({
            "request": STANDARD.encode(NODE_REQUEST),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        }),
    )));
    works(run(&["certificate", "approve", "joining"]));
    works(create(&object("v1", "Node", json!({}))));
    let ready = r#"{"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
    works(run(&[
        "patch",
        "node",
        "joining",
        "--subresource=status",
        "--type=merge",
        "-p",
        ready,
    ]));
    works(create(&object(
        "storage.k8s.io/v1",
        "CSINode",
        json!({"drivers": [{"name": "csi.example.com", "nodeID": "joining"}]}),
    )));
    works(create(&object(
        "storage.k8s.io/v1",
        "VolumeAttachment",
        json!({
            "attacher": "csi.example.com",
            "nodeName": "joining",
            "source": {"persistentVolumeName": "data"},
        }),
    )));
    let mut lease = object("coordination.k8s.io/v1", "Lease", json!({}));
    lease["metadata"]["namespace"] = json!("shop");
    works(create(&lease));
    // No node needs this subresource to join. It gives access to the node's containers.
    denied(run(&["get", "--raw", "/api/v1/nodes/joining/proxy/pods"]));
}

/// A plugin for all objects that never reaches a verdict, under Fail: nobody can change anything.
#[tokio::test(flavor = "multi_thread")]
async fn administrator_can_repair_cluster_that_denies_everything() {
    let Some(cluster) = Start::default().start() else {
        return;
    };
    for namespace in ["shop", "tollgate-system"] {
        cluster.namespace(namespace);
    }
    let self_signed = |folder: &Path| {
        let directory = folder.join("tls");
        json!({"selfSigned": {"directory": directory, "service": "tollgate.tollgate-system"}})
    };
    let mut configuration = configuration();
    let tls = self_signed(configuration.folder());
    configuration = configuration.with("tls", tls);
    let limits = json!({"timeout": "300ms", "cpuTime": "200ms"});
    let spinning = &hostile::all()["validate-loop"];
    configuration.plugin_of("spinning", spinning, json!({"limits": limits}));
    let server = Server::start(configuration);
    let service = Service::new(&cluster, "tollgate-system", "tollgate").await;
    service.add(server.address());
    let address = format!("tollgate-system/tollgate:{}", service.port());
    let registration = Registration::apply(&cluster, &server, "tollgate", &["--service", &address]);
    let probe = config_map("shop", "probe", "");
    registration
        .wait_for_effect(&[&server], (&path_of(&probe), &probe))
        .await;

    let run = |arguments: &[&str]| cluster.kubectl(arguments).run();
    let create = |object, arguments: &[&str]| {
        let arguments = [&["create", "-f", "-"], arguments].concat();
        cluster.kubectl(&arguments).input(&object).run()
    };
    let failed = |printed: Printed| {
        printed.assert_failed(&["spinning failed (", "failurePolicy Fail)"]);
    };
    failed(create(pod("shop", "web"), &[]));
    failed(run(&["create", "namespace", "new"]));
    failed(run(&[
        "create",
        "clusterrole",
        "reader",
        "--verb=get",
        "--resource=pods",
    ]));
    failed(run(&["label", "namespace", "shop", "stage=test"]));

    let works = |printed: Printed| {
        assert!(printed.succeeded(), "{printed}");
        printed.to_string()
    };
    let break_glass = [
        "--as=administrator",
        "--as-group=system:masters",
        "--as-group=tollgate:break-glass",
    ];
    let with_glass = |arguments: &[&str]| run(&[arguments, &break_glass].concat());
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "leader", "namespace": "shop"},
    });
    let repairs = [
        // The cluster's own components and the host keep working.
        works(create(pod("kube-system", "dns"), &[])),
        works(create(
            config_map("tollgate-system", "tollgate", "new"),
            &[],
        )),
        works(create(lease, &[])),
        // A user who may impersonate the group can bypass the policies with one command.
        works(create(pod("shop", "web"), &break_glass)),
        works(with_glass(&["label", "namespace", "shop", "stage=test"])),
        works(with_glass(&[
            "delete",
            "pod",
            "web",
            "-n",
            "shop",
            "--grace-period=0",
            "--force",
        ])),
        // Remove all policies: webhook configurations are never sent to webhooks.
        works(run(&[
            "delete",
            "validatingwebhookconfiguration",
            "tollgate",
        ])),
    ];
    shows("repairs", repairs.join("\n"));
    let deadline = Instant::now() + Duration::from_secs(30);
    while !create(pod("shop", "web"), &[]).succeeded() {
        assert!(Instant::now() < deadline, "the webhook is still called");
    }
}
