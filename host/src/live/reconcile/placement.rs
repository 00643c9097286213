//! Which entries are in force: the rule by which a failed load never weakens what is enforced.
//!
//! A configuration takes effect as a whole for the plugins that enforce. While an enforcing entry that it adds or
//! changes does not serve as desired – it is *awaited* –,
//!
//! - enforcing plugins that it removes stay in force, each at its place;
//! - enforcing plugins that serve keep their previous entry: scope, exceptions, settings and all;
//! - an added entry that is ready is in force at once, because that only makes the set stricter;
//! - whatever does not enforce changes at once;
//! - `enabled: false` and the modes `warn` and `audit` are explicit relief and count at once.
//!
//! When nothing is awaited any more, all of it takes effect in one swap.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::place::{Code, Loaded, Place, Serving, enforces};
use crate::config::{PluginConfig, PluginName};

/// What is to be in force next.
pub(super) struct Placement<C> {
    pub(super) places: Vec<Place<C>>,
    /// Enforcing entries that do not serve as desired, and for which the others wait.
    pub(super) awaited: BTreeSet<PluginName>,
    /// Plugins that are kept at their previous configuration meanwhile.
    pub(super) held: BTreeMap<PluginName, HeldBecause>,
}

/// What the configuration would do to a plugin that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldBecause {
    /// Its entry has changed.
    Changed,
    /// Its entry is gone.
    Removed,
}

/// What is known of code that is not in force yet.
pub(super) trait Known<C> {
    /// The code that runs as this entry says, and can be asked as it says.
    fn ready(&self, entry: &PluginConfig) -> Option<Loaded<C>>;
    /// Whether what served of a plugin before this start may still be had.
    fn is_to_come(&self, name: &PluginName) -> bool;
    /// Why nothing of it can be called, with the digest of the bytes.
    fn failure(&self, entry: &PluginConfig) -> (String, Arc<str>);
}

/// Decides what is in force next, after `in_force`.
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
            // Its failurePolicy decides already, and goes on doing so under the entry of today.
            Some(place) if place.is_failed() && !serves(place) => false,
            Some(place) => place.config != **entry,
        };
        enforces(entry) && changed && known.ready(entry).is_none()
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
        let kept = place
            .filter(|place| holds && enforces(entry) && enforces(&place.config) && serves(place));
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
            && enforces(&place.config)
            && (serves(place) || place.denies_by_fault())
    });
    for place in removed {
        held.insert(place.config.name.clone(), HeldBecause::Removed);
        next.insert(place.config.name.clone(), place.clone());
    }
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

/// An entry that nothing keeps from being in force.
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
        // What served goes on: in a mode that enforces no less than it did, and no more than is desired.
        Serving::Code(_) | Serving::Failed { .. } => {
            let mut config = place.config.clone();
            if !enforces(entry) {
                config.set_mode(entry.mode);
            }
            Some(Place::new(config, place.serving.clone()))
        }
    }
}

/// A place under its previous entry, with newer code where the same runs: another version of a file or of a tag is not
/// part of a change of the configuration.
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

/// The order in force, with what is new behind the entry that it follows in the configuration.
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
