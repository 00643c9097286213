//! What `tollgate check` estimates, and what a process takes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_tests::cli;
use tollgate_tests::kubernetes::Cluster;
use tollgate_tests::server::Server;

use super::super::{ingresses, serve};
use super::{KIB_OF_MEBIBYTE, MEBIBYTE, lookup_metric, until_read};

/// Time after which a process has returned the memory that it needed to read the objects.
const SETTLED: Duration = Duration::from_secs(30);

/// Writes the objects of a resource into a file, as users do it.
fn dump(cluster: &Cluster, resource: &str) -> PathBuf {
    let path = cluster.folder().join(format!("{resource}.json"));
    let file = File::create(&path).expect("the dump can be created");
    let mut command: Command = cluster
        .kubectl(&["get", resource, "-A", "-o", "json"])
        .into();
    let status = command.stdout(Stdio::from(file)).status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "kubectl get {resource}"
    );
    path
}

/// Returns what `tollgate check` says about the only lookup, and the MiB that it estimates.
fn estimate(server: &Server, cluster: &Cluster, dump: &Path) -> (String, f64) {
    let mut command = cli::command(&["check", "--config"]);
    command.arg(server.configuration().path());
    command.arg("--objects").arg(dump);
    command.env("KUBECONFIG", cluster.folder().join("kubeconfig"));
    let ran = cli::run(command.env("NO_COLOR", "1"));
    let said = ran.said();
    let line = said.lines().find(|line| line.contains(" objects, about "));
    let line = line.unwrap_or_else(|| panic!("no estimate in: {said}"));
    let rest = line.split("about ").nth(1);
    let mebibytes = rest.and_then(|rest| rest.split(' ').next()?.parse().ok());
    (line.trim().to_owned(), mebibytes.expect("a number"))
}

/// Prints the estimate and the memory for three lookups.
pub(super) async fn print(cluster: &Cluster, of_ingresses: usize, of_config_maps: usize) {
    let mut labels = ingresses(&json!("all"));
    labels[0]["fields"] = json!(["/metadata/labels"]);
    labels[0]["indexes"] = json!({"team": "/metadata/labels/team"});
    let config_maps = json!([{
        "name": "ingresses", "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "fields": ["/data/registries"],
    }]);
    let hosts = ingresses(&json!("all"));
    let rows: [(&str, &str, usize, Value); 3] = [
        (
            "metadata only, one index",
            "ingresses",
            of_ingresses,
            labels,
        ),
        (
            "hosts and paths, one index",
            "ingresses",
            of_ingresses,
            hosts,
        ),
        (
            "one field, no index",
            "configmaps",
            of_config_maps,
            config_maps,
        ),
    ];
    for (name, resource, objects, lookups) in rows {
        let dump = dump(cluster, resource);
        // The same lookup, which selects no object: the watch takes memory, too.
        let mut empty = lookups.clone();
        empty[0]["labelSelector"] = json!({"matchLabels": {"selects": "nothing"}});
        let (server, empty) = (serve(cluster, Some(lookups)), serve(cluster, Some(empty)));
        let (line, estimated) = estimate(&server, cluster, &dump);
        let page = until_read(&server, objects).await;
        let own = lookup_metric(&page, "memory_bytes") / MEBIBYTE;
        tokio::time::sleep(SETTLED).await;
        let base = empty.resident_kib();
        let more = |kib: u64| (kib as f64 - base as f64) / KIB_OF_MEBIBYTE;
        let (measured, peak) = (more(server.resident_kib()), more(server.peak_kib()));
        println!(
            "{objects} {resource}, {name}: `{line}`; the metric says {own:.1} MiB; measured {measured:.1} MiB more \
             resident memory than without the objects, at most {peak:.1} MiB while reading; estimate / measured {:.2}",
            estimated / measured
        );
    }
}
