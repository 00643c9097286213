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
        .map(|(name, _)| name.clone());
    let held = snapshot.held.iter().flat_map(|held| {
        let names = held.plugins.keys();
        names.map(|name| (name.clone(), held.what_to_do(name)))
    });
    Serving {
        plugins: live
            .iter()
            .map(|plugin| of(plugin, enforces(&plugin.config.name)))
            .collect(),
        troubles: troubles
            .map(|(name, (_, trouble))| (name.clone(), trouble.reason.clone()))
            .collect(),
        unsigned: unsigned.collect(),
        loading: snapshot.loading.keys().cloned().collect(),
        held: held.collect(),
        invalid: snapshot.invalid.clone(),
    }
}

fn of(plugin: &Plugin, enforces: bool) -> ServingPlugin {
    let state = match &plugin.state {
        PluginState::Loaded(loaded) => {
            let interfaces = loaded.guest.interfaces();
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
