//! The leader's task: creates the canaries as dry runs, and notes their results.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use http::{HeaderMap, Method, Request, header};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tollgate_admission::Endpoint;
use tollgate_admission::canary::{Challenge, GROUP, KIND, PREFIX, RESOURCE, VERSION};
use tollgate_telemetry::metrics::Metrics;

use super::answer::{Answer, Asked, Sighting, Sightings, interpret};
use super::effect::Effect;
use super::entry::Entry;
use super::keys::{Key, nonce};
use super::note::Notes;
use super::shortfall::Shortfall;
use crate::Installation;
use crate::api::words;
use crate::lease::{Leadership, Replicas};
use crate::registrar::Report;

/// The task.
pub(crate) struct Prober {
    pub(crate) client: Client,
    pub(crate) installation: Installation,
    pub(crate) key: Arc<Key>,
    pub(crate) report: watch::Receiver<Report>,
    pub(crate) replicas: watch::Receiver<Replicas>,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) sightings: watch::Sender<Sightings>,
    pub(crate) metrics: Arc<Metrics>,
    /// Time between two rounds while everything is shown.
    pub(crate) interval: Duration,
    /// Time without a renewal after which a replica counts as gone.
    pub(crate) gone_after: Duration,
}

/// The inputs of a round. A change begins a new round at once.
type Cause = (Vec<Entry>, BTreeMap<String, Shortfall>);

/// kube-apiserver learns of a changed configuration a moment later.
const PAUSE: Duration = Duration::from_millis(500);
/// A canary that showed nothing is sent again after this, before anybody hears of it.
const AGAIN: Duration = Duration::from_secs(2);
/// The longest time between two rounds while something is not shown.
const IMPATIENT: Duration = Duration::from_secs(10);
/// How often a replica looks whether it leads.
const PERIOD: Duration = Duration::from_secs(1);
/// Time that kube-apiserver gets beside that of the webhook.
const MARGIN: Duration = Duration::from_secs(5);
/// The most canaries at the same time.
const MOST_AT_ONCE: usize = 4;
/// The longest answer that is read for its words.
const MOST_MESSAGE_BYTES: usize = 64 << 10;

// === impl Prober ===

impl Prober {
    /// Runs for as long as the process lives.
    pub(crate) async fn run(mut self) {
        let mut done: Option<Cause> = None;
        let mut next = Instant::now();
        let mut notes = Notes::default();
        loop {
            let cause = {
                let report = self.report.borrow_and_update();
                let leads =
                    report.leads && self.leadership.borrow().until(Instant::now()).is_some();
                leads.then(|| (report.entries.clone(), report.shortfalls.clone()))
            };
            match cause {
                None => {
                    done = None;
                    self.clear();
                }
                Some(cause) if done.as_ref() != Some(&cause) => {
                    sleep(PAUSE).await;
                    self.round(&cause.0).await;
                    next = self.next();
                    done = Some(cause);
                }
                Some(cause) if Instant::now() >= next => {
                    self.round(&cause.0).await;
                    next = self.next();
                }
                Some(_) => {}
            }
            self.measure(done.is_some(), &mut notes);
            let wake = next
                .min(Instant::now() + PERIOD)
                .max(Instant::now() + PAUSE / 5);
            tokio::select! {
                () = sleep_until(wake) => {}
                changed = self.report.changed() => if changed.is_err() { return },
            }
        }
    }

    fn next(&self) -> Instant {
        let is_shown = self.sightings.borrow().values().all(Sighting::is_answered);
        let pause = if is_shown {
            self.interval
        } else {
            self.interval.min(IMPATIENT)
        };
        Instant::now() + pause
    }

    fn clear(&self) {
        self.sightings.send_if_modified(|sightings| {
            let is_news = !sightings.is_empty();
            sightings.clear();
            is_news
        });
    }

    /// Sends a canary to every entry, and another one where the first showed nothing.
    async fn round(&self, entries: &[Entry]) {
        let all: Vec<&Entry> = entries.iter().collect();
        let mut seen = self.probe(&all).await;
        let is_open = |entry: &&Entry| !seen.get(&entry.canary).is_some_and(Sighting::is_answered);
        let open: Vec<&Entry> = entries.iter().filter(is_open).collect();
        if !open.is_empty() {
            sleep(AGAIN).await;
            seen.extend(self.probe(&open).await);
        }
        self.sightings.send_if_modified(|before| {
            for (canary, sighting) in &mut seen {
                if let Some(earlier) = before.get(canary).filter(|one| sighting.is_like(one)) {
                    *sighting = earlier.clone();
                }
            }
            let is_news = *before != seen;
            *before = seen;
            is_news
        });
    }

