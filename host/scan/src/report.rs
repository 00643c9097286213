//! Policy reports: `openreports.io/v1alpha1`, or `wgpolicyk8s.io/v1alpha2`.
//!
//! Each namespace has a report, and all cluster-scoped objects share one. The bytes of a report depend only on the
//! results, so that a scan without changes writes nothing: a report has neither a time nor a resourceVersion.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tollgate_admission::text::{Limit, one_line};
use tollgate_cluster::Served;
use tollgate_config::ReportFormat as Format;

use super::finding::{Finding, Judged, Place, Results, Summary, Verdict};

/// The form of the reports.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The API of the reports.
    pub format: Format,
    /// The name of the reports, and the value of their label.
    pub name: String,
    /// Maximum number of bytes of all reports of a namespace together, as JSON.
    pub max_bytes: usize,
    /// Whether results that pass are listed, too. They always count in the summary.
    pub lists_passes: bool,
    /// The resources and objects that are not in the reports, because they could not be read. Usually empty.
    pub missing: Vec<String>,
}

/// The label that says which scan a report belongs to.
pub const LABEL: &str = "tollgate.dev/scan";
/// The annotation that says how many results had no room.
pub const OMITTED: &str = "tollgate.dev/omitted-results";
/// The annotation that says what could not be read.
pub const MISSING: &str = "tollgate.dev/not-scanned";
/// Maximum length of that annotation.
const LONGEST_MISSING: Limit = Limit::Bytes(1024);
/// Maximum number of bytes of one report. etcd takes 1.5 MiB, and kube-apiserver adds fields.
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
#[must_use]
pub fn reports(results: &Results, layout: &Layout) -> (Vec<Value>, u64) {
    type Entry<'r> = (&'r Finding, &'r Place, &'r Judged);
    let mut namespaces: BTreeMap<Option<&str>, Vec<Entry<'_>>> = BTreeMap::new();
    for (place, judged, finding) in results.findings() {
        let entries = namespaces.entry(place.namespace.as_deref()).or_default();
        entries.push((finding, place, judged));
    }
    for namespace in results.counted.keys() {
        namespaces.entry(namespace.as_deref()).or_default();
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
        if let Some(counted) = results.counted.get(&namespace.map(str::to_owned)) {
            parts.count(*counted);
        }
        omitted += parts.omitted;
        reports.extend(parts.finish());
    }
    (reports, omitted)
}

/// Returns the kinds of the reports, as kube-apiserver serves them.
#[must_use]
pub fn resources(format: Format) -> [Served; 2] {
    [true, false].map(|namespaced| {
        let kind = kind(format, namespaced);
        Served {
            group: group(format).to_owned(),
            plural: format!("{}s", kind.to_lowercase()),
            version: version(format).to_owned(),
            kind: kind.to_owned(),
            namespaced,
            is_preferred: true,
        }
    })
}

/// Whether objects of a group are reports. A scan does not judge the reports of scans.
#[must_use]
pub fn is_report(group: &str) -> bool {
    let formats = [Format::Openreports, Format::Policyreport];
    formats.iter().any(|format| self::group(*format) == group)
}

fn group(format: Format) -> &'static str {
    match format {
        Format::Openreports => "openreports.io",
        Format::Policyreport => "wgpolicyk8s.io",
    }
}

fn version(format: Format) -> &'static str {
    match format {
        Format::Openreports => "v1alpha1",
        Format::Policyreport => "v1alpha2",
    }
}

fn kind(format: Format, namespaced: bool) -> &'static str {
    match (format, namespaced) {
        (Format::Openreports, true) => "Report",
        (Format::Openreports, false) => "ClusterReport",
        (Format::Policyreport, true) => "PolicyReport",
        (Format::Policyreport, false) => "ClusterPolicyReport",
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

    /// Counts results that are not listed. Results that pass would not be listed anyway.
    fn count(&mut self, counted: Summary) {
        self.unlisted.extend(counted);
        let passes = match self.layout.lists_passes {
            true => 0,
            false => counted.count(Verdict::Pass),
        };
        self.omitted += counted.total() - passes;
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
                if !layout.missing.is_empty() {
                    let missing = one_line(&layout.missing.join("; "), LONGEST_MISSING);
                    metadata["annotations"][MISSING] = missing.into();
                }
            }
            let format = layout.format;
            let mut report = json!({
                "apiVersion": format!("{}/{}", group(format), version(format)),
                "kind": kind(format, namespace.is_some()),
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
    if let Some(exception) = &finding.exception {
        properties["exception"] = exception.clone().into();
    }
    if let Some(without) = finding.without {
        properties["without"] = without.as_str().into();
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
