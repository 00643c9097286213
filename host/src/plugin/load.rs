//! Loads the configured plugins: all of them, whatever becomes of one.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};

use super::protocol::Order;
use super::set::{LoadedPlugin, Plugin, PluginSet, PluginState};
use super::worker::{PrepareError, Worker};
use crate::config::{EngineConfig, ManifestRule, Match, PluginConfig, Source};
use crate::engine::{ConfiguredBy, Engine, Guest, GuestError};
use crate::metrics::Metrics;

/// Loads plugins into an engine.
pub struct Loader {
    engine: Engine,
    worker: Worker,
    config: EngineConfig,
    cache_directory: PathBuf,
    metrics: Arc<Metrics>,
}

/// Why a plugin could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{}: {error}", .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is too large.
    #[error("{}: the file has more than {limit_bytes} bytes (engine.maxPlugin)", .path.display())]
    TooLarge {
        /// Which.
        path: PathBuf,
        /// The limit.
        limit_bytes: u64,
    },
    /// It failed on the way.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// What was prepared cannot be linked here.
    #[error("link: {0}")]
    Link(#[from] GuestError),
    /// It was prepared on a thread that was lost.
    #[error("link: the thread that did it was lost: {0}")]
    Thread(#[from] tokio::task::JoinError),
    /// There are no rules to go by.
    #[error("{0}")]
    Rules(String),
}

// === impl Loader ===

impl Loader {
    /// A loader. `executable` is the `tollgate` binary, which is run to prepare plugins.
    #[must_use]
    pub fn new(
        engine: Engine,
        executable: PathBuf,
        config: EngineConfig,
        cache_directory: PathBuf,
        metrics: Arc<Metrics>,
    ) -> Self {
        let max_component_bytes = config.max_plugin_bytes.saturating_mul(4);
        let worker = Worker {
            executable,
            max_component_bytes,
        };
        Self {
            engine,
            worker,
            config,
            cache_directory,
            metrics,
        }
    }

    /// Loads all of them, as many at once as there are processors. One that fails is in the set as failed.
    pub async fn load_all(&self, configs: Vec<PluginConfig>) -> PluginSet {
        let at_once = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let plugins = futures_util::stream::iter(configs)
            .map(|config| self.load(config))
            .buffered(at_once);
        PluginSet::new(plugins.map(Arc::new).collect().await)
    }

    /// Loads one, and has nothing to tell of it but why it cannot be loaded.
    ///
    /// # Errors
    /// When it cannot be loaded.
    pub async fn check(&self, config: &PluginConfig) -> Result<LoadedPlugin, LoadError> {
        self.try_load(config, &mut Arc::from("")).await
    }

    /// Loads one.
    pub async fn load(&self, config: PluginConfig) -> Plugin {
        if !config.enabled {
            tracing::info!(
                plugin = config.name.as_str(),
                "plugin disabled: it is not loaded"
            );
            return self.plugin(config, Arc::from(""), PluginState::Disabled);
        }
        let began = std::time::Instant::now();
        let mut digest: Arc<str> = Arc::from("");
        let loaded = self.try_load(&config, &mut digest).await;
        let name = config.name.as_str();
        let state = match loaded {
            Ok(loaded) => {
                let version = loaded.manifest.version.as_str();
                self.metrics.plugin_loaded(name, &digest, version);
                tracing::info!(plugin = name, %digest, version, milliseconds = began.elapsed().as_millis(), "plugin loaded");
                if let ConfiguredBy::EachCall { reason, .. } = loaded.guest.configured() {
                    tracing::warn!(
                        plugin = name,
                        reason,
                        "no snapshot: the plugin is configured anew in every call"
                    );
                }
                PluginState::Loaded(Box::new(loaded))
            }
            Err(error) => {
                let reason = error.to_string();
                tracing::error!(plugin = name, %digest, failure_policy = config.failure_policy.as_str(), reason, "plugin not loaded");
                PluginState::Failed { reason }
            }
        };
        self.plugin(config, digest, state)
    }

    fn plugin(&self, config: PluginConfig, digest: Arc<str>, state: PluginState) -> Plugin {
        let metrics = self.metrics.plugin(config.name.as_str());
        Plugin {
            config,
            digest,
            state,
            metrics,
        }
    }

    async fn try_load(
        &self,
        config: &PluginConfig,
        digest: &mut Arc<str>,
    ) -> Result<LoadedPlugin, LoadError> {
        let Source::File(path) = &config.source;
        let (path, limit_bytes) = (path.clone(), self.config.max_plugin_bytes);
        let bytes = tokio::task::spawn_blocking(move || read(&path, limit_bytes)).await??;
        *digest = format!("sha256:{:x}", Sha256::digest(&bytes)).into();

        let settings = config.settings.to_string();
        let order = Order {
            plugin: config.name.as_str().to_owned(),
            settings: settings.clone(),
            limits: config.limits.clone(),
            capabilities: config.capabilities.clone(),
            max_wasm_stack_bytes: self.config.max_wasm_stack_bytes,
            cache_directory: self.cache_directory.clone(),
            cpu_seconds: self.config.load_timeout.as_secs().max(1),
            memory_bytes: self.config.load_memory_bytes,
            snapshot: true,
        };
        let prepared = self.worker.prepare(order, &bytes).await?;
        let matching = match &config.matching {
            Some(matching) => matching.clone(),
            None => matching_of(&prepared.manifest.rules)?,
        };

        let configured = match prepared.fallback {
            None => ConfiguredBy::Snapshot,
            Some(reason) => ConfiguredBy::EachCall { settings, reason },
        };
        let (engine, name, limits) = (
            self.engine.clone(),
            config.name.clone(),
            Arc::new(config.limits.clone()),
        );
        let (capabilities, component) = (config.capabilities.clone(), prepared.component);
        let link = move || Guest::link(&engine, name, &component, configured, capabilities, limits);
        let before = self.engine.compilations();
        let guest = tokio::task::spawn_blocking(link).await??;
        if self.engine.compilations() > before {
            // Bounded all the same: the child has just compiled these very bytes within its limits.
            tracing::warn!(
                plugin = config.name.as_str(),
                folder = %self.cache_directory.display(),
                "the code that was prepared is not in the cache; it was compiled once more, in this \
                 process. Is the folder's disk full?"
            );
        }
        Ok(LoadedPlugin {
            guest,
            manifest: prepared.manifest,
            matching,
        })
    }
}

fn matching_of(rules: &[super::protocol::ManifestRule]) -> Result<Match, LoadError> {
    if rules.is_empty() {
        let text = "the plugin's `describe` names no rules and the configuration has none for it: add `match.rules`";
        return Err(LoadError::Rules(text.to_owned()));
    }
    let rules: Vec<ManifestRule> = rules
        .iter()
        .map(|rule| ManifestRule {
            operations: rule.operations.clone(),
            api_groups: rule.api_groups.clone(),
            api_versions: rule.api_versions.clone(),
            resources: rule.resources.clone(),
            scope: rule.scope.clone(),
        })
        .collect();
    Match::from_manifest_rules(&rules).map_err(|error| {
        LoadError::Rules(format!(
            "the rules of the plugin's `describe` are not valid: {error}"
        ))
    })
}

/// Reads a file up to a size, whatever its size is said to be.
fn read(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, LoadError> {
    let failed = |error| LoadError::Read {
        path: path.to_owned(),
        error,
    };
    let mut bytes = Vec::new();
    File::open(path)
        .map_err(failed)?
        .take(limit_bytes + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > limit_bytes {
        return Err(LoadError::TooLarge {
            path: path.to_owned(),
            limit_bytes,
        });
    }
    Ok(bytes)
}
