//! The status of the reconciler: the difference between the desired and the serving state.

use std::collections::BTreeMap;
use std::time::Instant;

use tollgate_config::{PluginName, Source};

use super::State;
use super::place::Code;
use super::placement::HeldBecause;
use super::trouble::Trouble;

/// The data that `/plugins`, `/readyz` and the metrics show in addition to the serving plugins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) is_starting: bool,
    pub(crate) invalid: Option<String>,
    pub(crate) needs_restart: Vec<&'static str>,
    /// Plugins whose desired version cannot be loaded, with the source of that version.
    pub(crate) troubles: BTreeMap<PluginName, (Source, Trouble)>,
    /// Plugins whose desired version is being loaded.
    pub(crate) loading: BTreeMap<PluginName, LoadingNow>,
    pub(crate) held: Option<Held>,
}

/// A load of a version that does not serve yet. Polls for a newer version are left out.
#[derive(Clone, Debug)]
pub(crate) struct LoadingNow {
    pub(crate) source: Source,
    pub(crate) since: Instant,
    /// Whether the bytes have arrived.
    pub(crate) is_fetched: bool,
}

/// Plugins that are held at their previous configuration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Held {
    pub(crate) since: Instant,
    pub(crate) plugins: BTreeMap<PluginName, HeldBecause>,
    /// The enforcing plugins that do not serve as desired, each with the reason.
    pub(crate) awaited: BTreeMap<PluginName, String>,
}

// === impl State ===

impl<C: Code> State<C> {
    /// A snapshot of the current state.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let troubles = self.desired.iter().filter_map(|entry| {
            let trouble = self.tracks.get(&entry.name)?.trouble.clone()?;
            Some((entry.name.clone(), (entry.source.clone(), trouble)))
        });
        let begins = self.start.as_ref().is_some_and(|start| !start.has_begun);
        let loading = self.desired.iter().filter_map(|entry| {
            if begins && entry.enabled && !entry.is_shadow() {
                let loading = LoadingNow {
                    source: entry.source.clone(),
                    since: self.now,
                    is_fetched: false,
                };
                return Some((entry.name.clone(), loading));
            }
            let load = self.tracks.get(&entry.name)?.load.as_ref()?;
            let is_news = load.is_first() || self.same_code(entry).is_none();
            let loading = LoadingNow {
                source: entry.source.clone(),
                since: load.began,
                is_fetched: load.fetched.is_some(),
            };
            is_news.then(|| (entry.name.clone(), loading))
        });
        Snapshot {
            is_starting: self.start.is_some(),
            invalid: self.invalid.clone(),
            needs_restart: self.needs_restart.clone(),
            troubles: troubles.collect(),
            loading: loading.collect(),
            held: self.held(),
        }
    }

    /// The held plugins, and the plugins for which they are held.
    pub(super) fn held(&self) -> Option<Held> {
        let holding = self.holding.as_ref()?;
        let awaited = self.awaited.iter().map(|name| {
            let track = self.tracks.get(name);
            let trouble = track.and_then(|track| track.trouble.as_ref());
            let reason = trouble.map_or(super::start::LOADING, |trouble| trouble.reason.as_str());
            (name.clone(), reason.to_owned())
        });
        Some(Held {
            since: holding.since,
            plugins: holding.plugins.clone(),
            awaited: awaited.collect(),
        })
    }
}

// === impl Held ===

impl Held {
    /// The names of the awaited plugins, separated by commas.
    pub(crate) fn because_of(&self) -> String {
        let names: Vec<&str> = self.awaited.keys().map(PluginName::as_str).collect();
        names.join(", ")
    }

    /// Advice to the operator on how to end the hold.
    pub(crate) fn what_to_do(&self, name: &PluginName) -> String {
        let awaited = self.because_of();
        format!(
            "correct or remove plugin {awaited}; to disable plugin {} at once, give it an entry with enabled: false",
            name.entry()
        )
    }
}

// === impl Snapshot ===

impl Snapshot {
    /// Whether the configuration is not valid, or a desired plugin is in trouble. Keys that require a restart do not
    /// count.
    pub(crate) fn is_degraded(&self) -> bool {
        self.invalid.is_some() || !self.troubles.is_empty()
    }
}
