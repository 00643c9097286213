//! Kubernetes' own webhook tests that concern the answer of a webhook. README.md lists them all.
//!
//! Each test names its upstream test. The webhooks of the upstream tests are plugins here.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::kubernetes::authority::Authority;
use tollgate_tests::kubernetes::kubectl::Printed;
use tollgate_tests::kubernetes::{Cluster, Registration};
use tollgate_tests::server::{Server, metric};
use tollgate_tests::{cluster_or_skip, hostile};

use crate::custom_resources;
use crate::fixtures::{
    act, act_with, config_map, configuration, labelled, path_of, pod, rules, rules_for, serve, when,
};

fn create(cluster: &Cluster, object: &Value) -> Printed {
    cluster.kubectl(&["create", "-f", "-"]).input(object).run()
}

fn get(cluster: &Cluster, namespace: &str, resource: &str, name: &str, path: &str) -> String {
    let path = format!("jsonpath={path}");
    let get = ["get", resource, name, "-n", namespace, "-o", &path];
    cluster.kubectl(&get).succeed()
}

#[track_caller]
fn works(printed: &Printed) {
    assert!(printed.succeeded(), "{printed}");
}

/// webhook.go: should be able to deny pod and configmap creation.
#[tokio::test(flavor = "multi_thread")]
async fn denies_pods_and_config_maps() {
    let cluster = cluster_or_skip!();
    let namespace = "upstream-deny";
    cluster.namespace(namespace);
    cluster.namespace("upstream-deny-skipped");
    let mut configuration = configuration();
    let pods = || rules(namespace, &[""], &["pods"]);
    act(
        &mut configuration,
        "pods",
        pods(),
        json!({"forbid": {
            "/spec/containers/*/name": "webhook-disallow",
            "/metadata/labels/webhook-e2e-test": "webhook-disallow",
        }}),
    );
    let maps = rules(namespace, &[""], &["configmaps"]);
    act(
        &mut configuration,
        "config-maps",
        maps,
        json!({"forbid_at_all": {"/data/value": "webhook-disallow"}}),
    );
    let hangs = when(pods(), "object.metadata.name == 'hangs'");
    configuration.plugin_of(
        "hanging",
        &hostile::all()["wasi-sleep"],
        json!({"match": hangs, "limits": {"timeout": "500ms"}}),
    );
    let probe = pod(namespace, "probe");
    let _served = serve(cluster, namespace, configuration, &[], &probe).await;

    let mut disallowed = labelled(
        pod(namespace, "disallowed"),
        json!({"webhook-e2e-test": "webhook-disallow"}),
    );
    disallowed["spec"]["containers"][0]["name"] = json!("webhook-disallow");
    create(cluster, &disallowed).assert_failed(&[
        "spec.containers[0].name: webhook-disallow is not wanted",
        "metadata.labels[webhook-e2e-test]: webhook-disallow is not wanted",
    ]);
    create(cluster, &pod(namespace, "hangs")).assert_failed(&["webhook", "deadline"]);
    let got = cluster
        .kubectl(&["get", "pod", "hangs", "-n", namespace])
        .run();
    got.assert_failed(&["NotFound"]);

    let denied = ["config-maps: webhook-disallow is not wanted"];
    let map = |value: &str| config_map(namespace, "admitted", value);
    create(cluster, &map("webhook-disallow")).assert_failed(&denied);
    works(&create(cluster, &map("admit")));
    let put = cluster
        .kubectl(&["replace", "-f", "-"])
        .input(&map("webhook-disallow"));
    put.run().assert_failed(&denied);
    let patch = r#"{"data":{"value":"webhook-disallow"}}"#;
    let patch = [
        "patch",
        "configmap",
        "admitted",
        "-n",
        namespace,
        "--type=strategic",
        "-p",
        patch,
    ];
    cluster.kubectl(&patch).run().assert_failed(&denied);
    let elsewhere = config_map("upstream-deny-skipped", "admitted", "webhook-disallow");
    works(&create(cluster, &elsewhere));
}

