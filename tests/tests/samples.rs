//! The sample plugins at their purpose, as a user and an operator see them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_tests::binary::{tollgate, workspace};
use tollgate_tests::checker::{Checked, Endpoint};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::guests;
use tollgate_tests::reviews::{Review, pod, secret};
use tollgate_tests::server::Server;

/// Starts a server with one sample plugin.
async fn serving(package: &str, keys: Value) -> Server {
    let mut configuration = Configuration::new();
    configuration.plugin(package, &guests::build(package), keys);
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    server
}

async fn mutated(server: &Server, review: Review) -> Checked {
    let review = review.build();
    let answer = server.mutate(&review).await;
    answer.checked(Endpoint::Mutate, &review)
}

async fn validated(server: &Server, review: Review) -> Checked {
    let review = review.build();
    let answer = server.validate(&review).await;
    answer.checked(Endpoint::Validate, &review)
}

fn deployment(metadata: Value) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "app", "image": "app"}]}}},
    });
    for (key, value) in metadata.as_object().into_iter().flatten() {
        object["metadata"][key] = value.clone();
    }
    object
}

#[track_caller]
fn message(checked: &Checked) -> &str {
    assert!(!checked.allowed);
    let status = checked.status.as_ref().expect("a refusal has a status");
    status["message"].as_str().unwrap_or_default()
}

