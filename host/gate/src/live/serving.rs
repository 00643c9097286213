//! The plugins that this replica serves, as other crates see them.

use std::sync::Arc;

use tollgate_config::{Mode, PluginName, Serving, ServingPlugin, ServingState};

use super::reconcile::Snapshot;
use crate::plugin::{Plugin, PluginSet, PluginState};

/// Returns the plugins in effect, and how they differ from the desired ones. `enforces` says whether a rollout makes a
/// plugin enforce already.
pub(super) fn serving(
    live: &PluginSet,
    snapshot: &Snapshot,
    enforces: impl Fn(&PluginName) -> bool,
) -> Serving {
    let troubles = snapshot.troubles.iter();
    let unsigned = troubles
        .clone()
        .filter(|(_, (_, trouble))| trouble.is_unsigned)
        .map(|(name, _)| of_entry(name));
    let held = snapshot.held.iter().flat_map(|held| {
        let names = held.plugins.keys();
        names.map(|name| (of_entry(name), held.what_to_do(name)))
    });
    Serving {
        plugins: live
            .iter()
            .map(|plugin| of(plugin, enforces(&plugin.config.name)))
            .collect(),
        troubles: troubles
            .map(|(name, (_, trouble))| (of_entry(name), reason(name, &trouble.reason)))
            .collect(),
        unsigned: unsigned.collect(),
        loading: snapshot.loading.keys().map(of_entry).collect(),
        held: held.collect(),
        invalid: snapshot.invalid.clone(),
    }
}

/// The name of the entry that a member of a group is a part of. Any other name is returned as it is.
fn of_entry(name: &PluginName) -> PluginName {
    name.of_group().unwrap_or_else(|| name.clone())
}

fn reason(name: &PluginName, reason: &str) -> String {
    match name.member() {
        Some(member) => format!("member {member}: {reason}"),
        None => reason.to_owned(),
    }
}

fn of(plugin: &Plugin, enforces: bool) -> ServingPlugin {
    let state = match &plugin.state {
        PluginState::Loaded(loaded) => {
            let interfaces = loaded.interfaces();
            ServingState::Loaded {
                matching: loaded.matching.clone(),
                mutates: interfaces.mutating,
                validates: interfaces.validating,
            }
        }
        PluginState::Disabled => ServingState::Disabled,
        PluginState::Failed { reason } => ServingState::Failed {
            reason: reason.clone(),
        },
    };
    let mut config = plugin.config.clone();
    if enforces {
        config.mode = Mode::Enforce;
    }
    ServingPlugin {
        config: Arc::new(config),
        digest: plugin.digest.clone(),
        state,
    }
}
