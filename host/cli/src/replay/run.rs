//! Sends the reviews of a recording through pipelines, on all processors.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use tollgate::setup::{Options, Question, Setup, ask};
use tollgate_admission::Endpoint;
use tollgate_admission::access::NoAuthorizer;
use tollgate_admission::images::NoImages;
use tollgate_config::{Capability, Config, Requests};
use tollgate_gate::pipeline::Pipeline;
use tollgate_gate::plugin::PluginState;
use tollgate_json::document::Json;
use tollgate_lookups::NoTables;
use tollgate_recording::{self as recording, Entry, Records};

use super::side::{Side, compare, responsible};
use super::tally::{About, Difference, Tally};
use crate::review::request::with_object;
use crate::terminal::{NOTABLE, tell};

/// A configuration that reviews are sent through.
pub(super) struct Lab {
    pub(super) config: Config,
    pub(super) pipeline: Pipeline,
    requests: Requests,
    /// The plugins that a path can name.
    names: Vec<String>,
    /// Name, version and digest of each plugin.
    pub(super) plugins: Vec<(String, String, String)>,
    _setup: Setup,
}

/// The answers that the new ones are compared with.
pub(super) enum Baseline {
    /// The answers in the recording.
    Recorded,
    /// The answers of another configuration.
    Config(Box<Lab>),
}

/// The time that a call may take. The same review must have the same result on every machine, so only fuel ends calls.
const LONGEST_CALL: Duration = Duration::from_secs(30);
/// The time that a review may take.
const LONGEST_REVIEW: Duration = Duration::from_secs(600);

/// Why a plugin is not told about rights.
const NO_RIGHTS: &str = "a recording does not say what users may do";
/// Why images are not verified.
const NO_IMAGES: &str = "a recording does not say which images were signed";
/// Why lookups have no answer.
const NO_OBJECTS: &str = "a recording has no objects of the cluster beside those of its reviews";

// === impl Lab ===

impl Lab {
    /// Loads all plugins of a configuration.
    pub(super) async fn load(file: &Path) -> anyhow::Result<Self> {
        let mut config = Config::load(file)?;
        for plugin in &mut config.plugins {
            plugin.limits.cpu_time = LONGEST_CALL;
            plugin.limits.timeout = LONGEST_CALL;
        }
        let options = Options {
            tables: Some(Arc::new(NoTables::because(NO_OBJECTS))),
            authorizer: Some(Arc::new(NoAuthorizer::because(NO_RIGHTS))),
            images: Some(Arc::new(NoImages::because(NO_IMAGES))),
            ..Options::default()
        };
        let setup = Setup::new(&config, &options)?;
        let set = setup.loader.load_all(config.plugins.clone()).await;
        let mut plugins = Vec::new();
        for plugin in set.iter() {
            let name = plugin.config.name.as_str().to_owned();
            let version = match &plugin.state {
                PluginState::Failed { reason } => bail!(
                    "{}: the plugin {name} is not loaded: {reason}",
                    file.display()
                ),
                PluginState::Disabled => continue,
                PluginState::Loaded(loaded) => loaded.manifest.version.clone(),
            };
            if !plugin.config.lookups.is_empty() {
                tell!(
                    "{NOTABLE}{}: the lookups of the plugin {name} answer not-synchronised:{NOTABLE:#} {NO_OBJECTS}, so \
                     its answers can differ from those of the server",
                    file.display()
                );
            }
            if plugin.config.capabilities.contains(&Capability::Access) {
                tell!(
                    "{NOTABLE}{}: questions of the plugin {name} about rights are unavailable:{NOTABLE:#} {NO_RIGHTS}, so \
                     its answers can differ from those of the server",
                    file.display()
                );
            }
            if plugin.config.capabilities.contains(&Capability::Images) {
                tell!(
                    "{NOTABLE}{}: images of the plugin {name} are unavailable:{NOTABLE:#} {NO_IMAGES}, so its answers can \
                     differ from those of the server",
                    file.display()
                );
            }
            let digest = plugin.digest.as_deref().unwrap_or_default().to_owned();
            plugins.push((name, version, digest));
        }
        let pipeline = setup.pipeline(set, &config.requests, &config.engine);
        Ok(Self {
            pipeline,
            requests: config.requests.clone(),
            names: plugins.iter().map(|(name, _, _)| name.clone()).collect(),
            plugins,
            config,
            _setup: setup,
        })
    }

