//! The Helm chart and the plain manifests, without a cluster: what they render, and what they refuse.
//!
//! `tests/tests/kube_apiserver/chart.rs` applies them to a real kube-apiserver.

mod chart {
    mod monitoring;
    mod permissions;
    mod pods;
    mod values;
}

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;
use tollgate_kube_apiserver::helm::Major;
use tollgate_kube_apiserver::manifests;
use tollgate_tests::binary;
use tollgate_tests::chart::{Chart, EVERYTHING, deploy};

/// Returns the chart with Helm 4, or skips the test.
macro_rules! chart_or_skip {
    () => {
        match tollgate_tests::chart::Chart::with(tollgate_kube_apiserver::helm::Major::V4) {
            Some(chart) => chart,
            None => return,
        }
    };
}
pub(crate) use chart_or_skip;

/// Helm keeps a release in a Secret, which has at most 1 MiB. A release holds the chart and what it rendered, compressed.
const LARGEST_RELEASE: u64 = 600_000;

#[test]
fn helm_3_and_helm_4_render_the_same() {
    let (Some(old), Some(new)) = (Chart::with(Major::V3), Chart::with(Major::V4)) else {
        return;
    };
    let objects = new.objects(EVERYTHING);
    assert!(objects.0.len() > 10, "{:?}", objects.names());
    let sorted = |chart: &Chart| {
        let mut objects = chart.objects(EVERYTHING).0;
        objects.sort_by_key(Value::to_string);
        objects
    };
    assert_eq!(sorted(&old), sorted(&new));
}

#[test]
fn renders_no_certificates_and_no_webhook_configurations() {
    let objects = chart_or_skip!().objects(EVERYTHING);
    let kinds: BTreeSet<&str> = objects
        .0
        .iter()
        .filter_map(|it| it["kind"].as_str())
        .collect();
    let expected = BTreeSet::from([
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "Deployment",
        "HorizontalPodAutoscaler",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "PrometheusRule",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
    ]);
    let others: Vec<_> = kinds.difference(&expected).collect();
    assert!(
        others.is_empty() || others == [&"CustomResourceDefinition"],
        "{others:?}"
    );
    assert!(expected.is_subset(&kinds), "{kinds:?}");
    for object in &objects.0 {
        let text = object.to_string();
        for word in [
            "caBundle",
            "BEGIN CERTIFICATE",
            "PRIVATE KEY",
            "helm.sh/hook",
        ] {
            assert!(!text.contains(word), "{word} is in {text}");
        }
    }
}

#[test]
fn configuration_is_valid() {
    let chart = chart_or_skip!();
    let without_cluster = "cluster.enabled=false,tls.secretName=tls,config.allowEmpty=true";
    for values in ["", without_cluster, "listenAddress=[::]"] {
        let text = chart.objects(values).configuration().to_owned();
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path().join("tollgate.yaml");
        std::fs::write(&path, &text).expect("written");
        let output = Command::new(binary::tollgate())
            .args(["check", "--no-plugins", "--no-credentials", "--config"])
            .arg(&path)
            .output()
            .expect("tollgate can be run");
        assert!(output.status.success(), "{output:?}\n{text}");
    }
}

#[test]
fn plain_manifests_are_current() {
    for major in Major::ALL {
        let Some(chart) = Chart::with(major) else {
            return;
        };
        let rendered = manifests::render(chart.helm(), &deploy()).expect("the chart renders");
        let folder = deploy().join("manifests");
        let present = manifests::yaml_files(&folder).expect("the folder can be read");
        let expected: Vec<_> = rendered.keys().copied().collect();
        assert_eq!(present, expected, "run `cargo xtask manifests`");
        for (name, text) in rendered {
            let file = std::fs::read_to_string(folder.join(name)).expect("the file can be read");
            assert!(
                file == text,
                "{name} is not what the chart renders with Helm {}: run `cargo xtask manifests`",
                major.version()
            );
        }
    }
}

#[test]
fn chart_has_the_custom_resources() {
    let (source, copy) = (deploy().join("crds"), deploy().join("chart/files/crds"));
    let names = manifests::yaml_files(&source).expect("the folder can be read");
    let copies = manifests::yaml_files(&copy).expect("the folder can be read");
    assert_eq!(copies, names, "run `cargo xtask manifests`");
    for name in &names {
        let read = |folder: &std::path::Path| std::fs::read_to_string(folder.join(name));
        let (source, copy) = (
            read(&source).expect("readable"),
            read(&copy).expect("readable"),
        );
        assert!(source == copy, "{name}: run `cargo xtask manifests`");
    }
    let chart = chart_or_skip!();
    let rendered = chart.objects("");
    assert_eq!(
        rendered.of_kind("CustomResourceDefinition").count(),
        names.len()
    );
    for crd in rendered.of_kind("CustomResourceDefinition") {
        // Helm would delete all plugins with their definition.
        assert_eq!(
            crd["metadata"]["annotations"]["helm.sh/resource-policy"],
            "keep"
        );
    }
    let without = chart.objects("crds.install=false");
    assert_eq!(without.of_kind("CustomResourceDefinition").count(), 0);
}

#[test]
fn release_fits_into_its_secret() {
    let rendered = chart_or_skip!().try_text(&["--set", EVERYTHING]);
    let mut bytes = rendered.expect("the chart renders").len() as u64;
    let mut folders = vec![deploy().join("chart")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder can be read") {
            let path = entry.expect("the folder can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                bytes += path.metadata().expect("the file exists").len();
            }
        }
    }
    assert!(bytes < LARGEST_RELEASE, "{bytes} bytes before compression");
}
