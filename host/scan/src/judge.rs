//! Evaluates objects with the server's pipeline.
//!
//! The pipeline gets each object as its own CREATE request, once for each plugin and phase, on the path of this plugin
//! alone. So every plugin sees the object as it exists, and no result depends on another plugin. If one plugin changes,
//! the results of the others stay valid.

mod plugin;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use bytes::Bytes;
use tollgate::setup::{Question, ask};
use tollgate_admission::Endpoint;
use tollgate_admission::namespaces::{Lookup, Namespaces};
use tollgate_admission::review::decode::decode_within;
use tollgate_cluster::Served;
use tollgate_config::{Config, EngineConfig, PluginConfig, Requests};
use tollgate_engine::Engine;
use tollgate_gate::pipeline::Pipeline;
use tollgate_gate::pipeline::outcome::{Ended, Report};
use tollgate_gate::plugin::PluginSet;
use tollgate_json::document::Account;
use tollgate_telemetry::metrics::Metrics;

pub use self::plugin::Judge;
use self::plugin::Subject;
use super::finding::{Finding, Judged, Verdict};
use super::key::Key;
use super::object::Item;
use super::state::{Kept, Seen};
use super::verdict::{finding, unanswered};

/// The plugins that objects are judged by, at one time.
pub struct Bench {
    judges: Vec<Judge>,
    /// The plugins as the server has them.
    pipeline: Pipeline,
    /// The plugins that have exceptions, without these. None if no plugin has any.
    without: Option<Pipeline>,
    namespaces: Option<Arc<dyn Namespaces>>,
    /// The keys of Namespaces, by name.
    keys: Mutex<HashMap<String, Key>>,
    requests: Requests,
    /// The time for plugins that may read it: that of the scan.
    now: SystemTime,
    /// A plugin is not called any more after this many faults in a row. None means that it always is.
    most_faults: Option<u32>,
}

/// The circumstances of a scan.
#[derive(Clone)]
pub struct Circumstances {
    /// Where the scan and its plugins learn about Namespaces. With none, plugins that need one have a fault.
    pub namespaces: Option<Arc<dyn Namespaces>>,
    /// The time for plugins that may read it, and for exceptions.
    pub now: SystemTime,
    /// A plugin is not called any more after this many faults in a row. None means that it always is.
    pub most_faults: Option<u32>,
    /// The metrics that count the calls. A scan does not use the metrics of a server, because those count reviews.
    pub metrics: Arc<Metrics>,
}

/// The results for an object, and what the next scan may use again.
#[derive(Debug)]
pub struct Outcome {
    /// The object.
    pub item: Item,
    /// The results of all plugins that match.
    pub judged: Judged,
    /// The calls of plugins.
    pub calls: u64,
    /// The results of an earlier scan that were used again.
    pub reused: u64,
    /// The results that the next scan may use again. None if it must evaluate the object again.
    pub seen: Option<Seen>,
    /// The results that are not in `seen`.
    pub others: Vec<Finding>,
}

/// The time that a call may take. The same object must have the same result on every machine, so only fuel ends calls.
const LONGEST_CALL: Duration = Duration::from_secs(30);
/// The time that a review may take.
const LONGEST_REVIEW: Duration = Duration::from_secs(120);
/// Nesting levels above the object: the AdmissionReview and its request.
const DEPTH_OF_OBJECT: u32 = 2;

// === impl Bench ===

impl Bench {
    /// Judges by the plugins of a set. A plugin that is not loaded gives the result `error` for each object that it could
    /// match. `config` has the sections that the plugins were loaded with.
    #[must_use]
    pub fn new(
        set: &PluginSet,
        engine: &Engine,
        config: &Config,
        circumstances: Circumstances,
    ) -> Self {
        let Circumstances {
            namespaces,
            now,
            most_faults,
            metrics,
        } = circumstances;
        let pipeline =
            |set: PluginSet| pipeline(set, engine, &metrics, &config.requests, &config.engine);
        let without = set.without_exceptions(&metrics, LONGEST_CALL);
        let set = set.apart(&metrics, LONGEST_CALL);
        let judges = set.iter().map(|plugin| Judge::new(plugin, config, now));
        Self {
            judges: judges.collect(),
            pipeline: pipeline(set),
            without: (!without.is_empty()).then(|| pipeline(without)),
            namespaces,
            keys: Mutex::default(),
            requests: config.requests.clone(),
            now,
            most_faults,
        }
    }

    /// The plugins, in order.
    #[must_use]
    pub fn judges(&self) -> &[Judge] {
        &self.judges
    }

    /// The configurations of the plugins, in order.
    pub fn configs(&self) -> impl Iterator<Item = &PluginConfig> {
        self.judges.iter().map(|judge| &judge.plugin.config)
    }

    /// Returns the key of all plugins whose rules could match objects of a resource. None if results of one of them must
    /// not be used again.
    #[must_use]
    pub fn key_of(&self, resource: &Served) -> Option<Key> {
        let matching = self.judges.iter();
        let matching = matching.filter(|judge| judge.could_match(resource));
        let keys: Option<Vec<String>> = matching
            .map(|judge| judge.key.map(|key| key.to_string()))
            .collect();
        let keys = keys?;
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        Some(Key::of(&keys))
    }

