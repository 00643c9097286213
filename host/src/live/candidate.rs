//! What becomes of one plugin when the configuration or its file may have changed.

use std::sync::Arc;

use crate::config::PluginConfig;
use crate::plugin::{Artifact, LoadError, LoadedPlugin, Loader, Plugin, PluginState};

/// A plugin's place in the next set.
pub(super) struct Candidate {
    /// What serves; none where nothing is to be asked yet.
    pub(super) plugin: Option<Arc<Plugin>>,
    pub(super) outcome: Outcome,
}

/// How it came there.
pub(super) enum Outcome {
    /// Nobody looked: there was no reason to.
    Untouched,
    /// It is what is wanted.
    AsWanted,
    /// It is, of what is known of its tag; what was wrong with that is looked at again.
    InDoubt,
    /// What is wanted has to come from a registry first.
    Waits,
    /// It is not, and this is why: with the digest of the bytes that cannot be used, empty where it is not the bytes.
    Failed { reason: String, digest: Arc<str> },
}

/// Makes what is wanted of a plugin. Where that fails, `serving` goes on: all of it, or under what is wanted of its
/// mode, rules and the like, as long as the code that is wanted is the code that it has been. A plugin that is new is
/// not asked about anything before it is there.
pub(super) async fn candidate(
    loader: &Loader,
    earlier: Option<Arc<Plugin>>,
    wanted: PluginConfig,
    fetched: Option<Result<Artifact, LoadError>>,
) -> Candidate {
    let as_wanted = |plugin: Arc<Plugin>| Candidate {
        plugin: Some(plugin),
        outcome: Outcome::AsWanted,
    };
    if !wanted.enabled {
        let disabled = |earlier: &Arc<Plugin>| {
            earlier.config == wanted && matches!(earlier.state, PluginState::Disabled)
        };
        return as_wanted(match earlier {
            Some(earlier) if disabled(&earlier) => earlier,
            _ => Arc::new(loader.disabled(wanted)),
        });
    }
    let mut digest: Arc<str> = Arc::from("");
    let serving = earlier.as_ref().and_then(loaded);
    match make(loader, serving, &wanted, fetched, &mut digest).await {
        Ok(plugin) => {
            let outcome = match plugin.stale.clone() {
                None => Outcome::AsWanted,
                Some(reason) => Outcome::Failed {
                    reason,
                    digest: Arc::from(""),
                },
            };
            Candidate {
                plugin: Some(plugin),
                outcome,
            }
        }
        Err(error) => {
            let reason = error.to_string();
            let plugin = match (serving, earlier.as_ref()) {
                (Some(serving), _) => Some(goes_on(loader, serving, &wanted)),
                // Already its failurePolicy decides. What is wanted of that is in force at once.
                (None, Some(earlier)) if matches!(earlier.state, PluginState::Failed { .. }) => {
                    let state = PluginState::Failed {
                        reason: reason.clone(),
                    };
                    Some(Arc::new(loader.plugin(wanted, digest.clone(), state)))
                }
                (None, _) => None,
            };
            Candidate {
                plugin,
                outcome: Outcome::Failed { reason, digest },
            }
        }
    }
}

/// What serves of a plugin while what is wanted of it comes from a registry.
pub(super) fn meanwhile(
    loader: &Loader,
    earlier: Option<&Arc<Plugin>>,
    wanted: &PluginConfig,
) -> Candidate {
    let plugin = earlier.and_then(|earlier| match &earlier.state {
        PluginState::Failed { .. } if earlier.config == *wanted => Some(earlier.clone()),
        PluginState::Loaded(loaded) => Some(goes_on(loader, (earlier, loaded), wanted)),
        PluginState::Failed { reason } => {
            let state = PluginState::Failed {
                reason: reason.clone(),
            };
            let plugin = loader.plugin(wanted.clone(), earlier.digest.clone(), state);
            Some(Arc::new(plugin))
        }
        PluginState::Disabled => None,
    });
    Candidate {
        plugin,
        outcome: Outcome::Waits,
    }
}

type Serving<'p> = (&'p Arc<Plugin>, &'p LoadedPlugin);

fn loaded(plugin: &Arc<Plugin>) -> Option<Serving<'_>> {
    match &plugin.state {
        PluginState::Loaded(loaded) => Some((plugin, loaded)),
        PluginState::Failed { .. } | PluginState::Disabled => None,
    }
}

async fn make(
    loader: &Loader,
    serving: Option<Serving<'_>>,
    wanted: &PluginConfig,
    fetched: Option<Result<Artifact, LoadError>>,
    digest: &mut Arc<str>,
) -> Result<Arc<Plugin>, LoadError> {
    loader.has_room_for(&wanted.limits)?;
    let same = serving.filter(|(plugin, _)| plugin.config.runs_like(wanted));
    let mut artifact = match fetched {
        Some(fetched) => fetched?,
        None => loader.fetch(wanted, None).await?,
    };
    let stale = artifact.stale.take();
    // What serves has been the tag's at least as lately as what the cache has.
    if let (Some(_), Some(reason)) = (same, &stale) {
        return Err(LoadError::Stale(reason.clone()));
    }
    *digest = artifact.digest.clone();
    if let Some(same) = same
        && same.0.digest == *digest
    {
        return kept(loader, same, wanted);
    }
    let loaded = loader.prepare(wanted, artifact).await?;
    let state = PluginState::Loaded(Box::new(loaded));
    let plugin = loader.plugin(wanted.clone(), digest.clone(), state);
    Ok(Arc::new(Plugin { stale, ..plugin }))
}

/// What serves, as far as possible under what is wanted around it.
fn goes_on(loader: &Loader, serving: Serving<'_>, wanted: &PluginConfig) -> Arc<Plugin> {
    kept(loader, serving, wanted).unwrap_or_else(|_| serving.0.clone())
}

/// The code that serves, under what is wanted around it.
fn kept(
    loader: &Loader,
    (plugin, loaded): Serving<'_>,
    wanted: &PluginConfig,
) -> Result<Arc<Plugin>, LoadError> {
    let as_wanted = plugin.config == *wanted && plugin.stale.is_none();
    if as_wanted || !plugin.config.runs_like(wanted) {
        return Ok(plugin.clone());
    }
    let plugin = loader.reconfigured(wanted.clone(), plugin.digest.clone(), loaded)?;
    Ok(Arc::new(plugin))
}
