//! The host's side of preparing a plugin: starts children, reads their results, and survives the loss of any child.
//!
//! ```text
//! stored? ── yes ─────────────────────────────────────────────▶ code
//!    │ no
//!    ▼
//! code for one run: stored; or from a child that compiles it without the contents of memories,
//!    │              if the plugin is large (`worker/sharing`)
//!    ▼
//! a child that runs guest code ──▶ component ──▶ a child that compiles ──▶ code
//!    ▲                           and memories       │ refused, or lost over the snapshot
//!    └───────────── with less rewriting ◀───────────┘
//! ```
//!
//! Without code for one run, the child that runs guest code compiles the plugin. It hands this code over before it runs
//! it, and the host stores it for all settings.
//!
//! The last child does not run if the host has code of the same component with other memories. If a
//! plugin is large and nothing serves in its place, that child compiles without optimising first, and another child
//! compiles the code that replaces this interim code (`worker/interim`).

mod child;
mod interim;
mod pace;
mod sharing;
mod spare;
mod turns;

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::task::JoinHandle;

use child::{Child, ChildResult, HandedOver};
pub(super) use interim::Unfinished;
use pace::{Lanes, Pace};
use spare::Spares;
use turns::Turns;

use super::protocol::{Manifest, Order, Rewriting, Stage, Task};
use tollgate_component::Separated;
use tollgate_config::Capability;
use tollgate_engine::{Compiled, Key, Store, Tier};

/// Factor by which the wall-clock limit exceeds the CPU limit. The child is niced, and the machine may be busy.
const WALL_FACTOR: u32 = 4;
/// Time after which the host ends a child that neither says anything nor uses the processor, at any stage. A child ends
/// the plugin's own code much sooner itself.
const MAX_STANDSTILL: Duration = Duration::from_secs(10);
/// Smaller components are compiled with optimising in a few milliseconds.
const MIN_INTERIM_BYTES: usize = 8 << 10;
/// Maximum size of the prepared component, as a multiple of the maximum size of a plugin's file.
const COMPONENT_FACTOR: u64 = 4;
/// Maximum size of machine code, as a multiple of the maximum size of a component.
const CODE_FACTOR: u64 = 4;
/// Maximum size of the unoptimised code that a child hands to the host for other children, as a multiple of the size of
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
    spares: Spares,
    max_component_bytes: u64,
    max_standstill: Duration,
    /// Size of a component from which interim code is worth its compilation, in bytes, without the contents of memories.
    min_interim_bytes: usize,
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
    pub(super) code: Compiled,
    /// Ends once the code is stored. Nothing waits for that, except the end of the whole work.
    pub(super) keeping: Keeping,
    /// What is left to do if the code is interim code.
    pub(super) unfinished: Option<Box<Unfinished>>,
}

