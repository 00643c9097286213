//! The parts of a [`Gate`](crate::Gate), for Tollgate's own programs. The module is not stable.
//!
//! `tollgate serve` puts the engine and the loader under a reconciler, and `tollgate test` puts several plugin sets into
//! one engine. A [`Gate`](crate::Gate) has one fixed set.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use rustix::fs::Access;
use tempfile::TempDir;
use tollgate_admission::access::Authorizer;
use tollgate_admission::images::{ImageVerifier, PullSecrets};
use tollgate_admission::namespaces::Namespaces;
use tollgate_admission::{Body, Call, Endpoint, Reply};
use tollgate_config::{Config, EngineConfig, Limits, Requests};
use tollgate_engine::{Engine, EngineSettings, Tier};
use tollgate_gate::decision::Decision;
use tollgate_gate::pipeline::outcome::{Outcome, Report};
use tollgate_gate::pipeline::{Examined, Pipeline};
use tollgate_gate::plugin::{Loader, PluginSet};
use tollgate_lookups::Tables;
use tollgate_telemetry::metrics::Metrics;

use crate::error::{BuildError, FolderError, ReviewError};
use crate::preparer::Preparer;

/// The number of bytes that the server keeps of a body larger than `requests.maxBody`.
const HEAD_BYTES: usize = 64 * 1024;

/// An engine, a loader, and the folder for their compiled code.
pub struct Setup {
    /// The engine that plugins run in.
    pub engine: Engine,
    /// Loads plugins into the engine.
    pub loader: Loader,
    /// The metrics of the engine, the loader and the plugins.
    pub metrics: Arc<Metrics>,
    _cache: Option<TempDir>,
}

/// Choices for a [`Setup`] that are not in the configuration.
#[derive(Default)]
pub struct Options<'a> {
    /// The program that prepares plugins.
    pub preparer: Preparer,
    /// Limits of plugins that are not in the configuration and must have room too.
    pub others: &'a [Limits],
    /// The limits that the engine's pool is laid out for. By default, the largest limits of any plugin.
    pub layout: Option<Limits>,
    /// How code is compiled.
    pub tier: Tier,
    /// Whether calls may be given the answers of earlier calls, as far as `engine.answerCache` has room. By default, every
    /// call runs.
    pub reuses_answers: bool,
    /// The metrics to use. By default, new ones.
    pub metrics: Option<Arc<Metrics>>,
    /// Where the host looks up namespaces. By default, nowhere: plugins that need one have a fault.
    pub namespaces: Option<Arc<dyn Namespaces>>,
    /// Where the objects of lookups come from. By default, nowhere: lookups answer `not-synchronised`.
    pub tables: Option<Arc<dyn Tables>>,
    /// Who says what users may do. By default, nobody: every question is `unavailable`.
    pub authorizer: Option<Arc<dyn Authorizer>>,
    /// Who verifies images. By default, the registries that each plugin's configuration names.
    pub images: Option<Arc<dyn ImageVerifier>>,
    /// Who reads the `imagePullSecrets` of Pods. By default, nobody: images that need them are `unavailable`.
    pub pull_secrets: Option<Arc<dyn PullSecrets>>,
}

/// A folder that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folder {
    /// The folder exists.
    Exists,
    /// The folder does not exist. [`Setup::new`] creates it.
    Missing {
        /// Whether the folder that it will be in belongs to this user.
        is_own: bool,
    },
}

/// A review for one endpoint, with its circumstances.
pub struct Question {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// The plugin that the path names, if it names one.
    pub plugin: Option<String>,
    /// The AdmissionReview.
    pub body: Bytes,
    /// When the review came, for the time that it takes.
    pub received: Instant,
    /// When the answer must be ready.
    pub deadline: Instant,
    /// The time that plugins may read. None means the pipeline's own clock.
    pub now: Option<SystemTime>,
}

/// Everything that is known about one review at one endpoint.
pub struct Examination {
    /// The AdmissionReview that the server would answer with.
    pub response: Bytes,
    /// The record of the decision.
    pub decision: Decision,
    /// The merged outcome.
    pub outcome: Outcome,
    /// The plugins' reports.
    pub reports: Vec<Report>,
    /// The reports of plugins in mode audit, which do not affect the answer.
    pub audits: Vec<Report>,
}

// === impl Setup ===

