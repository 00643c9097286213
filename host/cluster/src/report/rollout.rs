//! Rollouts: what this replica sees of them, in its entry of the status, and what the leader decides, in
//! `status.rollouts`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kube::runtime::events::EventType;
use serde_json::json;
use tokio::time::Instant;
use tollgate_rollout::{
    Asked, Common, Led, Observations, Phase, Report, Told, View, Wait, departed, lead as decide,
};

use super::write::{Refused, write_unchanged};
use super::{AFTER_FAILURE, PROGRESS, Reports, Round};
use crate::desired::Plan;
use crate::kinds::{Kind, Resource};
use crate::lead::{Lead, Management};
use crate::status::rollout::{Decided, waits_for};
use crate::status::{self, ReplicaEntry};

/// What the writer of the status remembers about rollouts, by the name of the plugin.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// When this replica last wrote what it sees.
    written: BTreeMap<String, Instant>,
    /// What the replicas said when this one looked last.
    known: BTreeMap<String, BTreeMap<String, Report>>,
    /// What a rollout has waited for, and since when.
    waits: BTreeMap<String, (String, Instant)>,
    /// When to try again, where kube-apiserver did not store a decision.
    unstored: BTreeMap<String, Instant>,
}

/// The reports of the replicas that must report. None of a replica that has said nothing.
type Said = BTreeMap<String, Option<Report>>;

/// How soon to look again when a decision was based on an old version of the resource.
const AFTER_STALE: Duration = Duration::from_millis(200);
/// How often kube-apiserver is tried whose definition lacks the key.
const AFTER_UNSTORED: Duration = Duration::from_secs(60);

// === impl Notes ===

impl Notes {
    /// Forgets other plugins.
    pub(super) fn retain(&mut self, names: &BTreeSet<&String>) {
        self.written.retain(|name, _| names.contains(name));
        self.known.retain(|name, _| names.contains(name));
        self.waits.retain(|name, _| names.contains(name));
        self.unstored.retain(|name, _| names.contains(name));
    }

    /// Returns when a wait that may pass in a moment is worth a write. None if it is now.
    fn unsettled_until(&mut self, name: &str, wait: &Wait, text: Option<&str>) -> Option<Instant> {
        let (Wait::Replica { .. } | Wait::Version, Some(text)) = (wait, text) else {
            self.waits.remove(name);
            return None;
        };
        let now = Instant::now();
        let noted = self.waits.entry(name.to_owned());
        let (known, since) = noted.or_insert_with(|| (text.to_owned(), now));
        if known != text {
            (*known, *since) = (text.to_owned(), now);
        }
        let due = *since + PROGRESS;
        (now < due).then_some(due)
    }
}

// === impl Reports ===

impl Reports {
    /// Returns what this replica's entry says about a rollout. Counts wait until they are worth a write.
    pub(super) fn seen_of_rollout(
        &mut self,
        name: &str,
        resource: &Resource,
        round: &mut Round,
    ) -> Option<Report> {
        let told = self.rollouts.borrow().get(name).cloned()?;
        let own = self.installation.full_name();
        let mut entries = status::entries(resource).into_iter();
        let written = entries
            .find(|entry| entry.name == self.installation.replica && entry.installation == own);
        let written = written.and_then(|entry| entry.rollout);
        let since = self.of_rollouts.written.get(name).copied();
        let elapsed = since.map_or(Duration::MAX, |since| since.elapsed());
        let report = told.report;
        if report.is_due(written.as_ref(), elapsed, &told.plan) {
            let now = Instant::now();
            self.of_rollouts.written.insert(name.to_owned(), now);
            return Some(report);
        }
        if let (Some(since), Some(written)) = (since, &written)
            && report != *written
        {
            round.by(since + report.period(written, &told.plan));
        }
        written
    }

