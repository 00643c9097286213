//! One scan of this replica's part of the cluster: finds the objects that changed, and judges them.
//!
//! The scan lists only metadata, page by page. It reads an object only if the object or a plugin that could match it
//! has changed. If it must read many objects of a page, it reads the whole page.

use std::collections::{BTreeMap, HashSet};

use tollgate_cluster::{InventoryError, Served, Version, Versions};
use tollgate_json::document::Json;

use super::memory::{Memory, Remembered};
use super::pace::Pace;
use super::share::Share;
use super::source::{Judges, Objects};
use crate::finding::{Finding, Results, Summary};
use crate::inventory::{completed, read_object, read_page};
use crate::key::Key;
use crate::object::{self, Origin, Read};

/// A scan under way.
pub(crate) struct Round<'r, O, J> {
    pub(crate) objects: &'r O,
    pub(crate) judges: &'r J,
    pub(crate) memory: &'r mut Memory,
    pub(crate) share: &'r mut Share,
    pub(crate) pace: &'r mut Pace,
    pub(crate) page_size: u32,
    pub(crate) tally: Tally,
}

/// The result of a scan.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// The objects in this replica's part.
    pub(crate) objects: u64,
    /// The objects whose content was read.
    pub(crate) read: u64,
    /// The calls of plugins.
    pub(crate) calls: u64,
    /// The results that there was no memory for.
    pub(crate) counted: BTreeMap<Option<String>, Summary>,
    /// The same results, also by plugin.
    pub(crate) counted_by_plugin: BTreeMap<Option<String>, BTreeMap<String, Summary>>,
    /// The resources that could not be read, each with the reason.
    pub(crate) unread: BTreeMap<String, String>,
}

/// From this number on, the objects of a page are read together.
const TOGETHER: usize = 8;
/// Maximum number of values in a page. If a page has more, the scan reads its objects one by one.
const MOST_PAGE_VALUES: u32 = 300_000;
/// Maximum number of values in an object. An object of 3 MiB, the largest that kube-apiserver takes, has fewer.
const MOST_OBJECT_VALUES: u32 = 2_000_000;
/// How often a list may expire before its last page.
const MOST_EXPIRED: u32 = 10;

// === impl Tally ===

impl Tally {
    /// Counts results that there is no memory for.
    fn count(&mut self, namespace: Option<String>, findings: &[Finding]) {
        let plugins = self.counted_by_plugin.entry(namespace.clone());
        let plugins = plugins.or_default();
        for finding in findings {
            let plugin = plugins.entry(finding.plugin.clone()).or_default();
            plugin.add(finding.verdict);
        }
        let counted = self.counted.entry(namespace).or_default();
        counted.extend(Summary::of(findings.iter()));
    }

    /// Returns the counts of each plugin in a namespace: of its results in memory, and of those without room.
    pub(crate) fn by_plugin<'t>(
        &'t self,
        namespace: &Option<String>,
        results: &'t Results,
    ) -> BTreeMap<&'t str, Summary> {
        let mut plugins = results.by_plugin();
        let counted = self.counted_by_plugin.get(namespace);
        for (plugin, summary) in counted.into_iter().flatten() {
            plugins.entry(plugin).or_default().extend(*summary);
        }
        plugins
    }
}

// === impl Round ===

