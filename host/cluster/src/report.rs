//! Writes the status of custom resources, and events about changes of it.
//!
//! A replica owns one entry under `status.replicas`, by server-side apply with its own field manager. The
//! conditions follow from these entries alone, so every replica computes the same ones. The replica whose entry changed
//! writes them. Another replica writes them only when they have not been right for a while.
//!
//! The leader says in its entries which plugins are registered, and removes the entries of replicas that are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tollgate_config::Serving;
use tollgate_rollout::Reports as RolloutReports;

use crate::Installation;
use crate::api::words;
use crate::desired::Plan;
use crate::kinds::{Kind, Resource};
use crate::lead::Management;
use crate::status::{self, Condition, ReplicaEntry};
use crate::store::Store;

mod departures;
mod effect;
mod leader;
mod rollout;
#[cfg(test)]
mod tests;
mod write;

use self::departures::Departures;
pub(crate) use self::write::leave;
use self::write::{LONGEST_WRITE, manager, write};

/// Writes what this replica serves into the status of the resources.
pub(crate) struct Reports {
    client: Client,
    installation: Installation,
    store: Arc<Store>,
    serving: watch::Receiver<Arc<Serving>>,
    management: watch::Receiver<Management>,
    rollouts: watch::Receiver<Arc<RolloutReports>>,
    of_rollouts: rollout::Notes,
    departures: Departures,
    recorder: Recorder,
    /// Since when something has been wrong that may right itself: a load under way, or conditions of others.
    pending: BTreeMap<(Kind, String), Instant>,
    /// Since when a plugin has not been registered as desired.
    unregistered: BTreeMap<String, Instant>,
    /// Since when a plugin has not been shown to be effective.
    ineffective: BTreeMap<String, Instant>,
    /// Entries that kube-apiserver stored in another form than they were written.
    changed: BTreeMap<String, ReplicaEntry>,
    /// The last failure to write, to log each once.
    failed: Option<String>,
}

/// A resource that desires a plugin.
struct Desiring {
    kind: Kind,
    /// The plugin's name.
    name: String,
    resource: Resource,
}

/// The work that is left after a round.
#[derive(Default)]
struct Round {
    /// When to look again.
    next: Option<Instant>,
}

/// How long to collect changes before a round.
const QUIET: Duration = Duration::from_millis(50);
/// How long a load may take before the status mentions it.
const LOADING: Duration = Duration::from_secs(2);
/// How long replicas may serve different generations before the conditions mention it.
const PROGRESS: Duration = Duration::from_secs(5);
/// How long each replica waits longer than the one before it, before it corrects conditions.
const TURN: Duration = Duration::from_millis(500);
/// When to look again although nothing has changed: exceptions end by the clock.
const PERIOD: Duration = Duration::from_secs(30);
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// Kubernetes' limit is 1,024 bytes.
const LONGEST_NOTE_CHARACTERS: usize = 250;

// === impl Reports ===

impl Reports {
    pub(crate) fn new(
        client: Client,
        installation: Installation,
        store: Arc<Store>,
        serving: watch::Receiver<Arc<Serving>>,
        management: watch::Receiver<Management>,
        rollouts: watch::Receiver<Arc<RolloutReports>>,
    ) -> Self {
        let reporter = Reporter {
            controller: format!("tollgate.dev/{}", installation.name),
            instance: Some(installation.replica.clone()),
        };
        let recorder = Recorder::new(client.clone(), reporter);
        Self {
            client,
            installation,
            store,
            serving,
            management,
            rollouts,
            of_rollouts: rollout::Notes::default(),
            departures: Departures::default(),
            recorder,
            pending: BTreeMap::new(),
            unregistered: BTreeMap::new(),
            ineffective: BTreeMap::new(),
            changed: BTreeMap::new(),
            failed: None,
        }
    }

    /// Runs for as long as the replica serves.
    pub(crate) async fn run(mut self) {
        let mut plans = self.store.plan.subscribe();
        loop {
            let plan = plans.borrow_and_update().clone();
            let serving = self.serving.borrow_and_update().clone();
            let mut management = self.management.borrow_and_update().clone();
            management.mark_seen();
            self.rollouts.mark_unchanged();
            let round = match plan {
                Some(plan) => self.round(&plan, &serving).await,
                None => Round::default(),
            };
            let store = self.store.clone();
            let next = round.next.unwrap_or_else(|| Instant::now() + PERIOD);
            tokio::select! {
                changed = plans.changed() => if changed.is_err() { return },
                changed = self.serving.changed() => if changed.is_err() { return },
                Ok(()) = self.management.changed() => {}
                Ok(()) = self.rollouts.changed() => {}
                () = management.changed() => {}
                () = store.touched.notified() => {}
                () = sleep_until(next) => {}
            }
            sleep(QUIET).await;
        }
    }

