//! The rollouts of the serving plugins: asks `tollgate_rollout` what follows, records it, logs it and shows it.

mod page;
mod running;
mod versions;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tollgate_admission::{RolloutAnswer, RolloutChange};
use tollgate_config::{PluginName, Rollout as Plan};
use tollgate_rollout::{Decision, Identity, Observations, Phase, State, Store, Wait, decide};
use tollgate_telemetry::metrics::Metrics;

use crate::plugin::{Plugin, Rollout, Tally};
use running::Running;

/// How often the rollouts are looked at. A version that faults is rolled back after this time.
pub(super) const PERIOD: Duration = Duration::from_millis(250);
/// How often the observations are written, and the states of other processes read.
const SAVE_PERIOD: Duration = Duration::from_secs(2);

/// A caller who asks for a change.
pub(super) struct RolloutRequest {
    pub(super) plugin: String,
    pub(super) change: RolloutChange,
    pub(super) answer: oneshot::Sender<RolloutAnswer>,
}

/// The page `/rollouts`, written by the task that reconciles.
#[derive(Clone, Default)]
pub(super) struct Page(Arc<Mutex<Vec<Value>>>);

/// The rollouts of the serving plugins.
pub(super) struct Rollouts {
    store: Option<Store>,
    metrics: Arc<Metrics>,
    running: BTreeMap<PluginName, Running>,
    page: Page,
    saved_at: Option<Instant>,
}

// === impl Rollouts ===

impl Rollouts {
    /// No rollouts yet. Their files are in the cache, by the path of the configuration.
    pub(super) fn new(cache: Option<&Path>, origin: &Path, metrics: Arc<Metrics>) -> Self {
        Self {
            store: cache.and_then(|cache| Store::within(cache, origin)),
            metrics,
            running: BTreeMap::new(),
            page: Page::default(),
            saved_at: None,
        }
    }

