//! What the host and its child say to each other when a plugin is prepared.
//!
//! To the child: one line of JSON, then the plugin's bytes. From the child: a line of JSON for every stage that
//! it enters, and one with the result, followed by the component's bytes. The stages are how the host knows what
//! a child that was killed was at.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::config::{Capability, Limits};

/// What a child is to do. The plugin's bytes follow it.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Order {
    pub(super) plugin: String,
    pub(super) settings: String,
    pub(super) limits: Limits,
    pub(super) capabilities: BTreeSet<Capability>,
    pub(super) max_wasm_stack_bytes: u64,
    pub(super) max_table_elements: u32,
    pub(super) cache_directory: std::path::PathBuf,
    pub(super) cpu_seconds: u64,
    pub(super) memory_bytes: u64,
    /// False where a child was lost while it took a snapshot.
    pub(super) snapshot: bool,
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
