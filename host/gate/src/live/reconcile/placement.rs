//! Decides which entries are in effect, so that a failed load never weakens enforcement.
//!
//! For plugins that enforce, a configuration takes effect as a whole. An enforcing entry is *awaited* if the
//! configuration adds or changes it and it does not serve as desired yet. While an entry is awaited:
//!
//! - Enforcing plugins that the configuration removes stay in effect, each at its place.
//! - Enforcing plugins that serve keep their previous entry. Its scope, exceptions and settings stay in effect.
//! - An added entry that is ready takes effect at once, because it only makes the set stricter.
//! - Plugins that do not enforce change at once.
//! - `enabled: false` and the modes `warn` and `audit` are explicit relief and take effect at once.
//!
//! When no entry is awaited any more, the whole configuration takes effect in one swap.
//!
//! These rules apply to the plugins of the cluster. Plugins of namespaces have authors who do not know each other, so
//! no plugin waits for one of them. Each keeps its own previous code until its new code is ready.
//!
//! The members of a group take effect together, in the cluster and in namespaces, and in each mode. A changed group keeps
//! its previous members until all new ones are ready.

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

/// An entry under `plugins` with the plugins that it stands for: one plugin, or the members of a group. They take effect
/// together, because a part of a group says nothing, and members of two versions of a group must not be mixed.
struct Unit<'p, C> {
    /// The desired plugins; empty if the configuration removes the entry.
    desired: Vec<&'p PluginConfig>,
    /// The plugins of the entry that are in force.
    places: Vec<&'p Place<C>>,
}

/// Decides which places take effect after the places `in_force`.
pub(super) fn place<C: Code>(
    desired: &[PluginConfig],
    in_force: &[Place<C>],
    known: &impl Known<C>,
) -> Placement<C> {
    let units = units(desired, in_force);
    let missing = units.iter().flat_map(|unit| unit.missing(known));
    let awaited: BTreeSet<PluginName> = missing
        .filter(|entry| is_held_together(entry))
        .map(|entry| entry.name.clone())
        .collect();
    let holds = !awaited.is_empty();
    let mut held = BTreeMap::new();
    let mut next: BTreeMap<PluginName, Place<C>> = BTreeMap::new();
    let mut order: Vec<&PluginName> = Vec::with_capacity(desired.len());
    for unit in &units {
        let is_held = holds && unit.is_held(known);
        if is_held {
            let because = unit.held_because();
            held.extend(because.filter(|(name, _)| !awaited.contains(name)));
        }
        let placed = if is_held || unit.waits(known) {
            order.extend(unit.places.iter().map(|place| &place.config.name));
            unit.kept(known)
        } else {
            order.extend(unit.desired.iter().map(|entry| &entry.name));
            unit.renewed(known)
        };
        next.extend(
            placed
                .into_iter()
                .map(|place| (place.config.name.clone(), place)),
        );
    }
    keep_versions(desired, in_force, &mut next);
    if holds {
        order = kept_order(desired, in_force);
    }
    let places = order.into_iter().filter_map(|name| next.remove(name));
    Placement {
        places: places.collect(),
        awaited,
        held,
    }
}

/// Puts the plugins of each entry together, in the desired order. A shadow is on its own, because it decides nothing.
fn units<'p, C: Code>(desired: &'p [PluginConfig], in_force: &'p [Place<C>]) -> Vec<Unit<'p, C>> {
    let key = |config: &'p PluginConfig| {
        if config.is_shadow() {
            config.name.as_str()
        } else {
            config.name.entry()
        }
    };
    let mut units: Vec<Unit<'p, C>> = Vec::with_capacity(desired.len());
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    let mut index_of = |config: &'p PluginConfig, units: &mut Vec<Unit<'p, C>>| {
        *known.entry(key(config)).or_insert_with(|| {
            units.push(Unit {
                desired: Vec::new(),
                places: Vec::new(),
            });
            units.len() - 1
        })
    };
    for entry in desired {
        let index = index_of(entry, &mut units);
        units[index].desired.push(entry);
    }
    for place in in_force {
        let index = index_of(&place.config, &mut units);
        units[index].places.push(place);
    }
    units
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

