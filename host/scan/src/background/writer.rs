//! Writes the policy reports of this replica's namespaces, and only those that differ.
//!
//! Each scan lists the metadata of all reports. A namespace whose results are the same as in the last scan, and whose
//! reports nobody has touched since, costs no request.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tollgate_cluster::{
    Client, InventoryError, Part, Served, Version, Written, versions, write_reports_in,
};

use super::share::Share;
use crate::finding::{Results, Summary};
use crate::key::Key;
use crate::report::{LABEL, Layout, reports, resources};

/// The reports of a cluster.
pub(crate) trait Reports {
    /// Returns the versions of all reports of a kind that belong to this scan.
    async fn versions(&self, resource: &Served) -> Result<Vec<Version>, InventoryError>;

    /// Makes the reports of a namespace as desired.
    async fn write(
        &self,
        resource: &Served,
        namespace: Option<&str>,
        desired: &[Value],
    ) -> Result<Written, InventoryError>;
}

/// The reports of the cluster that the server runs in.
pub(crate) struct ClusterReports {
    pub(crate) client: Client,
    pub(crate) selector: String,
}

/// The reports that were written last.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    namespaces: BTreeMap<Option<String>, Wrote>,
    /// Namespaces whose reports this process found and left alone once, because it could not read everything.
    spared: BTreeSet<Option<String>>,
}

/// The reports of a namespace, as they were written.
#[derive(Debug, PartialEq, Eq)]
struct Wrote {
    content: Key,
    versions: BTreeMap<String, String>,
}

/// The result of writing the reports.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) written: u64,
    /// The results of this replica's part.
    pub(crate) summary: Summary,
    /// The results that are counted and not listed.
    pub(crate) omitted: u64,
    /// The reports that could not be written, each with the reason.
    pub(crate) failed: Vec<String>,
}

/// Number of reports in a page of metadata.
const PAGE: u32 = 200;
/// Maximum size of a page of metadata.
const MOST_BYTES: u64 = 64 << 20;

// === impl ClusterReports ===

impl ClusterReports {
    pub(crate) fn new(client: Client, name: &str) -> Self {
        Self {
            client,
            selector: format!("{LABEL}={name}"),
        }
    }
}

impl Reports for ClusterReports {
    async fn versions(&self, resource: &Served) -> Result<Vec<Version>, InventoryError> {
        let (mut all, mut continued) = (Vec::new(), None::<String>);
        loop {
            let part = Part {
                continued: continued.as_deref(),
                limit: PAGE,
                max_bytes: MOST_BYTES,
            };
            let page = versions(&self.client, resource, &self.selector, part).await?;
            all.extend(page.objects);
            continued = page.continued;
            if continued.is_none() {
                return Ok(all);
            }
        }
    }

    async fn write(
        &self,
        resource: &Served,
        namespace: Option<&str>,
        desired: &[Value],
    ) -> Result<Written, InventoryError> {
        write_reports_in(&self.client, resource, namespace, &self.selector, desired).await
    }
}

// === impl Writer ===

impl Writer {
    /// Writes the reports of all namespaces that are this replica's. `results` returns the results of one of them, and
    /// `with_results` names those that have any.
    pub(crate) async fn write<R: Reports>(
        &mut self,
        cluster: &R,
        layout: &Layout,
        share: &mut Share,
        with_results: BTreeSet<Option<String>>,
        results: impl Fn(&Option<String>) -> Results,
    ) -> Result<Outcome, InventoryError> {
        let [namespaced, cluster_scoped] = resources(layout.format);
        let mut live: BTreeMap<Option<String>, BTreeMap<String, String>> = BTreeMap::new();
        for resource in [&namespaced, &cluster_scoped] {
            for report in cluster.versions(resource).await? {
                let own = live.entry(report.namespace).or_default();
                own.insert(report.name, report.resource_version);
            }
        }
        let mut namespaces = with_results;
        namespaces.extend(live.keys().cloned());
        namespaces.retain(|namespace| share.owns(namespace.as_deref()));
        self.namespaces
            .retain(|namespace, _| namespaces.contains(namespace));
        self.spared
            .retain(|namespace| namespaces.contains(namespace));
        let mut outcome = Outcome::default();
        for namespace in namespaces {
            let results = results(&namespace);
            outcome.summary.extend(results.summary());
            let (desired, omitted) = reports(&results, layout);
            outcome.omitted += omitted;
            let text = serde_json::to_string(&desired).unwrap_or_default();
            let content = Key::of(&[&text]);
            let live = live.remove(&namespace).unwrap_or_default();
            if desired.is_empty() && (live.is_empty() || !layout.missing.is_empty()) {
                // Where something could not be read, no results does not mean that there are none: the reports stay.
                continue;
            }
            let known = self.namespaces.get(&namespace);
            // After a restart, a report of another process has results about what this scan could not read. The next scan
            // may read it. If not, it writes what there is, and the report says what is missing.
            let is_partial = known.is_none() && !live.is_empty() && !layout.missing.is_empty();
            if is_partial && self.spared.insert(namespace.clone()) {
                continue;
            }
            if known.is_some_and(|known| known.content == content && known.versions == live) {
                continue;
            }
            let resource = match &namespace {
                Some(_) => &namespaced,
                None => &cluster_scoped,
            };
            let written = match cluster
                .write(resource, namespace.as_deref(), &desired)
                .await
            {
                Ok(written) => written,
                Err(error) => {
                    self.namespaces.remove(&namespace);
                    outcome.failed.push(error.to_string());
                    continue;
                }
            };
            outcome.written += (written.applied + written.deleted) as u64;
            if written.failed.is_empty() {
                self.spared.remove(&namespace);
                let versions = written.versions.into_iter().collect();
                let wrote = Wrote { content, versions };
                self.namespaces.insert(namespace, wrote);
            } else {
                self.namespaces.remove(&namespace);
                outcome.failed.extend(written.failed);
            }
        }
        Ok(outcome)
    }
}