    /// Compares every status with the expected one, and writes the differences.
    async fn round(&mut self, plan: &Plan, serving: &Serving) -> Round {
        let mut round = Round::default();
        let plugins = self.plugins();
        let names: BTreeSet<&String> = plugins.iter().map(|plugin| &plugin.name).collect();
        self.pending.retain(|(_, name), _| names.contains(name));
        self.unregistered.retain(|name, _| names.contains(name));
        self.ineffective.retain(|name, _| names.contains(name));
        self.changed.retain(|name, _| names.contains(name));
        self.of_rollouts.retain(&names);
        drop(names);
        let gone = self.gone(&plugins, &mut round);
        for mut plugin in plugins {
            let is_news = self.prune(&mut plugin, &gone, &mut round).await;
            self.plugin(plugin, is_news, plan, serving, &mut round)
                .await;
        }
        for resource in self.store.resources(Kind::Exception) {
            let key = self.store.key(Kind::Exception, &resource);
            let verdict = plan.exceptions.get(&key);
            let verdict = verdict.filter(|verdict| {
                verdict.uid == resource.uid && verdict.generation == resource.generation
            });
            if let Some(verdict) = verdict {
                let condition = status::exception_ready(verdict);
                self.conclude(Kind::Exception, &resource, &[condition], &[], &mut round)
                    .await;
            }
        }
        round
    }

    /// The resources that desire plugins.
    fn plugins(&self) -> Vec<Desiring> {
        let store = &self.store;
        let of_kind = move |kind| {
            let resources = store.resources(kind).into_iter();
            resources.map(move |resource| Desiring {
                name: store.key(kind, &resource),
                kind,
                resource,
            })
        };
        Kind::PLUGINS.into_iter().flat_map(of_kind).collect()
    }

    async fn plugin(
        &mut self,
        plugin: Desiring,
        mut is_news: bool,
        plan: &Plan,
        serving: &Serving,
        round: &mut Round,
    ) {
        let Desiring {
            kind,
            name,
            mut resource,
        } = plugin;
        let verdict = plan.plugins.get(&name);
        let verdict = verdict.filter(|verdict| {
            verdict.uid == resource.uid && verdict.generation == resource.generation
        });
        // The reconciler has not seen this version yet.
        let Some(verdict) = verdict else { return };
        let replica = self.installation.replica.clone();
        let own = status::entry(&self.installation, &name, verdict, plan, serving);
        let key = (kind, name.clone());
        let mut own = match own {
            Some(own) => own,
            None => {
                let since = *self.pending.entry(key).or_insert_with(Instant::now);
                if since.elapsed() < LOADING {
                    round.by(since + LOADING);
                    return;
                }
                let message = "the plugin is being loaded; what served before keeps serving";
                let (message, generation) = (message.to_owned(), resource.generation);
                ReplicaEntry::new(&self.installation, false, "Loading", message, generation)
            }
        };
        own.registration = self.registration(&name, &resource, verdict, serving, round);
        own.effect = self.effect(&name, &resource, verdict, serving, round);
        own.last_review = self.last_review(&name, &resource);
        own.rollout = self.seen_of_rollout(&name, &resource, round);
        let mut entries = status::entries(&resource);
        if !entries.contains(&own) && self.changed.get(&name) != Some(&own) {
            is_news = true;
            let document = json!({ "replicas": [own.document(&now())] });
            let manager = manager(&replica);
            match self.write(kind, &resource, &manager, document).await {
                Ok(written) => resource = written,
                Err(Stop) => return round.by(Instant::now() + AFTER_FAILURE),
            }
            entries = status::entries(&resource);
            self.note_changes(&name, own, &entries);
        }
        if kind == Kind::Plugin {
            resource = self.lead_rollout(&name, resource, plan, round).await;
            entries = status::entries(&resource);
        }
        let conditions = status::conditions(&resource, &entries);
        let key = (kind, name.clone());
        let unwritten = conditions
            .iter()
            .filter(|condition| !condition.is_written(&resource));
        let unwritten: Vec<_> = unwritten.collect();
        if unwritten.is_empty() {
            self.pending.remove(&key);
            return;
        }
        // Replicas reach a new generation one after the other, which is no news.
        if unwritten
            .iter()
            .any(|condition| condition.reason == status::PROGRESSING)
        {
            let since = *self.pending.entry(key.clone()).or_insert_with(Instant::now);
            if since.elapsed() < PROGRESS {
                return round.by(since + PROGRESS);
            }
        }
        let turn = entries.iter().position(|entry| entry.name == replica);
        let turn = u32::try_from(turn.unwrap_or(entries.len())).unwrap_or(u32::MAX);
        if !is_news && turn > 0 {
            let since = *self.pending.entry(key).or_insert_with(Instant::now);
            let due = since + TURN.saturating_mul(turn.min(20));
            if Instant::now() < due {
                return round.by(due);
            }
        }
        self.conclude(kind, &resource, &conditions, &entries, round)
            .await;
    }