impl Setup {
    /// Sets up the engine and the loader of a configuration, and makes its folders private.
    ///
    /// # Errors
    /// When the program for preparing plugins is not known, a folder cannot be used, or the engine cannot reserve its
    /// address space.
    pub fn new(config: &Config, options: &Options<'_>) -> Result<Self, BuildError> {
        let executable = options.preparer.path()?;
        let (cache_directory, cache) = cache_directory(config.engine.cache_directory.as_deref())?;
        let layout = options.layout.clone();
        let engine = Engine::new(&EngineSettings {
            max_concurrent_calls: config.engine.max_concurrent_calls,
            max_wasm_stack_bytes: config.engine.max_wasm_stack_bytes,
            largest: layout.unwrap_or_else(|| largest(config, options.others)),
            tier: options.tier,
            kept_instances: config.engine.kept_instances,
        })
        .map_err(|error| BuildError::Engine(format!("{error:#}")))?;
        let metrics = options.metrics.clone().unwrap_or_else(Metrics::new);
        let engine = engine.with_max_memory(
            max_memory_bytes(config, options.others),
            metrics.call_memory_bytes.clone(),
        );
        let engine = match &options.namespaces {
            Some(namespaces) => engine.with_namespaces(namespaces.clone()),
            None => engine,
        };
        let engine = match &options.tables {
            Some(tables) => engine.with_tables(tables.clone()),
            None => engine,
        };
        let engine = match &options.authorizer {
            Some(authorizer) => engine.with_authorizer(authorizer.clone()),
            None => engine,
        };
        let engine = match &options.images {
            Some(images) => engine.with_images(images.clone()),
            None => engine,
        };
        let engine = match &config.tenancy {
            Some(tenancy) => engine.with_tenants(tenancy.budget),
            None => engine,
        };
        let engine = match options.reuses_answers {
            true => engine.with_answer_cache(config.engine.answer_cache_bytes),
            false => engine,
        };
        let loader = Loader::new(
            engine.clone(),
            executable,
            config.engine.clone(),
            cache_directory,
            metrics.clone(),
        );
        if let Some(path) = &config.registries.cache_directory {
            make_private(path).map_err(|source| BuildError::Folder {
                setting: "registries.cacheDirectory",
                purpose: "pulled plugins",
                path: path.clone(),
                source,
            })?;
        }
        let loader =
            loader.with_registries(config.registries.clone(), options.pull_secrets.clone());
        Ok(Self {
            engine,
            loader,
            metrics,
            _cache: cache,
        })
    }

    /// Creates a pipeline for a set of plugins.
    #[must_use]
    pub fn pipeline(
        &self,
        plugins: PluginSet,
        requests: &Requests,
        engine: &EngineConfig,
    ) -> Pipeline {
        Pipeline::new(
            self.engine.clone(),
            plugins,
            self.metrics.clone(),
            requests.max_depth,
            engine.max_concurrent_calls as usize,
        )
        .with_room(requests.max_decoded_bytes)
    }
}

/// Sends a review through one endpoint of a pipeline.
///
/// # Errors
/// When the review has no answer.
pub async fn examine(
    pipeline: &Pipeline,
    max_body_bytes: u64,
    endpoint: Endpoint,
    body: Bytes,
    received: Instant,
    deadline: Instant,
) -> Result<Examination, ReviewError> {
    let question = Question {
        endpoint,
        plugin: None,
        body,
        received,
        deadline,
        now: None,
    };
    ask(pipeline, max_body_bytes, question).await
}

/// Sends a review through one endpoint of a pipeline, as [`examine`] does.
///
/// # Errors
/// When the review has no answer.
pub async fn ask(
    pipeline: &Pipeline,
    max_body_bytes: u64,
    question: Question,
) -> Result<Examination, ReviewError> {
    let body = question.body;
    let body = if body.len() as u64 > max_body_bytes {
        Body::TooLarge {
            head: body.slice(..body.len().min(HEAD_BYTES)),
            limit_bytes: max_body_bytes,
        }
    } else {
        Body::Whole(body)
    };
    let call = Call {
        endpoint: question.endpoint,
        plugin: question.plugin,
        received: question.received,
        deadline: question.deadline,
        trace: None,
        body,
    };
    let examined = match question.now {
        Some(now) => pipeline.examine_at(call, now).await,
        None => pipeline.examine(call).await,
    };
    let Examined {
        reply,
        decision,
        outcome,
        reports,
        audits,
    } = examined;
    let response = match reply {
        Reply::Review(response) => response,
        Reply::Overloaded => return Err(ReviewError::Overloaded),
        Reply::Crowded => return Err(ReviewError::OutOfMemory),
        Reply::Starting => {
            return Err(ReviewError::Internal(
                "the plugins are not loaded yet".to_owned(),
            ));
        }
        Reply::BadRequest(text) => return Err(ReviewError::Malformed(text)),
        Reply::TooLarge(text) => return Err(ReviewError::TooLarge(text)),
        Reply::NotYet(text) | Reply::NoSuchPlugin(text) | Reply::Internal(text) => {
            return Err(ReviewError::Internal(text));
        }
    };
    let (Some(decision), Some(outcome)) = (decision, outcome) else {
        return Err(ReviewError::Internal(
            "got an answer without a decision; this is a bug, please report it".to_owned(),
        ));
    };
    Ok(Examination {
        response,
        decision,
        outcome,
        reports,
        audits,
    })
}

