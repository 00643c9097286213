//! Sets up the engine and the loader, for `serve` and for the commands that load plugins without a server.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use rustix::fs::Access;
use tempfile::TempDir;

use crate::config::{Config, Limits};
use crate::engine::{Engine, EngineSettings, Tier};
use crate::metrics::Metrics;
use crate::plugin::Loader;

/// An engine, a loader, and the folder for their compiled code.
pub(super) struct Host {
    pub(super) engine: Engine,
    pub(super) loader: Loader,
    pub(super) metrics: Arc<Metrics>,
    _cache: Option<TempDir>,
}

/// A cache folder that `serve` can use.
pub(super) enum Folder {
    There,
    /// The folder does not exist. `serve` creates it at startup.
    Missing,
}

// === impl Host ===

impl Host {
    pub(super) fn set_up(config: &Config) -> anyhow::Result<Self> {
        Self::with_room_for(config, &[])
    }

    /// Like `Host::set_up`, with room for plugins that have the given limits and are not in the configuration.
    pub(super) fn with_room_for(config: &Config, others: &[Limits]) -> anyhow::Result<Self> {
        let executable = this_program()?;
        let (cache_directory, cache) = cache_directory(config.engine.cache_directory.as_deref())?;
        let engine = Engine::new(&EngineSettings {
            max_concurrent_calls: config.engine.max_concurrent_calls,
            max_wasm_stack_bytes: config.engine.max_wasm_stack_bytes,
            largest: largest(config, others),
            tier: Tier::Serving,
        })
        .map_err(anyhow::Error::from)
        .context("cannot set up the engine")?;
        let metrics = Metrics::new();
        let engine = engine.with_max_memory(
            max_memory_bytes(config, others),
            metrics.call_memory_bytes.clone(),
        );
        let loader = Loader::new(
            engine.clone(),
            executable,
            config.engine.clone(),
            cache_directory,
            metrics.clone(),
        );
        if let Some(path) = &config.registries.cache_directory {
            make_private(path).with_context(|| {
                format!(
                    "cannot use {} for pulled plugins (registries.cacheDirectory)",
                    path.display()
                )
            })?;
        }
        let loader = loader.with_registries(config.registries.clone());
        Ok(Self {
            engine,
            loader,
            metrics,
            _cache: cache,
        })
    }
}

/// Checks whether a folder can be used, and whether `serve` would have to create it. The check changes nothing.
pub(super) fn judge_folder(path: &Path) -> anyhow::Result<Folder> {
    match std::fs::metadata(path) {
        Ok(metadata) => judge_private(&metadata).map(|()| Folder::There),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let above = path
                .ancestors()
                .skip(1)
                .map(|above| {
                    if above == Path::new("") {
                        Path::new(".")
                    } else {
                        above
                    }
                })
                .find(|above| above.exists())
                .unwrap_or(Path::new("/"));
            anyhow::ensure!(
                above.is_dir(),
                "it does not exist, and {} is not a folder",
                above.display()
            );
            rustix::fs::access(above, Access::WRITE_OK | Access::EXEC_OK).with_context(|| {
                format!(
                    "it does not exist, and this user may not create it in {}",
                    above.display()
                )
            })?;
            Ok(Folder::Missing)
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the largest limit of any plugin for each resource that the engine's pool counts.
fn largest(config: &Config, others: &[Limits]) -> Limits {
    let mut largest = Limits::default();
    let configured = config.plugins.iter().chain(&config.candidates);
    let configured = configured.map(|plugin| &plugin.limits);
    for limits in configured.chain(others) {
        largest.instances = largest.instances.max(limits.instances);
        largest.memories = largest.memories.max(limits.memories);
        largest.tables = largest.tables.max(limits.tables);
        largest.table_elements = largest.table_elements.max(limits.table_elements);
    }
    largest
}

/// Returns the budget for the linear memories of all calls.
///
/// The budget has room for at least one call of every plugin, even if `engine.maxMemory` is smaller.
fn max_memory_bytes(config: &Config, others: &[Limits]) -> u64 {
    let configured = config.plugins.iter().chain(&config.candidates);
    let limits = configured.map(|plugin| &plugin.limits).chain(others);
    let largest = limits.map(|limits| limits.memory_bytes).max().unwrap_or(0);
    // The engine keeps an eighth of the budget for small calls.
    config
        .engine
        .max_memory_bytes
        .max(largest.saturating_mul(8).div_ceil(7))
}

/// Returns the program to run for preparing a plugin: this very program, even if its file has been replaced since the
/// start.
fn this_program() -> anyhow::Result<PathBuf> {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() {
        return Ok(own);
    }
    std::env::current_exe().context("cannot find the path of this program")
}

/// Returns the configured folder after making it private, or else a temporary folder that is deleted with this process.
fn cache_directory(configured: Option<&Path>) -> anyhow::Result<(PathBuf, Option<TempDir>)> {
    match configured {
        Some(path) => {
            make_private(path).with_context(|| {
                format!(
                    "cannot use {} for compiled code (engine.cacheDirectory)",
                    path.display()
                )
            })?;
            Ok((std::path::absolute(path)?, None))
        }
        None => {
            let folder = tempfile::Builder::new().prefix("tollgate-code-").tempdir();
            let folder = folder.context(
                "cannot create a temporary folder for compiled code: set engine.cacheDirectory",
            )?;
            Ok((folder.path().to_owned(), Some(folder)))
        }
    }
}

/// Creates a folder for this user alone. The host runs the code in it as it is, so nobody else may write there.
fn make_private(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    if !path.exists() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)?;
    }
    judge_private(&std::fs::metadata(path)?)
}

fn judge_private(metadata: &Metadata) -> anyhow::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    anyhow::ensure!(metadata.is_dir(), "it is not a folder");
    let owner = rustix::process::geteuid().as_raw();
    anyhow::ensure!(
        metadata.uid() == owner,
        "it belongs to user {}, but Tollgate runs as user {owner}",
        metadata.uid()
    );
    anyhow::ensure!(
        metadata.mode() & 0o022 == 0,
        "other users may write to it: run `chmod go-w` on it"
    );
    Ok(())
}
