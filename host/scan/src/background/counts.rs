//! The number of results by namespace and plugin, for readers: counts and names, nothing of an object. A bounded part of
//! them is kept, the most failures first.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use tollgate_admission::scan::{By, ScanSearch};
use tollgate_admission::search::contains;

use crate::finding::{Summary, Verdict};

/// The counts of one scan.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Sorted once the scan has ended.
    rows: Vec<Row>,
    max_rows: usize,
    /// The names of plugins, each in memory once.
    plugins: BTreeSet<Arc<str>>,
    /// The rows that had no room, and what they had.
    omitted: (u64, Summary),
}

/// The results of a plugin in a namespace. None stands for cluster-scoped objects.
#[derive(Clone, Debug)]
struct Row {
    namespace: Option<Arc<str>>,
    plugin: Arc<str>,
    summary: Summary,
}

/// An entry of an answer: a row, or the sum of some.
struct Entry<'c> {
    /// None where namespaces are summed up.
    namespace: Option<Option<&'c str>>,
    /// None where plugins are summed up.
    plugin: Option<&'c str>,
    /// The number of plugins or of namespaces that are summed up.
    of: u64,
    summary: Summary,
}

/// Maximum number of rows: 1,000 namespaces with 20 plugins each. They take about 2 MiB.
const MOST_ROWS: usize = 20_000;
/// Larger counts have the key of this one.
const MOST_IN_KEY: u64 = 999_999_999_999;

// === impl Counts ===

impl Default for Counts {
    fn default() -> Self {
        Self::new(MOST_ROWS)
    }
}

impl Counts {
    fn new(max_rows: usize) -> Self {
        Self {
            rows: Vec::new(),
            max_rows,
            plugins: BTreeSet::new(),
            omitted: Default::default(),
        }
    }

    /// Adds the results of a namespace, by plugin.
    pub(crate) fn add(&mut self, namespace: Option<&str>, plugins: &BTreeMap<&str, Summary>) {
        let namespace: Option<Arc<str>> = namespace.map(Arc::from);
        for (plugin, summary) in plugins {
            let plugin = self.plugin(plugin);
            let namespace = namespace.clone();
            let summary = *summary;
            self.rows.push(Row {
                namespace,
                plugin,
                summary,
            });
        }
        // Sorting now and then costs less than keeping the rows sorted.
        if self.rows.len() > 2 * self.max_rows {
            self.sort();
        }
    }

    /// Brings the rows into the order of answers, and leaves out those that have no room.
    pub(crate) fn sort(&mut self) {
        self.rows
            .sort_by(|one, other| one.entry().order(&other.entry()));
        let kept = self.rows.len().min(self.max_rows);
        for row in self.rows.drain(kept..) {
            self.omitted.0 += 1;
            self.omitted.1.extend(row.summary);
        }
        if self.rows.capacity() > self.max_rows {
            self.rows.shrink_to_fit();
        }
    }

    /// Returns the selected counts as members of an answer. `owns` says whether a namespace still belongs to this
    /// replica.
    pub(crate) fn select(&self, search: &ScanSearch, owns: impl Fn(Option<&str>) -> bool) -> Value {
        let is_own = |row: &&Row| owns(row.namespace.as_deref());
        let own: Vec<&Row> = self.rows.iter().filter(is_own).collect();
        let (mut summary, mut namespaces) = (self.omitted.1, BTreeSet::new());
        for row in &own {
            summary.extend(row.summary);
            namespaces.insert(row.namespace.as_deref());
        }
        let all = self.rows.iter().map(|row| row.namespace.as_deref());
        let all: BTreeSet<_> = all.collect();
        let mut entries = entries(&own, search.by);
        let total = entries.len();
        entries.retain(|entry| entry.is_selected(search));
        let matched = entries.len();
        let after = search.after.as_deref().unwrap_or_default();
        let first = entries.partition_point(|entry| *entry.key() <= *after);
        let rest = &entries[first..];
        let part = &rest[..rest.len().min(search.limit)];
        let is_last = part.len() == rest.len();
        let next = part.last().filter(|_| !is_last).map(Entry::key);
        json!({
            "summary": summary.to_json(),
            "namespaces": namespaces.iter().flatten().count(),
            "handedOver": all.len() - namespaces.len(),
            "omitted": self.omitted.0,
            "total": total,
            "matched": matched,
            "next": next,
            "results": part.iter().map(Entry::to_json).collect::<Vec<_>>(),
        })
    }