    /// Decides about the rollout of a plugin, if this replica leads. Returns the resource as it is then.
    pub(super) async fn lead_rollout(
        &mut self,
        name: &str,
        resource: Resource,
        plan: &Plan,
        round: &mut Round,
    ) -> Resource {
        let Management::Own(lead) = self.management.borrow().clone() else {
            return resource;
        };
        let told = self.rollouts.borrow().get(name).cloned();
        let decided = Decided::read(&resource, &self.installation);
        if told.is_none() && decided.is_none() {
            return resource;
        }
        let (said, is_complete) = self.said(&resource, &lead);
        if !lead.leads(Instant::now()) {
            self.know(name, &said);
            return resource;
        }
        let Some(told) = told else {
            return self.forget_rollout(name, resource, plan, round).await;
        };
        let now = now();
        // What replicas saw that are gone stays in the sum.
        let known = self.of_rollouts.known.get(name);
        let mut common = decided.as_ref().map(|decided| decided.common.clone());
        let mut is_less = false;
        if let (Some(common), Some(known)) = (&mut common, known) {
            let gone = departed(known, &said, &common.state);
            is_less = gone != Observations::default();
            common.carried = common.carried.plus(&gone);
        }
        let view = View {
            identity: told
                .report
                .identity
                .as_ref()
                .filter(|_| told.report.is_available),
            replicas: &said,
            asked: resource.asked.as_deref().and_then(Asked::parse),
            is_complete,
            now,
        };
        let next = match decide(&told.plan, common.as_ref(), &view) {
            Led::Change(next) => self.next(&told, decided.as_ref(), *next, None),
            Led::Stay(wait, observed) => {
                let Some(mut common) = common else {
                    self.know(name, &said);
                    return resource;
                };
                let text = waits_for(&wait, &told.plan, &common.state);
                let settles = self
                    .of_rollouts
                    .unsettled_until(name, &wait, text.as_deref());
                if let Wait::Time { left } = wait {
                    round.by(Instant::now() + left);
                }
                let written = decided.as_ref().and_then(|one| one.waits_for.clone());
                let text = match settles {
                    Some(due) => {
                        round.by(due);
                        written.clone()
                    }
                    None => text,
                };
                if text == written && !is_less {
                    self.know(name, &said);
                    return resource;
                }
                common.state.observed = observed;
                self.next(&told, decided.as_ref(), common, text)
            }
        };
        self.write_rollout(name, resource, &next, decided.as_ref(), &said, round)
            .await
    }

    /// The reports of this installation's replicas, and whether all are known that must report: those with an entry, and
    /// those that are ready.
    fn said(&self, resource: &Resource, lead: &Lead) -> (Said, bool) {
        let own = self.installation.full_name();
        let entries = status::entries(resource).into_iter();
        let entries: Vec<ReplicaEntry> =
            entries.filter(|entry| entry.installation == own).collect();
        let ready = lead
            .replicas
            .borrow()
            .ready_names(lead.gone_after, Instant::now());
        let is_complete = ready.is_some();
        let has_entry = |lease: &String| {
            let mut entries = entries.iter();
            entries.any(|entry| self.installation.lease_of(&entry.name) == *lease)
        };
        let mut said: Said = ready
            .into_iter()
            .flatten()
            .filter(|lease| !has_entry(lease))
            .map(|lease| (lease, None))
            .collect();
        let of_entries = entries.into_iter();
        said.extend(of_entries.map(|entry| (entry.name, entry.rollout)));
        (said, is_complete)
    }

    /// Remembers what the replicas said, so that it counts when they are gone.
    fn know(&mut self, name: &str, said: &Said) {
        let known = said.iter();
        let known = known.filter_map(|(name, report)| Some((name.clone(), report.clone()?)));
        self.of_rollouts
            .known
            .insert(name.to_owned(), known.collect());
    }

    /// The element of the status for a state.
    fn next(
        &self,
        told: &Told,
        before: Option<&Decided>,
        common: Common,
        waits_for: Option<String>,
    ) -> Decided {
        let is_same =
            before.is_some_and(|before| before.common.state.identity == common.state.identity);
        let before = before.filter(|_| is_same);
        let kept = |of: fn(&Decided) -> Option<String>| before.and_then(of);
        Decided {
            common,
            steps: told.plan.steps.len(),
            from: told.from.clone().or_else(|| kept(|one| one.from.clone())),
            to: told.to.clone().or_else(|| kept(|one| one.to.clone())),
            waits_for,
        }
    }

