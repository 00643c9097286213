//! The start: decides which plugins serve before everything is loaded, and when reviews are answered.
//!
//! With a last known good, the recorded entries are in effect from the beginning. If a desired version cannot be
//! loaded, the reconciler recalls the recorded version. So a restarted replica serves the same plugins as the other
//! replicas.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_config::{PluginConfig, PluginName};

use super::place::{Code, Loaded, Place, Serving};
use super::placement::Known as _;
use super::{Note, State, Step, Ticket};

/// A start that is not over yet.
pub(super) struct Start {
    began: Instant,
    /// Whether the configuration has been read and loads have begun.
    pub(super) has_begun: bool,
    /// Whether no earlier configuration was recorded. If so, the current entries are in effect from the beginning.
    pub(super) is_fresh: bool,
}

/// The last known good: the plugins that were in effect when they were last recorded.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastKnownGood {
    /// The entries in order, without shadows; `None` if no configuration was recorded.
    pub(crate) entries: Option<Vec<PluginConfig>>,
    /// The digests of the plugins that served, by name.
    pub(crate) plugins: BTreeMap<PluginName, Arc<str>>,
}

/// The recall of a plugin that served before this start.
pub(super) enum Recall {
    /// The recorded code has not been needed yet.
    Ready { digest: Arc<str> },
    /// The recorded code is being loaded.
    UnderWay { ticket: Ticket },
    /// The recorded code cannot be loaded.
    Failed { error: String },
}

/// An order to begin a recall.
#[derive(Clone, Debug)]
pub(crate) struct RecallOrder {
    pub(crate) ticket: Ticket,
    /// The entry that the plugin served under.
    pub(crate) before: PluginConfig,
    /// The current entry, whose keys, pins and capabilities apply.
    pub(crate) today: PluginConfig,
}

/// A recalled plugin, with the entry that it serves under.
pub(crate) struct Recalled<C> {
    pub(crate) config: PluginConfig,
    pub(crate) loaded: Loaded<C>,
}

pub(super) const LOADING: &str = "it is still being loaded";

/// How long a start waits for plugins without which no request is denied.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a start waits for a desired version before it recalls the recorded one. This is longer than a start waits
/// for a registry that does not answer.
const PATIENCE_WITH_LAST_GOOD: Duration = Duration::from_secs(5);
/// How long a start waits for enforcing plugins under `failurePolicy: Fail`. After that time, Tollgate denies the
/// requests that the missing plugins match, and `/readyz` stays red.
const LONGEST_PATIENCE: Duration = Duration::from_secs(10);

/// The places and the recalls at the beginning of a start. No place has code yet.
pub(super) fn first_places<C: Code>(
    desired: &[PluginConfig],
    last_known_good: LastKnownGood,
) -> (Vec<Place<C>>, BTreeMap<PluginName, Recall>) {
    let LastKnownGood { entries, plugins } = last_known_good;
    let places: Vec<Place<C>> = unloaded(entries.as_deref().unwrap_or(desired));
    let enabled = |name: &PluginName| {
        let mut places = places.iter();
        places.any(|place| place.config.enabled && place.config.name == *name)
    };
    let served = plugins.into_iter().filter(|(name, _)| enabled(name));
    let recalls = served.map(|(name, digest)| (name, Recall::Ready { digest }));
    let recalls = recalls.collect();
    (places, recalls)
}

/// The places of these entries, before anything is known about their code.
pub(super) fn unloaded<C: Code>(entries: &[PluginConfig]) -> Vec<Place<C>> {
    let entries = entries.iter().filter(|entry| !entry.is_shadow());
    let places = entries.map(|entry| {
        let serving = if entry.enabled {
            Serving::Failed {
                reason: LOADING.to_owned(),
                digest: None,
            }
        } else {
            Serving::Disabled
        };
        Place::new(entry.clone(), serving)
    });
    places.collect()
}

// === impl State ===

impl<C: Code> State<C> {
    /// Begins to recall recorded versions if the desired versions have failed or take too long.
    pub(super) fn begin_recalls(&mut self, now: Instant) -> Vec<Step<C>> {
        let is_late = self
            .start
            .as_ref()
            .is_none_or(|start| now >= start.began + PATIENCE_WITH_LAST_GOOD);
        let is_given_up = |name: &PluginName| {
            let Some(entry) = self.entry(name) else {
                return false;
            };
            let Some(track) = self
                .tracks
                .get(name)
                .filter(|_| self.ready(entry).is_none())
            else {
                return false;
            };
            // The version that is being prepared is the one that would be recalled.
            let is_the_same = match (self.recalls.get(name), &track.load) {
                (Some(Recall::Ready { digest }), Some(load)) => {
                    load.fetched.as_ref() == Some(digest)
                        && self
                            .place(name)
                            .is_some_and(|place| place.config.runs_like(entry))
                }
                _ => false,
            };
            track.trouble.is_some() || (is_late && !is_the_same)
        };
        let holds = self.awaited.iter().any(is_given_up);
        let is_held = |name: &PluginName| {
            let holding = self.holding.as_ref().filter(|_| holds);
            holding.is_some_and(|holding| holding.plugins.contains_key(name))
        };
        // The previous plugins of an entry stay together while a new one is given up.
        let is_kept = |name: &PluginName| {
            let place = self.place(name);
            let is_previous = place.is_some_and(|place| self.entry(name) != Some(&place.config));
            let mut others = self.desired.iter().filter(|other| !other.is_shadow());
            is_previous
                && others
                    .any(|other| other.name.entry() == name.entry() && is_given_up(&other.name))
        };
        let needed: Vec<PluginName> = self
            .recalls
            .iter()
            .filter(|(_, recall)| matches!(recall, Recall::Ready { .. }))
            .map(|(name, _)| name)
            .filter(|name| is_given_up(name) || is_held(name) || is_kept(name))
            .cloned()
            .collect();
        let mut steps = Vec::new();
        for name in needed {
            let Some(before) = self.place(&name).map(|place| place.config.clone()) else {
                continue;
            };
            let today = self.entry(&name).unwrap_or(&before).clone();
            self.tickets += 1;
            let ticket = Ticket(self.tickets);
            self.recalls.insert(name, Recall::UnderWay { ticket });
            steps.push(Step::Recall(RecallOrder {
                ticket,
                before,
                today,
            }));
        }
        steps
    }

