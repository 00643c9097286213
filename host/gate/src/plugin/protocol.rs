//! The protocol between the host and the children that prepare plugins.
//!
//! The host sends one line of JSON, then the bytes to work on. The child answers with lines of JSON:
//!
//! 1. A line about its confinement.
//! 2. A line for each stage that it enters.
//! 3. A line with the result, followed by the result's bytes.
//!
//! Two lines with code can come before the result. A child that compiles a plugin for its own run hands that code over. A child
//! that compiles a component sends the modules of memories first.
//!
//! If a child is killed, the last stage tells the host where the child was.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use tollgate_admission::text::{Limit, one_line};
use tollgate_component::LentMemory;
use tollgate_config::{Capability, Limits};
use tollgate_engine::Tier;

/// The order for a child. The bytes follow it: `code_bytes` bytes of code, if any, and then the plugin, or for
/// [`Task::Compile`] the component to compile.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Order {
    pub(super) plugin: String,
    pub(super) limits: Limits,
    pub(super) capabilities: BTreeSet<Capability>,
    pub(super) max_wasm_stack_bytes: u64,
    /// Tier of the code that the host will run.
    pub(super) tier: Tier,
    /// Whether components get a keeper, which resets an instance for the next call.
    pub(super) keeps_instances: bool,
    /// Tier of the code that describes and configures the plugin.
    pub(super) once: Tier,
    pub(super) cpu_seconds: u64,
    pub(super) memory_bytes: u64,
    /// Length of the code that describes and configures the plugin. 0: the child compiles the plugin itself.
    pub(super) code_bytes: u64,
    /// Size up to which a child that compiles the plugin itself hands the code over, before it runs any guest code. 0:
    /// the child keeps the code.
    pub(super) max_code_bytes: u64,
    pub(super) task: Task,
}

/// The work of one child. A child that runs guest code never makes the code that the host runs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Task {
    /// Make a component of the plugin, and separate the contents of its memories from it, so that the host can look for
    /// code. Runs no guest code.
    Separate {
        /// Whether to add the instrumentation that takes a snapshot.
        instrument: bool,
    },
    /// Ask the plugin to describe itself. Runs guest code.
    Describe,
    /// Describe and configure the plugin, and make the component to compile. Runs guest code.
    Configure {
        /// Settings as JSON.
        settings: String,
        /// How to rewrite the plugin's memory and code after `configure`.
        rewriting: Rewriting,
    },
    /// Compile the component. Runs no guest code.
    Compile {
        /// Stage to report.
        stage: Stage,
        /// Sizes of the images that were separated from the component, in bytes.
        images: Vec<u64>,
        /// Memories whose modules to compile, too, before the component. The key of the component's code is without them.
        memories: Vec<MemoryLine>,
    },
    /// Compile the module of a memory that a component imports, with a placeholder for its content. Nothing follows the
    /// order. Runs no guest code.
    LayOut {
        /// The memory.
        memory: MemoryLine,
    },
}

/// How a component is rewritten after `configure`. A variant is the fallback for the one before it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Rewriting {
    /// Take a snapshot of the memory, and remove the code that only `describe` and `configure` call.
    Trimmed,
    /// Take a snapshot of the memory, and keep all code.
    Snapshot,
    /// Do not rewrite: `configure` runs in every call.
    Without {
        /// The reason why there is no snapshot.
        reason: String,
    },
}

// === impl Order ===

impl Order {
    /// The order to compile the module of a memory. Memories of the same size, with contents of the same size, have the
    /// same order.
    pub(super) fn to_lay_out(&self, memory: MemoryLine) -> Self {
        Self {
            task: Task::LayOut { memory },
            // The module depends on neither, so that other plugins find it.
            limits: Limits::default(),
            capabilities: BTreeSet::new(),
            // There is nothing to optimise.
            tier: match self.tier {
                Tier::Interim => Tier::Serving,
                tier => tier,
            },
            ..self.clone()
        }
    }
}

// === impl Task ===

impl Task {
    /// Whether the plugin's code needs the instrumentation that takes a snapshot.
    pub(super) fn instruments(&self) -> bool {
        match self {
            Self::Separate { instrument } => *instrument,
            Self::Configure { rewriting, .. } => !matches!(rewriting, Rewriting::Without { .. }),
            Self::Describe | Self::Compile { .. } | Self::LayOut { .. } => false,
        }
    }
}

/// A line from a child.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Line {
    /// The child has confined itself as far as the system allows.
    Confined {
        /// Protections that are missing, each with the reason.
        missing: Vec<String>,
    },
    /// The child has begun a stage.
    Stage(Stage),
    /// The child has described the plugin, and configured it if ordered to. `component_bytes` bytes follow, then the images
    /// of these sizes, and then the contents of the memories that the component imports.
    #[serde(rename_all = "camelCase")]
    Configured {
        manifest: Manifest,
        fallback: Option<String>,
        component_bytes: u64,
        #[serde(default)]
        images: Vec<u64>,
        #[serde(default)]
        memories: Vec<MemoryLine>,
    },
    /// The child has separated the contents of memories from a component. `component_bytes` bytes follow, and then the
    /// images of these sizes. Without images, nothing follows: the plugin is compiled as a whole.
    #[serde(rename_all = "camelCase")]
    Separated {
        component_bytes: u64,
        images: Vec<u64>,
    },
    /// The child has compiled the module of the next memory of [`Task::Compile`]. `code_bytes` bytes follow.
    #[serde(rename_all = "camelCase")]
    LaidOut {
        code_bytes: u64,
        /// Place of the content in the code.
        place: u64,
    },
    /// The child has compiled a component. `code_bytes` bytes follow. From a child that then runs guest code, this is the
    /// code for that, and 0 bytes follow if it is too large.
    #[serde(rename_all = "camelCase")]
    Compiled {
        code_bytes: u64,
        /// The reason why the component was not instrumented although the order asked for it.
        fallback: Option<String>,
        /// Place of each image in the code.
        #[serde(default)]
        places: Vec<u64>,
    },
    /// The plugin cannot be loaded.
    #[serde(rename_all = "camelCase")]
    Refused {
        stage: Stage,
        reason: String,
        /// Whether the plugin's own code failed in a way that could be a mistake of the compiler.
        #[serde(default)]
        is_fault: bool,
    },
}