    async fn probe(&self, entries: &[&Entry]) -> Sightings {
        let entries: Vec<Entry> = entries.iter().map(|&entry| entry.clone()).collect();
        let probes = futures_util::stream::iter(entries).map(|entry| async move {
            let sighting = self.look(&entry).await;
            (entry.canary, sighting)
        });
        probes.buffer_unordered(MOST_AT_ONCE).collect().await
    }

    /// Sends a canary to an entry.
    async fn look(&self, entry: &Entry) -> Sighting {
        let Some(labels) = &entry.labels else {
            let message = format!(
                "webhook {}: no labels satisfy its objectSelector",
                entry.webhook
            );
            return Sighting::failed("NothingSelected", message);
        };
        let Some(nonce) = nonce() else {
            return Sighting::unclear(
                "RequestFailed",
                "the system has no random numbers".to_owned(),
            );
        };
        let installation = self.installation.full_name();
        let challenge = Challenge {
            name: entry.canary.clone(),
            nonce: nonce.clone(),
            plugins: entry.plugins.clone(),
            signature: String::new(),
        };
        let challenge = self.key.challenge(&installation, challenge);
        let limit = Duration::from_secs(entry.timeout_seconds) + MARGIN;
        let answer = match timeout(limit, self.create(entry, labels, &challenge)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(reason)) => return Sighting::unclear("RequestFailed", reason),
            Err(_) => {
                let message = format!(
                    "kube-apiserver did not answer the canary of webhook {}",
                    entry.webhook
                );
                return Sighting::unclear("RequestFailed", message);
            }
        };
        let replicas = self.replicas.borrow();
        let own = self.key.public();
        let mut keys: Vec<&str> = replicas.canary_keys().collect();
        keys.push(&own);
        let asked = Asked {
            installation: &installation,
            entry,
            nonce: &nonce,
            keys: &keys,
            all_have_keys: replicas.all_have_canary_keys(self.gone_after, Instant::now()),
        };
        interpret(&answer, asked)
    }

    /// Creates a canary as a dry run: nothing is stored.
    async fn create(
        &self,
        entry: &Entry,
        labels: &BTreeMap<String, String>,
        challenge: &Challenge,
    ) -> Result<Answer, String> {
        let object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": KIND,
            "metadata": { "name": challenge.name, "labels": labels },
            "spec": {
                "nonce": challenge.nonce,
                "plugins": challenge.plugins,
                "signature": challenge.signature,
            },
        });
        let path =
            format!("/apis/{GROUP}/{VERSION}/{RESOURCE}?dryRun=All&fieldManager=tollgate-canary");
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(Body::from(object.to_string().into_bytes()));
        let request = request.map_err(|error| error.to_string())?;
        let response = self
            .client
            .send(request)
            .await
            .map_err(|error| words(&error))?;
        let (parts, body) = response.into_parts();
        let body = body.collect_bytes().await.map_err(|error| words(&error))?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_else(|_| {
            let text = &body[..body.len().min(MOST_MESSAGE_BYTES)];
            json!({ "message": String::from_utf8_lossy(text) })
        });
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Ok(Answer {
            code: parts.status.as_u16(),
            message: text(&body["message"]).unwrap_or_default(),
            proof: match entry.endpoint {
                Endpoint::Mutate => text(&body["spec"]["proof"]),
                Endpoint::Validate => warned(&parts.headers),
            },
        })
    }

    /// Sets the metric of every plugin, and logs lasting changes. Only the leader has values.
    fn measure(&self, leads: bool, notes: &mut Notes) {
        let effects: BTreeMap<String, Effect> = {
            let (report, sightings) = (self.report.borrow(), self.sightings.borrow());
            let names = report.plugins.keys().filter(|_| leads);
            names
                .map(|name| (name.clone(), Effect::of_plugin(name, &report, &sightings)))
                .collect()
        };
        let shown = effects
            .iter()
            .filter_map(|(name, effect)| match effect.status {
                "True" => Some((name.clone(), true)),
                "False" => Some((name.clone(), false)),
                _ => None,
            });
        self.metrics.plugins_effective(&shown.collect());
        for (plugin, effect) in notes.news(effects, Instant::now()) {
            let Effect {
                status,
                reason,
                message,
            } = effect;
            if status == "False" {
                tracing::warn!(
                    plugin,
                    reason,
                    message,
                    "kube-apiserver does not call the plugin"
                );
            } else {
                tracing::info!(plugin, "kube-apiserver calls the plugin again");
            }
        }
    }
}

/// Returns the proof in the headers `Warning`. Each looks like `299 - "text"`.
pub(super) fn warned(headers: &HeaderMap) -> Option<String> {
    let warnings = headers.get_all(header::WARNING).into_iter();
    let mut warnings = warnings.filter_map(|warning| warning.to_str().ok());
    warnings.find_map(|warning| {
        let (_, proof) = warning.split_once(PREFIX)?;
        proof.split('"').next().map(str::to_owned)
    })
}