    /// Sends a review through both endpoints and all plugins, as `tollgate test` does.
    pub(super) async fn both(&self, entry: &Entry) -> anyhow::Result<Side> {
        let mut entry = entry.clone();
        entry.record.endpoint = recording::Endpoint::Both;
        entry.record.only = None;
        self.answer(&entry).await
    }

    /// Sends a review through the endpoint that it came to.
    async fn answer(&self, entry: &Entry) -> anyhow::Result<Side> {
        let review = &entry.record.review;
        if let Some(only) = &entry.record.only
            && !self.names.contains(only)
        {
            return Ok(Side::not_called(review));
        }
        match entry.record.endpoint {
            recording::Endpoint::Mutate => self.step(entry, Endpoint::Mutate, review).await,
            recording::Endpoint::Validate => self.step(entry, Endpoint::Validate, review).await,
            recording::Endpoint::Both => {
                let mutated = self.step(entry, Endpoint::Mutate, review).await?;
                if !mutated.allowed {
                    return Ok(mutated);
                }
                let review = match &mutated.after {
                    Some(after) => with_object(review, after.clone()),
                    None => review.clone(),
                };
                let validated = self.step(entry, Endpoint::Validate, &review).await?;
                Ok(mutated.followed_by(validated))
            }
        }
    }

    async fn step(&self, entry: &Entry, endpoint: Endpoint, review: &Json) -> anyhow::Result<Side> {
        let received = Instant::now();
        let question = Question {
            endpoint,
            plugin: entry.record.only.clone(),
            body: Bytes::from(review.to_text()),
            received,
            deadline: received + LONGEST_REVIEW,
            now: Some(entry.record.time),
        };
        let examination = ask(&self.pipeline, self.requests.max_body_bytes, question).await?;
        Ok(Side::replayed(&examination, review))
    }
}

/// Replays all reviews. The result does not depend on the number of workers.
pub(super) async fn replay(
    records: Records,
    new: Arc<Lab>,
    baseline: Arc<Baseline>,
    workers: usize,
) -> anyhow::Result<(Tally, Records)> {
    let records = Arc::new(Mutex::new(records));
    let mut tasks = Vec::new();
    for _ in 0..workers.max(1) {
        let (records, new, baseline) = (records.clone(), new.clone(), baseline.clone());
        tasks.push(tokio::spawn(async move {
            let mut tally = Tally::default();
            loop {
                let next = records
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .next();
                let Some(entry) = next else {
                    return tally;
                };
                one(&entry, &new, &baseline, &mut tally).await;
            }
        }));
    }
    let mut tally = Tally::default();
    for task in tasks {
        tally.add(task.await.context("a worker of the replay panicked")?);
    }
    tally.sort();
    let records = Arc::into_inner(records).context("a worker of the replay did not end")?;
    let records = records.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((tally, records))
}

async fn one(entry: &Entry, new: &Lab, baseline: &Baseline, tally: &mut Tally) {
    let about = About::of(entry);
    let is_approximate = entry.header.origin.is_approximate();
    tally.reviews += 1;
    tally.approximate += u64::from(is_approximate);
    let (old, is_recorded) = match baseline {
        Baseline::Recorded => (Ok(Side::recorded(&entry.record, is_approximate)), true),
        Baseline::Config(lab) => (lab.answer(entry).await, false),
    };
    let sides = match (old, new.answer(entry).await) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(error), _) | (_, Err(error)) => {
            tally.errors.push((about, format!("{error:#}")));
            return;
        }
    };
    let (old, new) = sides;
    tally.cost(&old.calls, true);
    tally.cost(&new.calls, false);
    let is_masked = is_recorded && about.is_secret;
    if let Some(category) = compare(&old, &new, is_masked) {
        let plugins = responsible(category, &old, &new);
        tally
            .differences
            .push(Difference::new(category, about, plugins, &old, &new));
    }
}
