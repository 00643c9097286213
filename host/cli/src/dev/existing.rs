//! Reviews objects that exist, in files or in a cluster, by each new version.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use sha2::{Digest as _, Sha256};
use tollgate_admission::namespaces::Namespaces;
use tollgate_cluster::{ClusterNamespaces, Served, connect_as_user, discover};
use tollgate_json::document::Json;
use tollgate_scan::inventory::Pages;

use super::playground::Serving;
use crate::review::examine::{Finding, Verdict, examine};
use crate::review::input::Document;
use crate::review::request::Maker;
use crate::review::{RequestedOperation, ReviewOptions, show};
use crate::scan::dump;
use crate::terminal::{BAD, FAINT, NOTABLE, STRONG, plain, say};

/// The objects that are reviewed by each new version, as creations.
pub(super) struct Existing {
    paths: Vec<PathBuf>,
    from_cluster: Option<FromCluster>,
    /// The verdicts of the last version, by place.
    before: BTreeMap<Place, Verdict>,
    /// The hash of the documents that were reviewed last.
    reviewed: Option<String>,
}

/// Objects of a cluster, as they were at the start.
pub(super) struct FromCluster {
    documents: Vec<Document>,
    resources: Vec<Served>,
    pub(super) namespaces: Arc<dyn Namespaces>,
}

/// File and position of a document.
type Place = (String, usize);

/// The number of objects of each verdict.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    allowed: usize,
    changed: usize,
    denied: usize,
    errors: usize,
    /// Objects for which no plugin was called.
    not_called: usize,
    /// Objects with another verdict than by the version before.
    other: usize,
}

/// The user whose requests the reviews stand for.
const USER: &str = "tollgate-dev";
/// Maximum number of objects that are shown with their changes or denial.
const MOST_SHOWN: usize = 20;

// === impl Existing ===

impl Existing {
    pub(super) fn new(paths: Vec<PathBuf>, from_cluster: Option<FromCluster>) -> Self {
        Self {
            paths,
            from_cluster,
            before: BTreeMap::new(),
            reviewed: None,
        }
    }

    /// Lists the files with objects.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let found = self.paths.iter().map(|path| dump::files(path));
        let found = found.map(Result::unwrap_or_default);
        found.flatten().chain(self.paths.iter().cloned()).collect()
    }

    /// Reviews all objects, if the version or the objects are new, and shows the result.
    pub(super) async fn review(&mut self, serving: &Serving, is_swapped: bool) {
        let documents = match dump::documents(&self.paths) {
            Ok(documents) => documents,
            Err(error) => {
                say!("{BAD}{}{BAD:#}", plain(&format!("{error:#}")));
                return;
            }
        };
        let from_cluster = self.from_cluster.iter();
        let documents: Vec<Document> = documents
            .into_iter()
            .chain(from_cluster.flat_map(|read| read.documents.iter().cloned()))
            .collect();
        let hash = hash(&documents);
        if documents.is_empty() || !is_swapped && self.reviewed.as_ref() == Some(&hash) {
            return;
        }
        self.reviewed = Some(hash);
        say!(
            "{STRONG}reviewing {} object(s){STRONG:#} {FAINT}as creations by {USER}{FAINT:#}",
            documents.len()
        );
        let findings = self.examine(serving, documents).await;
        self.show(&findings);
        self.before = findings
            .iter()
            .map(|finding| (place(finding), finding.verdict()))
            .collect();
    }

    async fn examine(&self, serving: &Serving, documents: Vec<Document>) -> Vec<Finding> {
        let options = ReviewOptions {
            operation: Some(RequestedOperation::Create),
            user: Some(USER.to_owned()),
            ..ReviewOptions::default()
        };
        let mut maker = Maker::new(&options, &documents, Vec::new());
        for resource in self.from_cluster.iter().flat_map(|read| &read.resources) {
            let Served {
                group,
                kind,
                plural,
                namespaced,
                ..
            } = resource;
            maker.define(group, kind, plural, *namespaced);
        }
        let mut findings = Vec::with_capacity(documents.len());
        for document in documents {
            let prepared = maker.prepare(&document);
            let finding = examine(&serving.pipeline, &serving.requests, document, prepared);
            findings.push(finding.await);
        }
        findings
    }

    /// Shows the objects on which the version has an effect, those with another verdict than before first, and the counts.
    fn show(&self, findings: &[Finding]) {
        let counts = Counts::of(findings, &self.before);
        let is_other = |finding: &&Finding| self.is_other(finding);
        let other = findings.iter().filter(is_other);
        let same = findings
            .iter()
            .filter(|finding| !self.is_other(finding) && finding.verdict() != Verdict::Allowed);
        let with_effect: Vec<&Finding> = other.chain(same).collect();
        for finding in with_effect.iter().take(MOST_SHOWN) {
            show::finding(finding, false);
        }
        let more = with_effect.len().saturating_sub(MOST_SHOWN);
        if more > 0 {
            say!("{FAINT}… and {more} more; `tollgate scan` lists all{FAINT:#}");
        }
        say!("{STRONG}{}{STRONG:#}", counts.line());
        if counts.other > 0 {
            say!(
                "{NOTABLE}{} with another verdict than by the version before{NOTABLE:#}",
                counts.other
            );
        }
    }

    fn is_other(&self, finding: &Finding) -> bool {
        let before = self.before.get(&place(finding));
        before.is_some_and(|before| *before != finding.verdict())
    }
}

