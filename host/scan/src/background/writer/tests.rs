//! Tests which reports are written, and which are left alone.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use tollgate_config::ReportFormat;

use super::*;
use crate::finding::Verdict;
use crate::finding::tests::{finding, judged, place};

fn replicas(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

fn alone() -> Share {
    Share::new("a", replicas(&["a"]))
}

/// Reports with a version that grows with each write.
#[derive(Default)]
struct Cluster {
    reports: RefCell<BTreeMap<(Option<String>, String), u32>>,
    writes: Cell<u32>,
    fails: Cell<bool>,
}

impl Reports for Cluster {
    async fn versions(&self, resource: &Served) -> Result<Vec<Version>, InventoryError> {
        let reports = self.reports.borrow();
        let own = reports
            .iter()
            .filter(|((namespace, _), _)| namespace.is_some() == resource.namespaced);
        let versions = own.map(|((namespace, name), version)| Version {
            namespace: namespace.clone(),
            name: name.clone(),
            resource_version: version.to_string(),
            ..Version::default()
        });
        Ok(versions.collect())
    }

    async fn write(
        &self,
        _resource: &Served,
        namespace: Option<&str>,
        desired: &[Value],
    ) -> Result<Written, InventoryError> {
        self.writes.set(self.writes.get() + 1);
        let mut written = Written::default();
        if self.fails.get() {
            written.failed.push("forbidden".to_owned());
            return Ok(written);
        }
        let mut reports = self.reports.borrow_mut();
        let before = reports.len();
        let namespace = namespace.map(str::to_owned);
        reports.retain(|(place, _), _| *place != namespace);
        written.deleted = before - reports.len();
        for report in desired {
            let name = report["metadata"]["name"]
                .as_str()
                .expect("a name")
                .to_owned();
            let version = 100 + self.writes.get();
            reports.insert((namespace.clone(), name.clone()), version);
            written.applied += 1;
            written.versions.push((name, version.to_string()));
        }
        Ok(written)
    }
}

async fn write(
    cluster: &Cluster,
    writer: &mut Writer,
    share: &mut Share,
    namespaces: &[&str],
) -> Outcome {
    write_without(&[], cluster, writer, share, namespaces).await
}

/// Writes the reports of a scan that could not read something.
async fn write_without(
    missing: &[&str],
    cluster: &Cluster,
    writer: &mut Writer,
    share: &mut Share,
    namespaces: &[&str],
) -> Outcome {
    let layout = Layout {
        format: ReportFormat::Openreports,
        name: "tollgate".to_owned(),
        max_bytes: 1 << 20,
        lists_passes: false,
        missing: missing.iter().map(ToString::to_string).collect(),
    };
    let with_results: BTreeSet<Option<String>> = namespaces
        .iter()
        .map(|name| Some((*name).to_owned()))
        .collect();
    let of = with_results.clone();
    let results = |namespace: &Option<String>| {
        let mut results = Results::default();
        if of.contains(namespace) {
            let object = place(namespace.as_deref(), "web");
            let judged = judged(vec![finding("labels", Verdict::Fail)]);
            results.add(object, judged);
        }
        results
    };
    let outcome = writer
        .write(cluster, &layout, share, with_results, results)
        .await;
    outcome.expect("the reports can be listed")
}

#[tokio::test]
async fn reports_are_written_once_and_again_only_if_somebody_touches_them() {
    let (cluster, mut writer) = (Cluster::default(), Writer::default());
    let first = write(&cluster, &mut writer, &mut alone(), &["bank", "shop"]).await;
    assert_eq!((first.written, cluster.writes.replace(0)), (2, 2));
    assert_eq!(first.summary.count(Verdict::Fail), 2);
    let second = write(&cluster, &mut writer, &mut alone(), &["bank", "shop"]).await;
    assert_eq!((second.written, cluster.writes.replace(0)), (0, 0));
    assert_eq!(second.summary.count(Verdict::Fail), 2);
    let touched = (Some("shop".to_owned()), "tollgate".to_owned());
    cluster.reports.borrow_mut().insert(touched, 7);
    write(&cluster, &mut writer, &mut alone(), &["bank", "shop"]).await;
    assert_eq!(cluster.writes.replace(0), 1);
    // The objects of a namespace are gone.
    let fourth = write(&cluster, &mut writer, &mut alone(), &["bank"]).await;
    assert_eq!((fourth.written, cluster.writes.replace(0)), (1, 1));
    assert_eq!(cluster.reports.borrow().len(), 1);
    let fifth = write(&cluster, &mut writer, &mut alone(), &["bank"]).await;
    assert_eq!((fifth.written, cluster.writes.replace(0)), (0, 0));
}

#[tokio::test]
async fn reports_of_other_replicas_are_left_alone_and_failures_are_tried_again() {
    let (cluster, mut writer) = (Cluster::default(), Writer::default());
    let foreign = (Some("shop".to_owned()), "tollgate".to_owned());
    cluster.reports.borrow_mut().insert(foreign, 7);
    let mut nothing = Share::new("b", replicas(&["a"]));
    let outcome = write(&cluster, &mut writer, &mut nothing, &["bank"]).await;
    assert_eq!((outcome.written, cluster.writes.get()), (0, 0));
    assert_eq!(cluster.reports.borrow().len(), 1);
    cluster.fails.set(true);
    for _ in 0..2 {
        let outcome = write(&cluster, &mut writer, &mut alone(), &["shop"]).await;
        assert_eq!(outcome.failed, ["forbidden"]);
    }
    assert_eq!(cluster.writes.get(), 2);
}

#[tokio::test]
async fn reports_stay_while_what_they_are_about_cannot_be_read() {
    let cluster = Cluster::default();
    let own = (Some("shop".to_owned()), "tollgate".to_owned());
    cluster.reports.borrow_mut().insert(own.clone(), 7);
    // A server that has just started has no results of earlier scans.
    let mut writer = Writer::default();
    for _ in 0..2 {
        let outcome = write_without(&["pods"], &cluster, &mut writer, &mut alone(), &[]).await;
        assert_eq!((outcome.written, cluster.writes.get()), (0, 0));
        assert_eq!(cluster.reports.borrow().get(&own), Some(&7));
    }
    // The list works again, and there is nothing to report.
    let outcome = write(&cluster, &mut writer, &mut alone(), &[]).await;
    assert_eq!((outcome.written, cluster.writes.get()), (1, 1));
    assert!(cluster.reports.borrow().is_empty());
}

#[tokio::test]
async fn report_of_before_a_restart_outlives_one_partial_scan() {
    let cluster = Cluster::default();
    let own = (Some("shop".to_owned()), "tollgate".to_owned());
    cluster.reports.borrow_mut().insert(own.clone(), 7);
    let mut writer = Writer::default();
    let partial = async |writer: &mut Writer| {
        write_without(&["pods"], &cluster, writer, &mut alone(), &["shop"]).await
    };
    // Results about pods are in the report, and this process has none.
    let first = partial(&mut writer).await;
    assert_eq!((first.written, cluster.writes.get()), (0, 0));
    assert_eq!(cluster.reports.borrow().get(&own), Some(&7));
    // Pods cannot be read at all: the rest must not become stale.
    partial(&mut writer).await;
    assert_eq!(cluster.writes.replace(0), 1);
    let same = partial(&mut writer).await;
    assert_eq!((same.written, cluster.writes.get()), (0, 0));
    // Where there is no report yet, the results are written at once.
    let new = Cluster::default();
    write_without(
        &["pods"],
        &new,
        &mut Writer::default(),
        &mut alone(),
        &["shop"],
    )
    .await;
    assert_eq!(new.writes.get(), 1);
}