/// webhook.go: should be able to deny custom resource creation, update and deletion.
#[tokio::test(flavor = "multi_thread")]
async fn denies_custom_resources() {
    let cluster = cluster_or_skip!();
    let namespace = "upstream-custom-deny";
    cluster.namespace(namespace);
    custom_resources::define(cluster, "deny.example.com", "widget", &["v1"]);
    let group = ["deny.example.com"];
    let mut configuration = configuration();
    let changes = rules(namespace, &group, &["widgets"]);
    act(
        &mut configuration,
        "data",
        changes,
        json!({"forbid_at_all": {"/data/webhook-e2e-test": "webhook-disallow"}}),
    );
    let deletions = rules_for(namespace, &["DELETE"], &group, &["widgets"]);
    let kept = "oldObject.?data[?'webhook-e2e-test'].orValue('') == 'webhook-nondeletable'";
    act(
        &mut configuration,
        "deletion",
        when(deletions, kept),
        json!({"deny": "it cannot be deleted because it contains unwanted key and value"}),
    );
    let widget = |name: &str, value: &str| {
        json!({
            "apiVersion": "deny.example.com/v1",
            "kind": "Widget",
            "metadata": {"name": name, "namespace": namespace},
            "data": {"webhook-e2e-test": value},
        })
    };
    let _served = serve(cluster, namespace, configuration, &[], &widget("probe", "")).await;

    let denied = ["data: webhook-disallow is not wanted"];
    create(cluster, &widget("first", "webhook-disallow")).assert_failed(&denied);
    works(&create(cluster, &widget("second", "webhook-nondeletable")));
    let set = |value: &str| {
        let patch = json!({"data": {"webhook-e2e-test": value}}).to_string();
        let patch = [
            "patch",
            "widget",
            "second",
            "-n",
            namespace,
            "--type=merge",
            "-p",
            &patch,
        ];
        cluster.kubectl(&patch).run()
    };
    set("webhook-disallow").assert_failed(&denied);
    let delete = || {
        cluster
            .kubectl(&["delete", "widget", "second", "-n", namespace])
            .run()
    };
    delete().assert_failed(&["deletion: it cannot be deleted because it contains unwanted"]);
    works(&set("webhook-allow"));
    works(&delete());
}

/// webhook.go: should unconditionally reject operations on fail closed webhook; broken_webhook_test.go.
#[tokio::test(flavor = "multi_thread")]
async fn untrusted_host_denies_under_fail() {
    let cluster = cluster_or_skip!();
    let namespace = "upstream-fail-closed";
    cluster.namespace(namespace);
    let mut configuration = configuration();
    act(
        &mut configuration,
        "any",
        rules(namespace, &[""], &["configmaps"]),
        json!({}),
    );
    let server = Server::start(configuration);
    let another = Authority::new("another CA");
    let ca = server.configuration().folder().join("another.pem");
    std::fs::write(&ca, another.certificate()).expect("written");
    let arguments = ["--ca", &ca.display().to_string()];
    let _registration = Registration::apply(cluster, &server, namespace, &arguments);
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut attempt = 0;
    let refused = loop {
        attempt += 1;
        let created = create(
            cluster,
            &config_map(namespace, &format!("map-{attempt}"), ""),
        );
        if !created.succeeded() {
            break created;
        }
        assert!(Instant::now() < deadline, "it is not in effect");
    };
    refused.assert_failed(&[
        "InternalError",
        "failed calling webhook",
        "unknown authority",
    ]);
    let failures = metric(
        &server.metrics().await,
        "tollgate_tls_handshake_failures_total",
        &[],
    );
    assert!(failures >= 1.0, "the host does not count failed handshakes");
}

