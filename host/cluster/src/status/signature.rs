//! The condition `Verified`: whether the plugin's artifact is signed by a trusted key.

use serde_json::{Value, json};
use tollgate_config::PluginConfig;

use super::{Condition, PROGRESSING, ReplicaEntry, cut};
use crate::kinds::Resource;

/// The verdict of one replica about the signature of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Signature {
    /// The configuration requires none.
    NotRequired,
    /// A key of one of these files has signed what serves.
    Trusted {
        /// The files of the configuration.
        keys: Vec<String>,
    },
    /// No trusted key has signed the desired version.
    Untrusted,
}

/// The type of the condition.
const VERIFIED: &str = "Verified";

/// Returns the condition of a plugin. Every replica computes the same from the same entries.
pub(crate) fn verified(resource: &Resource, entries: &[ReplicaEntry]) -> Option<Condition> {
    let generation = resource.generation;
    let condition = |status, reason: &str, message: String| {
        Some(Condition {
            kind: VERIFIED,
            status,
            reason: reason.to_owned(),
            message: cut(message),
            generation,
        })
    };
    let current = entries
        .iter()
        .filter(|entry| entry.generation == generation);
    let current: Vec<&ReplicaEntry> = current.collect();
    let first = current.first()?;
    let is_untrusted = |entry: &&&ReplicaEntry| entry.signature == Some(Signature::Untrusted);
    if let Some(entry) = current.iter().find(is_untrusted) {
        return condition("False", "Untrusted", entry.named_message(entries.len()));
    }
    if current.len() < entries.len() {
        let message = "some replicas have not reported this generation".to_owned();
        return condition("Unknown", PROGRESSING, message);
    }
    let is_same = current
        .iter()
        .all(|entry| entry.signature == first.signature);
    match &first.signature {
        Some(Signature::Trusted { keys }) if is_same => {
            let by = match keys.as_slice() {
                [key] => format!("a key of {key}"),
                keys => format!("a key of one of {}", keys.join(", ")),
            };
            condition("True", "Trusted", format!("the artifact is signed by {by}"))
        }
        Some(Signature::NotRequired) if is_same => {
            let message = "no signature is required: set signatures.keys to require one";
            condition("Unknown", "NotRequired", message.to_owned())
        }
        _ => {
            let message = "not every replica has loaded the plugin under the required signature";
            condition("Unknown", "NotLoaded", message.to_owned())
        }
    }
}

// === impl Signature ===

impl Signature {
    /// The verdict about a version that serves. Tollgate loads an artifact only if it is signed as the entry requires.
    pub(crate) fn of_serving(config: &PluginConfig) -> Self {
        if config.signature_keys.is_empty() {
            return Self::NotRequired;
        }
        let keys = config.signature_keys.iter();
        Self::Trusted {
            keys: keys.map(|path| path.display().to_string()).collect(),
        }
    }

    pub(super) fn read(entry: &Value) -> Option<Self> {
        let keys = entry["keys"].as_array().into_iter().flatten();
        match entry["signature"].as_str()? {
            "NotRequired" => Some(Self::NotRequired),
            "Trusted" => Some(Self::Trusted {
                keys: keys.filter_map(Value::as_str).map(str::to_owned).collect(),
            }),
            "Untrusted" => Some(Self::Untrusted),
            _ => None,
        }
    }

    pub(super) fn write(&self, entry: &mut Value) {
        entry["signature"] = json!(match self {
            Self::NotRequired => "NotRequired",
            Self::Trusted { .. } => "Trusted",
            Self::Untrusted => "Untrusted",
        });
        if let Self::Trusted { keys } = self {
            entry["keys"] = json!(keys);
        }
    }
}
