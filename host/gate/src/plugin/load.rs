//! Loads the configured plugins. A plugin that fails does not stop the others.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex, Semaphore, watch};
use tollgate_admission::chain;
use tollgate_admission::images::{ImageVerifier, PullSecrets};
use tollgate_config::{
    EngineConfig, Limits, ManifestRule, Match, PluginConfig, Problems, Registries,
    SignatureRequirement, Source,
};
use tollgate_engine::{ConfiguredBy, Engine, Guest, GuestError, Tier};
use tollgate_oci::{
    Hold, Images, Order, Pulled, Registry, RegistryError, Served, Start, TrustedRoots,
};
use tollgate_telemetry::metrics::Metrics;

use super::protocol::{self, Manifest};
use super::set::{LoadedPlugin, Plugin, PluginCode, PluginSet, PluginState};
use super::worker::{Known, PrepareError, Prepared, Worker};
use super::{images, lookups};
use tollgate_engine::Store;

/// Loads plugins into an engine.
pub struct Loader {
    engine: Engine,
    worker: Worker,
    config: EngineConfig,
    metrics: Arc<Metrics>,
    registry: Registry,
    /// Verifies images for plugins.
    images: Images,
    /// The number of plugins that are prepared now.
    preparing: watch::Sender<usize>,
    /// Lets one plugin at a time replace its interim code.
    finishing: Mutex<()>,
    /// Allows as many file reads at once as there are processors. A thread that has waited for a disk keeps its memory
    /// afterwards.
    reading: Semaphore,
}

/// Why a plugin could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{}", .path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The file is too large.
    #[error("{}: the file has more than {limit_bytes} bytes (engine.maxPlugin)", .path.display())]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
        /// Maximum size in bytes.
        limit_bytes: u64,
    },
    /// The plugin could not be pulled from its registry.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The keys of the images that the plugin may have verified cannot be used.
    #[error("images.policies")]
    Images(#[source] RegistryError),
    /// The registry gave no current answer, and a cached one must not replace the serving version.
    #[error("{0}")]
    Stale(String),
    /// A step took longer than the host waits.
    #[error("{what} took more than {} s", .limit.as_secs())]
    TooSlow {
        /// The step that took too long.
        what: &'static str,
        /// Time that the host waits for the step.
        limit: Duration,
    },
    /// The plugin could not be prepared.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// The prepared plugin cannot be linked in this process.
    #[error("link")]
    Link(#[from] GuestError),
    /// The thread that linked the plugin was lost.
    #[error("link: the thread that links the plugin failed")]
    Thread(#[from] tokio::task::JoinError),
    /// The last known good version may not be served under the current configuration.
    #[error("{0}")]
    NotToday(&'static str),
    /// Neither the plugin nor its configuration names rules.
    #[error(
        "the plugin's `describe` names no rules, and neither does the configuration: add `match.rules`"
    )]
    NoRules,
    /// The plugin's own rules are not valid.
    #[error("the rules of the plugin's `describe` are not valid")]
    Rules(#[source] Problems),
    /// The plugin's limits exceed the engine's layout, which was fixed when the host started.
    #[error(
        "limits.{limit} is {wanted}, but the engine was set up for {had} when the host started: restart the host"
    )]
    Layout {
        /// Key under `limits`.
        limit: &'static str,
        /// Value that the plugin's configuration asks for.
        wanted: u32,
        /// Value that the engine was set up for.
        had: u32,
    },
}

/// The bytes of a plugin, not yet inspected.
pub(crate) struct Artifact {
    /// The bytes; `None` if the caller already has them.
    bytes: Option<Vec<u8>>,
    pub(crate) digest: Arc<str>,
    /// Why the registry may have a newer artifact by now.
    pub(crate) stale: Option<String>,
    /// Keeps the artifact in the cache of pulled artifacts.
    hold: Hold,
}

// === impl LoadError ===

