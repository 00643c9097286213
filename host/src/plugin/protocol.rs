//! What the host and its children say to each other when a plugin is prepared.
//!
//! To a child: one line of JSON, then the bytes that it works on. From the child: a line of JSON for how it is confined,
//! one for every stage that it enters, and one with the result, followed by the result's bytes. The stages are how the
//! host knows what a child that was killed was at.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::config::{Capability, Limits};
use crate::engine::Tier;
use crate::pipeline::text::{Limit, one_line};

/// The order for a child. The bytes follow it: `code_bytes` bytes of code, if any, and then the plugin, or for
/// [`Task::Compile`] the component to compile.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Order {
    pub(super) plugin: String,
    pub(super) limits: Limits,
    pub(super) capabilities: BTreeSet<Capability>,
    pub(super) max_wasm_stack_bytes: u64,
    /// How the code is compiled that the host runs.
    pub(super) tier: Tier,
    pub(super) cpu_seconds: u64,
    pub(super) memory_bytes: u64,
    /// Length of the code that a child with [`Task::CompileOnce`] made of the plugin. 0: the child compiles the plugin
    /// itself.
    pub(super) code_bytes: u64,
    pub(super) task: Task,
}

/// The work of one child. No child that runs guest code makes the code that the host runs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Task {
    /// Make a component of the plugin and compile it for one run, without optimising. Runs no guest code.
    CompileOnce {
        /// Whether to add the instrumentation that takes a snapshot, if the component can be instrumented.
        instrument: bool,
        /// Size from which the code is not handed back.
        max_code_bytes: u64,
    },
    /// Ask the plugin what it is. Runs guest code.
    Describe,
    /// Describe and configure the plugin, and make the component that is to be compiled. Runs guest code.
    Configure {
        /// The settings, as JSON.
        settings: String,
        /// What to make of the plugin's memory and code after `configure`.
        rewriting: Rewriting,
    },
    /// Compile the component. Runs no guest code.
    Compile {
        /// The stage to report.
        stage: Stage,
    },
}

/// How a component is rewritten after `configure`. Each is the way out where the one before it fails.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Rewriting {
    /// A snapshot of its memory, without the code that only `describe` and `configure` call.
    Trimmed,
    /// A snapshot of its memory with all of its code.
    Snapshot,
    /// None: `configure` runs in every call.
    Without {
        /// Why there is no snapshot.
        reason: String,
    },
}

/// A line from a child.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Line {
    /// It has confined itself as far as the system lets it.
    Confined {
        /// What is missing, and why.
        missing: Vec<String>,
    },
    /// It has begun a stage.
    Stage(Stage),
    /// A plugin was described, and configured where that was asked for; `component_bytes` bytes follow.
    #[serde(rename_all = "camelCase")]
    Configured {
        manifest: Manifest,
        fallback: Option<String>,
        component_bytes: u64,
    },
    /// A component was compiled; `code_bytes` bytes follow.
    #[serde(rename_all = "camelCase")]
    Compiled {
        code_bytes: u64,
        /// The reason why the component was not instrumented although the order asked for it.
        fallback: Option<String>,
    },
    /// The plugin cannot be loaded.
    Refused { stage: Stage, reason: String },
}

/// The stages of preparing a plugin.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Reading the bytes.
    Read,
    /// Making a component of a core module.
    Componentize,
    /// Compiling, and checking imports and exports.
    Compile,
    /// Asking the plugin what it is.
    Describe,
    /// Handing it its settings.
    Configure,
    /// Writing down what `configure` left.
    Snapshot,
    /// Compiling the snapshot.
    CompileSnapshot,
}

/// What a plugin says of itself.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it is for.
    pub description: String,
    /// A JSON Schema for its settings.
    pub settings_schema: Option<String>,
    /// The rules that it is meant for.
    pub rules: Vec<ManifestRule>,
    /// More, by key.
    pub labels: Vec<(String, String)>,
}

/// A rule of a manifest, as the plugin gave it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestRule {
    /// CREATE, UPDATE, DELETE, CONNECT or `*`.
    pub operations: Vec<String>,
    /// `""` for the core group.
    pub api_groups: Vec<String>,
    /// Such as `v1`.
    pub api_versions: Vec<String>,
    /// Such as `pods` or `pods/ephemeralcontainers`.
    pub resources: Vec<String>,
    /// Cluster, Namespaced or `*`.
    pub scope: Option<String>,
}

/// What is kept of a manifest's texts and lists: a plugin writes them, and the host shows them in `/plugins` and –
/// the version – in a metric's label.
const MAX_NAME: Limit = Limit::Bytes(128);
const MAX_TEXT: Limit = Limit::Bytes(4096);
const MAX_LABELS: usize = 64;

// === impl Manifest ===

impl Manifest {
    /// The same within bounds, and each text in one line. Rules are not cut but judged where they are read.
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
