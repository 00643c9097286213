//! Tests the content of reports and their bounds.

use super::*;
use crate::finding::tests::{finding, judged, place};

fn layout(format: Format, max_bytes: usize) -> Layout {
    Layout {
        format,
        name: "tollgate-scan".to_owned(),
        max_bytes,
        lists_passes: false,
        missing: Vec::new(),
    }
}

fn results(objects: usize) -> Results {
    let mut results = Results::default();
    for index in 0..objects {
        let verdict = match index % 3 {
            0 => Verdict::Fail,
            1 => Verdict::Pass,
            _ => Verdict::Warn,
        };
        let name = format!("web-{index:05}");
        let findings = vec![finding("labels", verdict)];
        results.add(place(Some("shop"), &name), judged(findings));
    }
    results.add(
        place(None, "node"),
        judged(vec![finding("labels", Verdict::Error)]),
    );
    results
}

fn total(reports: &[Value], key: &str) -> u64 {
    let counts = reports.iter().map(|report| &report["summary"][key]);
    counts.filter_map(Value::as_u64).sum()
}

fn listed(reports: &[Value]) -> usize {
    let lists = reports.iter().map(|report| report["results"].as_array());
    lists.map(|list| list.map_or(0, Vec::len)).sum()
}

#[test]
fn reports_are_by_namespace_with_the_worst_results_first() {
    let (reports, omitted) = reports(&results(6), &layout(Format::Openreports, 1 << 20));
    assert_eq!((reports.len(), omitted), (2, 0));
    let [cluster, shop] = &reports[..] else {
        panic!("{reports:?}")
    };
    assert_eq!(cluster["kind"], "ClusterReport");
    assert_eq!(cluster["metadata"]["namespace"], Value::Null);
    assert_eq!(shop["apiVersion"], "openreports.io/v1alpha1");
    assert_eq!(shop["source"], "tollgate");
    let summary = json!({"pass": 2, "fail": 2, "warn": 2, "error": 0, "skip": 0});
    assert_eq!(shop["summary"], summary);
    let verdicts = shop["results"].as_array().unwrap().iter();
    let verdicts: Vec<_> = verdicts.map(|result| result["result"].clone()).collect();
    assert_eq!(verdicts, ["fail", "fail", "warn", "warn"]);
    let first = &shop["results"][0];
    assert_eq!(first["policy"], "labels");
    assert_eq!(first["resources"][0]["name"], "web-00000");
    assert_eq!(first["scored"], true);
    assert_eq!(shop["results"][2]["scored"], false);
}

#[test]
fn other_format_has_other_kinds_and_no_source_of_its_own() {
    let (reports, _) = reports(&results(1), &layout(Format::Policyreport, 1 << 20));
    assert_eq!(reports[0]["kind"], "ClusterPolicyReport");
    assert_eq!(reports[1]["kind"], "PolicyReport");
    assert_eq!(reports[1]["apiVersion"], "wgpolicyk8s.io/v1alpha2");
    assert_eq!(reports[1].get("source"), None);
    let [namespaced, cluster] = resources(Format::Policyreport);
    assert_eq!(
        namespaced.to_string(),
        "policyreports.v1alpha2.wgpolicyk8s.io"
    );
    assert_eq!(cluster.plural, "clusterpolicyreports");
}

#[test]
fn large_namespace_is_split_and_every_result_is_counted_once() {
    let objects = 9_000;
    let (reports, omitted) = reports(&results(objects), &layout(Format::Openreports, 8 << 20));
    assert_eq!(omitted, 0);
    assert!(reports.len() > 3, "{}", reports.len());
    for report in &reports {
        let bytes = report.to_string().len();
        assert!(bytes <= PART_BYTES, "{bytes}");
    }
    let names: Vec<_> = reports[1..3]
        .iter()
        .map(|report| &report["metadata"]["name"])
        .collect();
    assert_eq!(names, ["tollgate-scan", "tollgate-scan-2"]);
    assert_eq!(total(&reports, "fail"), 3_000);
    assert_eq!(total(&reports, "pass"), 3_000);
    assert_eq!(listed(&reports), 6_001);
}

#[test]
fn results_without_room_are_counted_and_denials_stay() {
    let max_bytes = 300 * 1024;
    let (reports, omitted) = reports(&results(3_000), &layout(Format::Openreports, max_bytes));
    let shop = &reports[1];
    assert!(shop.to_string().len() <= max_bytes);
    assert!(omitted > 0);
    assert_eq!(
        shop["metadata"]["annotations"][OMITTED],
        omitted.to_string()
    );
    assert_eq!(listed(&reports) as u64 + omitted, 2_001);
    assert_eq!(total(&reports, "fail"), 1_000);
    assert_eq!(total(&reports, "warn"), 1_000);
    let last = shop["results"].as_array().unwrap().last().unwrap();
    assert_eq!(shop["results"][0]["result"], "fail");
    assert!(last["result"] == "warn" || last["result"] == "fail");
}

#[test]
fn counted_results_and_what_is_missing_are_named() {
    let mut results = results(3);
    let mut counted = Summary::default();
    for verdict in [Verdict::Fail, Verdict::Fail, Verdict::Pass] {
        counted.add(verdict);
    }
    results.counted.insert(Some("shop".to_owned()), counted);
    results.counted.insert(Some("bank".to_owned()), counted);
    let mut layout = layout(Format::Openreports, 1 << 20);
    layout.missing = vec!["secrets: forbidden".to_owned()];
    let (reports, omitted) = reports(&results, &layout);
    assert_eq!((reports.len(), omitted), (3, 4));
    assert_eq!(reports[1]["metadata"]["namespace"], "bank");
    assert_eq!(reports[1]["summary"]["fail"], 2);
    assert_eq!(reports[2]["summary"]["fail"], 3);
    assert_eq!(reports[2]["summary"]["pass"], 2);
    let annotations = &reports[2]["metadata"]["annotations"];
    assert_eq!(annotations[OMITTED], "2");
    assert_eq!(annotations[MISSING], "secrets: forbidden");
    assert_eq!(results.summary().count(Verdict::Fail), 5);
}

#[test]
fn result_of_an_exception_names_it() {
    let mut results = Results::default();
    let excepted = Finding {
        exception: Some("legacy".to_owned()),
        without: Some(Verdict::Pass),
        ..finding("labels", Verdict::Skip)
    };
    results.add(place(Some("shop"), "web"), judged(vec![excepted]));
    let (reports, _) = reports(&results, &layout(Format::Openreports, 1 << 20));
    let properties = &reports[0]["results"][0]["properties"];
    assert_eq!(properties["exception"], "legacy");
    assert_eq!(properties["without"], "pass");
}

#[test]
fn passes_are_listed_on_demand_and_bytes_are_the_same_again() {
    let mut layout = layout(Format::Openreports, 1 << 20);
    layout.lists_passes = true;
    let text = |results: &Results| {
        let (reports, _) = reports(results, &layout);
        assert_eq!(listed(&reports), 7);
        Value::from(reports).to_string()
    };
    assert_eq!(text(&results(6)), text(&results(6)));
}
