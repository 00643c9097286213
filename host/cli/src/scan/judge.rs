//! Judges objects by the server's pipeline.
//!
//! The pipeline gets each object as the CREATE that would make it, once for each plugin and phase: as a review to the
//! path of this plugin alone. So every plugin sees the object as it exists, no result depends on another plugin, and a
//! changed plugin leaves the results of the others valid.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tollgate::setup::{Options, Question, Setup, ask};
use tollgate_admission::Endpoint;
use tollgate_admission::namespaces::{Lookup, Namespaces};
use tollgate_admission::review::decode::decode;
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_config::{Capability, Config, Requests};
use tollgate_gate::pipeline::Pipeline;
use tollgate_gate::pipeline::outcome::{Ended, Report};
use tollgate_gate::plugin::{Plugin, PluginState};

use super::finding::{Covered, Finding, Judged, Verdict};
use super::object::Item;
use super::state::{Kept, Seen, State};
use super::verdict::{finding, unanswered};
use crate::review::report_failed;

/// A configuration that objects are judged by.
pub(super) struct Bench {
    pub(super) plugins: Vec<Judge>,
    /// The plugins as the server has them.
    pipeline: Pipeline,
    /// The plugins that have exceptions, without these. None if no plugin has any.
    without: Option<Pipeline>,
    namespaces: Option<Arc<dyn Namespaces>>,
    /// The hashes of Namespaces, by name.
    hashes: Mutex<HashMap<String, String>>,
    requests: Requests,
    /// The time for plugins that may read it: that of the scan.
    now: SystemTime,
    _setup: Setup,
}

/// A plugin with the key of its results.
pub(super) struct Judge {
    pub(super) plugin: Arc<Plugin>,
    /// None if a result cannot be used again: the plugin reads the time, or is not loaded.
    key: Option<String>,
}

/// The results for an object, and what the state file keeps of them.
pub(super) struct Outcome {
    pub(super) item: Item,
    pub(super) judged: Judged,
    pub(super) calls: u64,
    pub(super) reused: u64,
    pub(super) seen: Option<Seen>,
}

/// A review of one object.
struct Subject {
    body: Bytes,
    /// None if the object is too deep or too large to be shown to plugins.
    request: Option<AdmissionRequest>,
}

/// The time that a call may take. The same object must have the same result on every machine, so only fuel ends calls.
const LONGEST_CALL: Duration = Duration::from_secs(30);
/// The time that a review may take.
const LONGEST_REVIEW: Duration = Duration::from_secs(120);
/// Nesting levels above the object: the AdmissionReview and its request.
const DEPTH_OF_OBJECT: u32 = 2;

// === impl Bench ===

impl Bench {
    /// Loads all plugins. A plugin that cannot be loaded gives the result `error` for each object that it could match.
    pub(super) async fn load(
        mut config: Config,
        namespaces: Option<Arc<dyn Namespaces>>,
        now: SystemTime,
    ) -> anyhow::Result<Self> {
        for plugin in &mut config.plugins {
            plugin.limits.cpu_time = LONGEST_CALL;
            plugin.limits.timeout = LONGEST_CALL;
        }
        let options = Options {
            namespaces: namespaces.clone(),
            ..Options::default()
        };
        let setup = Setup::new(&config, &options)?;
        let set = setup.loader.load_all(config.plugins.clone()).await;
        report_failed(&set);
        let plugins = set.iter().map(|plugin| Judge {
            plugin: plugin.clone(),
            key: key(plugin, &config, now),
        });
        let plugins = plugins.collect();
        let excepting = config.plugins.iter();
        let mut excepting: Vec<_> = excepting
            .filter(|plugin| plugin.enabled && !plugin.exceptions.is_empty())
            .cloned()
            .collect();
        for plugin in &mut excepting {
            plugin.exceptions.clear();
        }
        let without = if excepting.is_empty() {
            None
        } else {
            let set = setup.loader.load_all(excepting).await;
            Some(setup.pipeline(set, &config.requests, &config.engine))
        };
        Ok(Self {
            plugins,
            pipeline: setup.pipeline(set, &config.requests, &config.engine),
            without,
            namespaces,
            hashes: Mutex::default(),
            requests: config.requests,
            now,
            _setup: setup,
        })
    }

