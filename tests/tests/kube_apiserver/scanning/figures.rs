//! The figures of the background scan, for `cargo xtask scan`.

mod policy_reporter;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use reqwest::Client;
use serde_json::{Value, json};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::kubernetes::service::Service;
use tollgate_tests::kubernetes::{Cluster, Start as ClusterStart, bulk};
use tollgate_tests::process::thread_time;
use tollgate_tests::server::Server;
use tollgate_tests::{guests, wat};

use self::policy_reporter::{Counts, PolicyReporter};
use super::{TEAMS, matched, replica, resources, sum, team, teams};
use crate::fixtures::{config_map, configuration, labelled, path_of};
use crate::installed::SYSTEM;
use crate::plugins_as_resources::{apply, define};
use crate::scan::{define_reports, reports, versions};

/// The plugins that answer. Another one always traps.
const PLUGINS: usize = 16;
/// One object in so many has no team, and the first plugin denies it.
const WITHOUT_TEAM: usize = 100;
/// Scans of all objects beside which admission is measured.
const ROUNDS: usize = 3;
/// Time from the beginning of a scan to that of the next.
const INTERVAL: &str = "60s";
/// Calls after which Tollgate does not call the plugin that traps again in the same scan.
const FAULTS: f64 = 20.0;
/// The thread of the scan.
const SCANNER: &str = "tollgate-scan";
/// Time between two looks at that thread.
const POLL: Duration = Duration::from_millis(250);
/// Time limit for the webhook to be registered.
const LIMIT: Duration = Duration::from_secs(120);
const TRAP: &str =
    "(func (export \"tollgate:admission/validating@0.1.0#validate\") (result i32) unreachable)";

/// What the other tasks need to know.
#[derive(Default)]
struct Phase {
    /// The scan calls plugins.
    is_scanning: AtomicBool,
    is_over: AtomicBool,
}

/// Asks for an object without storing it. Returns whether it is allowed, and the latency.
async fn admit(client: &Client, cluster: &Cluster, labels: Value) -> (bool, Duration) {
    let object = labelled(config_map(&team(0), "probe", "a"), labels);
    let path = format!("{}?dryRun=All", path_of(&object));
    let began = Instant::now();
    let (status, answer) = bulk::post(client, cluster, &path, &object).await;
    assert!([201, 403, 422].contains(&status), "{answer}");
    (status == 201, began.elapsed())
}

/// Sends 20 requests each second. Returns their latencies, and whether a scan was under way.
async fn load(cluster: Arc<Cluster>, phase: Arc<Phase>) -> Vec<(bool, Duration)> {
    let client = bulk::client(&cluster);
    let mut latencies = Vec::new();
    while !phase.is_over.load(Ordering::Relaxed) {
        let before = phase.is_scanning.load(Ordering::Relaxed);
        let (is_allowed, latency) =
            admit(&client, &cluster, json!({"tier": "front", "team": "shop"})).await;
        assert!(is_allowed, "a request was denied");
        if phase.is_scanning.load(Ordering::Relaxed) == before {
            latencies.push((before, latency));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    latencies
}

/// Returns a percentile of the latencies beside a scan or without, in milliseconds, and their number.
fn percentile(latencies: &[(bool, Duration)], beside: bool, percent: usize) -> (f64, usize) {
    let own = latencies.iter().filter(|(of, _)| *of == beside);
    let mut own: Vec<Duration> = own.map(|(_, latency)| *latency).collect();
    own.sort();
    let index = (own.len() * percent / 100).min(own.len().saturating_sub(1));
    let at = own.get(index).copied().unwrap_or_default();
    (at.as_secs_f64() * 1_000.0, own.len())
}

/// The bytes of etcd's data that are in use.
async fn etcd_bytes(cluster: &Cluster) -> u64 {
    let status = cluster.etcd("/v3/maintenance/status", &json!({})).await;
    let bytes = status["dbSizeInUse"].as_str();
    let bytes = bytes.and_then(|text| text.parse().ok());
    bytes.unwrap_or_else(|| panic!("etcd does not tell its size: {status}"))
}

fn objects_from_environment() -> usize {
    let given = std::env::var("TOLLGATE_SCAN_OBJECTS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(10_000)
}

fn policies() -> Configuration {
    let mut configuration = configuration();
    let wasm = guests::build("required-labels");
    for index in 0..PLUGINS {
        // The first plugin denies the objects without a team, and all others have the label that they want.
        let label = if index == 0 { "team" } else { "tier" };
        let more =
            json!({"match": matched(&["configmaps"]), "settings": {"labels": {(label): null}}});
        configuration.plugin(&format!("labels-{index:02}"), &wasm, more);
    }
    let mut matched = matched(&["configmaps"]);
    matched["namespaces"] = json!([team(TEAMS - 1)]);
    let more = json!({"match": matched, "failurePolicy": "Ignore"});
    configuration.plugin_of("traps", &wat::plugin("validator", TRAP), more);
    configuration
}

/// Creates the definitions, the namespaces and the objects. Returns whether the definitions of reports are the
/// published ones.
async fn prepare(cluster: &Arc<Cluster>, count: usize) -> bool {
    define(cluster);
    let are_published = policy_reporter::define_published(cluster);
    if !are_published {
        define_reports(cluster);
    }
    cluster.namespace(SYSTEM);
    for namespace in teams() {
        cluster.namespace(&namespace);
    }
    let anchor = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "tollgate-anchor"}});
    apply(cluster, &anchor);
    let objects = (0..count).map(|index| {
        let object = config_map(&team(index % TEAMS), &format!("map-{index:06}"), "a");
        match index % WITHOUT_TEAM {
            0 => labelled(object, json!({"tier": "front"})),
            _ => labelled(object, json!({"tier": "front", "team": "shop"})),
        }
    });
    bulk::create(cluster, objects.map(|object| (path_of(&object), object))).await;
    are_published
}

