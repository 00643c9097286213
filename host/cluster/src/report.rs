//! Writes the status of custom resources, and events about changes of it.
//!
//! A replica owns one entry under `status.replicas`, by server-side apply with its own field manager. The
//! conditions follow from these entries alone, so every replica computes the same ones. The replica whose entry changed
//! writes them. Another replica writes them only when they have not been right for a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tollgate_config::Serving;

use crate::Installation;
use crate::desired::Plan;
use crate::kinds::{Kind, Resource, api_version};
use crate::status::{self, Condition, ReplicaEntry};
use crate::store::Store;
use crate::watch::words;

/// Writes what this replica serves into the status of the resources.
pub(crate) struct Reports {
    client: Client,
    installation: Installation,
    store: Arc<Store>,
    serving: watch::Receiver<Arc<Serving>>,
    recorder: Recorder,
    /// Since when something has been wrong that may right itself: a load under way, or conditions of others.
    pending: BTreeMap<(Kind, String), Instant>,
    /// The last failure to write, to log each once.
    failed: Option<String>,
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
const LONGEST_WRITE: Duration = Duration::from_secs(10);
/// Kubernetes' limit is 1,024 bytes.
const LONGEST_NOTE_CHARACTERS: usize = 250;

// === impl Reports ===

impl Reports {
    pub(crate) fn new(
        client: Client,
        installation: Installation,
        store: Arc<Store>,
        serving: watch::Receiver<Arc<Serving>>,
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
            recorder,
            pending: BTreeMap::new(),
            failed: None,
        }
    }

    /// Runs for as long as the replica serves.
    pub(crate) async fn run(mut self) {
        let mut plans = self.store.plan.subscribe();
        loop {
            let plan = plans.borrow_and_update().clone();
            let serving = self.serving.borrow_and_update().clone();
            let round = match plan {
                Some(plan) => self.round(&plan, &serving).await,
                None => Round::default(),
            };
            let store = self.store.clone();
            let next = round.next.unwrap_or_else(|| Instant::now() + PERIOD);
            tokio::select! {
                changed = plans.changed() => if changed.is_err() { return },
                changed = self.serving.changed() => if changed.is_err() { return },
                () = store.touched.notified() => {}
                () = sleep_until(next) => {}
            }
            sleep(QUIET).await;
        }
    }

    /// Compares every status with what it should be, and writes the differences.
    async fn round(&mut self, plan: &Plan, serving: &Serving) -> Round {
        let mut round = Round::default();
        let plugins = self.store.resources(Kind::Plugin);
        self.pending
            .retain(|(_, name), _| plugins.iter().any(|plugin| plugin.name == *name));
        for resource in plugins {
            self.plugin(resource, plan, serving, &mut round).await;
        }
        for resource in self.store.resources(Kind::Exception) {
            let verdict = plan.exceptions.get(&resource.name);
            let verdict = verdict.filter(|verdict| {
                verdict.uid == resource.uid && verdict.generation == resource.generation
            });
            if let Some(verdict) = verdict {
                let condition = status::exception_ready(verdict);
                self.conclude(Kind::Exception, &resource, &condition, &[], &mut round)
                    .await;
            }
        }
        round
    }