    /// Judges objects. The results do not depend on the number of workers, and have the order of the objects.
    pub(super) async fn judge_all(
        self: &Arc<Self>,
        state: &Arc<State>,
        items: Vec<Item>,
        workers: usize,
    ) -> anyhow::Result<Vec<Outcome>> {
        let items = Arc::new(Mutex::new(items.into_iter().enumerate()));
        let mut tasks = Vec::new();
        for _ in 0..workers.max(1) {
            let (bench, state, items) = (self.clone(), state.clone(), items.clone());
            tasks.push(tokio::spawn(async move {
                let mut outcomes = Vec::new();
                loop {
                    let next = items.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((index, item)) = next else {
                        return outcomes;
                    };
                    outcomes.push((index, bench.judge(item, &state).await));
                }
            }));
        }
        let mut outcomes = Vec::new();
        for task in tasks {
            outcomes.extend(task.await.context("a worker of the scan panicked")?);
        }
        outcomes.sort_by_key(|(index, _)| *index);
        Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
    }

    async fn judge(&self, item: Item, state: &State) -> Outcome {
        let subject = self.subject(&item);
        let namespace = self.hash_of(item.place.namespace.as_deref()).await;
        let version = item.version.as_deref();
        let known = version.and_then(|version| state.seen(&item.id, version, &namespace));
        let mut seen = version.map(|version| Seen {
            version: version.to_owned(),
            namespace,
            plugins: Default::default(),
        });
        let (mut findings, mut calls, mut reused) = (Vec::new(), 0, 0);
        for judge in &self.plugins {
            let endpoints = judge.endpoints(&subject);
            if endpoints.is_empty() {
                continue;
            }
            let name = judge.plugin.config.name.as_str();
            let kept = known.and_then(|seen| seen.plugins.get(name));
            let kept = kept.filter(|kept| Some(&kept.key) == judge.key.as_ref());
            let own = match kept {
                Some(kept) => {
                    reused += kept.findings.len() as u64;
                    kept.findings.clone()
                }
                None => self.ask(judge, &endpoints, &subject, &mut calls).await,
            };
            // A fault may come from the host's load, so the plugin is called again the next time.
            let is_kept = own.iter().all(|one| one.verdict != Verdict::Error);
            if let (Some(seen), Some(key), true) = (&mut seen, &judge.key, is_kept) {
                let kept = Kept {
                    key: key.clone(),
                    findings: own.clone(),
                };
                seen.plugins.insert(name.to_owned(), kept);
            }
            findings.extend(own);
        }
        let judged = Judged {
            api_version: item.api_version.clone(),
            uid: item.uid.clone(),
            findings,
        };
        Outcome {
            item,
            judged,
            calls,
            reused,
            seen,
        }
    }

    /// Asks one plugin about an object at these endpoints.
    async fn ask(
        &self,
        judge: &Judge,
        endpoints: &[Endpoint],
        subject: &Subject,
        calls: &mut u64,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        for endpoint in endpoints {
            for report in self
                .reports(&self.pipeline, judge, *endpoint, subject)
                .await
            {
                let report = match report {
                    Ok(report) => report,
                    Err(error) => {
                        findings.push(unanswered(&judge.plugin.config, *endpoint, error));
                        continue;
                    }
                };
                let mut found = finding(&report, *endpoint);
                found.covered = judge.covered(subject, found.verdict, self.now);
                if !matches!(report.ended, Ended::Excepted(_)) {
                    *calls += 1;
                } else if let Some(without) = &self.without {
                    let reports = self.reports(without, judge, *endpoint, subject).await;
                    *calls += reports.len() as u64;
                    let verdicts = reports.iter().map(|report| match report {
                        Ok(report) => finding(report, *endpoint).verdict,
                        Err(_) => Verdict::Error,
                    });
                    found.without = verdicts.min();
                }
                findings.push(found);
            }
        }
        findings
    }

    /// Returns the reports of a plugin, also if it is in mode audit. There is none if the plugin does not match.
    async fn reports(
        &self,
        pipeline: &Pipeline,
        judge: &Judge,
        endpoint: Endpoint,
        subject: &Subject,
    ) -> Vec<Result<Report, String>> {
        let received = Instant::now();
        let question = Question {
            endpoint,
            plugin: Some(judge.plugin.config.name.as_str().to_owned()),
            body: subject.body.clone(),
            received,
            deadline: received + LONGEST_REVIEW,
            now: Some(self.now),
        };
        match ask(pipeline, self.requests.max_body_bytes, question).await {
            Ok(examination) => {
                let reports = examination.reports.into_iter().chain(examination.audits);
                reports.map(Ok).collect()
            }
            Err(error) => vec![Err(error.to_string())],
        }
    }

