//! `tollgate scan` reads a real cluster, and writes policy reports only when they change.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tollgate_tests::cli::{self, Ran};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::kubernetes::{Cluster, Start};
use tollgate_tests::{binary, cluster_or_skip};

use crate::custom_resources;
use crate::fixtures::{act_with, config_map, configuration, deployment, labelled};
use crate::plugins_as_resources::get;

const SHOP: &str = "scan-shop";
const BANK: &str = "scan-bank";
const DUMP: &str = "scan-dump";

/// Runs `tollgate scan --cluster` as the administrator.
pub(crate) fn scan(cluster: &Cluster, configuration: &Configuration, arguments: &[&str]) -> Ran {
    let mut command = cli::command(&["scan", "--cluster", "--config"]);
    command.arg(configuration.write()).args(arguments);
    command.env("KUBECONFIG", cluster.folder().join("kubeconfig"));
    cli::run(command.env("NO_COLOR", "1"))
}

/// Defines both kinds of reports of openreports.io, with the types of the fields that a scan writes.
pub(crate) fn define_reports(cluster: &Cluster) {
    let text = json!({"type": "string"});
    let integer = json!({"type": "integer"});
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let reference = json!({"type": "object", "x-kubernetes-map-type": "atomic", "properties": {
        "apiVersion": text, "kind": text, "namespace": text, "name": text, "uid": text,
    }});
    let result = json!({"type": "object", "required": ["policy"], "properties": {
        "source": text, "policy": text, "rule": text, "message": text,
        "result": {"type": "string", "enum": ["pass", "fail", "warn", "error", "skip"]},
        "scored": {"type": "boolean"},
        "resources": {"type": "array", "items": reference},
        "properties": texts,
    }});
    let summary = json!({"type": "object", "properties": {
        "pass": integer, "fail": integer, "warn": integer, "error": integer, "skip": integer,
    }});
    let schema = json!({"type": "object", "properties": {
        "source": text, "summary": summary, "results": {"type": "array", "items": result},
    }});
    for (singular, kind, scope) in [
        ("report", "Report", "Namespaced"),
        ("clusterreport", "ClusterReport", "Cluster"),
    ] {
        let mut definition =
            custom_resources::definition("openreports.io", singular, &["v1alpha1"], &schema);
        definition["spec"]["scope"] = json!(scope);
        definition["spec"]["names"]["kind"] = json!(kind);
        definition["spec"]["names"]["listKind"] = json!(format!("{kind}List"));
        custom_resources::apply(cluster, &definition);
    }
}

pub(crate) fn create(cluster: &Cluster, object: &Value) {
    cluster
        .kubectl(&["apply", "-f", "-"])
        .input(object)
        .succeed();
}

pub(crate) fn reports(cluster: &Cluster) -> Vec<Value> {
    let mut all = Vec::new();
    for kind in ["reports.openreports.io", "clusterreports.openreports.io"] {
        let list = get(cluster, &[kind, "-A"]);
        all.extend(list["items"].as_array().cloned().unwrap_or_default());
    }
    all
}

/// Returns places and versions of the reports.
pub(crate) fn versions(reports: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let versions = reports.iter().map(|report| {
        let metadata = &report["metadata"];
        let parts = ["namespace", "name", "resourceVersion"].map(|key| text(&metadata[key]));
        parts.join(" ")
    });
    versions.collect()
}

/// A policy for ConfigMaps and Deployments in some namespaces, with further keys in `more`.
fn policy(namespaces: &[&str], more: Value) -> Configuration {
    let mut configuration = configuration();
    let matched = json!({"namespaces": namespaces, "rules": [{
        "operations": ["CREATE", "UPDATE"], "apiGroups": ["", "apps"], "apiVersions": ["*"],
        "resources": ["configmaps", "deployments"],
    }]});
    let settings = json!({"forbid": {"/metadata/labels/tier": "forbidden"}});
    act_with(&mut configuration, "guard", matched, settings, more);
    configuration
}

