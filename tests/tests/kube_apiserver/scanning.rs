//! The background scan of two replicas, with the rights of the chart and no others.

mod figures;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_kube_apiserver::helm::Major;
use tollgate_tests::chart::Chart;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::kubernetes::service::Service;
use tollgate_tests::kubernetes::{Cluster, Start as ClusterStart};
use tollgate_tests::server::{Server, Start, metric};

use crate::fixtures::{act, act_with, config_map, configuration, deployment, labelled};
use crate::installed::{SYSTEM, service_account};
use crate::plugins_as_resources::{apply, define};
use crate::scan::{create, define_reports, reports, scan, versions};

/// The number of namespaces with objects.
const TEAMS: usize = 12;
/// Time limit for a scan to show its effect on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// The shortest interval.
const INTERVAL: &str = "10s";

/// The resources that the replicas scan.
fn resources() -> Value {
    json!([
        {"apiGroups": [""], "resources": ["configmaps"]},
        {"apiGroups": ["apps"], "resources": ["deployments"]},
    ])
}

fn team(index: usize) -> String {
    format!("team-{index:02}")
}

fn teams() -> Vec<String> {
    (0..TEAMS).map(team).collect()
}

/// A `match` for creations and changes in all teams' namespaces.
fn matched(resources: &[&str]) -> Value {
    json!({"namespaces": teams(), "rules": [{
        "operations": ["CREATE", "UPDATE"], "apiGroups": ["", "apps"], "apiVersions": ["*"], "resources": resources,
    }]})
}

/// A policy with an exception, and a plugin that cannot be loaded.
fn policies() -> Configuration {
    let mut configuration = configuration();
    let settings = json!({"forbid": {"/metadata/labels/tier": "forbidden"}});
    let exceptions = json!([{"name": "legacy", "names": ["excepted"], "until": "2999-12-31", "reason": "legacy"}]);
    let more = json!({"exceptions": exceptions});
    act_with(
        &mut configuration,
        "guard",
        matched(&["configmaps"]),
        settings,
        more,
    );
    let broken = json!({"match": matched(&["deployments"]), "failurePolicy": "Ignore"});
    configuration.plugin_of("broken", b"no wasm", broken);
    configuration
}

/// Gives the service account the rights that the chart has for the scan.
fn allow_scan(cluster: &Cluster, chart: &Chart) {
    let values = format!("scan.resources={}", resources());
    let objects = chart.objects_with(&["--set", "scan.enabled=true", "--set-json", &values]);
    for kind in ["ClusterRole", "ClusterRoleBinding"] {
        apply(cluster, objects.get(kind, "tollgate-scan"));
    }
}

/// Starts a replica that scans.
fn replica(
    kubeconfig: &Path,
    service: &Service,
    name: &str,
    configuration: Configuration,
    scan: &Value,
) -> Server {
    let registration =
        json!({"service": format!("gate:{}", service.port()), "anchor": "tollgate-anchor"});
    let cluster = json!({
        "enabled": true, "namespace": SYSTEM, "replica": name, "registration": registration,
    });
    let configuration = configuration
        .with("admin", json!({"listen": "127.0.0.1:0"}))
        .with("cluster", cluster)
        .with("scan", scan.clone());
    let ca = configuration.folder().join("tls/ca.crt");
    let server = Start::default()
        .environment("KUBECONFIG", &kubeconfig.display().to_string())
        .trusting(ca)
        .start(configuration);
    service.add(server.address());
    server
}

