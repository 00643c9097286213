//! The chart and the plain manifests, with the pods of their Deployment running: from an empty cluster to the first denial
//! with the commands of the guide. Each pod has the image's file system, the volumes, arguments, service account and
//! security context of the Deployment.

use std::time::{Duration, Instant};

use serde_json::Value;
use tollgate_kube_apiserver::helm::Major;
use tollgate_tests::chart::{Chart, NAMESPACE, deploy};
use tollgate_tests::kubernetes::service::Service;
use tollgate_tests::kubernetes::{Cluster, Start};
use tollgate_tests::pod::{self, Image, Pod};

use crate::chart::helm;
use crate::installed::wait_until;
use crate::plugins_as_resources::get;

const DEPLOYMENT: [&str; 2] = [NAMESPACE, "tollgate"];
/// The folders that a pod may write to. Both are in memory.
const WRITABLE: [&str; 2] = ["/var/cache/tollgate (tmpfs)", "/var/lib/tollgate (tmpfs)"];

/// What a user types after the installation: apply a plugin, and try what it denies.
fn first_denial(cluster: &Cluster) {
    let example = deploy().join("examples/required-labels.yaml");
    let example = example.display().to_string();
    cluster.kubectl(&["apply", "-f", &example]).succeed();
    let began = Instant::now();
    let wait = "clusteradmissionplugin/required-labels";
    let wait = ["wait", "--for=condition=Effective", wait, "--timeout=90s"];
    cluster.kubectl(&wait).succeed();
    println!("effective {:?} after kubectl apply", began.elapsed());
    let create = ["create", "deployment", "web", "--image=nginx"];
    let denied = cluster.kubectl(&create).run();
    println!("{}", denied.errors.trim());
    denied.assert_failed(&["admission webhook", "required-labels", "team"]);
    let table = ["get", "clusteradmissionplugins", "-o", "wide"];
    println!("{}", cluster.kubectl(&table).succeed());
}

/// Checks the process of a pod against the security context of the chart.
fn assert_confined(pod: &Pod) {
    for key in ["Uid", "Gid"] {
        assert_eq!(pod.status(key), "65532\t65532\t65532\t65532", "{key}");
    }
    assert_eq!(pod.status("Groups"), "");
    for key in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(pod.status(key), "0000000000000000", "{key}");
    }
    assert_eq!(pod.status("NoNewPrivs"), "1");
    // Filters, and not only the strict mode.
    assert_eq!(pod.status("Seccomp"), "2");
    assert_eq!(pod.writable(), WRITABLE);
}

/// Runs the pods of an installation that was just applied, as kubelet would, until its end.
async fn run(cluster: &Cluster, began: Instant) {
    let service = Service::adopt(cluster, NAMESPACE, "tollgate", 443).await;
    let image = Image::find();
    println!("image: {image:?}");
    let mut first = Pod::start(cluster, &image, &DEPLOYMENT, "tollgate-0");
    println!("ready after {:?}", first.wait_until_ready());
    service.add(first.address());
    let mut second = Pod::start(cluster, &image, &DEPLOYMENT, "tollgate-1");
    second.wait_until_ready();
    service.add(second.address());
    first_denial(cluster);
    println!(
        "from the first command to the denial: {:?}",
        began.elapsed()
    );
    let plugin = ["clusteradmissionplugin", "required-labels"];
    let (replicas, _) = wait_until("both pods are in the status", || {
        let replicas = get(cluster, &plugin)["status"]["replicas"]
            .as_array()
            .cloned()?;
        (replicas.len() == 2).then_some(replicas)
    });
    let names = replicas.iter().map(|replica| replica["name"].as_str());
    let mut names: Vec<&str> = names.flatten().collect();
    names.sort_unstable();
    assert_eq!(names, ["tollgate-0", "tollgate-1"]);

    for pod in [&first, &second] {
        assert_confined(pod);
        // The compiled plugin is in memory, and nothing else is written.
        assert_eq!(pod.files("/var/cache/tollgate"), ["code"]);
        assert!(!pod.files("/var/cache/tollgate/code").is_empty());
        assert_eq!(pod.files("/tmp"), [] as [&str; 0]);
    }
    // The chart's rights are enough.
    let user = format!("system:serviceaccount:{NAMESPACE}:tollgate");
    let writes = cluster.audit(|entry| entry["user"]["username"] == *user);
    let refused = writes
        .iter()
        .filter(|entry| entry["responseStatus"]["code"] == 403);
    assert_eq!(refused.collect::<Vec<_>>(), [] as [&Value; 0]);

    // kubelet stops a pod with SIGTERM, and the other one answers.
    service.remove(first.address());
    let (is_success, took) = first.stop();
    assert!(is_success, "the pod failed at its end");
    println!("stopped within {took:?}");
    assert!(took < Duration::from_secs(30), "{took:?}");
    let create = ["create", "deployment", "web", "--image=nginx"];
    cluster
        .kubectl(&create)
        .run()
        .assert_failed(&["required-labels"]);
    service.remove(second.address());
    drop(second);
}

#[tokio::test(flavor = "multi_thread")]
async fn chart_leads_to_a_denial_in_four_commands() {
    let Some(chart) = Chart::with(Major::V4) else {
        return;
    };
    if !pod::can_run() {
        return;
    }
    let Some(cluster) = Start::default().start() else {
        return;
    };
    let began = Instant::now();
    let folder = deploy().join("chart").display().to_string();
    let install = ["install", "tollgate", &folder, "--namespace", NAMESPACE];
    let install = [&install[..], &["--create-namespace"]].concat();
    helm(&cluster, &chart, &install);
    run(&cluster, began).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_manifests_lead_to_a_denial_in_four_commands() {
    if !pod::can_run() {
        return;
    }
    let Some(cluster) = Start::default().start() else {
        return;
    };
    let began = Instant::now();
    let folder = deploy().join("manifests").display().to_string();
    let apply = ["apply", "--server-side", "-k", &folder];
    cluster.kubectl(&apply).succeed();
    run(&cluster, began).await;
}
