//! The counts are those of the reports, and do not depend on them.

use std::collections::BTreeMap;

use serde_json::Value;
use tollgate_admission::scan::{By, ScanSearch};
use tollgate_cluster::{Served, Version, Written};
use tollgate_config::ReportFormat;

use super::*;
use crate::background::memory::Remembered;
use crate::finding::tests::{finding, place};
use crate::finding::{Summary, Verdict};
use crate::object::tests::served;

/// Reports that can be listed and written, or not.
struct Cluster {
    is_away: bool,
}

impl Reports for Cluster {
    async fn versions(&self, _resource: &Served) -> Result<Vec<Version>, InventoryError> {
        match self.is_away {
            true => Err(InventoryError::Missing {
                what: "list reports".to_owned(),
            }),
            false => Ok(Vec::new()),
        }
    }

    async fn write(
        &self,
        _resource: &Served,
        _namespace: Option<&str>,
        desired: &[Value],
    ) -> Result<Written, InventoryError> {
        Ok(Written {
            applied: desired.len(),
            ..Written::default()
        })
    }
}

fn layout() -> Layout {
    Layout {
        format: ReportFormat::Openreports,
        name: "tollgate".to_owned(),
        max_bytes: 100_000,
        lists_passes: false,
        missing: Vec::new(),
    }
}

/// Two namespaces with a failure and a pass each, the second one also with results that had no room.
fn results() -> (Memory, Tally) {
    let pods = served("", "Pod", "pods", true);
    let mut memory = Memory::new(1 << 20);
    memory.begin(&pods);
    for namespace in ["bank", "shop"] {
        let remembered = Remembered {
            place: place(Some(namespace), "web"),
            uid: None,
            seen: None,
            others: vec![
                finding("labels", Verdict::Fail),
                finding("images", Verdict::Pass),
            ],
        };
        assert!(memory.keep(&pods, namespace.to_owned(), remembered));
    }
    memory.end(&pods, |_| false);
    let mut more = Summary::default();
    more.add(Verdict::Warn);
    let shop = Some("shop".to_owned());
    let tally = Tally {
        counted: [(shop.clone(), more)].into(),
        counted_by_plugin: [(shop, BTreeMap::from([("images".to_owned(), more)]))].into(),
        ..Tally::default()
    };
    (memory, tally)
}

async fn publish(is_away: bool, replicas: &[&str]) -> (Result<Outcome, InventoryError>, Value) {
    let (memory, tally) = results();
    let published = Published {
        memory: &memory,
        tally: &tally,
        findings: |_: &Seen| Vec::new(),
    };
    let replicas = replicas.iter().map(ToString::to_string).collect();
    let (mut writer, mut share) = (Writer::default(), Share::new("a", replicas));
    let (written, mut numbers) = published
        .write(&mut writer, &layout(), &mut share, &Cluster { is_away })
        .await;
    numbers.counts.sort();
    let search = ScanSearch {
        by: By::Both,
        limit: 50,
        ..ScanSearch::default()
    };
    (written, numbers.counts.select(&search, |_| true))
}

#[tokio::test]
async fn counts_are_those_of_the_reports() {
    let (written, counts) = publish(false, &["a"]).await;
    let summary = written.expect("written").summary;
    assert_eq!(counts["summary"], summary.to_json());
    assert_eq!(summary.total(), 5);
    assert_eq!(counts["total"], 4);
    let images = &counts["results"][2];
    assert_eq!(
        (&images["namespace"], &images["plugin"]),
        (&"shop".into(), &"images".into())
    );
    assert_eq!((&images["warn"], &images["pass"]), (&1.into(), &1.into()));
}

#[tokio::test]
async fn counts_are_there_although_no_report_can_be_written() {
    let (written, counts) = publish(true, &["a"]).await;
    assert!(written.is_err());
    let (_, expected) = publish(false, &["a"]).await;
    assert_eq!(counts, expected);
}

#[tokio::test]
async fn other_replicas_namespaces_are_not_counted() {
    for is_away in [false, true] {
        let (_, counts) = publish(is_away, &["b"]).await;
        assert_eq!(counts["total"], 0);
    }
}