#[tokio::test(flavor = "multi_thread")]
async fn scan_writes_reports_once_and_deletes_those_that_are_not_needed() {
    // The definitions of reports affect the whole cluster.
    let Some(cluster) = Start::default().start() else {
        return;
    };
    for namespace in [SHOP, BANK] {
        cluster.namespace(namespace);
    }
    let forbidden = json!({"tier": "forbidden"});
    for index in 0..3 {
        let object = config_map(SHOP, &format!("bad-{index}"), "a");
        create(&cluster, &labelled(object, forbidden.clone()));
    }
    create(&cluster, &config_map(SHOP, "good", "a"));
    create(
        &cluster,
        &labelled(deployment(BANK, "web"), forbidden.clone()),
    );
    let configuration = policy(&[SHOP, BANK], json!({}));
    let state = configuration
        .folder()
        .join("state.json")
        .display()
        .to_string();
    let write = ["--write", "--state", &state];

    let missing = scan(&cluster, &configuration, &write);
    assert_eq!(missing.code, Some(2));
    let expected = "install its CustomResourceDefinitions";
    assert!(missing.stderr.contains(expected), "{}", missing.stderr);

    define_reports(&cluster);
    let first = scan(&cluster, &configuration, &write);
    assert_eq!(first.code, Some(1), "{}", first.stderr);
    assert!(
        first
            .stderr
            .contains("2 reports written, 0 deleted, 0 unchanged"),
        "{}",
        first.stderr
    );
    let written = reports(&cluster);
    let of = |namespace: &str| {
        let mut reports = written.iter();
        let report = reports.find(|report| report["metadata"]["namespace"] == namespace);
        report
            .unwrap_or_else(|| panic!("no report in {namespace}"))
            .clone()
    };
    assert_eq!(of(SHOP)["summary"]["fail"], 3);
    let results = of(SHOP)["results"].clone();
    assert_eq!(results.as_array().map(Vec::len), Some(3), "{results:#}");
    assert_eq!(results[0]["resources"][0]["name"], "bad-0");
    assert_eq!(
        of(BANK)["results"][0]["resources"][0]["apiVersion"],
        "apps/v1"
    );

    let second = scan(
        &cluster,
        &configuration,
        &[&write[..], &["-o", "json"]].concat(),
    );
    assert!(
        second
            .stderr
            .contains("0 reports written, 0 deleted, 2 unchanged"),
        "{}",
        second.stderr
    );
    assert_eq!(versions(&reports(&cluster)), versions(&written));
    let counted: Value = serde_json::from_str(&second.stdout).expect("JSON");
    assert_eq!(counted["calls"], 0, "{counted:#}");
    assert!(counted["reused"].as_u64() > Some(4), "{counted:#}");

    // Somebody changes a report, and an object is corrected.
    let patch = json!({"summary": {"fail": 0}}).to_string();
    let arguments = [
        "patch",
        "reports.openreports.io",
        "tollgate-scan",
        "-n",
        BANK,
        "--type=merge",
        "-p",
        &patch,
    ];
    cluster.kubectl(&arguments).succeed();
    create(
        &cluster,
        &labelled(config_map(SHOP, "bad-0", "a"), json!({"tier": "front"})),
    );
    let third = scan(&cluster, &configuration, &write);
    assert!(
        third
            .stderr
            .contains("2 reports written, 0 deleted, 0 unchanged"),
        "{}",
        third.stderr
    );
    let summaries: Vec<Value> = reports(&cluster)
        .iter()
        .map(|report| report["summary"]["fail"].clone())
        .collect();
    assert_eq!(summaries, [json!(1), json!(2)]);

    cluster
        .kubectl(&["delete", "deployment", "web", "-n", BANK])
        .succeed();
    let fourth = scan(&cluster, &configuration, &write);
    assert!(
        fourth
            .stderr
            .contains("0 reports written, 1 deleted, 1 unchanged"),
        "{}",
        fourth.stderr
    );
    // A scan under another name owns other reports.
    let other = scan(&cluster, &configuration, &["--write", "--name", "nightly"]);
    assert!(
        other.stderr.contains("1 reports written, 0 deleted"),
        "{}",
        other.stderr
    );
    assert_eq!(reports(&cluster).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn scan_of_a_cluster_and_of_its_dump_say_the_same() {
    let cluster = cluster_or_skip!();
    cluster.namespace(DUMP);
    // More objects than one page has.
    let list: Vec<Value> = (0..620)
        .map(|index| {
            let tier = if index % 7 == 0 { "forbidden" } else { "front" };
            let object = config_map(DUMP, &format!("web-{index:03}"), "a");
            labelled(object, json!({"tier": tier}))
        })
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": list});
    cluster
        .kubectl(&["create", "-f", "-"])
        .input(&list)
        .succeed();
    create(
        cluster,
        &labelled(deployment(DUMP, "web"), json!({"tier": "forbidden"})),
    );
    let exceptions = json!([{"name": "legacy", "names": ["web-007"], "until": "2999-12-31", "reason": "legacy"}]);
    let configuration = policy(&[DUMP], json!({"exceptions": exceptions}));
    let online = scan(cluster, &configuration, &["-o", "json"]);
    assert_eq!(online.code, Some(1), "{}", online.stderr);
    let dump = cluster
        .kubectl(&[
            "get",
            "configmaps,deployments,namespaces",
            "-A",
            "-o",
            "json",
        ])
        .succeed();
    let file = configuration.folder().join("dump.json");
    std::fs::write(&file, dump).expect("written");
    let offline = offline(&configuration, &file);
    let online: Value = serde_json::from_str(&online.stdout).expect("JSON");
    assert_eq!(online["results"], offline["results"]);
    assert_eq!(online["summary"], offline["summary"]);
    assert_eq!(online["exceptions"], offline["exceptions"]);
    assert_eq!(online["summary"]["fail"], 89);
    assert_eq!(online["summary"]["skip"], 2, "at both phases");
    assert_eq!(online["exceptions"][0]["state"], "needed");
}

fn offline(configuration: &Configuration, dump: &Path) -> Value {
    let mut command = Command::new(binary::tollgate());
    command.args(["scan", "-o", "json", "--config"]);
    let output = command.arg(configuration.write()).arg(dump).output();
    let output = output.unwrap_or_else(|error| panic!("tollgate cannot be run: {error}"));
    serde_json::from_slice(&output.stdout).expect("JSON")
}