#[track_caller]
fn patched(checked: &Checked) -> &Value {
    assert!(checked.allowed, "{:?}", checked.status);
    checked.patched_object.as_ref().expect("it is changed")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allow_annotation_stamps_and_demands() {
    let server = serving("allow-annotation", json!({})).await;
    let before = deployment(json!({}));
    let checked = mutated(&server, Review::create(before.clone())).await;
    let stamped = patched(&checked).clone();
    assert_eq!(
        stamped["metadata"]["annotations"],
        json!({"allow-annotation/allow": "true"})
    );
    assert!(
        validated(&server, Review::create(stamped.clone()))
            .await
            .allowed
    );

    let refusal = "allow-annotation: the annotation allow-annotation/allow does not allow this \
                   (metadata.annotations[allow-annotation/allow]: must be \"true\")";
    let checked = validated(&server, Review::create(before)).await;
    assert_eq!(message(&checked), refusal);
    let no = deployment(json!({"annotations": {"allow-annotation/allow": "false"}}));
    let checked = mutated(&server, Review::update(no.clone(), stamped.clone())).await;
    assert!(checked.allowed && checked.patch.is_empty());
    let checked = validated(&server, Review::update(no, stamped)).await;
    assert_eq!(message(&checked), refusal);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deploy_window_refuses_while_frozen_and_gives_way_to_a_label() {
    let settings = json!({
        "windows": [{"from": "00:00", "to": "24:00"}],
        "freezes": [{"from": "2000-01-01", "to": "2998-12-31", "reason": "holidays"}],
    });
    let keys = json!({"capabilities": ["clock"], "settings": settings});
    let server = serving("deploy-window", keys).await;
    let before = deployment(json!({}));
    let checked = validated(&server, Review::create(before.clone())).await;
    assert_eq!(
        message(&checked),
        "deploy-window: deployments are frozen (holidays); the next window opens on Tuesday, 2999-01-01 at 00:00 (UTC) \
         (metadata.labels[deploy-window.tollgate.dev/force]: must be \"true\" to go ahead all the same)"
    );
    let labels = json!({"labels": {"deploy-window.tollgate.dev/force": "true"}});
    let checked = validated(&server, Review::create(deployment(labels.clone()))).await;
    assert!(checked.allowed);
    assert_eq!(
        checked.warnings,
        [
            "deploy-window: forced through while no deployment window is open; remove the label \
             deploy-window.tollgate.dev/force afterwards"
        ]
    );
    assert!(checked.audit_annotations["deploy-window.forced"].contains("frozen (holidays)"));
    // Only the labels change.
    let checked = validated(&server, Review::update(deployment(labels), before)).await;
    assert!(checked.allowed && checked.warnings.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deploy_window_is_not_loaded_without_the_clock() {
    let mut configuration = Configuration::new();
    let settings = json!({"windows": [{"from": "00:00", "to": "24:00"}]});
    configuration.plugin(
        "deploy-window",
        &guests::build("deploy-window"),
        json!({"settings": settings}),
    );
    let server = Server::start(configuration);
    let status = server.plugin_status("deploy-window").await;
    assert_eq!(status["state"], "failed", "{status}");
    let reason = status["reason"].as_str().unwrap_or_default();
    assert!(
        reason.contains("a capability that is not granted"),
        "{status}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_being_deleted_can_lose_its_finalizers_and_a_manifest_cannot_pretend_it() {
    for (package, settings) in [
        ("required-labels", json!({"labels": {"team": null}})),
        ("allow-annotation", json!({})),
    ] {
        let server = serving(package, json!({"settings": settings})).await;
        let going = json!({"deletionTimestamp": "2026-11-21T08:00:00Z", "finalizers": ["example.com/cleanup"]});
        let before = deployment(going.clone());
        let mut after = before.clone();
        after["metadata"]["finalizers"] = json!([]);
        let checked = validated(&server, Review::update(after, before)).await;
        assert!(checked.allowed, "{package}: {:?}", checked.status);
        // kube-apiserver removes the timestamp from created objects, but a reviewed file may have it.
        let checked = validated(&server, Review::create(deployment(going.clone()))).await;
        assert!(!checked.allowed, "{package}");
        let stored = deployment(json!({}));
        let checked = validated(&server, Review::update(deployment(going), stored)).await;
        assert!(!checked.allowed, "{package}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disable_service_links_changes_templates_unless_a_label_keeps_them() {
    let server = serving("disable-service-links", json!({})).await;
    let checked = mutated(&server, Review::create(deployment(json!({})))).await;
    assert_eq!(
        checked.patch,
        [json!({"op": "add", "path": "/spec/template/spec/enableServiceLinks", "value": false})]
    );
    let kept = deployment(json!({"labels": {"disable-service-links.tollgate.dev/keep": "true"}}));
    let checked = mutated(&server, Review::create(kept)).await;
    assert!(checked.allowed && checked.patch.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sidecar_inject_adds_its_container_once() {
    let settings = json!({"containers": [{"name": "logs", "image": "ghcr.io/acme/logs:2.0"}]});
    let server = serving("sidecar-inject", json!({"settings": settings})).await;
    let checked = mutated(&server, Review::create(pod("web"))).await;
    assert!(checked.patch.is_empty(), "it has not been asked for");
    let mut object = pod("web");
    object["metadata"]["labels"]["sidecar-inject.tollgate.dev/inject"] = json!("true");
    let checked = mutated(&server, Review::create(object)).await;
    let injected = patched(&checked).clone();
    let containers = injected["spec"]["containers"].as_array().map(Vec::len);
    assert_eq!(containers, Some(2));
    assert_eq!(
        injected["spec"]["containers"][1]["image"],
        "ghcr.io/acme/logs:2.0"
    );
    assert!(
        mutated(&server, Review::create(injected))
            .await
            .patch
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn print_request_logs_the_request_and_nothing_of_a_secret() {
    let keys = json!({"mode": "audit", "settings": {"redact": ["/spec/containers/*/env/*/value"]}});
    let server = serving("print-request", keys).await;
    let mut object = pod("web");
    object["spec"]["containers"][0]["env"] = json!([{"name": "TOKEN", "value": "hunter2"}]);
    assert!(validated(&server, Review::create(object)).await.allowed);
    let loot = secret("loot", "aHVudGVyMg==", "hunter2", "{}");
    assert!(validated(&server, Review::create(loot)).await.allowed);
    // Audit mode runs after the answer.
    let began = Instant::now();
    let logs = loop {
        let logs = server.logs().join("\n");
        if logs.contains("CREATE v1 pods web in default by jane of system:authenticated")
            && logs.contains("CREATE v1 secrets loot in default by jane")
            && logs.contains("the object is left out, it holds credentials")
            && logs.contains("registry.example.com/app:1.4")
        {
            break logs;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{logs}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(
        !logs.contains("hunter2") && !logs.contains("aHVudGVyMg"),
        "{logs}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_security_speaks_as_kubernetes_does() {
    let keys = json!({"settings": {"level": "baseline", "version": "v1.37"}});
    let server = serving("pod-security", keys).await;
    assert!(validated(&server, Review::create(pod("web"))).await.allowed);
    let mut object = pod("web");
    object["spec"]["hostNetwork"] = json!(true);
    let checked = validated(&server, Review::create(object.clone())).await;
    assert_eq!(
        message(&checked),
        "pod-security: violates PodSecurity \"baseline:v1.37\": host namespaces (hostNetwork=true) \
         (spec.hostNetwork: must not be true)"
    );
    // A template is allowed with a warning.
    let mut workload = deployment(json!({}));
    workload["spec"]["template"]["spec"] = object["spec"].clone();
    let checked = validated(&server, Review::create(workload)).await;
    assert!(checked.allowed);
    assert_eq!(
        checked.warnings,
        [
            "pod-security: would violate PodSecurity \"baseline:v1.37\": host namespaces (hostNetwork=true)"
        ]
    );
}

/// Runs the suites in the folders of plugins. Those of plugins with lookups have objects of a cluster.
#[test]
fn suites_of_plugins_pass() {
    const SUITE: &str = "policy.test.yaml";
    let plugins = workspace().join("plugins");
    let mut wrong = Vec::new();
    let mut count = 0;
    for entry in fs::read_dir(&plugins).expect("the folder of plugins can be read") {
        let folder = entry.expect("the folder of plugins can be read").path();
        if !folder.join(SUITE).is_file() {
            continue;
        }
        count += 1;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let suite = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("plugins")
            .join(&*name);
        fs::create_dir_all(suite.join("dist")).expect("a folder in the target folder can be made");
        let built = suite.join("dist").join(format!("{name}.wasm"));
        fs::copy(guests::build(&name), built).expect("the plugin has been built");
        // The suite, its configuration, and keys that the configuration names.
        for entry in fs::read_dir(&folder).expect("the folder of a plugin can be read") {
            let file = entry.expect("the folder of a plugin can be read").path();
            let extension = file.extension().unwrap_or_default();
            if extension != "yaml" && extension != "pub" {
                continue;
            }
            fs::copy(&file, suite.join(file.file_name().unwrap_or_default()))
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
        let output = Command::new(tollgate())
            .args(["test", SUITE])
            .current_dir(&suite)
            .output()
            .expect("tollgate can be run");
        if !output.status.success() {
            wrong.push(format!(
                "{name}\n{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            ));
        }
    }
    assert!(count >= 8, "{count} suites");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugin_with_lookups_is_not_loaded_without_them() {
    let mut configuration = Configuration::new();
    configuration.plugin(
        "unique-ingress-host",
        &guests::build("unique-ingress-host"),
        json!({}),
    );
    let server = Server::start(configuration);
    let status = server.plugin_status("unique-ingress-host").await;
    assert_eq!(status["state"], "failed", "{status}");
    let reason = status["reason"].as_str().unwrap_or_default();
    assert!(
        reason.contains("a capability that is not granted"),
        "{status}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugins_of_kube_apiserver_answer_with_its_messages() {
    let server = serving("deny-service-external-ips", json!({})).await;
    let service = |addresses: Value| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "default"},
            "spec": {"externalIPs": addresses}})
    };
    let checked = validated(&server, Review::create(service(json!(["1.1.1.1"])))).await;
    assert_eq!(
        message(&checked),
        "deny-service-external-ips: Use of external IPs is denied by admission control"
    );
    let fewer = Review::update(
        service(json!(["2.2.2.2"])),
        service(json!(["1.1.1.1", "2.2.2.2"])),
    );
    assert!(validated(&server, fewer).await.allowed);

    let server = serving("limit-pod-hard-anti-affinity-topology", json!({})).await;
    let term = json!({"labelSelector": {}, "topologyKey": "zone"});
    let mut apart = pod("apart");
    apart["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!([term]);
    let checked = validated(&server, Review::create(apart)).await;
    assert_eq!(
        message(&checked),
        "limit-pod-hard-anti-affinity-topology: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone \
         but only key kubernetes.io/hostname is allowed"
    );

    let server = serving("extended-resource-toleration", json!({})).await;
    let mut device = pod("device");
    device["spec"]["containers"][0]["resources"]["requests"]["example.com/device"] = json!("1");
    let checked = mutated(&server, Review::create(device)).await;
    assert_eq!(
        patched(&checked)["spec"]["tolerations"],
        json!([{"key": "example.com/device", "operator": "Exists", "effect": "NoSchedule"}])
    );
}
