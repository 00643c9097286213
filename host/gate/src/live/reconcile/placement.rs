//! Decides which entries are in effect, so that a failed load never weakens enforcement.
//!
//! For plugins that enforce, a configuration takes effect as a whole. An enforcing entry is *awaited* if the
//! configuration adds or changes it and it does not serve as desired yet. While an entry is awaited:
//!
//! - Enforcing plugins that the configuration removes stay in effect, each at its place.
//! - Enforcing plugins that serve keep their previous entry, with its scope, exceptions and settings.
//! - An added entry that is ready takes effect at once, because it only makes the set stricter.
//! - Plugins that do not enforce change at once.
//! - `enabled: false` and the modes `warn` and `audit` are explicit relief and take effect at once.
//!
//! When no entry is awaited any more, the whole configuration takes effect in one swap.
//!
//! These rules apply to the plugins of the cluster. Plugins of namespaces have authors who do not know each other, so
//! no plugin waits for one of them. Each keeps its own previous code until its new code is ready.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tollgate_config::{PluginConfig, PluginName};

use super::place::{Code, Loaded, Place, Serving, enforces};

/// The places that take effect next.
pub(super) struct Placement<C> {
    pub(super) places: Vec<Place<C>>,
    /// Enforcing entries that do not serve as desired, and for which other plugins are held.
    pub(super) awaited: BTreeSet<PluginName>,
    /// Plugins that are held at their previous configuration meanwhile.
    pub(super) held: BTreeMap<PluginName, HeldBecause>,
}

/// The change that is held back for a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldBecause {
    /// The entry has changed.
    Changed,
    /// The entry was removed.
    Removed,
}

/// The code that is known but not yet in effect.
pub(super) trait Known<C> {
    /// The code that runs as this entry says and fits it.
    fn ready(&self, entry: &PluginConfig) -> Option<Loaded<C>>;
    /// Whether the version that served before this start may still be recalled.
    fn is_to_come(&self, name: &PluginName) -> bool;
    /// The reason why the plugin has no code to call, and the digest of the unusable bytes, if they are the reason.
    fn failure(&self, entry: &PluginConfig) -> (String, Option<Arc<str>>);
}

/// Decides which places take effect after the places `in_force`.
pub(super) fn place<C: Code>(
    desired: &[PluginConfig],
    in_force: &[Place<C>],
    known: &impl Known<C>,
) -> Placement<C> {
    let before: BTreeMap<&PluginName, &Place<C>> = in_force
        .iter()
        .map(|place| (&place.config.name, place))
        .collect();
    let serves = |place: &Place<C>| {
        place.code().is_some() || (place.is_failed() && known.is_to_come(&place.config.name))
    };
    let is_awaited = |entry: &&PluginConfig| {
        let changed = match before.get(&entry.name) {
            None => true,
            // The failurePolicy already decides for this plugin, and continues to under the current entry.
            Some(place) if place.is_failed() && !serves(place) => false,
            Some(place) => place.config != **entry,
        };
        is_held_together(entry) && changed && known.ready(entry).is_none()
    };
    let awaited: BTreeSet<PluginName> = desired
        .iter()
        .filter(is_awaited)
        .map(|entry| entry.name.clone())
        .collect();
    let holds = !awaited.is_empty();
    let mut held = BTreeMap::new();
    let mut next: BTreeMap<PluginName, Place<C>> = BTreeMap::new();
    for entry in desired {
        let place = before.get(&entry.name).copied();
        let kept = place.filter(|place| {
            holds && is_held_together(entry) && enforces(&place.config) && serves(place)
        });
        let placed = match kept.filter(|place| place.config != *entry) {
            Some(place) => {
                if !awaited.contains(&entry.name) {
                    held.insert(entry.name.clone(), HeldBecause::Changed);
                }
                Some(refreshed(place, entry, known))
            }
            None => of_entry(entry, place, serves, known),
        };
        next.extend(placed.map(|place| (entry.name.clone(), place)));
    }
    let is_desired: BTreeSet<&PluginName> = desired.iter().map(|entry| &entry.name).collect();
    let removed = in_force.iter().filter(|place| {
        holds
            && !is_desired.contains(&place.config.name)
            && is_held_together(&place.config)
            && (serves(place) || place.denies_by_fault())
    });
    for place in removed {
        held.insert(place.config.name.clone(), HeldBecause::Removed);
        next.insert(place.config.name.clone(), place.clone());
    }
    keep_versions(desired, in_force, &mut next);
    let order = if holds {
        kept_order(desired, in_force)
    } else {
        desired.iter().map(|entry| &entry.name).collect()
    };
    let places = order.into_iter().filter_map(|name| next.remove(name));
    Placement {
        places: places.collect(),
        awaited,
        held,
    }
}