impl LoadError {
    /// Whether the artifact does not meet the policy for its signatures.
    pub(crate) fn is_unsigned(&self) -> bool {
        matches!(
            self,
            Self::Registry(RegistryError::Unsigned { .. } | RegistryError::UnsignedInCache { .. })
        )
    }
}

// === impl Artifact ===

impl Artifact {
    /// An artifact that the caller already has.
    pub(crate) fn known(digest: Arc<str>, hold: Hold) -> Self {
        Self {
            bytes: None,
            digest,
            stale: None,
            hold,
        }
    }

    fn of(pulled: Pulled) -> Self {
        Self {
            bytes: pulled.bytes,
            digest: pulled.digest.into(),
            stale: pulled.stale,
            hold: pulled.hold,
        }
    }

    /// Whether the caller already has this artifact.
    pub(crate) fn is_known(&self) -> bool {
        self.bytes.is_none()
    }
}

const OTHER_PIN: &str = "its digest is not the one that `source` pins";
const UNSIGNED_FILE: &str =
    "it was a file without a signature, but the configuration now requires one (signatures)";
const NO_KEYS: &str = "it came from a registry, but `source` is a file now: the configuration no longer says how to verify \
     it";
/// Size limit for compiled code in a configured cache folder: some thousand plugins in Rust, or twenty in Python.
/// Without a configured folder, an eighth of it applies.
const KEPT_CODE_BYTES: u64 = 2 << 30;
/// Number of plugins that `load_all` loads at once; most of them wait for registries.
const PULLS: usize = 16;
/// Time that the host waits for the file system to read a plugin.
const READ_LIMIT: Duration = Duration::from_secs(30);

// === impl Loader ===