/// Whether the plugin has code to call, or may still get the version that served before this start.
fn serves<C: Code>(place: &Place<C>, known: &impl Known<C>) -> bool {
    place.code().is_some() || (place.is_failed() && known.is_to_come(&place.config.name))
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

// === impl Unit ===

impl<'p, C: Code> Unit<'p, C> {
    fn place(&self, name: &PluginName) -> Option<&'p Place<C>> {
        let mut places = self.places.iter();
        places.find(|place| place.config.name == *name).copied()
    }

    fn entry(&self, name: &PluginName) -> Option<&'p PluginConfig> {
        let mut desired = self.desired.iter();
        desired.find(|entry| entry.name == *name).copied()
    }

    /// Whether a part of the entry has code. If none has, the failurePolicy decides.
    fn serves(&self, known: &impl Known<C>) -> bool {
        self.places.iter().any(|place| serves(place, known))
    }

    /// The plugins without which the desired entry cannot take effect.
    fn missing(&self, known: &impl Known<C>) -> Vec<&'p PluginConfig> {
        let is_missing = |entry: &&&PluginConfig| {
            let is_changed = match self.place(&entry.name) {
                // The failurePolicy already decides if plugins have failed and none serves. It continues to under the
                // current entry.
                None => self.serves(known) || !self.places.iter().any(|place| place.is_failed()),
                Some(place) if place.is_failed() && !serves(place, known) => {
                    let is_the_same =
                        place.config.group == entry.group && place.config.runs_like(entry);
                    self.serves(known) && !is_the_same
                }
                Some(place) => place.config != ***entry,
            };
            is_changed && known.ready(entry).is_none()
        };
        self.desired.iter().filter(is_missing).copied().collect()
    }

    /// Whether the places in force are held while an entry is awaited.
    fn is_held(&self, known: &impl Known<C>) -> bool {
        let mut places = self.places.iter();
        let Some(first) = self.desired.first() else {
            return places.any(|place| {
                is_held_together(&place.config) && (serves(place, known) || place.denies_by_fault())
            });
        };
        is_held_together(first)
            && places.any(|place| enforces(&place.config) && serves(place, known))
            && self.held_because().next().is_some()
    }

    /// The change that a hold keeps back, for each plugin in force.
    fn held_because(&self) -> impl Iterator<Item = (PluginName, HeldBecause)> {
        self.places.iter().filter_map(|place| {
            let name = &place.config.name;
            let because = match self.entry(name) {
                None => HeldBecause::Removed,
                Some(entry) if place.config != *entry => HeldBecause::Changed,
                Some(_) => return None,
            };
            Some((name.clone(), because))
        })
    }

    /// Whether the places in force stay until every desired plugin of the entry is ready.
    fn waits(&self, known: &impl Known<C>) -> bool {
        let is_enabled = self.desired.first().is_some_and(|entry| entry.enabled);
        is_enabled && self.serves(known) && !self.missing(known).is_empty()
    }

    /// The places in force, which go on under their previous entry. If the desired mode does not enforce, that mode applies
    /// at once.
    fn kept(&self, known: &impl Known<C>) -> Vec<Place<C>> {
        let relief = self.desired.first().filter(|entry| !enforces(entry));
        let places = self.places.iter().map(|place| {
            let mut kept = match self.entry(&place.config.name) {
                Some(entry) => refreshed(place, entry, known),
                None => Place::clone(place),
            };
            if let Some(entry) = relief {
                kept.config.set_mode(entry.mode);
                kept.config.end_rollout();
            }
            kept
        });
        places.collect()
    }

    /// The places of the desired entry. None if it waits for a plugin, and nothing else serves meanwhile.
    fn renewed(&self, known: &impl Known<C>) -> Vec<Place<C>> {
        let is_enabled = self.desired.first().is_some_and(|entry| entry.enabled);
        if is_enabled && !self.missing(known).is_empty() {
            return Vec::new();
        }
        let desired = self.desired.iter();
        desired.map(|entry| self.of_entry(entry, known)).collect()
    }

    fn of_entry(&self, entry: &PluginConfig, known: &impl Known<C>) -> Place<C> {
        if !entry.enabled {
            return Place::new(entry.clone(), Serving::Disabled);
        }
        if let Some(loaded) = known.ready(entry) {
            return Place::new(entry.clone(), Serving::Code(loaded));
        }
        match self.place(&entry.name) {
            // Nothing has changed. The version that served before this start may still be recalled.
            Some(place) if serves(place, known) => place.clone(),
            Some(_) | None => {
                let (reason, digest) = known.failure(entry);
                Place::new(entry.clone(), Serving::Failed { reason, digest })
            }
        }
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
