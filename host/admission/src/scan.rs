//! The question that a reader asks about the results of the background scan: which of them, in which groups.

use serde_json::{Value, json};

/// Selects counts of the background scan. An absent part selects all of them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ScanSearch {
    /// A part of the name of the namespace or of the plugin, in any case.
    pub search: Option<String>,
    /// A word of [`RESULTS`]: only counts with at least one such result.
    pub result: Option<String>,
    /// What is counted together.
    pub by: By,
    /// Only counts after the one with this key.
    pub after: Option<String>,
    /// The most counts to return.
    pub limit: usize,
}

/// What is counted together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum By {
    /// The results of a plugin in a namespace.
    #[default]
    Both,
    /// All results in a namespace.
    Namespace,
    /// All results of a plugin.
    Plugin,
}

/// The background scan of a server, as readers of the admin listener see it.
pub trait Scans: Send + Sync {
    /// Returns the content of `/scan`.
    fn page(&self, search: &ScanSearch) -> Value;
    /// Adds to the content of `/plugins` whether each exception is still needed.
    fn add_to_exceptions(&self, plugins: &mut Value);
}

/// The results of a scan, the worst first.
pub const RESULTS: &[&str] = &["error", "fail", "warn", "skip", "pass"];

// === impl By ===

impl By {
    /// Reads the word of a request: `namespace` or `plugin`.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "namespace" => Some(Self::Namespace),
            "plugin" => Some(Self::Plugin),
            _ => None,
        }
    }
}

/// Returns the content of `/scan` where no background scan runs.
#[must_use]
pub fn disabled() -> Value {
    json!({ "enabled": false, "results": [], "total": 0, "matched": 0, "next": null })
}
