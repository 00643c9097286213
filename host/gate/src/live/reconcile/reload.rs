//! Callers who asked for a reload, and the reports that they get.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tollgate_config::PluginName;

use super::place::Code;
use super::{State, Step};

/// Identifies a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallerId(pub(crate) u64);

/// A caller, and the result of the reload so far.
pub(super) struct Waiter {
    caller_id: CallerId,
    /// Plugins whose loads were under way after everything had been read.
    names: BTreeSet<PluginName>,
    pub(super) changed: BTreeSet<PluginName>,
    /// When the caller is answered at the latest, even if loads are still under way.
    pub(super) until: Instant,
}

/// The report that a caller gets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    pub(crate) changed: BTreeSet<PluginName>,
    /// Plugins that are still being loaded.
    pub(crate) loading: BTreeSet<PluginName>,
    /// Plugins whose desired version cannot be loaded, with the reasons.
    pub(crate) failed: BTreeMap<PluginName, String>,
    /// Plugins that are held at their previous configuration.
    pub(crate) held: BTreeSet<PluginName>,
    pub(crate) invalid: Option<String>,
    pub(crate) needs_restart: Vec<&'static str>,
}

/// Maximum time until a caller is answered.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

// === impl State ===

impl<C: Code> State<C> {
    /// Makes callers wait for the loads that are under way now.
    pub(super) fn wait_for_loads(
        &mut self,
        caller_ids: Vec<CallerId>,
        steps: &[Step<C>],
        now: Instant,
    ) {
        if caller_ids.is_empty() {
            return;
        }
        let changed = steps.iter().filter_map(|step| match step {
            Step::Publish { changed, .. } => Some(changed),
            _ => None,
        });
        let changed: BTreeSet<PluginName> = changed.flatten().cloned().collect();
        let names = self.under_way();
        self.waiters
            .extend(caller_ids.into_iter().map(|caller_id| Waiter {
                caller_id,
                names: names.clone(),
                changed: changed.clone(),
                until: now + LONGEST_WAIT,
            }));
    }

    /// Answers callers whose loads have ended, and callers who have waited for the maximum time.
    pub(super) fn answer(&mut self, now: Instant) -> Vec<Step<C>> {
        let under_way = self.under_way();
        let is_starting = self.start.is_some();
        let mut steps = Vec::new();
        for mut waiter in std::mem::take(&mut self.waiters) {
            waiter.names.retain(|name| under_way.contains(name));
            let is_done = waiter.names.is_empty() && !is_starting;
            if is_done || now >= waiter.until {
                let report = self.report(waiter.changed, waiter.names);
                let caller_id = waiter.caller_id;
                steps.push(Step::Answer { caller_id, report });
            } else {
                self.waiters.push(waiter);
            }
        }
        steps
    }

    fn under_way(&self) -> BTreeSet<PluginName> {
        let tracks = self.tracks.iter().filter(|(_, track)| track.load.is_some());
        tracks.map(|(name, _)| name.clone()).collect()
    }

    fn report(&self, changed: BTreeSet<PluginName>, loading: BTreeSet<PluginName>) -> Report {
        let failed = self.tracks.iter().filter_map(|(name, track)| {
            let trouble = track.trouble.as_ref()?;
            Some((name.clone(), trouble.reason.clone()))
        });
        let held = self
            .holding
            .iter()
            .flat_map(|holding| holding.plugins.keys());
        Report {
            changed,
            loading,
            failed: failed.collect(),
            held: held.cloned().collect(),
            invalid: self.invalid.clone(),
            needs_restart: self.needs_restart.clone(),
        }
    }
}

// === impl Report ===

impl Report {
    /// Whether the whole configuration serves, except for the keys that require a restart.
    pub(crate) fn is_complete(&self) -> bool {
        self.invalid.is_none() && self.failed.is_empty() && self.loading.is_empty()
    }

    /// The result of the reload, in one word.
    pub(crate) fn result(&self) -> &'static str {
        if self.invalid.is_some() || !self.failed.is_empty() {
            "failed"
        } else if !self.loading.is_empty() {
            "loading"
        } else if self.changed.is_empty() {
            "unchanged"
        } else {
            "applied"
        }
    }
}
