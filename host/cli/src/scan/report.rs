//! Policy reports: `openreports.io/v1alpha1`, or `wgpolicyk8s.io/v1alpha2`.
//!
//! There is a report for each namespace and one for cluster-scoped objects. The bytes of a report depend only on the
//! results, so that a scan without news writes nothing: a report has neither a time nor a resourceVersion.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde_json::{Map, Value, json};
use tollgate_cluster::Served;

use super::finding::{Finding, Judged, Place, Results, Summary, Verdict};

/// The API of the reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// `Report` and `ClusterReport` of openreports.io/v1alpha1
    Openreports,
    /// `PolicyReport` and `ClusterPolicyReport` of wgpolicyk8s.io/v1alpha2
    Policyreport,
}

/// What reports are made of results.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) format: Format,
    /// The name of the reports, and the value of their label.
    pub(super) name: String,
    /// Maximum number of bytes of all reports of a namespace together, as JSON.
    pub(super) max_bytes: usize,
    /// Whether results that pass are listed, too. They always count in the summary.
    pub(super) lists_passes: bool,
}

/// The label that says which scan a report belongs to.
pub(super) const LABEL: &str = "tollgate.dev/scan";
/// The annotation that says how many results had no room.
const OMITTED: &str = "tollgate.dev/omitted-results";
/// Maximum number of bytes of one report. etcd takes 1.5 MiB, and kube-apiserver adds to what is written.
const PART_BYTES: usize = 512 * 1024;
/// Bytes for everything in a report but its results.
const FRAME_BYTES: usize = 2 * 1024;
const SOURCE: &str = "tollgate";

/// The results of a namespace on their way into reports.
struct Parts<'l> {
    layout: &'l Layout,
    namespace: Option<&'l str>,
    parts: Vec<(Vec<Value>, Summary)>,
    /// Bytes of the last part.
    part_bytes: usize,
    /// Bytes of the earlier parts.
    full_bytes: usize,
    /// Results that are counted and not listed.
    unlisted: Summary,
    omitted: u64,
}

/// Makes the reports, sorted by namespace and name. Returns how many results have no room in them.
pub(super) fn reports(results: &Results, layout: &Layout) -> (Vec<Value>, u64) {
    type Entry<'r> = (&'r Finding, &'r Place, &'r Judged);
    let mut namespaces: BTreeMap<Option<&str>, Vec<Entry<'_>>> = BTreeMap::new();
    for (place, judged, finding) in results.findings() {
        let entries = namespaces.entry(place.namespace.as_deref()).or_default();
        entries.push((finding, place, judged));
    }
    let (mut reports, mut omitted) = (Vec::new(), 0);
    for (namespace, mut entries) in namespaces {
        // The worst come first, so that passes are left out before denials.
        entries.sort_by_key(|(finding, place, _)| {
            (finding.verdict, &finding.plugin, *place, &finding.phase)
        });
        let mut parts = Parts::new(layout, namespace);
        for (finding, place, judged) in entries {
            parts.add(finding, place, judged);
        }
        omitted += parts.omitted;
        reports.extend(parts.finish());
    }
    (reports, omitted)
}

/// Returns the kinds of the reports, as kube-apiserver serves them.
pub(super) fn resources(format: Format) -> [Served; 2] {
    [true, false].map(|namespaced| {
        let kind = format.kind(namespaced);
        Served {
            group: format.group().to_owned(),
            plural: format!("{}s", kind.to_lowercase()),
            version: format.version().to_owned(),
            kind: kind.to_owned(),
            namespaced,
            is_preferred: true,
        }
    })
}

/// Whether objects of a group are reports. A scan does not judge the reports of scans.
pub(super) fn is_report(group: &str) -> bool {
    let formats = [Format::Openreports, Format::Policyreport];
    formats.iter().any(|format| format.group() == group)
}

// === impl Format ===

impl Format {
    fn group(self) -> &'static str {
        match self {
            Self::Openreports => "openreports.io",
            Self::Policyreport => "wgpolicyk8s.io",
        }
    }

    fn version(self) -> &'static str {
        match self {
            Self::Openreports => "v1alpha1",
            Self::Policyreport => "v1alpha2",
        }
    }

    fn kind(self, namespaced: bool) -> &'static str {
        match (self, namespaced) {
            (Self::Openreports, true) => "Report",
            (Self::Openreports, false) => "ClusterReport",
            (Self::Policyreport, true) => "PolicyReport",
            (Self::Policyreport, false) => "ClusterPolicyReport",
        }
    }
}