    fn subject(&self, item: &Item) -> Subject {
        let body = Bytes::from(item.review.to_text());
        let max_depth = self.requests.max_depth.saturating_add(DEPTH_OF_OBJECT);
        let decoded = decode(&body, max_depth);
        Subject {
            body,
            request: decoded.ok().map(|review| review.request),
        }
    }

    /// Returns a hash of what plugins see of a Namespace. Empty if there is nothing to see.
    async fn hash_of(&self, name: Option<&str>) -> String {
        let (Some(name), Some(namespaces)) = (name, &self.namespaces) else {
            return String::new();
        };
        let hashes = || self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hash) = hashes().get(name) {
            return hash.clone();
        }
        let hash = match namespaces.look_up(name).await {
            Lookup::Found(namespace) => hash(&[&namespace.document().to_text()]),
            Lookup::NotFound { .. } | Lookup::Unavailable { .. } => String::new(),
        };
        hashes().insert(name.to_owned(), hash.clone());
        hash
    }
}

// === impl Judge ===

impl Judge {
    /// Returns the endpoints at which the plugin may have something to say. The pipeline decides whether it has.
    fn endpoints(&self, subject: &Subject) -> Vec<Endpoint> {
        let could_match = |matching: &tollgate_config::Match| {
            let request = subject.request.as_ref();
            request.is_none_or(|request| matching.matches(request).is_some())
        };
        match &self.plugin.state {
            PluginState::Disabled => Vec::new(),
            // One error for each object is enough.
            PluginState::Failed { .. } => {
                let matching = self.plugin.config.matching.as_ref();
                match matching.is_none_or(could_match) {
                    true => vec![Endpoint::Validate],
                    false => Vec::new(),
                }
            }
            PluginState::Loaded(loaded) if could_match(&loaded.matching) => {
                let interfaces = loaded.guest.interfaces();
                let exports = [
                    (interfaces.mutating, Endpoint::Mutate),
                    (interfaces.validating, Endpoint::Validate),
                ];
                let exported = exports.into_iter().filter(|(is_exported, _)| *is_exported);
                exported.map(|(_, endpoint)| endpoint).collect()
            }
            PluginState::Loaded(_) => Vec::new(),
        }
    }

    /// Lists the exceptions that cover the object. The first active one is the one that applied.
    fn covered(&self, subject: &Subject, verdict: Verdict, now: SystemTime) -> Vec<Covered> {
        let Some(request) = &subject.request else {
            return Vec::new();
        };
        let exceptions = self.plugin.config.exceptions.iter().enumerate();
        let mut is_open = verdict == Verdict::Skip;
        exceptions
            .filter(|(_, exception)| exception.covers(request))
            .map(|(index, exception)| {
                let applied = is_open && exception.is_active(now);
                is_open &= !applied;
                Covered { index, applied }
            })
            .collect()
    }
}

/// Returns the key of a plugin's results: its code, its entry with settings and exceptions, and which of the exceptions
/// have not expired.
fn key(plugin: &Plugin, config: &Config, now: SystemTime) -> Option<String> {
    let entry = &plugin.config;
    let reads_time = entry.capabilities.contains(&Capability::Clock);
    if reads_time || !matches!(plugin.state, PluginState::Loaded(_)) {
        return None;
    }
    // What the file says about listeners and folders is no part of a result.
    let document = config.document(std::iter::once(entry));
    let [entry_text, requests] = ["plugins", "requests"].map(|key| document[key].to_string());
    let active = entry.exceptions.iter();
    let active: String = active
        .map(|exception| if exception.is_active(now) { 'a' } else { 'e' })
        .collect();
    let version = env!("CARGO_PKG_VERSION");
    let digest = plugin.digest.as_deref()?;
    Some(hash(&[version, digest, &entry_text, &requests, &active]))
}

/// Returns a hash of texts as hexadecimal digits.
pub(super) fn hash(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text.len().to_le_bytes());
        hash.update(text.as_bytes());
    }
    let hash = hash.finalize();
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
