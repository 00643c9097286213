//! The versions of a plugin that a rollout calls.

use std::sync::Arc;

use tollgate_config::{FailurePolicy, Mode, PluginConfig, Rollout as Plan};
use tollgate_telemetry::metrics::Metrics;

use crate::plugin::{LoadedPlugin, Plugin, PluginState, Versions};

const NOT_LOADED: &str = "the new version is not loaded yet";

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
        return Some(NOT_LOADED.to_owned());
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
    if loaded.interfaces() != before.interfaces() {
        return Some(
            "the new version mutates or validates where the old one does not: add it as a plugin of its own".to_owned(),
        );
    }
    (loaded.matching != before.matching).then(|| {
        "the new version has other rules than the old one: write `match` into the entry, which is for both".to_owned()
    })
}

/// Makes the new version in its parts, and the old one where it is only compared. None if the new version has no part.
///
/// A promoted version counts as configured. If it is not loaded, its `failurePolicy` decides about the requests.
pub(super) fn versions(
    old: &Arc<Plugin>,
    new: Option<&Arc<Plugin>>,
    plan: &Plan,
    is_promoted: bool,
    metrics: &Metrics,
) -> Option<Versions> {
    match new.map(|new| (new, &new.state)) {
        Some((new, PluginState::Loaded(code))) => {
            Some(loaded(old, new, code, is_promoted, metrics))
        }
        Some((_, PluginState::Disabled)) => None,
        _ if !is_promoted => None,
        Some((new, PluginState::Failed { reason })) => {
            Some(missing(old, plan, new.digest.clone(), reason, metrics))
        }
        None => Some(missing(old, plan, None, NOT_LOADED, metrics)),
    }
}

/// A promoted version that is not loaded.
fn missing(
    old: &Plugin,
    plan: &Plan,
    digest: Option<Arc<str>>,
    reason: &str,
    metrics: &Metrics,
) -> Versions {
    let mut config = old
        .config
        .rolled_out(plan.to.as_deref().unwrap_or(&old.config));
    // Both versions are for the same requests.
    if let (None, PluginState::Loaded(old)) = (&config.matching, &old.state) {
        config.matching = Some(old.matching.clone());
    }
    let plugin = Arc::new(Plugin {
        metrics: metrics.plugin(config.name.as_str()),
        config,
        digest,
        state: PluginState::Failed {
            reason: reason.to_owned(),
        },
        group: None,
    });
    Versions {
        answering: plugin.clone(),
        // No step is under way, so these are not called.
        warning: plugin.clone(),
        reference: plugin,
    }
}

fn loaded(
    old: &Arc<Plugin>,
    new: &Arc<Plugin>,
    code: &LoadedPlugin,
    is_promoted: bool,
    metrics: &Metrics,
) -> Versions {
    let shadow = old.config.name.of_shadow();
    let config = old.config.rolled_out(&new.config);
    let make = |config: PluginConfig, source: &Plugin, state, metrics_of: &str| {
        Arc::new(Plugin {
            config,
            digest: source.digest.clone(),
            state,
            metrics: metrics.plugin(metrics_of),
            group: None,
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
    Versions {
        answering: make(config, new, loaded(), answering_metrics.as_str()),
        warning: make(warning, new, loaded(), shadow.as_str()),
        reference: make(reference, old, same, shadow.as_str()),
    }
}

fn shared(code: &LoadedPlugin) -> LoadedPlugin {
    LoadedPlugin {
        guest: code.guest.clone(),
        manifest: code.manifest.clone(),
        matching: code.matching.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tollgate_config::Config;
    use tollgate_rollout::{Observations, Stage};

    use super::*;
    use crate::plugin::{PluginSet, Rollout, Tally};

    const OF_MODE: &str = "mode: warn, rollout: { steps: [{ mode: enforce, for: 1h }] }";
    const OF_VERSION: &str =
        "rollout: { to: { source: 'file:/new.wasm' }, steps: [{ mode: enforce, for: 1h }] }";

    /// A plugin that could not be loaded.
    fn missing(keys: &str, metrics: &Metrics) -> Arc<Plugin> {
        let text = format!(
            "registries: {{ cacheDirectory: /var/lib/tollgate }}
plugins: [{{ name: guard, source: 'file:/guard.wasm', {keys} }}]"
        );
        let config = Config::parse(&text, Path::new("/")).expect("a configuration");
        Arc::new(Plugin {
            config: config.plugins[0].clone(),
            digest: None,
            state: PluginState::Failed {
                reason: "there is no such file".to_owned(),
            },
            metrics: metrics.plugin("guard"),
            group: None,
        })
    }

    #[test]
    fn promoted_version_that_is_not_loaded_answers_by_its_failure_policy() {
        let metrics = Metrics::new();
        for keys in [OF_MODE, OF_VERSION] {
            let old = missing(keys, &metrics);
            let plan = old.config.rollout.clone().expect("a plan");
            let new = candidate(std::slice::from_ref(&old), &old, &plan);
            assert!(blocked(&old, new.as_deref()).is_some(), "{keys}");
            let of = |is_promoted| versions(&old, new.as_ref(), &plan, is_promoted, &metrics);
            assert!(of(false).is_none(), "{keys}");
            let promoted = of(true).expect("a version").answering.clone();
            assert_eq!(promoted.config.mode, Mode::Enforce, "{keys}");
            assert_eq!(promoted.config.failure_policy, FailurePolicy::Fail);
            assert_eq!(promoted.config.name, old.config.name);
            assert!(matches!(promoted.state, PluginState::Failed { .. }));
        }
    }

    #[test]
    fn traffic_waits_for_a_promoted_version() {
        let metrics = Metrics::new();
        let old = missing(OF_MODE, &metrics);
        let plan = old.config.rollout.clone().expect("a plan");
        let name = old.config.name.clone();
        let set = |stage: Stage| {
            let is_promoted = stage == Stage::Promoted;
            let versions = versions(&old, Some(&old), &plan, is_promoted, &metrics);
            let tally = Tally::new(
                name.clone(),
                old.config.mode,
                Observations::default(),
                metrics.clone(),
            );
            let (name, plan, tally) = (name.clone(), plan.clone(), Arc::new(tally));
            let rollout = Rollout::new(name, plan, stage, versions, tally, "");
            PluginSet::new(vec![old.clone()]).with_rollouts(vec![rollout])
        };
        assert_eq!(set(Stage::Promoted).awaited().count(), 1);
        // The mode warn denies nothing.
        assert_eq!(set(Stage::Old).awaited().count(), 0);
    }
}
