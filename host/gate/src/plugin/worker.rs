//! The host's side of preparing a plugin: starts children, reads their results, and survives the loss of any child.
//!
//! ```text
//! stored? ── yes ─────────────────────────────────────────────▶ code
//!    │ no
//!    ▼
//! a child that separates the contents of memories, if the plugin is large (`worker/sharing`)
//!    │
//!    ▼
//! a child with the baseline compiler ──▶ code for one run (stored, for all settings)
//!    │
//!    ▼
//! a child that runs guest code ──▶ component ──▶ a child that compiles ──▶ code
//!    ▲                           and memories       │ refused, or lost over the snapshot
//!    └───────────── with less rewriting ◀───────────┘
//! ```
//!
//! The last child does not run if the host has code of the same component with other contents of its memories. If a
//! plugin is large and nothing serves in its place, that child compiles without optimising first, and another child
//! compiles the code that replaces this interim code (`worker/interim`).

mod child;
mod interim;
mod pace;
mod sharing;
mod turns;

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::OwnedMutexGuard;

use child::{Child, ChildResult};
pub(super) use interim::Unfinished;
use pace::{Lanes, Pace};
use turns::Turns;

use super::protocol::{Manifest, Order, Rewriting, Stage, Task};
use tollgate_component::Separated;
use tollgate_config::Capability;
use tollgate_engine::{Code, Key, Store, Tier};

/// Factor by which the wall-clock limit exceeds the CPU limit. The child is niced, and the machine may be busy.
const WALL_FACTOR: u32 = 4;
/// Time after which the host ends a child that neither says anything nor uses the processor, at any stage. A child ends
/// the plugin's own code much sooner itself.
const MAX_STANDSTILL: Duration = Duration::from_secs(10);
/// Smaller components are compiled with optimising in a few hundred milliseconds.
const MIN_INTERIM_BYTES: usize = 512 << 10;
/// Maximum size of the prepared component, as a multiple of the maximum size of a plugin's file.
const COMPONENT_FACTOR: u64 = 4;
/// Maximum size of machine code, as a multiple of the maximum size of a component.
const CODE_FACTOR: u64 = 4;
/// Maximum size of the unoptimised code that one child makes and the host hands to another, as a multiple of the size of
/// the plugin. Usual plugins have 5 to 15 times their size. The host stores and carries the code, which must stay cheap.
const ONCE_FACTOR: u64 = 24;
/// Unoptimised code up to this size is handed over for small plugins, too, in bytes.
const MIN_ONCE_BYTES: u64 = 4 << 20;
/// The compilers for the code that runs once, in the order in which they are tried. The first one is fast and does not
/// support all features of WebAssembly.
const ONCE: [Tier; 2] = [Tier::Baseline, Tier::Once];

/// Starts children that prepare plugins.
#[derive(Debug)]
pub(super) struct Worker {
    /// Path of the `tollgate` binary.
    executable: PathBuf,
    max_component_bytes: u64,
    max_standstill: Duration,
    /// Size of a component from which interim code is worth its compilation, in bytes, without the contents of memories.
    min_interim_bytes: usize,
    processors: usize,
    lanes: Lanes,
    /// Compilations that other plugins with the same bytes wait for.
    compiling: Turns<Key>,
    store: Arc<Store>,
    /// Identity of this program and its engine. Stored code is reused only for the same identity. `None` if it is
    /// unknown: then nothing is stored or reused.
    host: Option<Vec<u8>>,
    logged_missing: AtomicBool,
}

/// A plugin that has passed all stages.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) known: Known,
    pub(super) code: Code,
    /// What is left to do if the code is interim code.
    pub(super) unfinished: Option<Box<Unfinished>>,
}

/// The facts about a plugin that are stored with its code.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Known {
    pub(super) manifest: Manifest,
    /// The reason why there is no snapshot.
    pub(super) fallback: Option<String>,
}

/// The bytes of a plugin, hashed once.
struct Plugin<'b> {
    bytes: &'b [u8],
    digest: [u8; 32],
}