/// Checks whether a folder can be used, and whether [`Setup::new`] would have to create it. The check changes nothing.
///
/// # Errors
/// When the folder cannot be used, or does not exist and cannot be created.
pub fn check_folder(path: &Path) -> Result<Folder, FolderError> {
    match std::fs::metadata(path) {
        Ok(metadata) => check_private(&metadata).map(|()| Folder::Exists),
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
                .unwrap_or(Path::new("/"))
                .to_owned();
            if !above.is_dir() {
                return Err(FolderError::NoParent { above });
            }
            match rustix::fs::access(&above, Access::WRITE_OK | Access::EXEC_OK) {
                Ok(()) => Ok(Folder::Missing {
                    is_own: is_own(&std::fs::metadata(&above)?),
                }),
                Err(error) => Err(FolderError::NotCreatable {
                    above,
                    source: error.into(),
                }),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the largest limit of any plugin for each resource that the engine's pool counts.
fn largest(config: &Config, others: &[Limits]) -> Limits {
    let mut largest = Limits::default();
    let configured = config.plugins.iter().chain(&config.shadows);
    let configured = configured.map(|plugin| &plugin.limits);
    for limits in configured.chain(others).chain(of_tenants(config)) {
        largest.instances = largest.instances.max(limits.instances);
        largest.memories = largest.memories.max(limits.memories);
        largest.tables = largest.tables.max(limits.tables);
        largest.table_elements = largest.table_elements.max(limits.table_elements);
    }
    largest
}

/// The largest limits that a plugin of a namespace may have. Such plugins can come at any time.
fn of_tenants(config: &Config) -> Option<&Limits> {
    config.tenancy.as_ref().map(|tenancy| &tenancy.limits)
}

/// Returns the budget for the linear memories of all calls.
///
/// The budget has room for at least one call of every plugin, even if `engine.maxMemory` is smaller.
fn max_memory_bytes(config: &Config, others: &[Limits]) -> u64 {
    let configured = config.plugins.iter().chain(&config.shadows);
    let limits = configured.map(|plugin| &plugin.limits).chain(others);
    let limits = limits.chain(of_tenants(config));
    let largest = limits.map(|limits| limits.memory_bytes).max().unwrap_or(0);
    // The engine keeps an eighth of the budget for small calls.
    config
        .engine
        .max_memory_bytes
        .max(largest.saturating_mul(8).div_ceil(7))
}

/// Returns the configured folder after making it private, or else a temporary folder that is deleted with the setup.
fn cache_directory(configured: Option<&Path>) -> Result<(PathBuf, Option<TempDir>), BuildError> {
    match configured {
        Some(path) => {
            let private = make_private(path)
                .and_then(|()| std::path::absolute(path).map_err(FolderError::from));
            let path = private.map_err(|source| BuildError::Folder {
                setting: "engine.cacheDirectory",
                purpose: "compiled code",
                path: path.to_owned(),
                source,
            })?;
            Ok((path, None))
        }
        None => {
            let folder = tempfile::Builder::new().prefix("tollgate-code-").tempdir();
            let folder = folder.map_err(BuildError::TemporaryFolder)?;
            Ok((folder.path().to_owned(), Some(folder)))
        }
    }
}

/// Creates a folder for this user alone. The host runs the code in it as it is, so nobody else may write there.
fn make_private(path: &Path) -> Result<(), FolderError> {
    use std::os::unix::fs::DirBuilderExt as _;
    if !path.exists() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)?;
    }
    check_private(&std::fs::metadata(path)?)
}

fn is_own(folder: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    folder.uid() == rustix::process::geteuid().as_raw()
}

fn check_private(metadata: &Metadata) -> Result<(), FolderError> {
    use std::os::unix::fs::MetadataExt as _;
    if !metadata.is_dir() {
        return Err(FolderError::NotAFolder);
    }
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != own {
        return Err(FolderError::OtherOwner {
            owner: metadata.uid(),
            own,
        });
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(FolderError::Writable);
    }
    Ok(())
}