/// webhook.go: should mutate configmap; should mutate everything except 'skip-me' configmaps.
#[tokio::test(flavor = "multi_thread")]
async fn mutates_config_maps_in_stages() {
    let cluster = cluster_or_skip!();
    let namespace = "upstream-mutate";
    cluster.namespace(namespace);
    let mut configuration = configuration();
    for (stage, after) in [
        ("stage-1", "mutation-start"),
        ("stage-2", "mutation-stage-1"),
    ] {
        let maps = rules(namespace, &[""], &["configmaps"]);
        let expression = format!("object.metadata.name != 'skip-me' && '{after}' in object.data");
        let settings = json!({"set": {format!("/data/mutation-{stage}"): "yes"}});
        act(&mut configuration, stage, when(maps, &expression), settings);
    }
    let map = |name: &str| {
        let mut map = config_map(namespace, name, "");
        map["data"] = json!({"mutation-start": "yes"});
        map
    };
    let _served = serve(cluster, namespace, configuration, &[], &map("probe")).await;
    for (name, data) in [
        (
            "mutated",
            json!({"mutation-start": "yes", "mutation-stage-1": "yes", "mutation-stage-2": "yes"}),
        ),
        ("skip-me", json!({"mutation-start": "yes"})),
    ] {
        works(&create(cluster, &map(name)));
        let stored = get(cluster, namespace, "configmap", name, "{.data}");
        assert_eq!(serde_json::from_str::<Value>(&stored).expect("JSON"), data);
    }
}

/// webhook.go: should mutate pod and apply defaults after mutation.
#[tokio::test(flavor = "multi_thread")]
async fn injected_container_gets_defaults() {
    let cluster = cluster_or_skip!();
    let namespace = "upstream-defaults";
    cluster.namespace(namespace);
    let mut configuration = configuration();
    let added = json!([{"name": "webhook-added-init-container", "image": "webhook-added-image"}]);
    let pods = rules_for(namespace, &["CREATE"], &[""], &["pods"]);
    act(
        &mut configuration,
        "init",
        pods,
        json!({"set_values": {"/spec/initContainers": added}}),
    );
    let probe = pod(namespace, "probe");
    let _served = serve(cluster, namespace, configuration, &[], &probe).await;
    works(&create(cluster, &pod(namespace, "web")));
    let container = get(
        cluster,
        namespace,
        "pod",
        "web",
        "{.spec.initContainers[0]}",
    );
    let container: Value = serde_json::from_str(&container).expect("JSON");
    assert_eq!(container["name"], "webhook-added-init-container");
    assert_eq!(container["terminationMessagePolicy"], "File", "{container}");
    assert_eq!(container["imagePullPolicy"], "Always", "{container}");
}

/// webhook.go: should not be able to mutate or prevent deletion of webhook configuration objects.
#[tokio::test(flavor = "multi_thread")]
async fn webhooks_cannot_deny_webhook_configurations() {
    let cluster = cluster_or_skip!();
    let namespace = "upstream-configurations";
    cluster.namespace(namespace);
    let mut configuration = configuration();
    let configurations = [
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ];
    let all = rules_for(
        namespace,
        &["*"],
        &["admissionregistration.k8s.io"],
        &configurations,
    );
    let settings =
        json!({"deny": "nobody touches these", "set": {"/metadata/labels/touched": "yes"}});
    act(&mut configuration, "jealous", all, settings);
    act(
        &mut configuration,
        "any",
        rules(namespace, &[""], &["configmaps"]),
        json!({}),
    );
    let probe = config_map(namespace, "probe", "");
    let _served = serve(cluster, namespace, configuration, &[], &probe).await;
    for kind in [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ] {
        let name = "upstream-dummy";
        let dummy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": [],
        });
        works(&create(cluster, &dummy));
        let labels = cluster.kubectl(&["get", kind, name, "-o", "jsonpath={.metadata.labels}"]);
        assert_eq!(labels.succeed(), "");
        works(&cluster.kubectl(&["delete", kind, name]).run());
    }
}