    async fn plugin(
        &mut self,
        mut resource: Resource,
        plan: &Plan,
        serving: &Serving,
        round: &mut Round,
    ) {
        let verdict = plan.plugins.get(&resource.name);
        let verdict = verdict.filter(|verdict| {
            verdict.uid == resource.uid && verdict.generation == resource.generation
        });
        // The reconciler has not seen this version yet.
        let Some(verdict) = verdict else { return };
        let replica = self.installation.replica.clone();
        let own = status::entry(&replica, &resource.name, verdict, plan, serving);
        let key = (Kind::Plugin, resource.name.clone());
        let own = match own {
            Some(own) => own,
            None => {
                let since = *self.pending.entry(key).or_insert_with(Instant::now);
                if since.elapsed() < LOADING {
                    round.by(since + LOADING);
                    return;
                }
                ReplicaEntry {
                    name: replica.clone(),
                    is_ready: false,
                    reason: "Loading".to_owned(),
                    message: "the plugin is being loaded; what served before keeps serving"
                        .to_owned(),
                    digest: None,
                    generation: resource.generation,
                }
            }
        };
        let mut entries = status::entries(&resource);
        let is_news = !entries.contains(&own);
        if is_news {
            let document = json!({ "replicas": [own.document(&now())] });
            let manager = manager(&replica);
            match self
                .write(Kind::Plugin, &resource, &manager, document)
                .await
            {
                Ok(written) => resource = written,
                Err(Stop) => return round.by(Instant::now() + AFTER_FAILURE),
            }
            entries = status::entries(&resource);
        }
        let Some(condition) = status::ready(&resource, &entries) else {
            return;
        };
        let key = (Kind::Plugin, resource.name.clone());
        if condition.is_written(&resource) {
            self.pending.remove(&key);
            return;
        }
        // Replicas reach a new generation one after the other, which is no news.
        if condition.reason == status::PROGRESSING {
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
        self.conclude(Kind::Plugin, &resource, &condition, &entries, round)
            .await;
    }

    /// Writes the condition, and an event if it is news.
    async fn conclude(
        &mut self,
        kind: Kind,
        resource: &Resource,
        condition: &Condition,
        entries: &[ReplicaEntry],
        round: &mut Round,
    ) {
        if condition.is_written(resource) {
            return;
        }
        let mut document = json!({
            "observedGeneration": condition.generation,
            "conditions": [condition.document(resource, &now())],
        });
        if let Some(digest) = status::digest(entries) {
            document["digest"] = json!(digest);
            document["shortDigest"] = json!(status::short(digest));
        }
        let manager = format!("tollgate-status-{}", self.installation.name);
        match self.write(kind, resource, &manager, document).await {
            Ok(_) => self.pending.remove(&(kind, resource.name.clone())),
            Err(Stop) => return round.by(Instant::now() + AFTER_FAILURE),
        };
        if condition.is_news(resource) {
            self.announce(kind, resource, condition).await;
        }
    }

    async fn announce(&self, kind: Kind, resource: &Resource, condition: &Condition) {
        let note: String = condition
            .message
            .chars()
            .take(LONGEST_NOTE_CHARACTERS)
            .collect();
        let event = Event {
            type_: match condition.status {
                "False" => EventType::Warning,
                _ => EventType::Normal,
            },
            reason: condition.reason.clone(),
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
                name = resource.name,
                reason = why,
                "cannot write the status of a custom resource"
            );
            self.failed = Some(why);
        }
        Err(Stop)
    }
}

/// Removes the entries of a replica from every status, because it ends.
pub(crate) async fn leave(client: &Client, store: &Store, replica: &str) {
    for resource in store.resources(Kind::Plugin) {
        let entries = status::entries(&resource);
        if entries.iter().any(|entry| entry.name == replica) {
            let nothing = json!({});
            let manager = manager(replica);
            let left = write(client, Kind::Plugin, &resource, &manager, &nothing).await;
            if let Err(reason) = left {
                tracing::debug!(
                    name = resource.name,
                    reason,
                    "cannot remove an entry of a status"
                );
            }
        }
    }
}

/// The field manager of a replica's entries.
fn manager(replica: &str) -> String {
    format!("tollgate-replica-{replica}")
}

/// Applies a part of the status under a field manager, in place of the part that the manager applied before.
async fn write(
    client: &Client,
    kind: Kind,
    resource: &Resource,
    manager: &str,
    status: &Value,
) -> Result<Resource, String> {
    let api: Api<DynamicObject> = match &resource.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind.resource()),
        None => Api::all_with(client.clone(), &kind.resource()),
    };
    // The uid keeps the write from another resource of the same name.
    let document = json!({
        "apiVersion": api_version(),
        "kind": kind.name(),
        "metadata": { "name": resource.name, "uid": resource.uid },
        "status": status,
    });
    let parameters = PatchParams::apply(manager).force();
    let patch = Patch::Apply(&document);
    let writing = api.patch_status(&resource.name, &parameters, &patch);
    match timeout(LONGEST_WRITE, writing).await {
        Ok(Ok(object)) => Ok(Resource::of(object)),
        Ok(Err(error)) => Err(words(&error)),
        Err(_) => Err(format!("no answer within {} s", LONGEST_WRITE.as_secs())),
    }
}

/// A write has failed, and was logged.
struct Stop;

// === impl Round ===

impl Round {
    fn by(&mut self, time: Instant) {
        self.next = Some(self.next.map_or(time, |next| next.min(time)));
    }
}

fn now() -> String {
    let now = OffsetDateTime::now_utc();
    let now = now.replace_nanosecond(0).unwrap_or(now);
    now.format(&Rfc3339).unwrap_or_default()
}