/// Code for the child that configures a plugin.
struct Once {
    /// `None` if the code is too large to be handed over. That child then compiles the plugin itself.
    code: Option<Code>,
    /// The compiler that made the code.
    tier: Tier,
    /// The reason why the code lacks the instrumentation that takes a snapshot.
    uninstrumented: Option<String>,
}

/// Why a plugin could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The child refused the plugin.
    #[error("{stage}: {reason}")]
    Refused {
        /// Stage in which the plugin failed.
        stage: Stage,
        /// The reason for the refusal.
        reason: String,
    },
    /// Preparing the plugin took too long.
    #[error(
        "{stage}: took more than {} s of CPU time, or {} s by the clock (engine.loadTimeout)",
        .limit.as_secs(), (*.limit * WALL_FACTOR).as_secs()
    )]
    TooSlow {
        /// Stage of the child.
        stage: Stage,
        /// Limit of CPU time.
        limit: Duration,
    },
    /// The child neither said anything nor used the processor.
    #[error(
        "{stage}: the process that prepares the plugin was idle for {} s and was killed; if this happens again, \
         report it together with the plugin", .limit.as_secs()
    )]
    Standstill {
        /// Stage of the child.
        stage: Stage,
        /// Time for which a child may do nothing.
        limit: Duration,
    },
    /// The child ended early: it lacked memory, the system killed it, or it panicked.
    #[error(
        "{stage}: the process that prepares the plugin ended with {status}; its memory limit is {memory_bytes} bytes \
         (engine.loadMemory){}", Tail(.stderr)
    )]
    Lost {
        /// Stage of the child.
        stage: Stage,
        /// Exit status of the child.
        status: ExitStatus,
        /// Memory limit of the child, in bytes.
        memory_bytes: u64,
        /// The beginning of the child's standard error.
        stderr: String,
    },
    /// The child's result is too large.
    #[error(
        "the {what} has {bytes} bytes; the limit is {limit_bytes} ({factor} × engine.maxPlugin)"
    )]
    TooLarge {
        /// The kind of result: component or code.
        what: &'static str,
        /// Size of the result, in bytes.
        bytes: u64,
        /// Maximum size, in bytes.
        limit_bytes: u64,
        /// The limit as a multiple of `engine.maxPlugin`.
        factor: u64,
    },
    /// The host could not start the child, read from it, or write its code.
    #[error("failed to run the process that prepares the plugin")]
    Process(#[from] std::io::Error),
    /// The child violated the protocol.
    #[error("the process that prepares the plugin violated its protocol")]
    Protocol(#[source] ProtocolError),
    /// The host is shutting down.
    #[error("the host is shutting down")]
    Ending,
}

/// How a child violated the protocol.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The child has no standard input, output or error.
    #[error("the pipes are missing")]
    NoPipes,
    /// The order or a line of the child is not JSON of the protocol.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A line of the child is too long.
    #[error("a line of more than {limit_bytes} bytes")]
    LongLine {
        /// Maximum length in bytes.
        limit_bytes: u64,
    },
    /// The child sent code although it was to send a component.
    #[error("compiled code instead of a component")]
    Code,
    /// The child sent a component although it was to send code.
    #[error("a component instead of compiled code")]
    Component,
    /// The child sent too many images of memories.
    #[error("more than {limit} images of memories")]
    Images {
        /// Maximum number of images.
        limit: usize,
    },
    /// The child did not send one place for each image.
    #[error("{places} places in the code for {images} images of memories")]
    Places {
        /// Number of places in the code.
        places: usize,
        /// Number of images.
        images: usize,
    },
}

struct Tail<'a>(&'a str);

// === impl Plugin ===

impl<'b> Plugin<'b> {
    fn new(bytes: &'b [u8]) -> Self {
        Self {
            bytes,
            digest: Sha256::digest(bytes).into(),
        }
    }
}

// === impl Once ===

impl Once {
    fn new(code: Code, tier: Tier, uninstrumented: Option<String>) -> Result<Self, PrepareError> {
        let is_handed_over = code.bytes()? > 0;
        Ok(Self {
            code: is_handed_over.then_some(code),
            tier,
            uninstrumented,
        })
    }
}

// === impl Worker ===

