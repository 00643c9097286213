//! The chart and the plain manifests, applied to a real kube-apiserver.
//!
//! No kubelet runs, so no pod starts. kube-apiserver decodes every object strictly and admits it.

use std::path::PathBuf;
use std::process::Command;

use tollgate_kube_apiserver::helm::Major;
use tollgate_tests::chart::{Chart, deploy};
use tollgate_tests::cluster_or_skip;
use tollgate_tests::kubernetes::{Cluster, Start};

/// Runs Helm against the cluster.
pub(crate) fn helm(cluster: &Cluster, chart: &Chart, arguments: &[&str]) -> String {
    let folder = cluster.folder();
    let output = Command::new(chart.helm().program())
        .args(arguments)
        .env("KUBECONFIG", folder.join("kubeconfig"))
        .env("HELM_CACHE_HOME", folder.join("helm/cache"))
        .env("HELM_CONFIG_HOME", folder.join("helm/config"))
        .env("HELM_DATA_HOME", folder.join("helm/data"))
        .output()
        .unwrap_or_else(|error| panic!("helm cannot be run: {error}"));
    assert!(
        output.status.success(),
        "helm {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Name and resource version of every object of a kind list, which change when an object is written.
fn versions(cluster: &Cluster, files: &[PathBuf]) -> String {
    let mut arguments = vec!["get".to_owned()];
    for file in files {
        arguments.extend(["-f".to_owned(), file.display().to_string()]);
    }
    let columns = "custom-columns=KIND:.kind,NAME:.metadata.name,VERSION:.metadata.resourceVersion";
    arguments.extend(["-o", columns, "--no-headers"].map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    cluster.kubectl(&arguments).succeed()
}

/// The files that the kustomization lists.
fn files() -> Vec<PathBuf> {
    let folder = deploy().join("manifests");
    let text = std::fs::read_to_string(folder.join("kustomization.yaml"));
    let text = text.expect("the kustomization can be read");
    let names = text.lines().filter_map(|line| line.strip_prefix("  - "));
    names.map(|name| folder.join(name)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_manifests_are_accepted_and_stay_unchanged() {
    // Definitions of custom resources are there once in a cluster, and this test deletes them.
    let Some(cluster) = Start::default().start() else {
        return;
    };
    let cluster = &cluster;
    let folder = deploy().join("manifests").display().to_string();
    let apply = || {
        let apply = ["apply", "--server-side", "--validate=strict", "-k", &folder];
        cluster.kubectl(&apply).succeed()
    };
    let first = apply();
    for object in [
        "deployment.apps/tollgate",
        "networkpolicy.networking.k8s.io/tollgate",
    ] {
        assert!(first.contains(object), "{first}");
    }
    let files = files();
    let before = versions(cluster, &files);
    assert!(before.lines().count() >= 10, "{before}");
    apply();
    assert_eq!(versions(cluster, &files), before);
    let diff = cluster
        .kubectl(&["diff", "--server-side", "-k", &folder])
        .run();
    assert!(diff.succeeded(), "{diff}");
    cluster
        .kubectl(&["delete", "-k", &folder, "--wait=false"])
        .succeed();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_optional_object_is_accepted() {
    let cluster = cluster_or_skip!();
    let Some(chart) = Chart::with(Major::V4) else {
        return;
    };
    cluster.namespace("chart-options");
    let all = [
        "--set",
        "fullnameOverride=options,crds.install=false,autoscaling.enabled=true,grafanaDashboard.enabled=true",
        "--set",
        "tls.secretName=tls,registryCredentialsSecret=registry,image.digest=",
        "--set-json",
        r#"networkPolicy.reviewsFrom=[{"ipBlock":{"cidr":"10.0.0.0/28"}}]"#,
        "--set-json",
        r#"networkPolicy.metricsFrom=[{"namespaceSelector":{"matchLabels":{"a":"b"}}}]"#,
        "--set-json",
        r#"admin={"enabled":true,"audiences":["tollgate"]}"#,
        "--set-json",
        r#"networkPolicy.adminFrom=[{"podSelector":{}}]"#,
        "--set-json",
        r#"networkPolicy.extraEgress=[{"ports":[{"port":3128,"protocol":"TCP"}]}]"#,
        "--set-json",
        r#"tolerations=[{"key":"a","operator":"Exists"}]"#,
        "--set-json",
        r#"imagePullSecrets=[{"name":"pull"}]"#,
        "--set-json",
        r#"env=[{"name":"HTTPS_PROXY","value":"http://proxy:3128"}]"#,
        "--set-json",
        r#"extraVolumes=[{"name":"more","emptyDir":{}}]"#,
        "--set-json",
        r#"extraVolumeMounts=[{"name":"more","mountPath":"/more"}]"#,
    ];
    let rendered = chart.try_text(&all).expect("the chart renders");
    let rendered = rendered.replace("namespace: tollgate-system", "namespace: chart-options");
    let apply = [
        "apply",
        "--server-side",
        "--validate=strict",
        "--dry-run=server",
        "-f",
        "-",
    ];
    let applied = cluster.kubectl(&apply).text(&rendered).succeed();
    assert!(
        applied.contains("horizontalpodautoscaler.autoscaling/options"),
        "{applied}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_3_installs_and_helm_4_upgrades() {
    let (Some(old), Some(new)) = (Chart::with(Major::V3), Chart::with(Major::V4)) else {
        return;
    };
    // Definitions of custom resources are there once in a cluster.
    let Some(cluster) = Start::default().start() else {
        return;
    };
    let chart = deploy().join("chart").display().to_string();
    let release = ["tollgate", &*chart, "--namespace", "tollgate-system"];
    let install = [&["install"][..], &release, &["--create-namespace"]].concat();
    let notes = helm(&cluster, &old, &install);
    for words in [
        "rollout status deployment/tollgate",
        "kubectl get clusteradmissionplugins",
    ] {
        assert!(notes.contains(words), "{notes}");
    }
    let upgrade = [&["upgrade"][..], &release, &["--set", "replicas=3"]].concat();
    helm(&cluster, &new, &upgrade);
    let replicas = [
        "get",
        "deployment",
        "tollgate",
        "-n",
        "tollgate-system",
        "-o",
        "jsonpath={.spec.replicas}",
    ];
    assert_eq!(cluster.kubectl(&replicas).succeed(), "3");
    let manifest = helm(
        &cluster,
        &new,
        &["get", "manifest", "tollgate", "-n", "tollgate-system"],
    );
    // kube-apiserver completes the versions of a definition, so another field manager has a conflict there.
    let diff = ["diff", "--server-side", "--force-conflicts", "-f", "-"];
    let diff = cluster.kubectl(&diff).text(&manifest).run();
    assert!(diff.succeeded(), "{diff}");
    helm(
        &cluster,
        &new,
        &["uninstall", "tollgate", "-n", "tollgate-system"],
    );
    let left = [
        "get",
        "deployment,service,clusterrole",
        "-A",
        "-l",
        "app.kubernetes.io/instance=tollgate",
        "-o",
        "name",
    ];
    assert_eq!(cluster.kubectl(&left).succeed(), "");
}