    /// Returns the results of an earlier scan, as far as its plugins are the same.
    #[must_use]
    pub fn findings(&self, seen: &Seen) -> Vec<Finding> {
        let known = self.judges.iter().filter_map(|judge| {
            let kept = seen.kept(judge.key?)?;
            Some(kept.findings(judge.name(), judge.mode()))
        });
        known.flatten().collect()
    }

    /// Judges objects. The results do not depend on the number of workers, and have the order of the objects. `known`
    /// returns what an earlier scan saw of an object.
    ///
    /// # Errors
    /// When a worker panics.
    pub async fn judge_all<S>(
        self: &Arc<Self>,
        known: &Arc<S>,
        items: Vec<Item>,
        workers: usize,
    ) -> anyhow::Result<Vec<Outcome>>
    where
        S: Fn(&str) -> Option<Seen> + Send + Sync + 'static,
    {
        let items = Arc::new(Mutex::new(items.into_iter().enumerate()));
        let mut tasks = Vec::new();
        for _ in 0..workers.max(1) {
            let (bench, known, items) = (self.clone(), known.clone(), items.clone());
            tasks.push(tokio::spawn(async move {
                let mut outcomes = Vec::new();
                loop {
                    let next = items.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((index, item)) = next else {
                        return outcomes;
                    };
                    let seen = known(&item.id);
                    outcomes.push((index, bench.judge(item, seen.as_ref(), None).await));
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

    /// Judges an object. `known` is what an earlier scan saw of it, and `judged_by` the key of the plugins whose rules
    /// could match.
    pub async fn judge(&self, item: Item, known: Option<&Seen>, judged_by: Option<Key>) -> Outcome {
        let subject = self.subject(&item);
        let namespace = self.namespace(item.place.namespace.as_deref()).await;
        let identity = item.version.zip(namespace);
        let known = known.filter(|seen| {
            identity.is_some_and(|(version, namespace)| seen.is_of(version, namespace))
        });
        let mut seen = identity.map(|(version, namespace)| Seen {
            version,
            namespace,
            judged_by,
            plugins: Vec::new(),
        });
        let (mut findings, mut others) = (Vec::new(), Vec::new());
        let (mut calls, mut reused) = (0, 0);
        for judge in &self.judges {
            let endpoints = judge.endpoints(&subject);
            if endpoints.is_empty() {
                continue;
            }
            let kept = judge.key.and_then(|key| known?.kept(key));
            let own = match kept {
                Some(kept) => {
                    let own = kept.findings(judge.name(), judge.mode());
                    reused += own.len() as u64;
                    own
                }
                None => self.ask(judge, &endpoints, &subject, &mut calls).await,
            };
            // A fault may come from the host's load, so the plugin is called again the next time.
            let is_kept = own.iter().all(|one| one.verdict != Verdict::Error);
            match (&mut seen, judge.key) {
                (Some(seen), Some(key)) if is_kept => seen.plugins.push(Kept::new(key, &own)),
                (seen, _) => {
                    others.extend(own.iter().cloned());
                    if let Some(seen) = seen {
                        seen.judged_by = None;
                    }
                }
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
            others,
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
            if let Some(given_up) = judge.given_up(self.most_faults) {
                findings.push(unanswered(&judge.plugin.config, *endpoint, given_up));
                continue;
            }
            for report in self
                .reports(&self.pipeline, judge, *endpoint, subject)
                .await
            {
                let report = match report {
                    Ok(report) => report,
                    Err(error) => {
                        judge.answered(false);
                        findings.push(unanswered(&judge.plugin.config, *endpoint, error));
                        continue;
                    }
                };
                let mut found = finding(&report, *endpoint);
                judge.covered(subject, &mut found, self.now);
                if !matches!(report.ended, Ended::Excepted(_)) {
                    judge.answered(!matches!(report.ended, Ended::Faulted(_)));
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

    /// Returns the reports of a plugin, also if it is in mode audit. The list is empty if the plugin does not match.
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
            plugin: Some(judge.name().to_owned()),
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
        let decoded = decode_within(&body, max_depth, &Account::unlimited());
        Subject {
            body,
            request: decoded.ok().map(|review| review.request),
        }
    }

    /// Returns a key of what plugins see of a Namespace. None if it cannot be known now, so that nothing that depends on
    /// it may be used again.
    pub async fn namespace(&self, name: Option<&str>) -> Option<Key> {
        let (Some(name), Some(namespaces)) = (name, &self.namespaces) else {
            return Some(Key::of(&["no namespace"]));
        };
        let keys = || self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let known = keys().get(name).copied();
        if known.is_some() {
            return known;
        }
        let key = match namespaces.look_up(name).await {
            Lookup::Found(namespace) => Key::of(&["found", &namespace.document().to_text()]),
            Lookup::NotFound { .. } => Key::of(&["not found"]),
            Lookup::Unavailable { .. } => return None,
        };
        keys().insert(name.to_owned(), key);
        Some(key)
    }
}

fn pipeline(
    set: PluginSet,
    engine: &Engine,
    metrics: &Arc<Metrics>,
    requests: &Requests,
    limits: &EngineConfig,
) -> Pipeline {
    let calls = limits.max_concurrent_calls as usize;
    let pipeline = Pipeline::new(
        engine.clone(),
        set,
        metrics.clone(),
        requests.max_depth,
        calls,
    );
    pipeline.with_room(requests.max_decoded_bytes)
}