/// Size of a page of WebAssembly, in bytes.
const PAGE_BYTES: u64 = 64 << 10;
/// Number of pages that a memory can have at most.
const MAX_PAGES: u64 = 1 << 16;

/// A memory that the component imports, without its content.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MemoryLine {
    /// Size at the beginning, in pages of 64 KiB.
    pub(super) minimum: u64,
    /// Maximum size in pages.
    pub(super) maximum: Option<u64>,
    /// Address of the content.
    pub(super) offset: u32,
    /// Size of the content in bytes.
    pub(super) bytes: u64,
}

/// The stages of preparing a plugin.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Read the plugin's bytes.
    Read,
    /// Make a component from a core module.
    Componentize,
    /// Compile the component, and check its imports and exports.
    Compile,
    /// Ask the plugin to describe itself.
    Describe,
    /// Pass the settings to the plugin.
    Configure,
    /// Take a snapshot of the state after `configure`.
    Snapshot,
    /// Compile the snapshot.
    CompileSnapshot,
}

/// A plugin's description of itself.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Name of the plugin.
    pub name: String,
    /// Version of the plugin.
    pub version: String,
    /// Purpose of the plugin.
    pub description: String,
    /// JSON Schema for the plugin's settings.
    pub settings_schema: Option<String>,
    /// Rules for the requests that the plugin is meant for.
    pub rules: Vec<ManifestRule>,
    /// Further information, as keys and values.
    pub labels: Vec<(String, String)>,
}

/// A rule of a manifest, as the plugin wrote it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestRule {
    /// Operations: CREATE, UPDATE, DELETE, CONNECT or `*`.
    pub operations: Vec<String>,
    /// API groups; `""` is the core group.
    pub api_groups: Vec<String>,
    /// API versions, such as `v1`.
    pub api_versions: Vec<String>,
    /// Resources, such as `pods` or `pods/ephemeralcontainers`.
    pub resources: Vec<String>,
    /// Scope: Cluster, Namespaced or `*`.
    pub scope: Option<String>,
}

/// Limits for the names, texts and labels of a manifest (this constant and the next two). The plugin writes the
/// manifest, and the host shows it in `/plugins`. The version is also a label of a metric.
const MAX_NAME: Limit = Limit::Bytes(128);
const MAX_TEXT: Limit = Limit::Bytes(4096);
const MAX_LABELS: usize = 64;

// === impl Manifest ===

impl Manifest {
    /// Cuts texts and labels to their limits, and puts each text into one line. Rules are not cut; their reader
    /// validates them.
    #[must_use]
    pub(super) fn bounded(self) -> Self {
        let label =
            |(key, value): (String, String)| (one_line(&key, MAX_NAME), one_line(&value, MAX_TEXT));
        Self {
            name: one_line(&self.name, MAX_NAME),
            version: one_line(&self.version, MAX_NAME),
            description: one_line(&self.description, MAX_TEXT),
            settings_schema: self.settings_schema,
            rules: self.rules,
            labels: self
                .labels
                .into_iter()
                .take(MAX_LABELS)
                .map(label)
                .collect(),
        }
    }
}

// === impl MemoryLine ===

impl MemoryLine {
    pub(super) fn of(memory: &LentMemory) -> Self {
        Self {
            minimum: memory.minimum,
            maximum: memory.maximum,
            offset: memory.offset,
            bytes: memory.content.len() as u64,
        }
    }

    /// Whether the content fits into the memory, and the memory into the limits of a plugin. Contents have pages of 64 KiB.
    pub(super) fn fits(self, limits: &Limits) -> bool {
        let initial = self.minimum.checked_mul(PAGE_BYTES);
        let end = self.bytes.checked_add(self.offset.into());
        self.bytes > 0
            && self.bytes.is_multiple_of(PAGE_BYTES)
            && end.is_some_and(|end| initial.is_some_and(|initial| end <= initial))
            && initial.is_some_and(|initial| initial <= limits.memory_bytes)
            && self
                .maximum
                .is_none_or(|maximum| (self.minimum..=MAX_PAGES).contains(&maximum))
    }

    pub(super) fn with(self, content: Vec<u8>) -> LentMemory {
        LentMemory {
            minimum: self.minimum,
            maximum: self.maximum,
            offset: self.offset,
            content,
        }
    }
}

// === impl Stage ===

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Componentize => "componentize",
            Self::Compile => "compile",
            Self::Describe => "describe",
            Self::Configure => "configure",
            Self::Snapshot => "snapshot",
            Self::CompileSnapshot => "compile the snapshot",
        })
    }
}