// === impl Parts ===

impl<'l> Parts<'l> {
    fn new(layout: &'l Layout, namespace: Option<&'l str>) -> Self {
        Self {
            layout,
            namespace,
            parts: vec![Default::default()],
            part_bytes: FRAME_BYTES,
            full_bytes: 0,
            unlisted: Summary::default(),
            omitted: 0,
        }
    }

    fn add(&mut self, finding: &Finding, place: &Place, judged: &Judged) {
        if finding.verdict == Verdict::Pass && !self.layout.lists_passes {
            self.unlisted.add(finding.verdict);
            return;
        }
        let result = result(finding, place, judged);
        // A comma follows.
        let bytes = result.to_string().len() + 1;
        let is_full = self.part_bytes + bytes > PART_BYTES;
        let frame = if is_full { FRAME_BYTES } else { 0 };
        // Once a result had no room, no other one is listed: the listed ones are then the worst.
        let has_room = self.full_bytes + self.part_bytes + frame + bytes <= self.layout.max_bytes;
        if self.omitted > 0 || !has_room {
            self.omitted += 1;
            self.unlisted.add(finding.verdict);
            return;
        }
        if is_full {
            self.full_bytes += self.part_bytes;
            self.part_bytes = FRAME_BYTES;
            self.parts.push(Default::default());
        }
        self.part_bytes += bytes;
        if let Some((results, summary)) = self.parts.last_mut() {
            results.push(result);
            summary.add(finding.verdict);
        }
    }

    /// Returns the reports. The sum of their summaries counts all results, also those that are not listed.
    fn finish(self) -> Vec<Value> {
        let (layout, namespace) = (self.layout, self.namespace);
        let (unlisted, omitted) = (self.unlisted, self.omitted);
        let parts = self.parts.into_iter().enumerate();
        let reports = parts.map(|(index, (results, mut summary))| {
            let mut metadata = json!({
                "name": match index {
                    0 => layout.name.clone(),
                    _ => format!("{}-{}", layout.name, index + 1),
                },
                "labels": {
                    "app.kubernetes.io/managed-by": SOURCE,
                    LABEL: layout.name,
                },
            });
            if let Some(namespace) = namespace {
                metadata["namespace"] = namespace.into();
            }
            if index == 0 {
                summary.extend(unlisted);
                metadata["annotations"] = json!({ OMITTED: omitted.to_string() });
            }
            let format = layout.format;
            let mut report = json!({
                "apiVersion": format!("{}/{}", format.group(), format.version()),
                "kind": format.kind(namespace.is_some()),
                "metadata": metadata,
                "summary": summary.to_json(),
                "results": results,
            });
            if format == Format::Openreports {
                report["source"] = SOURCE.into();
            }
            report
        });
        reports.collect()
    }
}

/// Returns a result as both formats write it.
fn result(finding: &Finding, place: &Place, judged: &Judged) -> Value {
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), judged.api_version.clone().into());
    object.insert("kind".to_owned(), place.kind.clone().into());
    if let Some(namespace) = &place.namespace {
        object.insert("namespace".to_owned(), namespace.clone().into());
    }
    object.insert("name".to_owned(), place.name.clone().into());
    if let Some(uid) = &judged.uid {
        object.insert("uid".to_owned(), uid.clone().into());
    }
    let mut properties = json!({ "mode": finding.mode });
    if let Some(fault) = &finding.fault {
        properties["fault"] = fault.clone().into();
    }
    let mut result = json!({
        "source": SOURCE,
        "policy": finding.plugin,
        "rule": finding.phase,
        "result": finding.verdict.as_str(),
        // The words of the specification: a `warn` is not scored.
        "scored": finding.verdict != Verdict::Warn,
        "resources": [object],
        "properties": properties,
    });
    if !finding.message.is_empty() {
        result["message"] = finding.message.clone().into();
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::finding::tests::{finding, judged, place};

    fn layout(format: Format, max_bytes: usize) -> Layout {
        Layout {
            format,
            name: "tollgate-scan".to_owned(),
            max_bytes,
            lists_passes: false,
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
}
