//! The versions of a plugin that a rollout calls.

use std::sync::Arc;

use tollgate_config::{FailurePolicy, Mode, PluginConfig, Rollout as Plan};
use tollgate_telemetry::metrics::Metrics;

use crate::plugin::{LoadedPlugin, Plugin, PluginState, Versions};

/// Finds the new version among the plugins that are about to serve.
pub(super) fn candidate(
    plugins: &[Arc<Plugin>],
    old: &Arc<Plugin>,
    plan: &Plan,
) -> Option<Arc<Plugin>> {
    if !plan.is_version {
        return Some(old.clone());
    }
    let name = old.config.name.of_shadow();
    let mut plugins = plugins.iter();
    plugins.find(|plugin| plugin.config.name == name).cloned()
}

/// Returns why the new version cannot be called.
///
/// Both versions must be for the same requests. kube-apiserver sends those of the old version, and the old version answers
/// when the new one faults.
pub(super) fn blocked(old: &Plugin, new: Option<&Plugin>) -> Option<String> {
    let Some(new) = new else {
        return Some("the new version is not loaded yet".to_owned());
    };
    let loaded = match &new.state {
        PluginState::Loaded(loaded) => loaded,
        PluginState::Failed { reason } => {
            return Some(format!("the new version is not loaded: {reason}"));
        }
        PluginState::Disabled => return Some("the new version is disabled".to_owned()),
    };
    let PluginState::Loaded(before) = &old.state else {
        return None;
    };
    if loaded.guest.interfaces() != before.guest.interfaces() {
        return Some(
            "the new version mutates or validates where the old one does not: add it as a plugin of its own".to_owned(),
        );
    }
    (loaded.matching != before.matching).then(|| {
        "the new version has other rules than the old one: write `match` into the entry, which is for both".to_owned()
    })
}

/// Makes the new version in its parts, and the old one where it is only compared.
pub(super) fn versions(
    old: &Arc<Plugin>,
    new: &Arc<Plugin>,
    is_promoted: bool,
    metrics: &Metrics,
) -> Option<Versions> {
    let PluginState::Loaded(code) = &new.state else {
        return None;
    };
    let shadow = old.config.name.of_shadow();
    let config = old.config.rolled_out(&new.config);
    let make = |config: PluginConfig, source: &Plugin, state, metrics_of: &str| {
        Arc::new(Plugin {
            config,
            digest: source.digest.clone(),
            state,
            metrics: metrics.plugin(metrics_of),
        })
    };
    let warns_beside = old.config.mode == Mode::Enforce;
    let warning = PluginConfig {
        name: if warns_beside {
            shadow.clone()
        } else {
            config.name.clone()
        },
        mode: Mode::Warn,
        failure_policy: FailurePolicy::Ignore,
        ..config.clone()
    };
    let reference = PluginConfig {
        name: shadow.clone(),
        mode: Mode::Audit,
        failure_policy: FailurePolicy::Ignore,
        rollout: None,
        ..old.config.clone()
    };
    // Until the rollout is promoted, the metrics of the two versions are apart.
    let answering_metrics = if is_promoted {
        config.name.clone()
    } else {
        shadow.clone()
    };
    let loaded = || PluginState::Loaded(Box::new(shared(code)));
    let same = match &old.state {
        PluginState::Loaded(code) => PluginState::Loaded(Box::new(shared(code))),
        PluginState::Failed { reason } => PluginState::Failed {
            reason: reason.clone(),
        },
        PluginState::Disabled => PluginState::Disabled,
    };
    Some(Versions {
        answering: make(config, new, loaded(), answering_metrics.as_str()),
        warning: make(warning, new, loaded(), shadow.as_str()),
        reference: make(reference, old, same, shadow.as_str()),
    })
}

fn shared(code: &LoadedPlugin) -> LoadedPlugin {
    LoadedPlugin {
        guest: code.guest.clone(),
        manifest: code.manifest.clone(),
        matching: code.matching.clone(),
    }
}