/// webhook.go: should mutate custom resource; with pruning; with different stored version.
#[tokio::test(flavor = "multi_thread")]
async fn mutates_custom_resources() {
    let cluster = cluster_or_skip!();
    let namespace = "upstream-custom";
    cluster.namespace(namespace);
    let group = "mutate.example.com";
    custom_resources::define(cluster, group, "whole", &["v1", "v2"]);
    let known = json!({"type": "string"});
    let properties = json!({"mutation-start": known, "mutation-stage-1": known});
    let data = json!({"type": "object", "properties": properties});
    let schema = json!({"type": "object", "properties": {"data": data}});
    let pruned = custom_resources::definition(group, "pruned", &["v1"], &schema);
    custom_resources::apply(cluster, &pruned);
    let mut configuration = configuration();
    for stage in ["mutation-stage-1", "mutation-stage-2"] {
        let both = rules(namespace, &[group], &["wholes", "pruneds"]);
        act(
            &mut configuration,
            stage,
            both,
            json!({"set": {format!("/data/{stage}"): "yes"}}),
        );
    }
    let resource = |kind: &str, name: &str| {
        json!({
            "apiVersion": format!("{group}/v1"),
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace},
            "data": {"mutation-start": "yes"},
        })
    };
    let probe = resource("Whole", "probe");
    let _served = serve(cluster, namespace, configuration, &[], &probe).await;
    let stored = |resource: &str, path: &str| {
        let text = get(cluster, namespace, resource, "first", path);
        serde_json::from_str::<Value>(&text).unwrap_or(Value::String(text))
    };
    let whole =
        json!({"mutation-start": "yes", "mutation-stage-1": "yes", "mutation-stage-2": "yes"});
    works(&create(cluster, &resource("Whole", "first")));
    assert_eq!(stored("wholes", "{.data}"), whole);
    works(&create(cluster, &resource("Pruned", "first")));
    let without = json!({"mutation-start": "yes", "mutation-stage-1": "yes"});
    assert_eq!(stored("pruneds", "{.data}"), without);

    custom_resources::define(cluster, group, "whole", &["v2", "v1"]);
    let patch = r#"[{"op":"add","path":"/dummy","value":"test"}]"#;
    let in_v2 = format!("wholes.v2.{group}");
    let patch = [
        "patch",
        &in_v2,
        "first",
        "-n",
        namespace,
        "--type=json",
        "-p",
        patch,
    ];
    works(&cluster.kubectl(&patch).run());
    assert_eq!(stored(&in_v2, "{.data}"), whole);
    assert_eq!(stored(&in_v2, "{.dummy}"), "test");
}

/// mutating_webhook_gvk_conversion_test.go: Test_MutatingWebhookConvertsGVKWithMatchPolicyEquivalent.
#[tokio::test(flavor = "multi_thread")]
async fn converts_object_to_version_of_rules() {
    let cluster = cluster_or_skip!();
    let namespace = "upstream-conversion";
    cluster.namespace(namespace);
    let group = "convert.example.com";
    custom_resources::define(cluster, group, "thing", &["v1", "v2"]);
    let mut configuration = configuration();
    let mut in_v1 = rules(namespace, &[group], &["things"]);
    in_v1["rules"][0]["apiVersions"] = json!(["v1"]);
    let converted = "request.kind.version == 'v1' && request.resource.version == 'v1' && \
         request.requestKind.version == 'v2' && object.apiVersion.endsWith('/v1')";
    let settings = json!({"set": {"/metadata/labels/converted": "yes"}});
    act(
        &mut configuration,
        "converted",
        when(in_v1, converted),
        settings,
    );
    let thing = |version: &str, name: &str| {
        json!({
            "apiVersion": format!("{group}/{version}"),
            "kind": "Thing",
            "metadata": {"name": name, "namespace": namespace},
        })
    };
    let probe = thing("v1", "probe");
    let _served = serve(cluster, namespace, configuration, &[], &probe).await;
    for (version, label) in [("v1", ""), ("v2", "yes")] {
        works(&create(cluster, &thing(version, version)));
        let got = get(
            cluster,
            namespace,
            "things",
            version,
            "{.metadata.labels.converted}",
        );
        assert_eq!(got, label, "created in {version}");
    }
}