impl<O: Objects, J: Judges> Round<'_, O, J> {
    /// Scans these resources. A resource that cannot be read keeps its earlier results, and does not stop the scan. So do
    /// other resources, unless `are_all` says that these are all that there are.
    pub(crate) async fn run(&mut self, resources: &[Served], are_all: bool) {
        if are_all {
            self.memory.retain(resources);
        }
        for resource in resources {
            self.memory.begin(resource);
            let result = self.resource(resource).await;
            let share = &mut *self.share;
            let is_unread = result.is_err();
            self.memory.end(resource, |place| {
                is_unread && share.owns(place.namespace.as_deref())
            });
            if let Err(reason) = result {
                self.tally.unread.insert(resource.to_string(), reason);
            }
        }
    }

    async fn resource(&mut self, resource: &Served) -> Result<(), String> {
        let judged_by = self.judges.key_of(resource);
        let mut limit = self.page_size;
        let (mut continued, mut expired): (Option<String>, u32) = (None, 0);
        loop {
            self.pace.step().await;
            let versions = self.objects.versions(resource, continued.as_deref(), limit);
            let page = match versions.await {
                Ok(page) => page,
                // Metadata may have hundreds of KiB of annotations.
                Err(InventoryError::TooLarge { .. }) if limit > 1 => {
                    limit = (limit / 4).max(1);
                    continue;
                }
                Err(InventoryError::Expired {
                    continued: Some(token),
                    ..
                }) if expired < MOST_EXPIRED => {
                    expired += 1;
                    continued = Some(token);
                    continue;
                }
                Err(error) => return Err(error.to_string()),
            };
            self.page(resource, judged_by, (continued.as_deref(), limit), &page)
                .await?;
            if page.continued.is_none() {
                return Ok(());
            }
            continued = page.continued;
        }
    }

    /// Judges the objects of a page that changed.
    async fn page(
        &mut self,
        resource: &Served,
        judged_by: Option<Key>,
        (continued, limit): (Option<&str>, u32),
        page: &Versions,
    ) -> Result<(), String> {
        let mut changed = Vec::new();
        for version in &page.objects {
            if !self.share.owns(version.namespace.as_deref()) {
                continue;
            }
            self.tally.objects += 1;
            let id = object::id(resource, version.namespace.as_deref(), &version.name);
            if version.is_deleted {
                self.memory.recall(&id);
            } else if self.is_unchanged(&id, version, judged_by).await {
                if let Some(remembered) = self.memory.recall(&id) {
                    self.memory.keep(resource, id, remembered);
                }
            } else {
                changed.push(version);
            }
        }
        if changed.len() >= TOGETHER {
            changed = self
                .together(resource, judged_by, (continued, limit), changed)
                .await?;
        }
        for version in changed {
            self.pace.step().await;
            let namespace = version.namespace.as_deref();
            let read = self.objects.object(resource, namespace, &version.name);
            let Some(text) = read.await.map_err(|error| error.to_string())? else {
                continue;
            };
            let content = read_object(&text, MOST_OBJECT_VALUES);
            let content = content.ok_or_else(|| {
                format!(
                    "cannot read {resource} {}: not JSON, or too large",
                    version.name
                )
            })?;
            self.judge(resource, judged_by, &completed(resource, &content))
                .await?;
        }
        Ok(())
    }

    /// Reads a page as a whole, and judges those of its objects that changed. Returns those that were not on it.
    async fn together<'v>(
        &mut self,
        resource: &Served,
        judged_by: Option<Key>,
        (continued, limit): (Option<&str>, u32),
        changed: Vec<&'v Version>,
    ) -> Result<Vec<&'v Version>, String> {
        let text = match self.objects.page(resource, continued, limit).await {
            Ok(text) => text,
            Err(InventoryError::TooLarge { .. } | InventoryError::Expired { .. }) => {
                return Ok(changed);
            }
            Err(error) => return Err(error.to_string()),
        };
        let Ok(page) = read_page(&text, resource, MOST_PAGE_VALUES) else {
            return Ok(changed);
        };
        drop(text);
        let mut missing: HashSet<(Option<&str>, &str)> = changed
            .iter()
            .map(|version| (version.namespace.as_deref(), version.name.as_str()))
            .collect();
        for content in &page.objects {
            let metadata = content.member("metadata");
            let text = |name: &str| metadata?.member(name)?.as_text();
            let place = (text("namespace"), text("name").unwrap_or_default());
            if missing.remove(&place) {
                self.pace.step().await;
                self.judge(resource, judged_by, content).await?;
            }
        }
        let is_missing = |version: &&Version| {
            missing.contains(&(version.namespace.as_deref(), version.name.as_str()))
        };
        Ok(changed.into_iter().filter(is_missing).collect())
    }

    /// Whether the results of an earlier scan count, so that the object need not be read.
    async fn is_unchanged(&self, id: &str, version: &Version, judged_by: Option<Key>) -> bool {
        let Some(seen) = self.memory.seen(id) else {
            return false;
        };
        let identity = object::version(Some(&version.uid), Some(&version.resource_version));
        if judged_by.is_none() || seen.judged_by != judged_by || identity != Some(seen.version) {
            return false;
        }
        let namespace = self.judges.namespace(version.namespace.as_deref());
        namespace.await == Some(seen.namespace)
    }

    async fn judge(
        &mut self,
        resource: &Served,
        judged_by: Option<Key>,
        content: &Json,
    ) -> Result<(), String> {
        let read = object::read(resource, content, Origin::Cluster);
        let item = match read.map_err(|error| format!("{resource}: {error:#}"))? {
            Read::Item(item) => *item,
            Read::Deleted => return Ok(()),
        };
        self.tally.read += 1;
        let id = item.id.clone();
        let known = self.memory.recall(&id).and_then(|known| known.seen);
        let outcome = self.judges.judge(item, known.as_ref(), judged_by).await;
        self.tally.calls += outcome.calls;
        let remembered = Remembered::new(&outcome);
        if !self.memory.keep(resource, id, remembered) {
            let namespace = outcome.item.place.namespace.clone();
            self.tally.count(namespace, &outcome.judged.findings);
        }
        Ok(())
    }
}
