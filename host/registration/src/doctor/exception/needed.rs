//! Exceptions that nobody needs any more, by the policy reports of the last scan.
//!
//! For each object that an exception covers, a report has the result without exceptions. If the plugin accepts all of
//! these objects without the exception, the exception is not needed. If results are missing, the doctor reports
//! nothing.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::doctor::{Finding, Severity};
use crate::live::{Objects, list};

/// The label of the reports of Tollgate's scans.
const LABEL: &str = "tollgate.dev/scan";
/// The annotation with the number of results that have no room in the reports of a namespace.
const OMITTED: &str = "tollgate.dev/omitted-results";
/// The annotation with what could not be read.
const MISSING: &str = "tollgate.dev/not-scanned";
const KINDS: [&str; 4] = [
    "Report",
    "ClusterReport",
    "PolicyReport",
    "ClusterPolicyReport",
];

/// The results of the reports for an exception of a plugin.
#[derive(Clone, Copy, Debug, Default)]
struct Uses {
    objects: u64,
    is_needed: bool,
}

/// Finds exceptions whose objects all pass without them.
#[must_use]
pub fn not_needed(objects: &Objects) -> Vec<Finding> {
    let reports = KINDS.iter().flat_map(|kind| objects.of_kind(kind));
    let reports: Vec<&Value> = reports
        .filter(|report| report["metadata"]["labels"][LABEL].is_string())
        .collect();
    let mut uses: BTreeMap<(&str, &str), Uses> = BTreeMap::new();
    for report in &reports {
        // Another object may need the exception.
        if !is_whole(report) {
            return Vec::new();
        }
        for result in list(&report["results"]) {
            let properties = &result["properties"];
            let names = (result["policy"].as_str(), properties["exception"].as_str());
            let (Some(plugin), Some(exception)) = names else {
                continue;
            };
            let uses = uses.entry((plugin, exception)).or_default();
            uses.objects += 1;
            uses.is_needed |= properties["without"] != "pass";
        }
    }
    let dead = uses.into_iter().filter(|(_, uses)| !uses.is_needed);
    dead.map(|((plugin, exception), uses)| finding(plugin, exception, uses.objects))
        .collect()
}

fn is_whole(report: &Value) -> bool {
    let annotations = &report["metadata"]["annotations"];
    let omitted = annotations[OMITTED].as_str().unwrap_or("0");
    omitted == "0" && annotations[MISSING].is_null()
}

fn finding(plugin: &str, exception: &str, objects: u64) -> Finding {
    Finding {
        severity: Severity::Notice,
        check: "exception-not-needed",
        object: format!("plugin {plugin}, {exception}"),
        problem: format!(
            "in the last scan, the plugin had nothing against the objects that the exception covers ({objects} results)"
        ),
        fix: format!(
            "delete the exception {exception}, or its entry for {plugin}, unless it is also for requests of certain users"
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(exception: &str, without: &str) -> Value {
        json!({"policy": "labels", "result": "skip", "properties": {"exception": exception, "without": without}})
    }

    fn report(results: &[Value], annotations: &Value) -> Value {
        json!({
            "apiVersion": "openreports.io/v1alpha1", "kind": "Report",
            "metadata": {"name": "r", "namespace": "shop", "labels": {LABEL: "tollgate"}, "annotations": annotations},
            "results": results,
        })
    }

    fn found(reports: &[Value]) -> Vec<String> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": reports});
        let objects = Objects::parse(&list.to_string()).expect("objects");
        let findings = not_needed(&objects);
        findings.into_iter().map(|finding| finding.object).collect()
    }

    #[test]
    fn exception_is_not_needed_if_all_its_objects_pass_without_it() {
        let whole = json!({OMITTED: "0"});
        let results = [
            result("fixed", "pass"),
            result("mixed", "pass"),
            result("mixed", "fail"),
            json!({"policy": "labels", "result": "fail", "properties": {"mode": "enforce"}}),
        ];
        let first = report(&results, &whole);
        assert_eq!(
            found(std::slice::from_ref(&first)),
            ["plugin labels, fixed"]
        );
        // A report of another namespace needs it.
        let second = report(&[result("fixed", "warn")], &whole);
        assert_eq!(found(&[first.clone(), second]), [""; 0]);
        for incomplete in [
            json!({OMITTED: "3"}),
            json!({OMITTED: "0", MISSING: "pods"}),
        ] {
            let other = report(&[], &incomplete);
            assert_eq!(found(&[first.clone(), other]), [""; 0]);
        }
        let mut foreign = first;
        foreign["metadata"]["labels"] = json!({});
        assert_eq!(found(&[foreign]), [""; 0]);
    }
}