/// duplicate_owner_ref_test.go: TestMutatingWebhookDuplicateOwnerReferences.
#[tokio::test(flavor = "multi_thread")]
async fn duplicate_owner_references_count_once() {
    let cluster = cluster_or_skip!();
    let namespace = "upstream-owners";
    cluster.namespace(namespace);
    let owner = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "0f3e9a77-6c1b-4f52-b7c4-9d8e7f6a5b03",
    });
    let mut configuration = configuration();
    let pods = rules(namespace, &[""], &["pods"]);
    let settings = json!({"set_values": {"/metadata/ownerReferences": [owner, owner]}});
    act(&mut configuration, "doubling", pods, settings);
    let mut owned = pod(namespace, "owned");
    owned["metadata"]["ownerReferences"] = json!([owner]);
    let _served = serve(cluster, namespace, configuration, &[], &owned).await;
    let created = create(cluster, &owned);
    works(&created);
    let warning =
        ".metadata.ownerReferences contains duplicate entries after mutating admission happens";
    assert!(created.errors.contains(warning), "{created}");
    let names = get(
        cluster,
        namespace,
        "pod",
        "owned",
        "{.metadata.ownerReferences[*].name}",
    );
    assert_eq!(names, "owner");
}

/// invalid_managedFields_test.go: TestMutatingWebhookResetsInvalidManagedFields. In the upstream test, kube-apiserver
/// resets the fields that the webhook damaged, with a warning. Here the host rejects the plugin's change first.
#[tokio::test(flavor = "multi_thread")]
async fn plugins_cannot_change_managed_fields() {
    let cluster = cluster_or_skip!();
    let namespace = "upstream-managed-fields";
    cluster.namespace(namespace);
    let mut configuration = configuration();
    configuration.plugin_of(
        "spoiling",
        &hostile::all()["patch-managed-fields"],
        json!({"failurePolicy": "Ignore", "match": rules(namespace, &[""], &["configmaps"])}),
    );
    let probe = config_map(namespace, "probe", "");
    let served = serve(cluster, namespace, configuration, &[], &probe).await;
    let created = create(cluster, &config_map(namespace, "web", ""));
    works(&created);
    assert_eq!(created.errors, "", "{created}");
    let get = [
        "get",
        "configmap",
        "web",
        "-n",
        namespace,
        "--show-managed-fields",
        "-o",
    ];
    let manager =
        cluster.kubectl(&[&get[..], &["jsonpath={.metadata.managedFields[*].manager}"]].concat());
    assert_eq!(manager.succeed(), "kubectl-create");
    let labels = [("plugin", "spoiling"), ("fault", "bad-patch")];
    let faults = metric(
        &served.server.metrics().await,
        "tollgate_plugin_faults_total",
        &labels,
    );
    assert!(faults >= 1.0, "{faults}");
}

/// Adds a plugin without conditions that does nothing. Conditions of another plugin then stay in the host. With a
/// single plugin, its conditions would become those of the webhook.
fn asked_about_all(configuration: &mut Configuration, namespace: &str, resources: &str) {
    let all = rules(namespace, &[""], &[resources]);
    act(configuration, "indifferent", all, json!({}));
}

/// reinvocation_test.go: no reinvocation for in-tree only mutation; webhook is reinvoked after in-tree reinvocation;
/// 'reinvoke never' policy respected.
#[tokio::test(flavor = "multi_thread")]
async fn kube_apiserver_reinvokes_host_after_later_change() {
    let cluster = cluster_or_skip!();
    for (name, value) in [("low-priority", 1), ("high-priority", 10)] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        });
        works(&create(cluster, &class));
    }
    for (namespace, policy, calls) in [
        ("upstream-reinvoke", "IfNeeded", 2.0),
        ("upstream-reinvoke-never", "Never", 1.0),
    ] {
        cluster.namespace(namespace);
        let mut configuration = configuration();
        let pods = rules(namespace, &[""], &["pods"]);
        let low = when(
            pods,
            "object.spec.?priorityClassName.orValue('') == 'low-priority'",
        );
        asked_about_all(&mut configuration, namespace, "pods");
        // kube-apiserver fills in the value of the class.
        let settings = json!({"set_values": {"/spec/priorityClassName": "high-priority", "/spec/priority": null}});
        act(&mut configuration, "raise", low, settings);
        let probe = pod(namespace, "probe");
        let arguments = ["--reinvocation-policy", policy];
        let served = serve(cluster, namespace, configuration, &arguments, &probe).await;
        for (name, class, expected) in [
            ("as-it-is", "high-priority", 1.0),
            ("raised", "low-priority", calls),
        ] {
            let mutations = || async {
                metric(
                    &served.server.metrics().await,
                    "tollgate_requests_total",
                    &[("endpoint", "mutate")],
                )
            };
            let before = mutations().await;
            let mut pod = pod(namespace, name);
            pod["spec"]["priorityClassName"] = json!(class);
            works(&create(cluster, &pod));
            assert_eq!(
                mutations().await - before,
                expected,
                "{name} under {policy}"
            );
            let got = get(
                cluster,
                namespace,
                "pod",
                name,
                "{.spec.priorityClassName} {.spec.priority}",
            );
            assert_eq!(got, "high-priority 10");
        }
    }
}