    /// Notes an entry that kube-apiserver stored in another form, so that the replica does not write it repeatedly. The
    /// reason can be an older definition of the resource, which drops fields that it does not know.
    fn note_changes(&mut self, name: &str, own: ReplicaEntry, stored: &[ReplicaEntry]) {
        if stored.contains(&own) {
            self.changed.remove(name);
            return;
        }
        if self.changed.is_empty() {
            tracing::warn!(
                name,
                "kube-apiserver did not store the whole status: update the CustomResourceDefinitions (tollgate crds)"
            );
        }
        self.changed.insert(name.to_owned(), own);
    }

    /// Writes the conditions, and an event for each that is news. The first condition is `Ready`.
    async fn conclude(
        &mut self,
        kind: Kind,
        resource: &Resource,
        conditions: &[Condition],
        entries: &[ReplicaEntry],
        round: &mut Round,
    ) {
        let Some(ready) = conditions.first() else {
            return;
        };
        if conditions
            .iter()
            .all(|condition| condition.is_written(resource))
        {
            return;
        }
        let documents = conditions.iter();
        let documents = documents.map(|condition| condition.document(resource, &now()));
        let mut document = json!({
            "observedGeneration": ready.generation,
            "conditions": documents.collect::<Vec<Value>>(),
        });
        if let Some(digest) = status::digest(entries) {
            document["digest"] = json!(digest);
            document["shortDigest"] = json!(status::short(digest));
        }
        let manager = format!("tollgate-status-{}", self.installation.name);
        match self.write(kind, resource, &manager, document).await {
            Ok(_) => {
                let name = self.store.key(kind, resource);
                self.pending.remove(&(kind, name))
            }
            Err(Stop) => return round.by(Instant::now() + AFTER_FAILURE),
        };
        for condition in conditions {
            if condition.is_news(resource) {
                self.announce(kind, resource, condition).await;
            }
        }
    }

    async fn announce(&self, kind: Kind, resource: &Resource, condition: &Condition) {
        let type_ = match condition.status {
            "False" => EventType::Warning,
            _ => EventType::Normal,
        };
        self.publish(kind, resource, type_, &condition.reason, &condition.message)
            .await;
    }

    async fn publish(
        &self,
        kind: Kind,
        resource: &Resource,
        type_: EventType,
        reason: &str,
        message: &str,
    ) {
        let note: String = message.chars().take(LONGEST_NOTE_CHARACTERS).collect();
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        let reference = resource.reference(kind);
        let published = timeout(LONGEST_WRITE, self.recorder.publish(&event, &reference)).await;
        if let Ok(Err(error)) = published {
            tracing::debug!(reason = words(&error), "cannot publish an event");
        }
    }

    /// Applies a part of the status under a field manager, and returns the resource as it is then.
    async fn write(
        &mut self,
        kind: Kind,
        resource: &Resource,
        manager: &str,
        status: Value,
    ) -> Result<Resource, Stop> {
        let why = match write(&self.client, kind, resource, manager, &status).await {
            Ok(written) => {
                self.failed = None;
                // Another round must not act on the status before this write.
                self.store.apply(kind, written.clone());
                return Ok(written);
            }
            Err(why) => why,
        };
        if self.failed.as_ref() != Some(&why) {
            tracing::warn!(
                kind = kind.name(),
                namespace = resource.namespace,
                name = resource.name,
                reason = why,
                "cannot write the status of a custom resource"
            );
            self.failed = Some(why);
        }
        Err(Stop)
    }
}

/// A write has failed, and was logged.
struct Stop;

// === impl Round ===

impl Round {
    fn by(&mut self, time: Instant) {
        self.next = Some(self.next.map_or(time, |next| next.min(time)));
    }

    /// Returns the words for an entry. Words that may right themselves wait, and the written ones stay meanwhile.
    /// `waiting` holds since when.
    fn patient<T: PartialEq>(
        &mut self,
        waiting: &mut BTreeMap<String, Instant>,
        name: &str,
        written: Option<T>,
        said: T,
        is_settled: bool,
    ) -> Option<T> {
        if is_settled || written.as_ref() == Some(&said) {
            waiting.remove(name);
            return Some(said);
        }
        let since = waiting.entry(name.to_owned());
        let due = *since.or_insert_with(Instant::now) + PROGRESS;
        if Instant::now() < due {
            self.by(due);
            return written;
        }
        Some(said)
    }
}

fn now() -> String {
    let now = OffsetDateTime::now_utc();
    let now = now.replace_nanosecond(0).unwrap_or(now);
    now.format(&Rfc3339).unwrap_or_default()
}