impl Worker {
    /// Creates a worker that keeps code in `store`. `compatibility` identifies the engines that can run the code.
    pub(super) fn new(
        executable: PathBuf,
        max_plugin_bytes: u64,
        store: Store,
        compatibility: [u8; 32],
    ) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let host = identity(&executable).map(|program| [&program[..], &compatibility].concat());
        Self {
            executable,
            max_component_bytes: max_plugin_bytes.saturating_mul(COMPONENT_FACTOR),
            max_standstill: MAX_STANDSTILL,
            min_interim_bytes: MIN_INTERIM_BYTES,
            processors,
            lanes: Lanes::new(processors),
            compiling: Turns::default(),
            store: Arc::new(store),
            host,
            logged_missing: AtomicBool::new(false),
        }
    }

    /// Asks a plugin to describe itself, without configuring it or compiling it for serving.
    pub(super) async fn describe(
        &self,
        mut order: Order,
        bytes: &[u8],
    ) -> Result<Manifest, PrepareError> {
        let plugin = Plugin::new(bytes);
        let turn = self.turn(&order, &plugin, false).await;
        let mut pace = self.lanes.enter().await;
        let once = self
            .compiled_once(&order, &plugin, false, &mut pace)
            .await?;
        drop(turn);
        order.task = Task::Describe;
        order.once = once.tier;
        let (known, _component) = self.configured(&order, once.code, bytes, &mut pace).await?;
        Ok(known.manifest)
    }

    /// Prepares a plugin. If a child is lost over the snapshot, the worker does without a snapshot. With `may_be_interim`,
    /// the code can be interim code, and the caller has it [finished](Self::finish).
    pub(super) async fn prepare(
        &self,
        mut order: Order,
        settings: String,
        bytes: &[u8],
        may_be_interim: bool,
    ) -> Result<Prepared, PrepareError> {
        let mut rewriting = Rewriting::Trimmed;
        let task = |rewriting| Task::Configure {
            settings: settings.clone(),
            rewriting,
        };
        let plugin = Plugin::new(bytes);
        order.task = task(rewriting.clone());
        // A plugin that can read the time may give another result tomorrow, so do not store it. No plugin can read the
        // cluster while it is prepared.
        let key = match order.capabilities.contains(&Capability::Clock) {
            true => None,
            false => self.key(&order, &plugin.digest),
        };
        if let Some((known, code)) = self.recall(key.as_ref()).await? {
            return Ok(Prepared {
                known,
                code,
                unfinished: None,
            });
        }
        // Wait before taking a place: other plugins need the place meanwhile.
        let mut turn = self.turn(&order, &plugin, true).await;
        let mut pace = self.lanes.enter().await;
        let mut why_without = None;
        loop {
            let instrument = !matches!(rewriting, Rewriting::Without { .. });
            let once = self
                .compiled_once(&order, &plugin, instrument, &mut pace)
                .await?;
            drop(turn.take());
            if let Some(reason) = once.uninstrumented {
                rewriting = Rewriting::Without { reason };
            }
            order.task = task(rewriting.clone());
            order.once = once.tier;
            let configured = self.configured(&order, once.code, bytes, &mut pace).await;
            let (mut known, component) = match configured {
                Err(error) if error.is_about_the_snapshot() && why_without.is_none() => {
                    (rewriting, why_without) = without(tollgate_admission::chain(&error));
                    continue;
                }
                configured => configured?,
            };
            if why_without.is_some() {
                known.fallback.clone_from(&why_without);
            }
            let stage = match known.fallback {
                None => Stage::CompileSnapshot,
                Some(_) => Stage::Compile,
            };
            // Do not reuse the result of a lost child at the next start.
            let key = key.clone().filter(|_| why_without.is_none());
            if may_be_interim
                && let Some(code) = self.interim(&order, stage, &component, &mut pace).await
            {
                let unfinished = Box::new(Unfinished {
                    order,
                    stage,
                    component,
                    key,
                    known: known.clone(),
                });
                return Ok(Prepared {
                    known,
                    code,
                    unfinished: Some(unfinished),
                });
            }
            let code = match self.shared(&order, stage, &component, &mut pace).await {
                // The rewriting may be the cause. If it is not, the next attempt is refused for the same reason.
                Err(PrepareError::Refused {
                    stage: Stage::CompileSnapshot,
                    reason,
                }) => {
                    rewriting = match rewriting {
                        Rewriting::Trimmed => Rewriting::Snapshot,
                        _ => {
                            let reason = format!("the snapshot cannot be compiled: {reason}");
                            let (rewriting, why) = without(reason);
                            why_without = why;
                            rewriting
                        }
                    };
                    continue;
                }
                Err(error @ PrepareError::Lost { .. }) if stage == Stage::CompileSnapshot => {
                    (rewriting, why_without) = without(tollgate_admission::chain(&error));
                    continue;
                }
                compiled => compiled?,
            };
            let code = self.keep(key, &known, code).await?;
            return Ok(Prepared {
                known,
                code,
                unfinished: None,
            });
        }
    }

    /// Runs a child that describes the plugin, and configures it if ordered to. `code` is the result of [`Self::compiled_once`].
    async fn configured(
        &self,
        order: &Order,
        code: Option<Code>,
        bytes: &[u8],
        pace: &mut Pace<'_>,
    ) -> Result<(Known, Separated), PrepareError> {
        let order = Order {
            code_bytes: code.as_ref().map_or(Ok(0), Code::bytes)?,
            ..order.clone()
        };
        match self.child(&order).run(&order, code, bytes, pace).await? {
            ChildResult::Configured {
                manifest,
                fallback,
                component,
            } => Ok((Known { manifest, fallback }, component)),
            ChildResult::Compiled { .. } => Err(PrepareError::Protocol(ProtocolError::Code)),
            ChildResult::Separated(_) => Err(PrepareError::Protocol(ProtocolError::Component)),
        }
    }

    /// The order to compile a plugin for the child that configures it. The code depends neither on the settings nor on
    /// the name, so that plugins of the same bytes share it.
    fn once(order: &Order, plugin: &Plugin<'_>, instrument: bool, tier: Tier) -> Order {
        let max_code_bytes = (plugin.bytes.len() as u64)
            .saturating_mul(ONCE_FACTOR)
            .max(MIN_ONCE_BYTES);
        Order {
            task: Task::CompileOnce {
                instrument,
                max_code_bytes,
            },
            once: tier,
            ..order.clone()
        }
    }

    /// Waits until nobody else compiles the same plugin, so that its code can be found. Do not hold a place meanwhile.
    async fn turn(
        &self,
        order: &Order,
        plugin: &Plugin<'_>,
        instrument: bool,
    ) -> Option<OwnedMutexGuard<()>> {
        let order = Self::once(order, plugin, instrument, ONCE[0]);
        let key = self.key(&order, &plugin.digest)?;
        Some(self.compiling.enter(key).await)
    }

    /// Compiles a plugin for the child that configures it, unless that code is already stored.
    async fn compiled_once(
        &self,
        order: &Order,
        plugin: &Plugin<'_>,
        instrument: bool,
        pace: &mut Pace<'_>,
    ) -> Result<Once, PrepareError> {
        let orders = ONCE.map(|tier| Self::once(order, plugin, instrument, tier));
        for order in &orders {
            let key = self.key(order, &plugin.digest);
            if let Some((uninstrumented, code)) = self.recall(key.as_ref()).await? {
                return Once::new(code, order.once, uninstrumented);
            }
        }
        let [fast, thorough] = &orders;
        match self.make_once(fast, plugin, pace).await {
            // The other compiler supports more, and its words say what is wrong with the plugin.
            Err(PrepareError::Refused {
                stage: Stage::Compile,
                ..
            })
            | Err(PrepareError::Lost { .. }) => self.make_once(thorough, plugin, pace).await,
            made => made,
        }
    }

    /// Has the code made that describes and configures a plugin, and stores it.
    async fn make_once(
        &self,
        order: &Order,
        plugin: &Plugin<'_>,
        pace: &mut Pace<'_>,
    ) -> Result<Once, PrepareError> {
        let (fallback, code) = match self.shared_once(order, plugin, pace).await? {
            Some(code) => (None, code),
            None => self.compile_once(order, plugin, pace).await?,
        };
        let key = self.key(order, &plugin.digest);
        let code = self.keep(key, &fallback, code).await?;
        Once::new(code, order.once, fallback)
    }

    /// Runs a child that compiles a plugin for the child that configures it. Also returns the reason if the code lacks
    /// the instrumentation that takes a snapshot.
    async fn compile_once(
        &self,
        order: &Order,
        plugin: &Plugin<'_>,
        pace: &mut Pace<'_>,
    ) -> Result<(Option<String>, Code), PrepareError> {
        let child = self.child(order);
        match child.run(order, None, plugin.bytes, pace).await? {
            ChildResult::Compiled { code, fallback, .. } => Ok((fallback, code)),
            ChildResult::Configured { .. } | ChildResult::Separated(_) => {
                Err(PrepareError::Protocol(ProtocolError::Component))
            }
        }
    }

    fn child(&self, order: &Order) -> Child<'_> {
        Child::new(self, order)
    }

    /// The key under which the result of an order is stored. `bytes` are what the order is about, or their digest.
    fn key(&self, order: &Order, bytes: &[u8]) -> Option<Key> {
        // Code does not depend on the plugin's name, so plugins of other names can use it.
        let order = Order {
            plugin: String::new(),
            ..order.clone()
        };
        let order = serde_json::to_vec(&order).ok()?;
        let host = self.host.as_ref()?;
        Some(Key::of([&host[..], &order, bytes]))
    }

    async fn recall<T>(&self, key: Option<&Key>) -> Result<Option<(T, Code)>, PrepareError>
    where
        T: serde::de::DeserializeOwned + Send + 'static,
    {
        let Some(key) = key.cloned() else {
            return Ok(None);
        };
        let store = self.store.clone();
        blocking(move || store.recall(&key)).await
    }

    async fn keep<T>(&self, key: Option<Key>, value: &T, code: Code) -> Result<Code, PrepareError>
    where
        T: Clone + Serialize + Send + 'static,
    {
        let Some(key) = key else {
            return Ok(code);
        };
        let (store, value) = (self.store.clone(), value.clone());
        blocking(move || {
            if let Err(error) = store.keep(&key, &value, &code) {
                tracing::warn!(%error, "failed to store compiled code; the next start compiles it again: check whether the disk is full");
            }
            code
        })
        .await
    }

    /// Logs once which protections the children lack.
    fn heard_of_confinement(&self, missing: &[String]) {
        if !missing.is_empty() && !self.logged_missing.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                missing = missing.join("; "),
                "processes that prepare plugins are less confined than they should be, because the system lacks \
                 protections; load only plugins that you trust, or allow prctl, seccomp and close_range"
            );
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, PrepareError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| PrepareError::Ending)
}