/// Keeps the new version of a rollout for as long as its plugin is held at the entry with this rollout. Otherwise the old
/// version would answer again although the new one was promoted.
fn keep_versions<C: Code>(
    desired: &[PluginConfig],
    in_force: &[Place<C>],
    next: &mut BTreeMap<PluginName, Place<C>>,
) {
    for place in in_force.iter().filter(|place| place.config.is_shadow()) {
        let name = place.config.name.entry();
        let is_held = next.get(name).is_some_and(|kept| {
            let entry = desired.iter().find(|entry| entry.name == kept.config.name);
            kept.config.active_rollout().is_some() && entry != Some(&kept.config)
        });
        if is_held {
            next.insert(place.config.name.clone(), place.clone());
        }
    }
}

/// Whether the entry takes effect together with others.
fn is_held_together(entry: &PluginConfig) -> bool {
    enforces(entry) && entry.name.namespace().is_none()
}

/// The place of an entry that is not held.
fn of_entry<C: Code>(
    entry: &PluginConfig,
    place: Option<&Place<C>>,
    serves: impl Fn(&Place<C>) -> bool,
    known: &impl Known<C>,
) -> Option<Place<C>> {
    if !entry.enabled {
        return Some(Place::new(entry.clone(), Serving::Disabled));
    }
    if let Some(loaded) = known.ready(entry) {
        return Some(Place::new(entry.clone(), Serving::Code(loaded)));
    }
    let place = place?;
    match &place.serving {
        Serving::Disabled => None,
        Serving::Failed { .. } if !serves(place) => {
            let (reason, digest) = known.failure(entry);
            Some(Place::new(
                entry.clone(),
                Serving::Failed { reason, digest },
            ))
        }
        // The previous code goes on under its previous entry. If the desired mode does not enforce, that mode applies
        // at once.
        Serving::Code(_) | Serving::Failed { .. } => {
            let mut config = place.config.clone();
            if !enforces(entry) {
                config.set_mode(entry.mode);
                config.end_rollout();
            }
            Some(Place::new(config, place.serving.clone()))
        }
    }
}

/// A held place, with newer code if there is any. Another version of a file or a tag is not a change of the
/// configuration, so it is not held.
fn refreshed<C: Code>(place: &Place<C>, entry: &PluginConfig, known: &impl Known<C>) -> Place<C> {
    let newer = known
        .ready(entry)
        .filter(|_| place.config.runs_like(entry))
        .filter(|loaded| loaded.code.fits(&place.config).is_ok());
    match newer {
        Some(loaded) => Place::new(place.config.clone(), Serving::Code(loaded)),
        None => place.clone(),
    }
}

/// The order of the plugins in effect. A new entry comes behind the entry that it follows in the configuration.
fn kept_order<'n, C: Code>(
    desired: &'n [PluginConfig],
    in_force: &'n [Place<C>],
) -> Vec<&'n PluginName> {
    let mut order: Vec<&PluginName> = in_force.iter().map(|place| &place.config.name).collect();
    let mut at = 0;
    for entry in desired {
        match order.iter().position(|name| **name == entry.name) {
            Some(index) => at = index + 1,
            None => {
                order.insert(at, &entry.name);
                at += 1;
            }
        }
    }
    order
}