/// Waits until something is there.
async fn wait_for<T>(what: &str, mut find: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = find().await {
            println!("{what} after {:?}", began.elapsed());
            return found;
        }
        assert!(began.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Returns a metric of the scans of all these replicas together.
async fn sum(servers: &[&Server], name: &str, labels: &[(&str, &str)]) -> f64 {
    let mut sum = 0.0;
    for server in servers {
        sum += metric(&server.metrics().await, name, labels);
    }
    sum
}

/// Waits until each of the replicas has completed two more scans.
async fn two_more_scans(servers: &[&Server]) {
    let complete = [("end", "complete")];
    for server in servers {
        let count = async || sum(&[server], "tollgate_scans_total", &complete).await;
        let before = count().await;
        wait_for("two more scans", async || {
            (count().await >= before + 2.0).then_some(())
        })
        .await;
    }
}

/// The chart, and a cluster with the definitions. None if something that they need is missing.
fn begin() -> Option<(Chart, Cluster)> {
    let chart = Chart::with(Major::V4)?;
    let cluster = ClusterStart::default().start()?;
    define(&cluster);
    define_reports(&cluster);
    cluster.namespace(SYSTEM);
    Some((chart, cluster))
}

/// The sum of a count in the summaries of all reports.
fn total(reports: &[Value], key: &str) -> u64 {
    let counts = reports.iter().map(|report| &report["summary"][key]);
    counts.filter_map(Value::as_u64).sum()
}

/// Returns what the page asks each replica about its scans.
async fn pages(servers: &[&Server], query: &str) -> Vec<Value> {
    let mut pages = Vec::new();
    for server in servers {
        let answer = server.get_admin(&format!("/scan?{query}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        pages.push(answer.json());
    }
    pages
}

/// Returns the entries of all pages.
fn entries(pages: &[Value]) -> Vec<&Value> {
    let results = pages.iter().map(|page| page["results"].as_array());
    results.flatten().flatten().collect()
}

/// The pages of the replicas together say what the reports say, and name no object.
async fn assert_pages_agree(servers: &[&Server], reports: &[Value]) {
    let sums = pages(servers, "by=namespace&limit=200").await;
    for key in ["fail", "skip", "error", "warn", "pass"] {
        let of_pages = sums.iter().map(|page| page["summary"][key].as_u64());
        let of_pages: u64 = of_pages.flatten().sum();
        assert_eq!(of_pages, total(reports, key), "{key}: {sums:#?}");
    }
    let namespaces = entries(&sums)
        .into_iter()
        .map(|one| one["namespace"].as_str());
    let mut namespaces: Vec<_> = namespaces.flatten().map(str::to_owned).collect();
    namespaces.sort();
    assert_eq!(namespaces, teams(), "every namespace once");
    for page in &sums {
        assert_eq!(
            (&page["enabled"], &page["replicas"]),
            (&json!(true), &json!(2))
        );
        assert_eq!(
            (&page["changesHands"], &page["last"]["end"]),
            (&json!(false), &json!("complete"))
        );
        assert!(
            page["last"]["began"].is_string() && page["countedIn"].is_string(),
            "{page}"
        );
        let text = page.to_string();
        assert!(
            !text.contains("bad-0") && !text.contains("forbidden"),
            "{text}"
        );
    }
    let (mut excepted, mut refused) = (0, 0);
    for server in servers {
        let answer = server.get_admin("/exceptions?search=legacy").await.json();
        let found = &answer["exceptions"][0]["scan"];
        excepted += found["objects"].as_u64().unwrap_or_default();
        refused += found["refused"].as_u64().unwrap_or_default();
        assert_eq!(found["state"], "needed", "{answer:#}");
    }
    assert_eq!((excepted, refused), (TEAMS as u64, TEAMS as u64));
    let broken = pages(servers, "search=broken&result=error").await;
    let broken = entries(&broken);
    assert_eq!(broken.len(), 1, "{broken:#?}");
    assert_eq!(
        (&broken[0]["namespace"], &broken[0]["error"]),
        (&json!(team(0)), &json!(1))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_a_scan_that_writes_only_what_changed() {
    let Some((chart, cluster)) = begin() else {
        return;
    };
    let cluster = &cluster;
    let forbidden = json!({"tier": "forbidden"});
    for namespace in teams() {
        cluster.namespace(&namespace);
        for name in ["bad-0", "bad-1", "excepted"] {
            let object = labelled(config_map(&namespace, name, "a"), forbidden.clone());
            create(cluster, &object);
        }
        create(cluster, &config_map(&namespace, "good", "a"));
    }
    create(cluster, &deployment(&team(0), "web"));
    let kubeconfig = service_account(cluster);
    allow_scan(cluster, &chart);
    let service = Service::new(cluster, SYSTEM, "gate").await;
    let settings = json!({"enabled": true, "interval": INTERVAL, "resources": resources()});
    let start = |name: &str| {
        tokio::task::block_in_place(|| replica(&kubeconfig, &service, name, policies(), &settings))
    };
    let servers = [start("replica-0"), start("replica-1")];
    let servers: Vec<&Server> = servers.iter().collect();

    // Both have a part, and all reports are there.
    let fails = 2 * TEAMS as u64;
    wait_for("all reports", async || {
        (total(&reports(cluster), "fail") == fails).then_some(())
    })
    .await;
    let parts = wait_for("two parts", async || {
        let mut parts = Vec::new();
        for server in &servers {
            parts.push(sum(&[server], "tollgate_scan_objects", &[]).await);
        }
        let are_shared = parts.iter().all(|part| *part >= 4.0);
        are_shared.then_some(parts)
    })
    .await;
    println!("objects of the replicas: {parts:?}");
    two_more_scans(&servers).await;
    let written = reports(cluster);
    assert_eq!(written.len(), TEAMS, "{written:#?}");
    assert_eq!(
        (total(&written, "skip"), total(&written, "error")),
        (2 * TEAMS as u64, 1)
    );
    assert_pages_agree(&servers, &written).await;
    let of_team = |reports: &[Value], index: usize| {
        let mut own = reports.iter();
        let own = own.find(|report| report["metadata"]["namespace"] == team(index).as_str());
        own.unwrap_or_else(|| panic!("no report of {}", team(index)))
            .clone()
    };
    let report = of_team(&written, 0);
    let results = report["results"].as_array().expect("results");
    let policies: Vec<_> = results
        .iter()
        .map(|result| result["policy"].clone())
        .collect();
    assert_eq!(policies, ["broken", "guard", "guard", "guard", "guard"]);
    assert_eq!(results[0]["properties"]["fault"], "not-loaded");
    // Both phases are excepted, and only the validator would deny.
    for (result, without) in results[3..].iter().zip(["pass", "fail"]) {
        assert_eq!(result["properties"]["exception"], "legacy");
        assert_eq!(result["properties"]["without"], without);
    }

    // The command line has the same results.
    let by_hand = scan(cluster, &self::policies(), &["-o", "json"]);
    let by_hand: Value = serde_json::from_str(&by_hand.stdout).expect("JSON");
    for key in ["fail", "skip", "error", "warn"] {
        assert_eq!(by_hand["summary"][key], total(&written, key), "{key}");
    }
    let objects = sum(&servers, "tollgate_scan_objects", &[]).await;
    assert_eq!(
        by_hand["objects"].as_f64(),
        Some(objects),
        "nothing twice, nothing left out"
    );

    // Nothing changes: no write, and no call but those of the plugin that had a fault, for its one object.
    let calls = async || sum(&servers, "tollgate_scan_calls_total", &[]).await;
    let writes = async || sum(&servers, "tollgate_scan_report_writes_total", &[]).await;
    let scans = async || sum(&servers, "tollgate_scans_total", &[("end", "complete")]).await;
    let before = (calls().await, writes().await, scans().await);
    two_more_scans(&servers).await;
    let after = (calls().await, writes().await, scans().await);
    assert_eq!(after.1, before.1);
    let of_faults = 2.0 * (after.2 - before.2 + 1.0);
    assert!(after.0 - before.0 <= of_faults, "{before:?}, {after:?}");
    assert_eq!(versions(&reports(cluster)), versions(&written));

    // An object is gone: one report changes.
    let gone = ["delete", "configmap", "bad-0", "-n", &team(3)];
    cluster.kubectl(&gone).succeed();
    let changed = wait_for("the report changes", async || {
        let now = reports(cluster);
        (total(&now, "fail") == fails - 1).then_some(now)
    })
    .await;
    assert_eq!(of_team(&changed, 3)["summary"]["fail"], 1);
    let before = versions(&written);
    let same = versions(&changed)
        .into_iter()
        .filter(|one| before.contains(one));
    assert_eq!(same.count(), TEAMS - 1);

    // Somebody deletes a report: it comes back.
    let deleted = [
        "delete",
        "reports.openreports.io",
        "tollgate",
        "-n",
        &team(5),
    ];
    cluster.kubectl(&deleted).succeed();
    wait_for("the report is back", async || {
        (reports(cluster).len() == TEAMS).then_some(())
    })
    .await;
    for server in &servers {
        let page = server.metrics().await;
        let failed = [("end", "failed")];
        assert_eq!(metric(&page, "tollgate_scans_total", &failed), 0.0);
        assert!(metric(&page, "tollgate_scan_memory_bytes", &[]) > 0.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_takes_over_and_names_what_it_may_not_read() {
    let Some((chart, cluster)) = begin() else {
        return;
    };
    let cluster = &cluster;
    let forbidden = json!({"tier": "forbidden"});
    for namespace in teams() {
        cluster.namespace(&namespace);
        create(
            cluster,
            &labelled(config_map(&namespace, "bad", "a"), forbidden.clone()),
        );
    }
    let kubeconfig = service_account(cluster);
    allow_scan(cluster, &chart);
    let service = Service::new(cluster, SYSTEM, "gate").await;
    // Without a list, everything that the rules match is scanned, also what the service account may not read.
    let settings = json!({"enabled": true, "interval": INTERVAL});
    let policies = || {
        let mut configuration = configuration();
        let settings = json!({"forbid": {"/metadata/labels/tier": "forbidden"}});
        let matched = matched(&["configmaps", "services"]);
        act(&mut configuration, "guard", matched, settings);
        configuration
    };
    let start = |name: &str| {
        tokio::task::block_in_place(|| replica(&kubeconfig, &service, name, policies(), &settings))
    };
    let (first, second) = (start("replica-0"), start("replica-1"));
    let missing = |report: &Value| {
        let annotations = &report["metadata"]["annotations"];
        annotations["tollgate.dev/not-scanned"] == "services"
    };
    wait_for("reports that name what is missing", async || {
        let now = reports(cluster);
        (now.len() == TEAMS && now.iter().all(missing)).then_some(())
    })
    .await;
    let page = first.metrics().await;
    assert_eq!(
        metric(&page, "tollgate_scans_total", &[("end", "complete")]),
        0.0
    );
    wait_for("pages that name what is missing", async || {
        let scanned = pages(&[&first, &second], "limit=1").await;
        let names = |page: &Value| {
            let last = &page["last"];
            last["end"] == "incomplete" && last["notScanned"] == json!(["services"])
        };
        scanned.iter().all(names).then_some(())
    })
    .await;
    service.remove(second.address());
    tokio::task::block_in_place(|| drop(second.stop()));
    wait_for("one replica has all objects", async || {
        let objects = sum(&[&first], "tollgate_scan_results", &[("result", "fail")]).await;
        (objects == TEAMS as f64).then_some(())
    })
    .await;
    let page = wait_for("one page has all namespaces", async || {
        let page = pages(&[&first], "").await.remove(0);
        (page["replicas"] == 1 && page["changesHands"] == false).then_some(page)
    })
    .await;
    assert_eq!(page["namespaces"], TEAMS as u64, "{page:#}");
}