    /// Removes the decisions about a rollout that is over, because the resource has none any more.
    async fn forget_rollout(
        &mut self,
        name: &str,
        resource: Resource,
        plan: &Plan,
        round: &mut Round,
    ) -> Resource {
        let mut plugins = plan.config.plugins.iter();
        let desired = plugins.find(|plugin| plugin.name.entry() == name);
        // A plugin that is being loaded still has its rollout.
        if desired.is_none_or(|desired| desired.rollout.is_some()) {
            return resource;
        }
        let manager = self.rollout_manager();
        match self
            .write(Kind::Plugin, &resource, &manager, json!({}))
            .await
        {
            Ok(written) => written,
            Err(_) => {
                round.by(Instant::now() + AFTER_FAILURE);
                resource
            }
        }
    }

    /// Writes a decision. It counts only if the resource is still the one that the decision is based on.
    async fn write_rollout(
        &mut self,
        name: &str,
        resource: Resource,
        next: &Decided,
        before: Option<&Decided>,
        said: &Said,
        round: &mut Round,
    ) -> Resource {
        let retry = self.of_rollouts.unstored.get(name);
        if let Some(retry) = retry.filter(|retry| Instant::now() < **retry) {
            round.by(*retry);
            return resource;
        }
        let document = json!({ "rollouts": [next.document(&self.installation)] });
        let manager = self.rollout_manager();
        let kind = Kind::Plugin;
        let written = write_unchanged(&self.client, kind, &resource, &manager, &document).await;
        let written = match written {
            Ok(written) => written,
            Err(Refused::Stale) => {
                round.by(Instant::now() + AFTER_STALE);
                return resource;
            }
            Err(Refused::Failed(reason)) => {
                tracing::warn!(
                    name,
                    reason,
                    "cannot write the state of a rollout; each replica stays at its step"
                );
                round.by(Instant::now() + AFTER_FAILURE);
                return resource;
            }
        };
        self.store.apply(kind, written.clone());
        let stored = Decided::read(&written, &self.installation);
        let point = |decided: &Decided| (decided.common.state.run, decided.common.state.revision);
        if stored.as_ref().map(point) != Some(point(next)) {
            tracing::warn!(
                name,
                "kube-apiserver did not store the state of a rollout, so it does not begin: update the \
                 CustomResourceDefinitions (tollgate crds)"
            );
            let again = Instant::now() + AFTER_UNSTORED;
            self.of_rollouts.unstored.insert(name.to_owned(), again);
            round.by(again);
            return written;
        }
        self.of_rollouts.unstored.remove(name);
        self.know(name, said);
        let is_change = before.is_none_or(|before| {
            before.common.state.identity != next.common.state.identity
                || point(before) != point(next)
        });
        if is_change {
            self.announce_rollout(&written, next).await;
            // What the new state waits for.
            round.by(Instant::now() + AFTER_STALE);
        }
        written
    }

    async fn announce_rollout(&self, resource: &Resource, decided: &Decided) {
        let state = &decided.common.state;
        let reason = state.last().map_or("", |change| &change.reason);
        let (step, steps) = (state.step + 1, decided.steps);
        let (type_, event, message) = match state.phase {
            Phase::Running => (
                EventType::Normal,
                "RolloutStep",
                format!("step {step} of {steps} begins: {reason}"),
            ),
            Phase::Promoted => (
                EventType::Normal,
                "RolloutPromoted",
                format!("the new version answers everything: {reason}"),
            ),
            Phase::Stopped => (
                EventType::Warning,
                "RolloutStopped",
                format!("stopped at step {step} of {steps}: {reason}"),
            ),
            Phase::RolledBack => (
                EventType::Warning,
                "RolledBack",
                format!("the old version answers everything: {reason}"),
            ),
        };
        self.publish(Kind::Plugin, resource, type_, event, &message)
            .await;
    }

    fn rollout_manager(&self) -> String {
        let installation = &self.installation;
        format!(
            "tollgate-rollout-{}.{}",
            installation.namespace, installation.name
        )
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