impl Loader {
    /// Creates a loader. `executable` is the `tollgate` binary, which the loader runs to prepare plugins.
    #[must_use]
    pub fn new(
        engine: Engine,
        executable: PathBuf,
        config: EngineConfig,
        cache_directory: PathBuf,
        metrics: Arc<Metrics>,
    ) -> Self {
        let kept_bytes = match config.cache_directory {
            Some(_) => KEPT_CODE_BYTES,
            None => KEPT_CODE_BYTES / 8,
        };
        let store = Store::new(&cache_directory, kept_bytes);
        let compatibility = engine.compatibility();
        let worker = Worker::new(executable, config.max_plugin_bytes, store, compatibility);
        let registry = Registry::new(Registries::default());
        let images = images::of(Registries::default(), registry.roots(), &metrics, None);
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            engine,
            worker,
            config,
            metrics,
            registry,
            images,
            preparing: watch::Sender::new(0),
            finishing: Mutex::new(()),
            reading: Semaphore::new(processors),
        }
    }

    /// Sets the configuration for registries, and who reads the credentials of Pods for them.
    #[must_use]
    pub fn with_registries(
        self,
        config: Registries,
        pull_secrets: Option<Arc<dyn PullSecrets>>,
    ) -> Self {
        let registry = Registry::new(config.clone());
        Self {
            images: images::of(config, registry.roots(), &self.metrics, pull_secrets),
            registry,
            ..self
        }
    }

    /// The trusted roots that come from TUF repositories.
    #[must_use]
    pub fn roots(&self) -> &Arc<TrustedRoots> {
        self.registry.roots()
    }

    /// Loads all plugins, up to 16 at once. A plugin that fails is in the set as failed.
    pub async fn load_all(&self, configs: Vec<PluginConfig>) -> PluginSet {
        let plugins = futures_util::stream::iter(configs)
            .map(|config| self.load(config))
            .buffered(PULLS);
        PluginSet::new(plugins.map(Arc::new).collect().await)
    }

    /// Loads one plugin without creating its metrics.
    ///
    /// # Errors
    /// When the plugin cannot be loaded.
    pub async fn check(&self, config: &PluginConfig) -> Result<LoadedPlugin, LoadError> {
        let artifact = self.fetch(config, None).await?;
        self.prepare(config, artifact).await
    }

    /// Loads one plugin. If loading fails, the plugin's state says why.
    pub async fn load(&self, config: PluginConfig) -> Plugin {
        if !config.enabled {
            return self.plugin(config, None, PluginState::Disabled);
        }
        let mut digest: Option<Arc<str>> = None;
        let loaded = async {
            let artifact = self.fetch(&config, None).await?;
            digest = Some(artifact.digest.clone());
            self.prepare(&config, artifact).await
        };
        let state = match loaded.await {
            Ok(loaded) => PluginState::Loaded(Box::new(loaded)),
            Err(error) => {
                let reason = chain(&error);
                let digest = digest.as_deref().unwrap_or_default();
                tracing::error!(plugin = config.name.as_str(), %digest, failure_policy = config.failure_policy.as_str(), reason, "plugin not loaded");
                PluginState::Failed { reason }
            }
        };
        self.plugin(config, digest, state)
    }

    /// Creates a plugin from loaded code and a configuration.
    pub(crate) fn plugin_of(
        &self,
        config: PluginConfig,
        digest: Arc<str>,
        code: &PluginCode,
    ) -> Result<Plugin, LoadError> {
        let loaded = code.under(&config)?;
        let state = PluginState::Loaded(Box::new(loaded));
        Ok(self.plugin(config, Some(digest), state))
    }

    pub(crate) fn plugin(
        &self,
        config: PluginConfig,
        digest: Option<Arc<str>>,
        state: PluginState,
    ) -> Plugin {
        if let PluginState::Loaded(loaded) = &state {
            warn_of_rules(&config, &loaded.matching);
        }
        let metrics = self.metrics.plugin(config.name.as_str());
        Plugin {
            config,
            digest,
            state,
            metrics,
            group: None,
        }
    }

    /// Checks that the engine, as it was set up, has room for a plugin's limits.
    pub(crate) fn has_room_for(&self, limits: &Limits) -> Result<(), LoadError> {
        match self.engine.lacks(limits) {
            Some((limit, wanted, had)) => Err(LoadError::Layout { limit, wanted, had }),
            None => Ok(()),
        }
    }

    /// Fetches a plugin's bytes from its source. `have` is the digest that the caller already has; a registry sends the
    /// bytes only if its digest differs.
    pub(crate) async fn fetch(
        &self,
        config: &PluginConfig,
        have: Option<&str>,
    ) -> Result<Artifact, LoadError> {
        self.fetch_within(config, have, None).await
    }

    /// Reads an artifact from the cache by an earlier digest. Returns `None` if the cache lacks a part of it, or if it
    /// is not signed as required.
    pub(crate) fn at_hand(&self, config: &PluginConfig, digest: &Arc<str>) -> Option<Artifact> {
        let Source::Oci(reference) = &config.source else {
            return None;
        };
        let order = Order {
            reference,
            signatures: &config.signatures,
            have: None,
            limit_bytes: self.config.max_plugin_bytes,
        };
        // Ignore errors about keys: the next pull from the registry reports them.
        let (bytes, hold) = self.registry.at_hand(order, digest).ok()??;
        Some(Artifact {
            bytes: Some(bytes),
            ..Artifact::known(digest.clone(), hold)
        })
    }

    /// Fetches a plugin's bytes like `fetch`. During a start, `start` knows which registries have timed out already,
    /// and whether another version can serve meanwhile.
    pub(crate) async fn fetch_within(
        &self,
        config: &PluginConfig,
        have: Option<&str>,
        start: Option<Start<'_>>,
    ) -> Result<Artifact, LoadError> {
        let limit_bytes = self.config.max_plugin_bytes;
        match &config.source {
            Source::File(path) => {
                let path = path.clone();
                let hold = self.registry.hold();
                let read = move || -> Result<Artifact, LoadError> {
                    let bytes = read(&path, limit_bytes)?;
                    let digest = format!("sha256:{:x}", Sha256::digest(&bytes)).into();
                    Ok(Artifact {
                        bytes: Some(bytes),
                        digest,
                        stale: None,
                        hold,
                    })
                };
                // The semaphore is never closed.
                let _turn = self.reading.acquire().await;
                let reading = tokio::task::spawn_blocking(read);
                match tokio::time::timeout(READ_LIMIT, reading).await {
                    Ok(read) => read?,
                    Err(_elapsed) => Err(LoadError::TooSlow {
                        what: "reading the file",
                        limit: READ_LIMIT,
                    }),
                }
            }
            Source::Oci(reference) => {
                let order = Order {
                    reference,
                    signatures: &config.signatures,
                    have,
                    limit_bytes,
                };
                let pulled = match start {
                    None => self.registry.pull(order).await?,
                    Some(start) => self.registry.pull_at_start(order, start).await?,
                };
                if let Some(reason) = &pulled.stale {
                    tracing::warn!(
                        %reference,
                        digest = pulled.digest,
                        reason,
                        "registry did not provide the plugin; using the cached version"
                    );
                }
                Ok(Artifact::of(pulled))
            }
        }
    }

    /// Asks a plugin to describe itself, without configuring or loading it.
    ///
    /// # Errors
    /// When the bytes are not a plugin, or the plugin fails to describe itself.
    pub async fn describe(
        &self,
        config: &PluginConfig,
        bytes: &[u8],
    ) -> Result<Manifest, LoadError> {
        Ok(self.worker.describe(self.order(config), bytes).await?)
    }

    fn order(&self, config: &PluginConfig) -> protocol::Order {
        protocol::Order {
            plugin: config.name.entry().to_owned(),
            limits: config.limits.clone(),
            capabilities: config.capabilities.clone(),
            max_wasm_stack_bytes: self.config.max_wasm_stack_bytes,
            tier: self.engine.tier(),
            keeps_instances: self.engine.keeps_instances(),
            once: Tier::Baseline,
            cpu_seconds: self.config.load_timeout.as_secs().max(1),
            memory_bytes: self.config.load_memory_bytes,
            code_bytes: 0,
            max_code_bytes: 0,
            task: protocol::Task::Describe,
        }
    }

    /// Loads the last known good version, under the configuration entry that it served under.
    ///
    /// Keys, pins and capabilities that have been withdrawn since then stay withdrawn, and today's lookups apply.
    pub(crate) async fn recall(
        &self,
        before: &PluginConfig,
        today: &PluginConfig,
        served: Served,
        start: Start<'_>,
    ) -> Result<(PluginConfig, Arc<str>, PluginCode), LoadError> {
        let granted = served.capabilities.intersection(&today.capabilities);
        let config = PluginConfig {
            capabilities: granted.copied().collect(),
            access: today.access,
            images: today.images.clone(),
            lookups: today.lookups.clone(),
            signatures: today.signatures.clone(),
            source: served.source,
            settings: served.settings,
            limits: served.limits,
            ..before.clone()
        };
        self.has_room_for(&config.limits)?;
        let limit_bytes = self.config.max_plugin_bytes;
        let pin = match &today.source {
            Source::Oci(reference) => reference.digest.as_deref(),
            Source::File(_) => None,
        };
        if pin.is_some_and(|pin| *pin != served.digest) {
            return Err(LoadError::NotToday(OTHER_PIN));
        }
        let (bytes, hold) = match (&config.source, &today.source) {
            (Source::File(_), _)
                if today.signature_requirement() == SignatureRequirement::Nothing =>
            {
                self.registry.kept(&served.digest, limit_bytes)?
            }
            (Source::File(_), _) => return Err(LoadError::NotToday(UNSIGNED_FILE)),
            (Source::Oci(_), Source::File(_)) => return Err(LoadError::NotToday(NO_KEYS)),
            (Source::Oci(reference), Source::Oci(_)) => {
                let order = Order {
                    reference,
                    signatures: &config.signatures,
                    have: None,
                    limit_bytes,
                };
                self.registry.recall(order, &served.digest, start).await?
            }
        };
        let digest: Arc<str> = served.digest.into();
        let artifact = Artifact {
            bytes: Some(bytes),
            digest: digest.clone(),
            stale: None,
            hold,
        };
        let code = self.prepare_code(&config, artifact, true).await?;
        code.under(&config)?;
        Ok((config, digest, code))
    }

    /// The digests of the artifacts that are needed to serve this version again.
    pub(crate) fn needs(&self, served: &Served) -> Vec<String> {
        self.registry.needs(served)
    }

    /// Brings the artifact cache back within its size limit. Call this after the serving versions have been written to
    /// disk, so that artifacts of removed plugins can go.
    pub(crate) fn tidy(&self) {
        self.registry.tidy();
    }

    /// Turns the bytes into a plugin that can be called.
    async fn prepare(
        &self,
        config: &PluginConfig,
        artifact: Artifact,
    ) -> Result<LoadedPlugin, LoadError> {
        let code = self.prepare_code(config, artifact, false).await?;
        code.under(config)
    }

    /// Turns the bytes into code that can be called, independent of the plugin's rules. With `may_be_interim`, the caller
    /// has the code [finished](Self::finish).
    pub(crate) async fn prepare_code(
        &self,
        config: &PluginConfig,
        artifact: Artifact,
        may_be_interim: bool,
    ) -> Result<PluginCode, LoadError> {
        let began = std::time::Instant::now();
        let Artifact {
            bytes,
            digest,
            hold,
            ..
        } = artifact;
        let bytes = bytes.unwrap_or_default();
        let settings = config.settings.to_string();
        let preparing = Preparing::begin(&self.preparing);
        let prepared = self
            .worker
            .prepare(self.order(config), settings.clone(), &bytes, may_be_interim)
            .await?;
        drop(preparing);
        let Prepared {
            known: Known { manifest, fallback },
            code,
            keeping,
            unfinished,
        } = prepared;
        let is_interim = unfinished.is_some();
        let configured = match fallback {
            None => ConfiguredBy::Snapshot,
            Some(reason) => ConfiguredBy::EachCall { settings, reason },
        };
        let (engine, name, limits) = (
            self.engine.clone(),
            config.name.clone(),
            Arc::new(config.limits.clone()),
        );
        let (capabilities, lookups) = (config.capabilities.clone(), config.lookups.clone());
        let (access, granted, images) = (config.access, config.images.clone(), self.images.clone());
        if let Some(granted) = &granted {
            self.registry.ready_roots(granted.tuf_sources()).await;
        }
        let link = move || {
            let engine = match is_interim {
                true => engine.interim().map_err(GuestError::Code)?,
                false => engine,
            };
            let bound = granted.as_ref().map(|granted| images.of(granted));
            let bound = bound.transpose().map_err(LoadError::Images)?;
            let verifier = bound.map(|bound| Arc::new(bound) as Arc<dyn ImageVerifier>);
            let guest = Guest::link_code(&engine, name, &code, configured, capabilities, limits)?;
            Ok::<_, LoadError>(
                guest
                    .with_lookups(&engine, &lookups)
                    .with_access(access)
                    .with_images(granted, verifier),
            )
        };
        let (guest, ()) = tokio::join!(tokio::task::spawn_blocking(link), keeping.end());
        let guest = guest??;
        let name = config.name.as_str();
        if let Some(reason) = lookups::wait(|| guest.lookups().waits_for()).await {
            tracing::warn!(plugin = name, %reason, "serving the plugin without the objects of its lookups");
        }
        let version = manifest.version.as_str();
        tracing::info!(plugin = name, %digest, version, milliseconds = began.elapsed().as_millis(), is_interim, "plugin loaded");
        if let ConfiguredBy::EachCall { reason, .. } = guest.configured() {
            tracing::warn!(
                plugin = name,
                reason,
                "no snapshot: the plugin is configured again in every call"
            );
        }
        if let Source::File(_) = &config.source {
            self.registry.keep(&hold, &digest, &bytes);
        }
        Ok(PluginCode {
            guest: Arc::new(guest),
            manifest,
            unfinished: unfinished.into(),
            _hold: hold,
        })
    }

    /// Replaces the interim code of a plugin by optimised code, when no plugin is being prepared. The plugin keeps its
    /// interim code if that fails.
    pub(crate) async fn finish(&self, code: Weak<PluginCode>) {
        let _turn = self.finishing.lock().await;
        let mut preparing = self.preparing.subscribe();
        // The sender lives as long as this loader.
        drop(preparing.wait_for(|plugins| *plugins == 0).await);
        let Some(code) = code.upgrade() else {
            return;
        };
        // The memory of the component goes at the end.
        let unfinished = {
            let mut left = code
                .unfinished
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            left.take()
        };
        let Some(unfinished) = unfinished else {
            return;
        };
        let began = std::time::Instant::now();
        let finished = async {
            let compiled = self.worker.finish(&unfinished).await?;
            let (engine, guest) = (self.engine.clone(), code.guest.clone());
            let link = move || guest.finish(&engine, &compiled);
            Ok::<_, LoadError>(tokio::task::spawn_blocking(link).await??)
        };
        let plugin = unfinished.plugin();
        match finished.await {
            Ok(()) => tracing::info!(
                plugin,
                milliseconds = began.elapsed().as_millis(),
                "optimised code in use"
            ),
            Err(error) => tracing::warn!(
                plugin,
                reason = chain(&error),
                "the plugin's code could not be optimised: it goes on with interim code, which is slower"
            ),
        }
    }
}

