//! `scan`: the background scan, which judges the objects that exist in the cluster.

use std::time::Duration;

use super::limit;
use super::problem::Collector;
use super::read::{Fields, Node};
use super::rule::Pattern;

/// The background scan. Off unless the configuration enables it.
#[derive(Clone, Debug, PartialEq)]
pub struct Scan {
    /// Time from the begin of a scan to the begin of the next one.
    pub interval: Duration,
    /// The API of the policy reports.
    pub format: ReportFormat,
    /// The name of the policy reports.
    pub name: String,
    /// The resources that are scanned, if a plugin matches them. Empty means all of them.
    pub resources: Vec<ScannedResources>,
    /// Maximum number of objects in a page.
    pub page_size: u32,
    /// Maximum size of a page.
    pub max_page_bytes: u64,
    /// Maximum number of objects per second.
    pub max_rate: u32,
    /// Maximum size of the results in memory.
    pub max_memory_bytes: u64,
    /// Maximum size of the policy reports of a namespace.
    pub max_report_bytes: u64,
}

/// The API of policy reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReportFormat {
    /// `Report` and `ClusterReport` of openreports.io/v1alpha1.
    #[default]
    Openreports,
    /// `PolicyReport` and `ClusterPolicyReport` of wgpolicyk8s.io/v1alpha2.
    Policyreport,
}

/// Some resources of some API groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedResources {
    /// The API groups. The core group is the empty string.
    pub api_groups: Vec<Pattern>,
    /// The resources.
    pub resources: Vec<Pattern>,
}

const NAME: &str = "tollgate";
/// Longest name of reports: a number may follow, and the name is the value of a label, too.
const LONGEST_NAME: usize = 56;
const NAME_EXPECTED: &str = "a name of at most 56 characters of a-z, 0-9 and -, such as tollgate";
const GROUPS_EXPECTED: &str = "API groups, such as [\"\", apps]";
const RESOURCES_EXPECTED: &str = "resources without subresources, such as [pods, deployments]";

// === impl Scan ===

impl Scan {
    /// Whether a resource is scanned, if a plugin matches it.
    #[must_use]
    pub fn includes(&self, group: &str, resource: &str) -> bool {
        let matches = |patterns: &[Pattern], name| patterns.iter().any(|one| one.matches(name));
        self.resources.is_empty()
            || self
                .resources
                .iter()
                .any(|one| matches(&one.api_groups, group) && matches(&one.resources, resource))
    }
}

/// Reads the section. None if the background scan is off.
pub(crate) fn read_scan(
    fields: &mut Fields<'_>,
    cluster: &super::Cluster,
    problems: &Collector,
) -> Option<Scan> {
    let mut section = fields.section("scan");
    let enabled = section.optional("enabled").and_then(|node| node.boolean());
    let name = section.optional("name").and_then(|node| {
        let name = node.quotable_text(NAME_EXPECTED)?;
        let is_name = super::is_label(name, LONGEST_NAME);
        if !is_name {
            node.reject(NAME_EXPECTED);
        }
        is_name.then(|| name.to_owned())
    });
    let format = section
        .optional("format")
        .and_then(|node| node.word(ReportFormat::WORDS));
    let resources = section
        .optional("resources")
        .and_then(|node| node.elements("resources"));
    let resources = resources.unwrap_or_default();
    let scan = Scan {
        interval: section.duration(
            &limit::SCAN_INTERVAL,
            limit::SCAN_INTERVAL.default_duration(),
        ),
        format: format.unwrap_or_default(),
        name: name.unwrap_or_else(|| NAME.to_owned()),
        resources: resources
            .iter()
            .filter_map(ScannedResources::read)
            .collect(),
        page_size: section.amount_u32(&limit::SCAN_PAGE_SIZE, limit::SCAN_PAGE_SIZE.default_u32()),
        max_page_bytes: section.amount(&limit::SCAN_MAX_PAGE, limit::SCAN_MAX_PAGE.default),
        max_rate: section.amount_u32(&limit::SCAN_MAX_RATE, limit::SCAN_MAX_RATE.default_u32()),
        max_memory_bytes: section.amount(&limit::SCAN_MAX_MEMORY, limit::SCAN_MAX_MEMORY.default),
        max_report_bytes: section.amount(&limit::SCAN_MAX_REPORT, limit::SCAN_MAX_REPORT.default),
    };
    section.finish();
    if enabled != Some(true) {
        return None;
    }
    if !cluster.enabled || cluster.registration.is_none() {
        problems.add(
            "scan.enabled".to_owned(),
            "needs cluster.enabled: true and cluster.registration, because the replicas share the scan by their Leases",
        );
    }
    Some(scan)
}

