//! The rollouts of the serving plugins: asks `tollgate_rollout` what follows, records it, logs it and shows it.

mod common;
mod page;
mod record;
mod resume;
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
use tollgate_config::PluginName;
use tollgate_rollout::{Decision, Observations, State, Store, Unusable, decide, hold};
use tollgate_telemetry::metrics::Metrics;

use crate::plugin::{Plugin, Rollout, Tally};
use resume::UNREADABLE;
use running::Running;

pub use common::Link;

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
    /// The cluster, if plugins come from custom resources.
    link: Option<Link>,
}

// === impl Rollouts ===

impl Rollouts {
    /// Creates a set without rollouts. Their files are in the cache, by the path of the configuration.
    pub(super) fn new(
        cache: Option<&Path>,
        origin: &Path,
        metrics: Arc<Metrics>,
        link: Option<Link>,
    ) -> Self {
        Self {
            store: cache.and_then(|cache| Store::within(cache, origin)),
            metrics,
            running: BTreeMap::new(),
            page: Page::default(),
            saved_at: None,
            link,
        }
    }

    pub(super) fn page(&self) -> Page {
        self.page.clone()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether the new version of a plugin is to answer some requests. A version that cannot be called now does not
    /// change what kube-apiserver does while Tollgate is away.
    pub(super) fn enforces(&self, name: &PluginName) -> bool {
        self.running.get(name).is_some_and(Running::enforces)
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
        // The state of the cluster counts from the first request on.
        let names: Vec<PluginName> = self.running.keys().cloned().collect();
        for name in &names {
            if self.is_common(name) {
                self.obey(name, now);
            }
        }
        self.tidy();
        self.tell(now, false);
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
            let is_common = self.is_common(name);
            if let Some(running) = self.running.get_mut(name) {
                running.is_common = is_common;
            }
            if is_common {
                has_changed |= self.obey(name, now);
            } else if is_time {
                has_changed |= self.adopt(name);
            }
            has_changed |= self.advance(name, now);
            self.save(name, is_time);
        }
        if is_time {
            self.saved_at = Some(Instant::now());
        }
        self.tell(now, is_time);
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
        let state = match running.seen() {
            Some(state) => state,
            None if running.is_common => {
                let why = "the leader of the replicas has not begun the rollout, so the old version answers everything; \
                           `tollgate rollout rollback --resource` keeps it from beginning";
                return RolloutAnswer::Refused(why.to_owned());
            }
            // The rollout begins rolled back, whenever the new version is loaded.
            None if change == RolloutChange::RollBack => {
                State::begin(running.identity.clone(), now)
            }
            None => {
                let why = "the new version is not loaded, so the old version answers everything";
                return RolloutAnswer::Refused(why.to_owned());
            }
        };
        if running.is_common && change == RolloutChange::Promote && running.blocked.is_none() {
            return self.ask(&name, &state, now);
        }
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
                self.tell(now, false);
                self.show();
                let running = self.running.get(&name);
                RolloutAnswer::Done(running.map_or(Value::Null, |running| page::of(&name, running)))
            }
        }
    }

    /// Asks the leader of the replicas for the next step.
    fn ask(&mut self, name: &PluginName, state: &State, now: u64) -> RolloutAnswer {
        let Some(running) = self.running.get_mut(name) else {
            return RolloutAnswer::Unknown;
        };
        if let Err(reason) = state.promoted(&running.plan, now) {
            return RolloutAnswer::Refused(reason.to_owned());
        }
        running.asks_for_promotion = true;
        let page = page::of(name, running);
        self.tell(now, false);
        self.show();
        RolloutAnswer::Done(page)
    }

    /// Takes over the state of another process, if it takes precedence over the own one.
    fn adopt(&mut self, name: &PluginName) -> bool {
        let Some(store) = &self.store else {
            return false;
        };
        let Some(running) = self.running.get_mut(name) else {
            return false;
        };
        let own = running.seen();
        let identity = own.as_ref().map_or(&running.identity, |own| &own.identity);
        let read = store.read(name, identity);
        if let Err(error @ Unusable::Unreadable { .. }) = &read {
            let text = error.to_string();
            if running.file_problem.as_ref() != Some(&text) {
                tracing::warn!(plugin = %name, %error, "{UNREADABLE}");
            }
            (running.file_problem, running.is_unreadable) = (Some(text), true);
            return false;
        }
        if std::mem::take(&mut running.is_unreadable) {
            running.file_problem = None;
        }
        let (own, other) = match (own, read) {
            (Some(own), Ok(Some(other))) => (own, other),
            // The new version is not loaded, and the state can be read at last.
            (None, Ok(Some(other))) => {
                self.enter(name, other);
                return true;
            }
            (own, _) => {
                // The file is gone or damaged.
                running.is_dirty |= own.is_some();
                return false;
            }
        };
        if own.yields_to(&other) {
            let observed = Observations {
                old_time: own.observed.old_time,
                ..Observations::default()
            };
            self.enter(name, State { observed, ..other });
            return true;
        }
        // The file has a state that goes behind this one.
        running.is_dirty |= other.yields_to(&own);
        false
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
        let decide = if running.is_common { hold } else { decide };
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
            running.asks_for_promotion = false;
            running.is_dirty = true;
        }
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