fn without(reason: String) -> (Rewriting, Option<String>) {
    let rewriting = Rewriting::Without {
        reason: reason.clone(),
    };
    (rewriting, Some(reason))
}

/// Identifies this build of the program.
fn identity(executable: &Path) -> Option<Vec<u8>> {
    let metadata = std::fs::metadata(executable).ok()?;
    let written = metadata.modified().ok()?;
    let written = written.duration_since(std::time::UNIX_EPOCH).ok()?;
    let identity = (
        env!("CARGO_PKG_VERSION"),
        metadata.len(),
        written.as_nanos(),
    );
    Some(format!("{identity:?}").into_bytes())
}

// === impl PrepareError ===

impl PrepareError {
    /// Whether the plugin may still be loaded without a snapshot.
    fn is_about_the_snapshot(&self) -> bool {
        let (Self::TooSlow { stage, .. }
        | Self::Standstill { stage, .. }
        | Self::Lost { stage, .. }) = self
        else {
            return false;
        };
        *stage == Stage::Snapshot
    }
}

impl std::fmt::Display for Tail<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A panic's text comes before a note on how to see its backtrace.
        let mut said = self
            .0
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with("note:"));
        match said.next_back() {
            Some(last) => write!(f, "; it printed: {last}"),
            None => Ok(()),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
