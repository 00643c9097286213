//! Decides which rules are registered next. Does no IO.
//!
//! A plugin's rules are in one of three states:
//!
//! - **Whole**: every ready replica serves the plugin with the desired rules. The desired rules are registered.
//! - **Changing**: some replica does not yet. Rules that are both registered and desired stay: rules are narrowed
//!   before the replicas follow, and widened after.
//! - **Gone**: the plugin is not desired. Its rules go first, and then the replicas give the plugin up.

use tollgate_admission::Endpoint;

use super::overlap::overlap;
use super::record::{Record, Recorded};
use crate::lease::Announcement;
use crate::plugin::{Desired, Plugin};

/// The record of the live webhook configuration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Known {
    /// The cluster has no configuration.
    Absent,
    /// The configuration has no readable record: `tollgate manifests` printed it, or somebody removed the record.
    Unrecorded,
    /// The record of the configuration.
    Recorded(Record),
}

/// The target for an endpoint.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Target {
    /// Leave the configuration as it is.
    Keep,
    /// Register these plugins. Without any, remove the configuration.
    Register {
        /// The plugins, with the rules to register, in the order of the desired state.
        plugins: Vec<Plugin>,
        /// The record of the rules that are registered then.
        record: Record,
        /// The plugins whose desired rules are not whole, because a ready replica does not serve them.
        waiting: Vec<String>,
    },
}

/// Plans the webhook configuration of an endpoint. `ready` is what the ready replicas serve.
pub(crate) fn plan(
    endpoint: Endpoint,
    desired: &Desired,
    ready: &[&Announcement],
    known: &Known,
) -> Target {
    let must_stay = |name: &String| match known {
        Known::Absent => false,
        Known::Unrecorded => true,
        Known::Recorded(record) => record.0.contains_key(name),
    };
    if desired.pending.iter().any(must_stay) {
        return Target::Keep;
    }
    let empty = Record::default();
    let registered = match known {
        Known::Recorded(record) => record,
        Known::Absent | Known::Unrecorded => &empty,
    };
    let (mut plugins, mut record, mut waiting) = (Vec::new(), Record::default(), Vec::new());
    for plugin in &desired.plugins {
        if !plugin.serves(endpoint) {
            continue;
        }
        let rules = plugin.rules_digest();
        let is_served = !ready.is_empty()
            && ready
                .iter()
                .all(|announcement| announcement.serves(&plugin.name, &rules));
        let before = registered.0.get(&plugin.name);
        let is_registered = before.is_some_and(|before| before.digest.as_ref() == Some(&rules));
        if is_served || is_registered {
            record
                .0
                .insert(plugin.name.clone(), Recorded::of(plugin, true));
            plugins.push(plugin.clone());
            continue;
        }
        waiting.push(plugin.name.clone());
        let Some(matching) = before.and_then(|before| overlap(before, &plugin.matching)) else {
            continue;
        };
        let plugin = Plugin {
            matching,
            ..plugin.clone()
        };
        record
            .0
            .insert(plugin.name.clone(), Recorded::of(&plugin, false));
        plugins.push(plugin);
    }
    let waits = |name: &String| !name.contains('/');
    if *known == Known::Unrecorded && waiting.iter().any(waits) {
        // What is registered for whom is not known. So nothing is taken away until all is served. Nobody waits for a
        // plugin of a namespace: its author must not hold up the others.
        return Target::Keep;
    }
    Target::Register {
        plugins,
        record,
        waiting,
    }
}

#[cfg(test)]
mod tests;
