//! `tollgate dev --from-cluster` shows what a project would do with the objects of a real cluster.

use std::process::Command;

use serde_json::json;
use tollgate_tests::cli;
use tollgate_tests::cluster_or_skip;
use tollgate_tests::kubernetes::Cluster;
use tollgate_tests::playground::{Project, Running};

use crate::scan::create;

const NAMESPACE: &str = "playground";

fn dev(project: &Project, cluster: &Cluster, resource: &str) -> Command {
    let mut command = project.dev(&["--no-test", "--from-cluster", resource]);
    command.env("KUBECONFIG", cluster.folder().join("kubeconfig"));
    command
}

#[test]
fn dev_reviews_objects_of_the_cluster_with_each_version() {
    let cluster = cluster_or_skip!();
    cluster.namespace(NAMESPACE);
    let object = json!({
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "usual", "namespace": NAMESPACE, "labels": {"app": "shop"}},
        "spec": {"limits": []},
    });
    create(cluster, &object);
    let project = Project::new();
    let running = Running::start(dev(&project, cluster, "limitranges"));
    let at = running.until(0, "reading limitranges from the cluster");
    let at = running.until(at, "usual");
    let at = running.until(at, "version: one");
    let at = running.until(at, "0 denied, 0 in error");
    let at = running.until(at, "waiting for a change");
    project.write("policy/policy.c", "two");
    let at = running.until(at, "version: two");
    running.until(at, "waiting for a change");
    let get = ["get", "limitrange", "usual", "-n", NAMESPACE, "-o", "yaml"];
    let stored = cluster.kubectl(&get).succeed();
    assert!(!stored.contains("version: "), "the object stays as it is");
}

#[test]
fn resource_that_the_cluster_does_not_have_is_named() {
    let cluster = cluster_or_skip!();
    let project = Project::new();
    let ran = cli::run(&mut dev(&project, cluster, "widgets"));
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    let expected = "the cluster has no resource \"widgets\" that can be listed and created";
    assert!(ran.stderr.contains(expected), "{}", ran.stderr);
}