/// Metrics of the scan.
async fn count(server: &Server, name: &str) -> f64 {
    sum(&[server], &format!("tollgate_scan{name}"), &[]).await
}

async fn complete(server: &Server) -> f64 {
    sum(&[server], "tollgate_scans_total", &[("end", "complete")]).await
}

async fn wait_for_scans(server: &Server, scans: f64) {
    while complete(server).await < scans {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until kube-apiserver asks the server.
async fn wait_for_webhook(cluster: &Cluster) {
    let (client, began) = (bulk::client(cluster), Instant::now());
    while admit(&client, cluster, json!({"tier": "front"})).await.0 {
        assert!(began.elapsed() < LIMIT, "no webhook is registered");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Makes the server evaluate all objects again, as often as there are rounds: their Namespaces change.
async fn scan_all_again(cluster: &Cluster, server: &Server, phase: &Phase, count_of_calls: f64) {
    for round in 0..ROUNDS {
        for namespace in teams() {
            let label = format!("round=r{round}");
            cluster
                .kubectl(&["label", "--overwrite", "namespace", &namespace, &label])
                .succeed();
        }
        // The counts follow at the end of a scan. Its thread works before.
        let scanned = || thread_time(server.process(), SCANNER);
        let (begin, mut last) = (count(server, "_calls_total").await, scanned());
        while count(server, "_calls_total").await - begin < count_of_calls {
            tokio::time::sleep(POLL).await;
            let now = scanned();
            let is_scanning = now - last > POLL / 50;
            phase.is_scanning.store(is_scanning, Ordering::Relaxed);
            last = now;
        }
        phase.is_scanning.store(false, Ordering::Relaxed);
    }
}

/// Returns what the summaries of the reports say, and how many results of each kind they list.
fn counts(reports: &[Value]) -> (Counts, Counts) {
    let (mut summaries, mut listed) = (policy_reporter::none(), policy_reporter::none());
    for report in reports {
        policy_reporter::add(&mut summaries, &report["summary"]);
        for result in report["results"].as_array().into_iter().flatten() {
            let kind = result["result"].as_str().unwrap_or_default();
            policy_reporter::add(&mut listed, &json!({(kind): 1}));
        }
    }
    (summaries, listed)
}

fn print_latencies(latencies: &[(bool, Duration)]) {
    for (name, beside) in [("beside a scan", true), ("without", false)] {
        for percent in [50, 90, 99] {
            let (milliseconds, samples) = percentile(latencies, beside, percent);
            println!("admission {name}: p{percent} {milliseconds:.1} ms of {samples} requests");
        }
    }
    for percent in [50, 90, 99] {
        let ratio =
            percentile(latencies, true, percent).0 / percentile(latencies, false, percent).0;
        println!("admission: p{percent} beside a scan / without: {ratio:.2}");
    }
}

/// Prints the figures of a scan; `cargo xtask scan` runs it. Only what does not depend on the machine is checked.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures for minutes; run it by `cargo xtask scan`"]
async fn prints_figures_of_a_scan() {
    let Some(cluster) = ClusterStart::default().start() else {
        return;
    };
    let cluster = Arc::new(cluster);
    let objects = objects_from_environment();
    let are_published = prepare(&cluster, objects).await;
    let before = etcd_bytes(&cluster).await;
    let kubeconfig: PathBuf = cluster.folder().join("kubeconfig");
    let service = Service::new(&cluster, SYSTEM, "gate").await;
    let settings = json!({
        "enabled": true, "interval": INTERVAL, "resources": resources(), "maxRate": 100_000, "maxReport": "1Mi",
    });
    let server = tokio::task::block_in_place(|| {
        replica(&kubeconfig, &service, "replica-0", policies(), &settings)
    });
    println!(
        "objects {objects}, plugins {PLUGINS} and one that traps; published definitions: {are_published}"
    );

    wait_for_scans(&server, 1.0).await;
    let seconds = count(&server, "_duration_seconds").await;
    let (calls, writes) = (
        count(&server, "_calls_total").await,
        count(&server, "_report_writes_total").await,
    );
    let written = reports(&cluster);
    let bytes: usize = written.iter().map(|report| report.to_string().len()).sum();
    let after = etcd_bytes(&cluster).await;
    let (summaries, listed) = counts(&written);
    println!(
        "first scan: {seconds:.1} s, {calls} calls, {writes} reports, {bytes} bytes of JSON, {summaries:?}"
    );
    println!("etcd: {before} bytes before, {after} bytes after");
    println!(
        "memory of the results: {} bytes",
        count(&server, "_memory_bytes").await
    );
    println!(
        "resident memory of the replica: {} KiB, peak {} KiB",
        server.resident_kib(),
        server.peak_kib()
    );
    assert_eq!(summaries["fail"] as usize, objects.div_ceil(WITHOUT_TEAM));
    let of_bad = (0..objects).filter(|index| index % TEAMS == TEAMS - 1);
    assert_eq!(
        summaries["error"] as usize,
        of_bad.count(),
        "the plugin that traps"
    );

    wait_for_scans(&server, 2.0).await;
    let second = count(&server, "_duration_seconds").await;
    let more = count(&server, "_calls_total").await - calls;
    let more_writes = count(&server, "_report_writes_total").await - writes;
    println!(
        "second scan: {second:.1} s, {more} calls (of the plugin that traps), {more_writes} writes"
    );
    assert!(more <= FAULTS, "{more} calls");
    assert_eq!(versions(&reports(&cluster)), versions(&written));

    let reporter = PolicyReporter::start(&cluster, SYSTEM);
    match &reporter {
        Some(reporter) => {
            reporter.wait_for(&summaries, &listed).await;
            println!(
                "Policy Reporter shows the same: summaries {summaries:?}, listed results {listed:?}"
            );
        }
        None => println!("Policy Reporter was NOT compared: no program was given"),
    }
    drop(reporter);

    wait_for_webhook(&cluster).await;
    let phase = Arc::new(Phase::default());
    let load = tokio::spawn(load(cluster.clone(), phase.clone()));
    scan_all_again(&cluster, &server, &phase, (objects * PLUGINS) as f64).await;
    phase.is_over.store(true, Ordering::Relaxed);
    print_latencies(&load.await.expect("the client does not panic"));
    let all_writes = count(&server, "_report_writes_total").await;
    println!(
        "{ROUNDS} further scans of all objects: {} writes",
        all_writes - writes
    );
    assert_eq!(all_writes, writes, "equal results are not written again");
}
