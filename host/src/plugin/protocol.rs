//! What the host and its child say to each other when a plugin is prepared.
//!
//! To the child: one line of JSON, then the plugin's bytes. From the child: a line of JSON for every stage that
//! it enters, and one with the result, followed by the component's bytes. The stages are how the host knows what
//! a child that was killed was at.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::config::{Capability, Limits};
use crate::pipeline::text::{Limit, one_line};

/// What a child is to do. The plugin's bytes follow it.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Order {
    pub(super) plugin: String,
    pub(super) settings: String,
    pub(super) limits: Limits,
    pub(super) capabilities: BTreeSet<Capability>,
    pub(super) max_wasm_stack_bytes: u64,
    pub(super) cache_directory: std::path::PathBuf,
    pub(super) cpu_seconds: u64,
    pub(super) memory_bytes: u64,
    /// False where a child was lost while it took a snapshot.
    pub(super) snapshot: bool,
    /// True where nothing is wanted but what the plugin says of itself.
    pub(super) describe_only: bool,
}

/// A line from a child.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Line {
    /// It has begun a stage.
    Stage(Stage),
    /// It is done; `component_bytes` bytes follow.
    Prepared {
        manifest: Manifest,
        fallback: Option<String>,
        component_bytes: u64,
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