/// reinvocation_test.go: all webhooks reinvoked when any webhook reinvocation causes mutation.
#[tokio::test(flavor = "multi_thread")]
async fn conflicting_plugins_as_two_webhooks_are_called_twice() {
    let cluster = cluster_or_skip!();
    let namespace = "upstream-fight";
    cluster.namespace(namespace);
    let mut configuration = configuration();
    for (name, value) in [("a-settrue", "true"), ("b-setfalse", "false")] {
        let maps = rules(namespace, &[""], &["configmaps"]);
        let settings = json!({"set": {"/metadata/labels/fight": value}});
        act_with(
            &mut configuration,
            name,
            maps,
            settings,
            json!({"reinvocationPolicy": "IfNeeded"}),
        );
    }
    let arguments = ["--per-plugin", "--reinvocation-policy", "IfNeeded"];
    let server = Server::start(configuration);
    let _registration = Registration::apply(cluster, &server, namespace, &arguments);
    let calls = async |plugin: &str| {
        let labels = [("plugin", plugin), ("phase", "mutate")];
        metric(
            &server.metrics().await,
            "tollgate_plugin_calls_total",
            &labels,
        )
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    let probe = config_map(namespace, "probe", "");
    while calls("a-settrue").await == 0.0 || calls("b-setfalse").await == 0.0 {
        assert!(Instant::now() < deadline, "the plugins are not called");
        works(
            &cluster
                .kubectl(&["create", "--dry-run=server", "-f", "-"])
                .input(&probe)
                .run(),
        );
    }
    let before = [calls("a-settrue").await, calls("b-setfalse").await];
    works(&create(cluster, &config_map(namespace, "web", "")));
    let after = [calls("a-settrue").await, calls("b-setfalse").await];
    assert_eq!([after[0] - before[0], after[1] - before[1]], [2.0, 2.0]);
    let fight = get(
        cluster,
        namespace,
        "configmap",
        "web",
        "{.metadata.labels.fight}",
    );
    assert_eq!(fight, "false");
}

/// timeout_test.go: minimum of request timeout or webhook timeout propagated.
#[tokio::test(flavor = "multi_thread")]
async fn timeout_of_user_request_limits_plugins() {
    let cluster = cluster_or_skip!();
    let namespace = "upstream-timeout";
    cluster.namespace(namespace);
    let mut configuration = configuration();
    let maps = rules(namespace, &[""], &["configmaps"]);
    let slow = when(maps, "object.metadata.name == 'slow'");
    asked_about_all(&mut configuration, namespace, "configmaps");
    configuration.plugin_of(
        "sleeper",
        &hostile::all()["wasi-sleep"],
        json!({"match": slow, "limits": {"timeout": "8s"}}),
    );
    let probe = config_map(namespace, "probe", "");
    let _served = serve(cluster, namespace, configuration, &[], &probe).await;
    let map = config_map(namespace, "slow", "");
    let path = format!("{}?timeout=4s", path_of(&map));
    let began = Instant::now();
    let (status, answer) = cluster.request(Method::POST, &path, Some(&map)).await;
    let took = began.elapsed();
    assert_eq!(status, 500, "{answer}");
    let message = answer["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("sleeper failed (deadline, failurePolicy Fail)"),
        "{message}"
    );
    assert!(took < Duration::from_secs(4), "{took:?}");
}