    fn plugin(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.plugins.get(name) {
            return known.clone();
        }
        let name: Arc<str> = Arc::from(name);
        self.plugins.insert(name.clone());
        name
    }
}

/// Returns the entries of sorted rows, in the order of answers.
fn entries<'c>(rows: &[&'c Row], by: By) -> Vec<Entry<'c>> {
    let entries = rows.iter().map(|row| row.entry());
    if by == By::Both {
        return entries.collect();
    }
    let mut groups: BTreeMap<_, Entry<'c>> = BTreeMap::new();
    for mut entry in entries {
        // Cluster-scoped objects are in no namespace.
        let is_of_none = by == By::Plugin && entry.namespace.flatten().is_none();
        match by {
            By::Namespace => entry.plugin = None,
            By::Plugin | By::Both => entry.namespace = None,
        }
        let group = groups.entry((entry.namespace, entry.plugin));
        let group = group.or_insert_with(|| Entry {
            of: 0,
            summary: Summary::default(),
            ..entry
        });
        group.of += u64::from(!is_of_none);
        group.summary.extend(entry.summary);
    }
    let mut entries: Vec<_> = groups.into_values().collect();
    entries.sort_by(Entry::order);
    entries
}

// === impl Row ===

impl Row {
    fn entry(&self) -> Entry<'_> {
        Entry {
            namespace: Some(self.namespace.as_deref()),
            plugin: Some(&self.plugin),
            of: 1,
            summary: self.summary,
        }
    }
}

// === impl Entry ===

impl Entry<'_> {
    /// The numbers that sort the entries, the largest first: what was not answered or would be denied, and what would
    /// be warned about.
    fn rank(&self) -> [u64; 2] {
        let of = |verdict| self.summary.count(verdict);
        let ranks = [of(Verdict::Error) + of(Verdict::Fail), of(Verdict::Warn)];
        ranks.map(|rank| rank.min(MOST_IN_KEY))
    }

    fn namespace(&self) -> &str {
        self.namespace.flatten().unwrap_or_default()
    }

    /// Compares by rank and names, as the keys do.
    fn order(&self, other: &Self) -> Ordering {
        let rank = other.rank().cmp(&self.rank());
        rank.then_with(|| self.namespace().cmp(other.namespace()))
            .then_with(|| self.plugin.cmp(&other.plugin))
    }

    /// The key by which the answer is continued. Keys have the order of the entries, because no name has a character
    /// before the space.
    fn key(&self) -> String {
        let [failures, warnings] = self.rank().map(|rank| MOST_IN_KEY - rank);
        let plugin = self.plugin.unwrap_or_default();
        format!(
            "{failures:012} {warnings:012} {} {plugin}",
            self.namespace()
        )
    }

    fn is_selected(&self, search: &ScanSearch) -> bool {
        let names = [self.namespace.flatten(), self.plugin];
        let has_name = |part: &str| names.iter().flatten().any(|name| contains(name, part));
        let has_result = |word: &str| {
            let verdict = Verdict::ALL
                .into_iter()
                .find(|verdict| verdict.as_str() == word);
            verdict.is_some_and(|verdict| self.summary.count(verdict) > 0)
        };
        search.search.as_deref().is_none_or(has_name)
            && search.result.as_deref().is_none_or(has_result)
    }

    fn to_json(&self) -> Value {
        let mut entry = self.summary.to_json();
        match (self.namespace, self.plugin) {
            (Some(namespace), Some(plugin)) => {
                entry["namespace"] = json!(namespace);
                entry["plugin"] = json!(plugin);
            }
            (Some(namespace), None) => {
                entry["namespace"] = json!(namespace);
                entry["plugins"] = json!(self.of);
            }
            (None, plugin) => {
                entry["plugin"] = json!(plugin);
                entry["namespaces"] = json!(self.of);
            }
        }
        entry["key"] = json!(self.key());
        entry
    }
}