// === impl ReportFormat ===

impl ReportFormat {
    pub(crate) const WORDS: &'static [(&'static str, Self)] = &[
        ("openreports", Self::Openreports),
        ("policyreport", Self::Policyreport),
    ];
}

// === impl ScannedResources ===

impl ScannedResources {
    fn read(node: &Node<'_>) -> Option<Self> {
        let mut fields = node.object()?;
        let groups = fields.required("apiGroups", GROUPS_EXPECTED);
        let groups = groups.and_then(|node| patterns(&node, GROUPS_EXPECTED));
        let resources = fields.required("resources", RESOURCES_EXPECTED);
        let resources = resources.and_then(|node| patterns(&node, RESOURCES_EXPECTED));
        fields.finish();
        Some(Self {
            api_groups: groups?,
            resources: resources?,
        })
    }
}

fn patterns(node: &Node<'_>, expected: &str) -> Option<Vec<Pattern>> {
    let nodes = node.elements(expected)?;
    if nodes.is_empty() {
        node.reject(expected);
        return None;
    }
    let texts = nodes.iter().map(|node| {
        let text = node.text(expected)?;
        if text.contains('/') {
            node.reject(expected);
            return None;
        }
        Some(Pattern::new(text))
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Config;

    fn parse(scan: &str) -> Result<Config, crate::ConfigError> {
        let cluster = "cluster: {enabled: true, replica: a}";
        Config::parse(&format!("{cluster}\nscan: {scan}"), Path::new("/etc"))
    }

    #[test]
    fn is_off_unless_enabled() {
        let off = Config::parse("allowEmpty: true", Path::new("/etc")).unwrap();
        assert_eq!(off.scan, None);
        assert_eq!(parse("{interval: 1h}").unwrap().scan, None);
        let scan = parse("{enabled: true}").unwrap().scan.unwrap();
        assert_eq!(scan.interval, Duration::from_secs(1800));
        assert_eq!(scan.format, ReportFormat::Openreports);
        assert_eq!(scan.name, "tollgate");
        assert!(scan.includes("", "pods"));
    }

    #[test]
    fn reads_what_is_scanned_and_the_bounds() {
        let scan = parse(
            "{enabled: true, interval: 10s, format: policyreport, name: nightly, pageSize: 10, maxPage: 4Mi, \
             maxRate: 5, maxMemory: 1Mi, maxReport: 64Ki, \
             resources: [{apiGroups: [apps], resources: ['*']}, {apiGroups: [''], resources: [pods]}]}",
        );
        let scan = scan.unwrap().scan.unwrap();
        assert_eq!(scan.format, ReportFormat::Policyreport);
        assert_eq!((scan.page_size, scan.max_rate), (10, 5));
        assert_eq!(scan.max_report_bytes, 64 << 10);
        assert!(scan.includes("apps", "deployments"));
        assert!(scan.includes("", "pods"));
        assert!(!scan.includes("", "secrets"));
    }

    #[test]
    fn names_what_is_wrong() {
        let error = parse(
            "{enabled: true, name: Nightly, format: html, resources: [{apiGroups: [], resources: [pods/status]}, {}]}",
        );
        let text = error.unwrap_err().to_string();
        for words in [
            "scan.name: got \"Nightly\"",
            "scan.format",
            "scan.resources[0].apiGroups",
            "scan.resources[0].resources[0]",
            "scan.resources[1].apiGroups: missing",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let alone = Config::parse("allowEmpty: true\nscan: {enabled: true}", Path::new("/etc"));
        let text = alone.unwrap_err().to_string();
        assert!(
            text.contains("scan.enabled: needs cluster.enabled"),
            "{text}"
        );
    }
}