/// Counts a plugin that is being prepared.
struct Preparing<'l>(&'l watch::Sender<usize>);

// === impl Preparing ===

impl<'l> Preparing<'l> {
    fn begin(count: &'l watch::Sender<usize>) -> Self {
        count.send_modify(|plugins| *plugins += 1);
        Self(count)
    }
}

impl Drop for Preparing<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|plugins| *plugins -= 1);
    }
}

// === impl PluginCode ===

impl PluginCode {
    /// Combines the code with a configuration.
    ///
    /// # Errors
    /// When neither the configuration nor the manifest has rules.
    pub(crate) fn under(&self, config: &PluginConfig) -> Result<LoadedPlugin, LoadError> {
        Ok(LoadedPlugin {
            matching: matching(config, &self.manifest)?,
            guest: Some(self.guest.clone()),
            manifest: self.manifest.clone(),
        })
    }

    /// Checks that the plugin would have rules under a configuration.
    ///
    /// # Errors
    /// When neither the configuration nor the manifest has rules.
    pub(crate) fn has_rules(&self, config: &PluginConfig) -> Result<(), LoadError> {
        matching(config, &self.manifest).map(drop)
    }
}

/// The plugin's rules: those of the configuration, or else those of the manifest.
fn matching(config: &PluginConfig, manifest: &Manifest) -> Result<Match, LoadError> {
    match &config.matching {
        Some(matching) => Ok(matching.clone()),
        None => matching_of(&manifest.rules),
    }
}

fn matching_of(rules: &[super::protocol::ManifestRule]) -> Result<Match, LoadError> {
    if rules.is_empty() {
        return Err(LoadError::NoRules);
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
    Match::from_manifest_rules(&rules).map_err(LoadError::Rules)
}

/// Warns about rules that match nothing that Kubernetes has, as far as Tollgate knows. Such rules protect nothing.
fn warn_of_rules(config: &PluginConfig, matching: &Match) {
    for finding in tollgate_config::kubernetes::check_rules(matching, config.matching.is_some()) {
        tracing::warn!(
            plugin = config.name.as_str(),
            rule = finding.place,
            reason = finding.text,
            "rule matches nothing"
        );
    }
}

/// Reads a file up to a size limit, without trusting the size that the file system reports.
fn read(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, LoadError> {
    let failed = |source| LoadError::Read {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    tollgate_config::file::open(path)
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
