//! A host that is registered for all resources.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};
use tollgate_tests::hostile;
use tollgate_tests::kubernetes::{Cluster, Registration, Start};
use tollgate_tests::server::{Server, metric};

use crate::custom_resources;
use crate::fixtures::{act, config_map, configuration, labelled, path_of, shows};

const NAMESPACE: &str = "everything";

/// Returns every top-level resource that can be created, with its path and an object of its kind.
async fn creatable(cluster: &Cluster) -> Vec<(String, String, Value)> {
    let mut roots = vec!["/api/v1".to_owned()];
    let (_, groups) = cluster.request(Method::GET, "/apis", None).await;
    for group in groups["groups"].as_array().into_iter().flatten() {
        let version = group["preferredVersion"]["groupVersion"]
            .as_str()
            .unwrap_or_default();
        roots.push(format!("/apis/{version}"));
    }
    let mut resources = Vec::new();
    for root in roots {
        let (_, list) = cluster.request(Method::GET, &root, None).await;
        for resource in list["resources"].as_array().into_iter().flatten() {
            let name = resource["name"].as_str().unwrap_or_default();
            let can_create = resource["verbs"]
                .as_array()
                .is_some_and(|verbs| verbs.contains(&json!("create")));
            if !can_create || name.contains('/') {
                continue;
            }
            let version = list["groupVersion"].as_str().unwrap_or_default();
            let metadata = json!({"name": "stub"});
            let stub =
                json!({"apiVersion": version, "kind": resource["kind"], "metadata": metadata});
            let folder = if resource["namespaced"] == true {
                format!("{root}/namespaces/{NAMESPACE}")
            } else {
                root.clone()
            };
            resources.push((
                format!("{version} {name}"),
                format!("{folder}/{name}"),
                stub,
            ));
        }
    }
    resources
}

/// admission_test.go, TestWebhookAdmission: every resource reaches the webhook, and its answer takes effect. Stub
/// objects are enough, because mutating webhooks run before an object is validated.
#[tokio::test(flavor = "multi_thread")]
async fn reviews_every_resource_except_excluded_ones() {
    let Some(cluster) = Start::default().start() else {
        return;
    };
    cluster.namespace(NAMESPACE);
    custom_resources::define(&cluster, "everything.example.com", "thing", &["v1"]);
    let mut configuration = configuration();
    configuration.plugin_of("everything", &hostile::harmless(), json!({}));
    let server = Server::start(configuration);
    let registration = Registration::apply(&cluster, &server, "tollgate", &[]);
    let probe = config_map(NAMESPACE, "probe", "");
    registration
        .wait_for_effect(&[&server], (&path_of(&probe), &probe))
        .await;

    let resources = creatable(&cluster).await;
    assert!(resources.len() > 50, "{} resources", resources.len());
    let mut answers = Vec::new();
    for (name, path, stub) in &resources {
        let path = format!("{path}?dryRun=All");
        let (status, _) = cluster.request(Method::POST, &path, Some(stub)).await;
        answers.push((name, status));
    }
    let page = server.get_admin("/decisions").await.json();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let decisions = page["decisions"].as_array().into_iter().flatten();
    let asked: BTreeSet<String> = decisions
        .filter(|decision| decision["endpoint"] == "mutate" && decision["operation"] == "CREATE")
        .map(|decision| {
            let (group, version) = (text(&decision["group"]), text(&decision["version"]));
            let version = if group.is_empty() {
                version
            } else {
                format!("{group}/{version}")
            };
            format!("{version} {}", text(&decision["resource"]))
        })
        .collect();
    let unasked = answers
        .into_iter()
        .filter(|(name, _)| !asked.contains(*name));
    let unasked: BTreeSet<String> = unasked
        .map(|(name, status)| format!("{name}: {status}"))
        .collect();
    let page = cluster.metrics().await;
    let calls = |labels: &[(&str, &str)]| {
        metric(&page, "apiserver_admission_webhook_request_total", labels)
    };
    assert_eq!(
        calls(&[]),
        calls(&[("code", "200")]),
        "a call was not answered"
    );
    let unasked: Vec<String> = unasked.into_iter().collect();
    shows("resources_that_are_not_asked_about", unasked.join("\n"));
}

/// webhook.go: should deny crd creation.
#[tokio::test(flavor = "multi_thread")]
async fn denies_custom_resource_definitions() {
    let Some(cluster) = Start::default().start() else {
        return;
    };
    let mut configuration = configuration();
    let definitions = json!({"rules": [{
        "operations": ["CREATE"],
        "apiGroups": ["apiextensions.k8s.io"],
        "apiVersions": ["*"],
        "resources": ["customresourcedefinitions"],
    }]});
    let settings = json!({"forbid": {"/metadata/labels/webhook-e2e-test": "webhook-disallow"}});
    act(&mut configuration, "definitions", definitions, settings);
    let schema = json!({"type": "object"});
    let allowed = custom_resources::definition("deny.example.com", "item", &["v1"], &schema);
    let server = Server::start(configuration);
    let registration = Registration::apply(&cluster, &server, "tollgate", &[]);
    registration
        .wait_for_effect(&[&server], (&path_of(&allowed), &allowed))
        .await;
    let denied = labelled(
        allowed.clone(),
        json!({"webhook-e2e-test": "webhook-disallow"}),
    );
    let create = |definition: &Value| {
        cluster
            .kubectl(&["create", "-f", "-"])
            .input(definition)
            .run()
    };
    create(&denied)
        .assert_failed(&["metadata.labels[webhook-e2e-test]: webhook-disallow is not wanted"]);
    let created = create(&allowed);
    assert!(created.succeeded(), "{created}");
}
