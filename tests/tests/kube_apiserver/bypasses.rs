//! Ways to bypass a plugin that kube-apiserver leaves open unless the webhook prevents them.

use reqwest::Method;
use serde_json::{Value, json};
use tollgate_tests::cluster_or_skip;
use tollgate_tests::kubernetes::Cluster;
use tollgate_tests::kubernetes::kubectl::Printed;

use crate::fixtures::{act, act_with, config_map, configuration, path_of, rules, rules_for, serve};

fn create(cluster: &Cluster, object: &Value) -> Printed {
    cluster.kubectl(&["create", "-f", "-"]).input(object).run()
}

#[track_caller]
fn works(printed: &Printed) {
    assert!(printed.succeeded(), "{printed}");
}

/// If one rule of a webhook matches the object as sent, kube-apiserver does not convert it.
#[tokio::test(flavor = "multi_thread")]
async fn other_api_version_does_not_bypass_plugin() {
    let cluster = cluster_or_skip!();
    let namespace = "bypass-version";
    cluster.namespace(namespace);
    let mut configuration = configuration();
    let of_hpas = |versions: &[&str]| {
        let mut matched = rules(namespace, &["autoscaling"], &["horizontalpodautoscalers"]);
        matched["rules"][0]["apiVersions"] = json!(versions);
        matched
    };
    act(
        &mut configuration,
        "hpa-limit",
        of_hpas(&["v2"]),
        json!({"deny": "no autoscalers here"}),
    );
    act(
        &mut configuration,
        "labels",
        of_hpas(&["*"]),
        json!({"warn": "hello"}),
    );
    let autoscaler = |version: &str| {
        json!({
            "apiVersion": format!("autoscaling/{version}"),
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {
                "maxReplicas": 1000,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            },
        })
    };
    let _served = serve(cluster, namespace, configuration, &[], &autoscaler("v2")).await;
    for version in ["v1", "v2"] {
        create(cluster, &autoscaler(version)).assert_failed(&["hpa-limit: no autoscalers here"]);
    }
}

/// A user who may write finalizers can keep an object for any time.
#[tokio::test(flavor = "multi_thread")]
async fn finalizer_does_not_bypass_plugin() {
    let cluster = cluster_or_skip!();
    let namespace = "bypass-finalizer";
    cluster.namespace(namespace);
    let mut configuration = configuration();
    let group = "rbac.authorization.k8s.io";
    let updates = rules_for(namespace, &["UPDATE"], &[group], &["rolebindings"]);
    let settings = json!({"deny": "only the platform team may change this"});
    act(&mut configuration, "lock", updates, settings);
    let probes = rules(namespace, &[""], &["configmaps"]);
    act(&mut configuration, "allowed", probes, json!({}));
    let probe = config_map(namespace, "probe", "");
    let _served = serve(cluster, namespace, configuration, &[], &probe).await;
    let binding = json!({
        "apiVersion": format!("{group}/v1"),
        "kind": "RoleBinding",
        "metadata": {"name": "readers", "namespace": namespace, "finalizers": ["example.com/keep"]},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "alice"}],
    });
    works(&create(cluster, &binding));
    let on = |arguments: &[&str]| {
        let arguments = [&["-n", namespace], arguments].concat();
        cluster.kubectl(&arguments).run()
    };
    works(&on(&["delete", "rolebinding", "readers", "--wait=false"]));
    let patch = |patch: &str| {
        on(&[
            "patch",
            "rolebinding",
            "readers",
            "--type=merge",
            "-p",
            patch,
        ])
    };
    let mallory =
        r#"{"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"mallory"}]}"#;
    for refused in [mallory, r#"{"metadata":{"labels":{"aggregate":"yes"}}}"#] {
        patch(refused).assert_failed(&["lock: only the platform team may change this"]);
    }
    works(&patch(r#"{"metadata":{"finalizers":null}}"#));
    on(&["get", "rolebinding", "readers"]).assert_failed(&["NotFound"]);
}

/// An update without a resourceVersion applies to the newest object, whichever version its author has read.
#[tokio::test(flavor = "multi_thread")]
async fn plugin_cannot_turn_off_conflict_check() {
    let cluster = cluster_or_skip!();
    let namespace = "bypass-conflict";
    cluster.namespace(namespace);
    let mut configuration = configuration();
    act_with(
        &mut configuration,
        "careless",
        rules_for(namespace, &["UPDATE"], &[""], &["configmaps"]),
        json!({"set": {"/metadata/resourceVersion": ""}}),
        json!({"failurePolicy": "Ignore"}),
    );
    let probes = rules(namespace, &[""], &["configmaps"]);
    act(&mut configuration, "allowed", probes, json!({}));
    let probe = config_map(namespace, "probe", "");
    let _served = serve(cluster, namespace, configuration, &[], &probe).await;
    let all = path_of(&probe);
    let one = format!("{all}/counter");
    let counter = config_map(namespace, "counter", "1");
    let (status, mut first) = cluster.request(Method::POST, &all, Some(&counter)).await;
    assert_eq!(status, 201, "{first}");
    let mut second = first.clone();
    second["data"]["value"] = json!("2");
    let (status, answer) = cluster.request(Method::PUT, &one, Some(&second)).await;
    assert_eq!(status, 200, "{answer}");
    first["data"]["value"] = json!("a number of somebody who has not seen the 2");
    let (status, answer) = cluster.request(Method::PUT, &one, Some(&first)).await;
    assert_eq!(status, 409, "{answer}");
}