    /// Ends the recalls of plugins that no longer need them.
    pub(super) fn end_recalls(&mut self) -> Vec<Step<C>> {
        let mut steps = Vec::new();
        let places = &self.places;
        self.recalls.retain(|name, recall| {
            let mut failed = places.iter().filter(|place| place.is_failed());
            let stays = failed.any(|place| place.config.name == *name);
            if let (Recall::UnderWay { ticket }, false) = (recall, stays) {
                steps.push(Step::Abort(*ticket));
            }
            stays
        });
        steps
    }

    /// Handles the end of a recall.
    pub(super) fn recalled(
        &mut self,
        ticket: Ticket,
        outcome: Result<Recalled<C>, String>,
    ) -> Option<Step<C>> {
        let is_it =
            |recall: &Recall| matches!(recall, Recall::UnderWay { ticket: own } if *own == ticket);
        let mut under_way = self.recalls.iter().filter(|(_, recall)| is_it(recall));
        let name = under_way.next()?.0.clone();
        let place = self
            .places
            .iter_mut()
            .find(|place| place.config.name == name)?;
        match outcome {
            Ok(Recalled { config, loaded }) => {
                let digest = loaded.digest.clone();
                *place = Place::new(config, Serving::Code(loaded));
                self.recalls.remove(&name);
                Some(Step::Note(Note::Recalled { name, digest }))
            }
            Err(error) => {
                if let Serving::Failed { reason, .. } = &mut place.serving {
                    *reason = format!("failed to load the last known good: {error}");
                }
                self.recalls.insert(name, Recall::Failed { error });
                None
            }
        }
    }

    /// Whether reviews may be answered: all loads and recalls have ended, or the start has waited long enough.
    pub(super) fn is_start_over(&self, now: Instant) -> bool {
        let Some(start) = self.start.as_ref().filter(|start| start.has_begun) else {
            return false;
        };
        let elapsed = now.saturating_duration_since(start.began);
        let is_loading = |entry: &&PluginConfig| {
            let track = self.tracks.get(&entry.name);
            track.is_some_and(|track| track.load.is_some() && self.ready(entry).is_none())
        };
        let loading: Vec<&PluginName> = self
            .desired
            .iter()
            .filter(is_loading)
            .map(|entry| &entry.name)
            .collect();
        let is_missing = |place: &Place<C>| {
            let name = &place.config.name;
            // A plugin of a namespace delays no start for this long.
            name.namespace().is_none()
                && place.denies_by_fault()
                && (loading.contains(&name) || self.is_to_come(name))
        };
        let mut recalls = self.recalls.values();
        let is_recalling = recalls.any(|recall| matches!(recall, Recall::UnderWay { .. }));
        let waits = is_recalling || self.places.iter().any(is_missing);
        elapsed >= LONGEST_PATIENCE
            || (loading.is_empty() && !is_recalling)
            || (elapsed >= PATIENCE && !waits)
    }

    /// When the start must be checked again.
    pub(super) fn next_of_start(&self) -> Option<Instant> {
        let start = self.start.as_ref().filter(|start| start.has_begun)?;
        // The last of these times ends the start.
        Some(match self.now.saturating_duration_since(start.began) {
            elapsed if elapsed < PATIENCE => start.began + PATIENCE,
            elapsed if elapsed < PATIENCE_WITH_LAST_GOOD => start.began + PATIENCE_WITH_LAST_GOOD,
            _ => start.began + LONGEST_PATIENCE,
        })
    }
}

// === impl Start, Recall ===

impl Start {
    pub(super) fn new(began: Instant, is_fresh: bool) -> Self {
        Self {
            began,
            is_fresh,
            has_begun: false,
        }
    }
}

impl Recall {
    pub(super) fn is_to_come(&self) -> bool {
        matches!(self, Self::Ready { .. } | Self::UnderWay { .. })
    }

    pub(super) fn error(&self) -> Option<&str> {
        match self {
            Self::Failed { error } => Some(error),
            Self::Ready { .. } | Self::UnderWay { .. } => None,
        }
    }
}
