//! The figures of lookups, for `cargo xtask lookups`.

mod estimates;
mod load;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_tests::kubernetes::{Cluster, Start as ClusterStart, bulk};
use tollgate_tests::server::{Server, metric};

use self::load::{Kind, print_costs};
use super::{SYSTEM, ingress, ingresses, serve};
use crate::plugins_as_resources::define;

const NAMESPACES: usize = 50;
const CONFIG_MAPS: usize = 20_000;
/// Time limit for a server to read the objects. A server that starts waits ten seconds.
const READ_LIMIT: Duration = Duration::from_secs(180);
/// Bytes of a MiB, and KiB of one.
const MEBIBYTE: f64 = 1024.0 * 1024.0;
const KIB_OF_MEBIBYTE: f64 = 1024.0;

fn numbers_from_environment() -> Vec<usize> {
    let given = std::env::var("TOLLGATE_LOOKUP_INGRESSES").unwrap_or_default();
    let numbers: Vec<usize> = given
        .split(',')
        .filter_map(|text| text.parse().ok())
        .collect();
    if numbers.is_empty() {
        vec![10_000, 50_000, 100_000]
    } else {
        numbers
    }
}

fn space(index: usize) -> String {
    format!("many-{}", index % NAMESPACES)
}

/// Returns an Ingress of some 1.2 kB, as kube-apiserver stores it.
fn stored_ingress(index: usize) -> Value {
    let name = format!("web-{index}");
    let mut object = ingress(&space(index), &name, &format!("shop-{index}.example"));
    object["metadata"]["labels"] = json!({
        "app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "Helm", "team": format!("team-{}", index % 200),
    });
    object["metadata"]["annotations"] = json!({"note": "x".repeat(400)});
    object["spec"]["ingressClassName"] = json!("nginx");
    object
}

fn stored_config_map(index: usize) -> Value {
    let value = format!(
        "registry-{index}.example.com, registry.example.com/team-{}",
        index % 200
    );
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": space(index), "name": format!("registries-{index}"), "labels": {"team": format!("team-{}", index % 200)}},
        "data": {"registries": value, "notes": "x".repeat(400)},
    })
}

fn lookup_metric(page: &str, name: &str) -> f64 {
    metric(page, &format!("tollgate_lookup_{name}"), &[])
}

/// Waits until a server has read the objects, and returns its metrics.
async fn until_read(server: &Server, objects: usize) -> String {
    let began = Instant::now();
    loop {
        let page = server.metrics().await;
        let read = lookup_metric(&page, "objects") as usize;
        if read >= objects {
            return page;
        }
        assert!(began.elapsed() < READ_LIMIT, "{read} of {objects}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Prints the memory of a server that has read the objects.
async fn print_memory(server: &Server, objects: usize, without_kib: u64) {
    let page = until_read(server, objects).await;
    let estimated = lookup_metric(&page, "memory_bytes") / MEBIBYTE;
    let mebibytes = |kib: u64| kib as f64 / KIB_OF_MEBIBYTE;
    println!(
        "{objects} Ingresses: resident {:.1} MiB, peak {:.1} MiB, without the lookup {:.1} MiB; the table by its own \
         estimate {estimated:.1} MiB",
        mebibytes(server.resident_kib()),
        mebibytes(server.peak_kib()),
        mebibytes(without_kib)
    );
}

async fn create(cluster: &Cluster, from: usize, to: usize) {
    let path = |index: usize| {
        let space = space(index);
        format!("/apis/networking.k8s.io/v1/namespaces/{space}/ingresses")
    };
    let objects = (from..to).map(|index| (path(index), stored_ingress(index)));
    bulk::create(cluster, objects).await;
}

/// Prints the figures of lookups; `cargo xtask lookups` runs it. Only what does not depend on the machine is checked.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures for minutes; run it by `cargo xtask lookups`"]
async fn prints_figures_of_lookups() {
    let Some(cluster) = ClusterStart::default().start() else {
        return;
    };
    let cluster = &cluster;
    define(cluster);
    cluster.namespace(SYSTEM);
    for index in 0..NAMESPACES {
        cluster.namespace(&space(index));
    }
    let mut there = 0;
    for number in numbers_from_environment() {
        create(cluster, there, number).await;
        there = number;
        let with = serve(cluster, Some(ingresses(&json!("all"))));
        let without = serve(cluster, None);
        print_memory(&with, number, without.resident_kib()).await;
        let sides = [
            ("no lookup, no grant", &without, Kind::Nothing),
            ("no lookup", &with, Kind::Nothing),
            ("1 lookup", &with, Kind::Own(1)),
            ("33 lookups", &with, Kind::Own(33)),
            ("33 lookups of unknown hosts", &with, Kind::Unknown(33)),
        ];
        print_costs(&sides, number).await;
    }
    let path = |index: usize| format!("/api/v1/namespaces/{}/configmaps", space(index));
    let config_maps = (0..CONFIG_MAPS).map(|index| (path(index), stored_config_map(index)));
    bulk::create(cluster, config_maps).await;
    estimates::print(cluster, there, CONFIG_MAPS).await;
}
