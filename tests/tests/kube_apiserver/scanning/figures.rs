//! The figures of the background scan, for `cargo xtask scan`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tollgate_tests::guests;
use tollgate_tests::kubernetes::service::Service;
use tollgate_tests::kubernetes::{Cluster, Start as ClusterStart};

use super::{TEAMS, matched, replica, resources, sum, team, teams, total};
use crate::fixtures::{config_map, configuration, labelled, path_of};
use crate::installed::SYSTEM;
use crate::plugins_as_resources::{apply, define};
use crate::scan::{define_reports, reports, versions};

/// Which part of the run a request belongs to.
const WARMING: u8 = 0;
const BESIDE: u8 = 1;
const BETWEEN: u8 = 2;
const WITHOUT: u8 = 3;
const END: u8 = 4;

/// Creates objects by several clients at the same time.
async fn create_many(cluster: &Arc<Cluster>, objects: Vec<Value>) {
    const CLIENTS: usize = 8;
    let objects = Arc::new(objects);
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (cluster, objects) = (cluster.clone(), objects.clone());
        clients.spawn(async move {
            for object in objects.iter().skip(client).step_by(CLIENTS) {
                let (status, answer) = cluster
                    .request(Method::POST, &path_of(object), Some(object))
                    .await;
                assert_eq!(status, 201, "{answer}");
            }
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.expect("a client does not panic");
    }
}

/// Sends dry runs, 20 each second, and returns the latency of each with its part.
async fn admit(cluster: Arc<Cluster>, part: Arc<AtomicU8>) -> Vec<(u8, Duration)> {
    let object = config_map(&team(0), "probe", "a");
    let object = labelled(object, json!({"tier": "front", "team": "shop"}));
    let path = format!("{}?dryRun=All", path_of(&object));
    let mut latencies = Vec::new();
    loop {
        let now = part.load(Ordering::Relaxed);
        if now == END {
            return latencies;
        }
        let began = Instant::now();
        let (status, answer) = cluster.request(Method::POST, &path, Some(&object)).await;
        assert_eq!(status, 201, "{answer}");
        latencies.push((now, began.elapsed()));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Returns a percentile of the latencies of a part, in milliseconds, and their number.
fn percentile(latencies: &[(u8, Duration)], part: u8, percent: usize) -> (f64, usize) {
    let own = latencies.iter().filter(|(of, _)| *of == part);
    let mut own: Vec<Duration> = own.map(|(_, latency)| *latency).collect();
    own.sort();
    let index = (own.len() * percent / 100).min(own.len().saturating_sub(1));
    let at = own.get(index).copied().unwrap_or_default();
    (at.as_secs_f64() * 1_000.0, own.len())
}

/// The size of etcd's data, as kube-apiserver reports it.
async fn etcd_bytes(cluster: &Cluster) -> f64 {
    let page = cluster.metrics().await;
    let lines = page.lines();
    let sizes = lines.filter(|line| line.starts_with("apiserver_storage_size_bytes"));
    let sizes = sizes.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    sizes.sum()
}

fn objects_from_environment() -> usize {
    let given = std::env::var("TOLLGATE_SCAN_OBJECTS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(10_000)
}

/// Prints the figures of a scan; `cargo xtask scan` runs it. Only what does not depend on the machine is checked.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures for minutes; run it by `cargo xtask scan`"]
async fn prints_figures_of_a_scan() {
    const PLUGINS: usize = 16;
    const WITHOUT_TEAM: usize = 100;
    let Some(cluster) = ClusterStart::default().start() else {
        return;
    };
    let cluster = Arc::new(cluster);
    define(&cluster);
    define_reports(&cluster);
    cluster.namespace(SYSTEM);
    for namespace in teams() {
        cluster.namespace(&namespace);
    }
    let count = objects_from_environment();
    let objects = (0..count).map(|index| {
        let object = config_map(&team(index % TEAMS), &format!("map-{index:06}"), "a");
        match index % WITHOUT_TEAM {
            0 => labelled(object, json!({"tier": "front"})),
            _ => labelled(object, json!({"tier": "front", "team": "shop"})),
        }
    });
    create_many(&cluster, objects.collect()).await;
    let before = etcd_bytes(&cluster).await;
    let mut configuration = configuration();
    for index in 0..PLUGINS {
        // The first plugin denies the objects without a team, and all others have the label that they want.
        let label = if index == 0 { "team" } else { "tier" };
        let more =
            json!({"match": matched(&["configmaps"]), "settings": {"labels": {(label): null}}});
        let wasm = guests::build("required-labels");
        configuration.plugin(&format!("labels-{index:02}"), &wasm, more);
    }
    let kubeconfig: PathBuf = cluster.folder().join("kubeconfig");
    let anchor = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "tollgate-anchor"}});
    apply(&cluster, &anchor);
    let service = Service::new(&cluster, SYSTEM, "gate").await;
    let settings = json!({
        "enabled": true, "interval": "60s", "resources": resources(), "maxRate": 100_000, "maxReport": "1Mi",
    });
    let server = tokio::task::block_in_place(|| {
        replica(&kubeconfig, &service, "replica-0", configuration, &settings)
    });
    let part = Arc::new(AtomicU8::new(WARMING));
    let load = tokio::spawn(admit(cluster.clone(), part.clone()));
    let complete = async || sum(&[&server], "tollgate_scans_total", &[("end", "complete")]).await;
    let calls = async || sum(&[&server], "tollgate_scan_calls_total", &[]).await;
    let writes = async || sum(&[&server], "tollgate_scan_report_writes_total", &[]).await;
    let until = async |scans: f64| {
        while complete().await < scans {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    part.store(BESIDE, Ordering::Relaxed);
    until(1.0).await;
    part.store(BETWEEN, Ordering::Relaxed);
    let seconds = sum(&[&server], "tollgate_scan_duration_seconds", &[]).await;
    let (first_calls, first_writes) = (calls().await, writes().await);
    let written = reports(&cluster);
    let after = etcd_bytes(&cluster).await;
    until(2.0).await;
    let second_seconds = sum(&[&server], "tollgate_scan_duration_seconds", &[]).await;
    // The next scan begins at most a minute after the second one began.
    part.store(WITHOUT, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(25)).await;
    part.store(END, Ordering::Relaxed);
    let latencies = load.await.expect("the client does not panic");
    let bytes: usize = written.iter().map(|report| report.to_string().len()).sum();
    println!("objects {count}, plugins {PLUGINS}");
    println!(
        "first scan: {seconds:.1} s, {first_calls} calls, {first_writes} reports, {bytes} bytes"
    );
    println!(
        "second scan: {second_seconds:.1} s, {} calls, {} writes",
        calls().await - first_calls,
        writes().await - first_writes
    );
    println!(
        "memory of the results: {} bytes",
        sum(&[&server], "tollgate_scan_memory_bytes", &[]).await
    );
    println!("etcd: {before} bytes before, {after} bytes after");
    for (name, of) in [("beside a scan", BESIDE), ("without", WITHOUT)] {
        for percent in [50, 99] {
            let (milliseconds, samples) = percentile(&latencies, of, percent);
            println!("admission {name}: p{percent} {milliseconds:.1} ms of {samples} requests");
        }
    }
    assert_eq!(
        total(&written, "fail") as usize,
        count.div_ceil(WITHOUT_TEAM)
    );
    assert_eq!((calls().await, writes().await), (first_calls, first_writes));
    assert_eq!(versions(&reports(&cluster)), versions(&written));
}