    pub(super) fn page(&self) -> Page {
        self.page.clone()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether the new version of a plugin answers some requests.
    pub(super) fn enforces(&self, name: &PluginName) -> bool {
        let running = self.running.get(name);
        running.is_some_and(|running| running.stage().enforces(&running.plan))
    }

    /// Follows the plugins that are about to serve, and returns their rollouts.
    pub(super) fn follow(&mut self, plugins: &[Arc<Plugin>]) -> Vec<Rollout> {
        let now = now();
        let mut before = std::mem::take(&mut self.running);
        for old in plugins {
            let name = &old.config.name;
            let Some(plan) = old
                .config
                .active_rollout()
                .filter(|_| !old.config.is_shadow())
            else {
                continue;
            };
            let new = versions::candidate(plugins, old, plan);
            let earlier = before.remove(name);
            let running = self.resume(earlier, plan, old, new, now);
            self.running.insert(name.clone(), running);
        }
        for name in before.into_keys() {
            self.metrics.rollout_gone(name.as_str());
        }
        self.tidy();
        self.show();
        self.rollouts()
    }

    /// The rollouts as the set of plugins needs them.
    pub(super) fn rollouts(&self) -> Vec<Rollout> {
        let rollouts = self
            .running
            .iter()
            .map(|(name, running)| running.rollout(name, &self.metrics));
        rollouts.collect()
    }

    /// Goes on with a rollout, or begins one. A rollout whose version is being loaded keeps its state.
    fn resume(
        &self,
        earlier: Option<Running>,
        plan: &Arc<Plan>,
        old: &Arc<Plugin>,
        new: Option<Arc<Plugin>>,
        now: u64,
    ) -> Running {
        let name = &old.config.name;
        let identity = new.as_ref().and_then(|new| {
            let digest = new.digest.as_deref()?;
            Some(Identity::of(plan, &old.config, &new.config, digest))
        });
        let blocked = versions::blocked(old, new.as_deref());
        let (state, is_new) = match (identity, earlier) {
            (None, _) => (None, false),
            (Some(identity), Some(earlier))
                if earlier
                    .state
                    .as_ref()
                    .is_some_and(|state| state.identity == identity) =>
            {
                let observed = earlier.tally.observed();
                let state = earlier.state.map(|state| State { observed, ..state });
                (state, false)
            }
            (Some(identity), _) => {
                let stored = self.store.as_ref();
                match stored.and_then(|store| store.read(name, &identity)) {
                    Some(state) => (Some(state), false),
                    None => (Some(State::begin(identity, now)), true),
                }
            }
        };
        let observed = state
            .as_ref()
            .map(|state| state.observed)
            .unwrap_or_default();
        if let Some(state) = &state {
            self.metrics.rollout_begins(name.as_str());
            let phase = state.phase.as_str();
            self.metrics
                .rollout_reached(name.as_str(), phase, state.step);
            if is_new {
                self.note(name, state);
            }
        }
        Running {
            plan: plan.clone(),
            old: old.clone(),
            new,
            blocked,
            tally: self.tally(old, observed),
            state,
            wait: Wait::Version,
            is_dirty: is_new,
            has_failed: false,
            written: observed,
        }
    }

    fn tally(&self, old: &Plugin, observed: Observations) -> Arc<Tally> {
        let (name, mode) = (old.config.name.clone(), old.config.mode);
        Arc::new(Tally::new(name, mode, observed, self.metrics.clone()))
    }

    /// Looks at all rollouts. Returns whether requests are to be treated differently.
    pub(super) fn tick(&mut self) -> bool {
        let now = now();
        let is_time = self
            .saved_at
            .is_none_or(|saved_at| saved_at.elapsed() >= SAVE_PERIOD);
        let mut has_changed = false;
        let names: Vec<PluginName> = self.running.keys().cloned().collect();
        for name in &names {
            if is_time {
                has_changed |= self.adopt(name);
            }
            has_changed |= self.advance(name, now);
            self.save(name, is_time);
        }
        if is_time {
            self.saved_at = Some(Instant::now());
        }
        self.show();
        has_changed
    }

    /// Makes a change that an administrator asks for.
    pub(super) fn change(&mut self, plugin: &str, change: RolloutChange) -> RolloutAnswer {
        let now = now();
        let Some((name, running)) = self.running.get_key_value(plugin) else {
            return RolloutAnswer::Unknown;
        };
        let name = name.clone();
        let Some(state) = running.seen() else {
            return RolloutAnswer::Refused(
                "the new version is not loaded, so the old version answers everything".to_owned(),
            );
        };
        let next = match (change, &running.blocked) {
            (RolloutChange::Promote, Some(blocked)) => Err(blocked.clone()),
            (RolloutChange::Promote, None) => {
                state.promoted(&running.plan, now).map_err(str::to_owned)
            }
            (RolloutChange::RollBack, _) => state.rolled_back(now).map_err(str::to_owned),
        };
        match next {
            Err(reason) => RolloutAnswer::Refused(reason),
            Ok(next) => {
                self.enter(&name, next);
                self.save(&name, false);
                self.show();
                let running = self.running.get(&name);
                RolloutAnswer::Done(running.map_or(Value::Null, |running| page::of(&name, running)))
            }
        }
    }

    /// Takes over the state of another process, if it goes before this one.
    fn adopt(&mut self, name: &PluginName) -> bool {
        let Some(store) = &self.store else {
            return false;
        };
        let Some(running) = self.running.get_mut(name) else {
            return false;
        };
        let Some(own) = running.seen() else {
            return false;
        };
        match store.read(name, &own.identity) {
            Some(other) if own.yields_to(&other) => {
                let observed = Observations {
                    old_time: own.observed.old_time,
                    ..Observations::default()
                };
                self.enter(name, State { observed, ..other });
                true
            }
            Some(other) if !other.yields_to(&own) => false,
            // The file is gone, or has a state that goes behind this one.
            _ => {
                running.is_dirty = true;
                false
            }
        }
    }

    /// Decides what follows from the observations.
    fn advance(&mut self, name: &PluginName, now: u64) -> bool {
        let Some(running) = self.running.get_mut(name) else {
            return false;
        };
        let Some(state) = running.seen() else {
            return false;
        };
        let is_available = running.blocked.is_none();
        match decide(&running.plan, &state, &state.observed, is_available, now) {
            Decision::Stay(wait) => {
                running.wait = wait;
                false
            }
            Decision::Change(next) => {
                self.enter(name, *next);
                true
            }
        }
    }

    /// Puts a state into effect. The caller publishes it.
    fn enter(&mut self, name: &PluginName, state: State) {
        self.note(name, &state);
        let Some(running) = self.running.get(name) else {
            return;
        };
        let tally = self.tally(&running.old, state.observed);
        if let Some(running) = self.running.get_mut(name) {
            running.tally = tally;
            running.state = Some(state);
            running.is_dirty = true;
        }
    }

    /// Logs and counts the last change of a state.
    fn note(&self, name: &PluginName, state: &State) {
        let plugin = name.as_str();
        let phase = state.phase.as_str();
        self.metrics.rollout_reached(plugin, phase, state.step);
        let Some(change) = state.last() else { return };
        self.metrics
            .rollout_changed(plugin, phase, change.by.as_str());
        let (step, by, reason) = (state.step + 1, change.by.as_str(), &change.reason);
        match state.phase {
            Phase::Running => {
                tracing::info!(plugin, step, by, reason, "rollout: step begins");
            }
            Phase::Promoted => {
                tracing::info!(
                    plugin,
                    step,
                    by,
                    reason,
                    "rollout: the new version answers everything"
                );
            }
            Phase::Stopped => {
                tracing::warn!(
                    plugin,
                    step,
                    by,
                    reason,
                    "rollout: stopped; promote it or roll it back with `tollgate rollout`"
                );
            }
            Phase::RolledBack => {
                tracing::warn!(
                    plugin,
                    step,
                    by,
                    reason,
                    "rollout: rolled back; the old version answers everything"
                );
            }
        }
    }

    /// Writes a state that has changed, and from time to time the observations.
    fn save(&mut self, name: &PluginName, is_time: bool) {
        let (Some(store), Some(running)) = (&self.store, self.running.get_mut(name)) else {
            return;
        };
        let Some(state) = running.seen() else { return };
        let is_due = if running.has_failed {
            is_time
        } else {
            running.is_dirty || (is_time && state.observed != running.written)
        };
        if !is_due {
            return;
        }
        match store.write(name, &state) {
            Ok(()) => {
                running.is_dirty = false;
                running.has_failed = false;
                running.written = state.observed;
            }
            Err(_) if running.has_failed => {}
            Err(error) => {
                running.has_failed = true;
                tracing::warn!(
                    plugin = %name, %error,
                    "failed to write the state of the rollout (registries.cacheDirectory); a restart would go back to the state before"
                );
            }
        }
    }

    fn tidy(&self) {
        let Some(store) = &self.store else { return };
        let rollouts = self.running.iter().map(|(name, running)| {
            let state = running.state.as_ref();
            (name, state.map(|state| &state.identity))
        });
        store.retain(&rollouts.collect());
    }

    fn show(&self) {
        let all = self.running.iter();
        *self.page.lock() = all.map(|(name, running)| page::of(name, running)).collect();
    }
}

// === impl Page ===

impl Page {
    fn lock(&self) -> MutexGuard<'_, Vec<Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The content of `/rollouts`.
    pub(super) fn content(&self) -> Value {
        serde_json::json!({ "rollouts": *self.lock() })
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