fn place(finding: &Finding) -> Place {
    (finding.document.file.clone(), finding.document.number)
}

fn hash(documents: &[Document]) -> String {
    let mut hash = Sha256::new();
    for document in documents {
        hash.update(document.file.as_bytes());
        hash.update(document.number.to_le_bytes());
        hash.update(document.content.to_text().as_bytes());
    }
    format!("{:x}", hash.finalize())
}

// === impl Counts ===

impl Counts {
    fn of(findings: &[Finding], before: &BTreeMap<Place, Verdict>) -> Self {
        let mut counts = Self::default();
        for finding in findings {
            let verdict = finding.verdict();
            match verdict {
                Verdict::Allowed => counts.allowed += 1,
                Verdict::Changed => counts.changed += 1,
                Verdict::Denied => counts.denied += 1,
                Verdict::Error => counts.errors += 1,
            }
            let mut steps = finding.steps.iter();
            let is_called =
                steps.any(|step| !step.decision.plugins.is_empty() || !step.audits.is_empty());
            counts.not_called += usize::from(!is_called && verdict != Verdict::Error);
            let last = before.get(&place(finding));
            counts.other += usize::from(last.is_some_and(|last| *last != verdict));
        }
        counts
    }

    fn line(&self) -> String {
        let Self {
            allowed,
            changed,
            denied,
            errors,
            not_called,
            ..
        } = self;
        let mut line = format!(
            "{} object(s): {} allowed ({changed} changed), {denied} denied, {errors} in error",
            allowed + changed + denied + errors,
            allowed + changed
        );
        if *not_called > 0 {
            line.push_str(&format!("; no plugin was called for {not_called}"));
        }
        line
    }
}

// === impl FromCluster ===