/// The work of storing code.
#[derive(Debug, Default)]
pub(super) struct Keeping(Option<JoinHandle<()>>);

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
        /// Whether the plugin's own code failed in a way that could be a mistake of the compiler.
        is_fault: bool,
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
    /// The child sent code of a memory that the host did not order.
    #[error("compiled code of a memory that was not ordered")]
    Unordered,
    /// The child sent too many images of memories.
    #[error("more than {limit} images of memories")]
    Images {
        /// Maximum number of images.
        limit: usize,
    },
    /// The child sent a memory that the plugin cannot have.
    #[error(
        "a memory that does not fit the plugin's limits, or contents that do not fit their memory"
    )]
    Memory,
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

    /// Maximum size of the unoptimised code that a child hands over.
    fn max_once_bytes(&self) -> u64 {
        let bytes = (self.bytes.len() as u64).saturating_mul(ONCE_FACTOR);
        bytes.max(MIN_ONCE_BYTES)
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
            spares: Spares::new(executable, processors),
            max_component_bytes: max_plugin_bytes.saturating_mul(COMPONENT_FACTOR),
            max_standstill: MAX_STANDSTILL,
            min_interim_bytes: MIN_INTERIM_BYTES,
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
        order.task = Task::Describe;
        let plugin = Plugin::new(bytes);
        let mut turn = self.turn(&order, &plugin).await;
        let mut pace = self.lanes.enter().await;
        let (known, _component) = self
            .configured(&order, &plugin, &mut turn, &mut pace)
            .await?;
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
                keeping: Keeping::default(),
                unfinished: None,
            });
        }
        // Wait before taking a place: other plugins need the place meanwhile.
        let mut turn = self.turn(&order, &plugin).await;
        let mut pace = self.lanes.enter().await;
        let _busy = self.spares.busy();
        let mut why_without = None;
        loop {
            order.task = task(rewriting.clone());
            let configured = self.configured(&order, &plugin, &mut turn, &mut pace).await;
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
                    keeping: Keeping::default(),
                    unfinished: Some(unfinished),
                });
            }
            let code = match self.shared(&order, stage, &component, &mut pace).await {
                // The rewriting may be the cause. If it is not, the next attempt is refused for the same reason.
                Err(PrepareError::Refused {
                    stage: Stage::CompileSnapshot,
                    reason,
                    ..
                }) if stage == Stage::CompileSnapshot => {
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
            let keeping = self.keep(key, &known, &code);
            return Ok(Prepared {
                known,
                code,
                keeping,
                unfinished: None,
            });
        }
    }

    /// Has a plugin described, and configured if ordered to. `turn` ends once other plugins can find the code for that.
    async fn configured(
        &self,
        order: &Order,
        plugin: &Plugin<'_>,
        turn: &mut Option<OwnedMutexGuard<()>>,
        pace: &mut Pace<'_>,
    ) -> Result<(Known, Separated), PrepareError> {
        let [fast, thorough] = ONCE;
        let has_code = |tier| {
            let key = self.once_key(order, plugin, tier);
            key.is_some_and(|key| self.store.has(&key))
        };
        if has_code(fast) || !has_code(thorough) {
            match self.configured_with(fast, order, plugin, turn, pace).await {
                // The other compiler supports more, and its words say what is wrong with the plugin.
                Err(error) if error.may_be_about_the_compiler() => {}
                configured => return configured,
            }
        }
        self.configured_with(thorough, order, plugin, turn, pace)
            .await
    }

    /// Like [`Self::configured`], with code of one compiler. The code is stored, or a child makes it.
    async fn configured_with(
        &self,
        tier: Tier,
        order: &Order,
        plugin: &Plugin<'_>,
        turn: &mut Option<OwnedMutexGuard<()>>,
        pace: &mut Pace<'_>,
    ) -> Result<(Known, Separated), PrepareError> {
        let mut order = Order {
            once: tier,
            ..order.clone()
        };
        let key = self.once_key(&order, plugin, tier);
        let once = match self.recall(key.as_ref()).await? {
            Some((uninstrumented, code)) => Some((uninstrumented, code.component)),
            None => match self.shared_once(&order, plugin, pace).await? {
                Some(code) => {
                    let kept = Compiled::from(code.clone());
                    let keeping = self.keep(key.clone(), &None::<String>, &kept);
                    keeping.end().await;
                    Some((None, code))
                }
                None => None,
            },
        };
        let result = if let Some((uninstrumented, code)) = once {
            drop(turn.take());
            if let (Task::Configure { rewriting, .. }, Some(reason)) =
                (&mut order.task, uninstrumented)
            {
                *rewriting = Rewriting::Without { reason };
            }
            // Code that is too large is not handed over, so it has no bytes.
            order.code_bytes = code.bytes()?;
            let code = (order.code_bytes > 0).then_some(code);
            let child = self.child(&order);
            child.run(&order, code, plugin.bytes, pace).await?
        } else {
            order.max_code_bytes = plugin.max_once_bytes();
            let (sender, receiver) = oneshot::channel();
            let keep = async {
                if let Ok(HandedOver {
                    code,
                    uninstrumented,
                }) = receiver.await
                {
                    self.keep(key, &uninstrumented, &code.into()).end().await;
                    drop(turn.take());
                }
            };
            let child = self.child(&order).with_receiver(sender);
            let ran = child.run(&order, None, plugin.bytes, pace);
            let next = async {
                // The next child compiles what this one returns.
                if let Task::Configure { .. } = order.task {
                    self.spares.ready();
                }
            };
            let (result, (), ()) = tokio::join!(ran, keep, next);
            result?
        };
        match result {
            ChildResult::Configured {
                manifest,
                fallback,
                component,
            } => Ok((Known { manifest, fallback }, component)),
            ChildResult::Compiled { .. } => Err(PrepareError::Protocol(ProtocolError::Code)),
            ChildResult::Separated(_) => Err(PrepareError::Protocol(ProtocolError::Component)),
        }
    }

    /// Waits until nobody else compiles the same plugin, so that its code can be found. Do not hold a place meanwhile.
    async fn turn(&self, order: &Order, plugin: &Plugin<'_>) -> Option<OwnedMutexGuard<()>> {
        let key = self.once_key(order, plugin, ONCE[0])?;
        Some(self.compiling.enter(key).await)
    }

    /// The key of the code that describes and configures a plugin. The code depends neither on the settings nor on the
    /// name, so plugins of the same bytes share it.
    fn once_key(&self, order: &Order, plugin: &Plugin<'_>, tier: Tier) -> Option<Key> {
        let order = Order {
            task: Task::Separate {
                instrument: order.task.instruments(),
            },
            once: tier,
            ..order.clone()
        };
        self.key(&order, &plugin.digest)
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

    async fn recall<T>(&self, key: Option<&Key>) -> Result<Option<(T, Compiled)>, PrepareError>
    where
        T: serde::de::DeserializeOwned + Send + 'static,
    {
        let Some(key) = key.cloned() else {
            return Ok(None);
        };
        let store = self.store.clone();
        blocking(move || store.recall(&key)).await
    }

    /// Begins to store code, so that these inputs find it.
    fn keep<T>(&self, key: Option<Key>, value: &T, code: &Compiled) -> Keeping
    where
        T: Clone + Serialize + Send + 'static,
    {
        let Some(key) = key else {
            return Keeping::default();
        };
        let (store, value, code) = (self.store.clone(), value.clone(), code.clone());
        Keeping(Some(tokio::task::spawn_blocking(move || {
            if let Err(error) = store.keep(&key, &value, &code) {
                tracing::warn!(%error, "failed to store compiled code; the next start compiles it again: check whether the disk is full");
            }
        })))
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

// === impl Keeping ===

impl Keeping {
    /// Waits until the code is stored.
    pub(super) async fn end(self) {
        if let Some(task) = self.0 {
            // At the end of the process, the code is not stored.
            drop(task.await);
        }
    }
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

    /// Whether code of another compiler may do what this code did not.
    fn may_be_about_the_compiler(&self) -> bool {
        match self {
            Self::Refused {
                stage, is_fault, ..
            } => *stage == Stage::Compile || *is_fault,
            Self::Lost { stage, .. } => *stage != Stage::Snapshot,
            _ => false,
        }
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