impl FromCluster {
    /// Reads the objects of some resources, such as `pods` or `deployments.apps`.
    ///
    /// # Errors
    /// When kube-apiserver does not serve a resource, or does not list its objects.
    pub(super) async fn read(names: &[String], context: Option<&str>) -> anyhow::Result<Self> {
        let client = connect_as_user(context).await?;
        let mut unread = Vec::new();
        let served = discover(&client, |_, _| true, &mut unread).await?;
        let (mut documents, mut resources) = (Vec::new(), Vec::new());
        for name in names {
            let Some(resource) = find(&served, name) else {
                let more = match unread.is_empty() {
                    true => String::new(),
                    false => format!(" ({})", unread.join("; ")),
                };
                bail!(
                    "--from-cluster: the cluster has no resource {name:?} that can be listed and created, expected one \
                     such as pods or deployments.apps{more}"
                );
            };
            let mut pages = Pages::new(&client, resource);
            while let Some(objects) = pages.next().await? {
                documents.extend(objects.into_iter().filter(is_there));
            }
            resources.push(resource.clone());
        }
        let documents = documents.into_iter().enumerate();
        let documents = documents.map(|(index, content)| Document {
            file: "the cluster".to_owned(),
            number: index + 1,
            content,
        });
        Ok(Self {
            documents: documents.collect(),
            resources,
            namespaces: Arc::new(ClusterNamespaces::start(client.clone())),
        })
    }
}

/// Whether an object is not being deleted.
fn is_there(object: &Json) -> bool {
    let metadata = object.member("metadata");
    metadata.is_none_or(|metadata| metadata.member("deletionTimestamp").is_none())
}

/// Finds a resource by its plural name, with or without its group. It prefers the core group, and then the
/// version that kube-apiserver prefers.
fn find<'s>(served: &'s [Served], name: &str) -> Option<&'s Served> {
    let (plural, group) = match name.split_once('.') {
        Some((plural, group)) => (plural, Some(group)),
        None => (name, None),
    };
    let same = served.iter().filter(|resource| {
        resource.plural == plural && group.is_none_or(|group| resource.group == group)
    });
    same.min_by_key(|resource| (!resource.group.is_empty(), !resource.is_preferred))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn served(group: &str, version: &str, plural: &str, is_preferred: bool) -> Served {
        Served {
            group: group.to_owned(),
            plural: plural.to_owned(),
            version: version.to_owned(),
            kind: "Kind".to_owned(),
            namespaced: true,
            is_preferred,
        }
    }

    #[test]
    fn finds_resource_with_and_without_its_group() {
        let all = [
            served("apps", "v1beta1", "deployments", false),
            served("apps", "v1", "deployments", true),
            served("events.k8s.io", "v1", "events", true),
            served("", "v1", "events", true),
        ];
        let found = |name: &str| find(&all, name).map(ToString::to_string);
        assert_eq!(found("deployments"), found("deployments.apps"));
        assert_eq!(found("deployments"), Some(all[1].to_string()));
        assert_eq!(found("events"), Some(all[3].to_string()));
        assert_eq!(found("events.events.k8s.io"), Some(all[2].to_string()));
        assert_eq!(found("mice"), None);
        assert_eq!(found("deployments.batch"), None);
    }

    fn finding(number: usize, error: Option<&str>) -> Finding {
        Finding {
            document: Document {
                file: "a.yaml".to_owned(),
                number,
                content: Json::from(json!({"kind": "Pod"})),
            },
            prepared: None,
            steps: Vec::new(),
            after: None,
            error: error.map(str::to_owned),
        }
    }

    #[test]
    fn counts_verdicts_and_those_that_differ() {
        let before = [finding(1, None), finding(2, None)];
        let before = before
            .iter()
            .map(|finding| (place(finding), finding.verdict()))
            .collect();
        let now = [
            finding(1, Some("no")),
            finding(2, None),
            finding(3, Some("new")),
        ];
        let counts = Counts::of(&now, &before);
        let expected = Counts {
            allowed: 1,
            errors: 2,
            not_called: 1,
            other: 1,
            ..Counts::default()
        };
        assert_eq!(counts, expected);
        assert_eq!(
            counts.line(),
            "3 object(s): 1 allowed (0 changed), 0 denied, 2 in error; no plugin was called for 1"
        );
    }

    #[test]
    fn leaves_out_objects_that_are_being_deleted() {
        let object = |metadata| Json::from(json!({"kind": "Pod", "metadata": metadata}));
        assert!(is_there(&object(json!({"name": "a"}))));
        let gone = json!({"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert!(!is_there(&object(gone)));
    }
}
