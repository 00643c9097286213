//! The condition `Verified`: whether the plugin's artifact is signed as required.

use serde_json::{Value, json};
use tollgate_config::{PluginConfig, SignatureRequirement, SignerProof};

use super::{Condition, PROGRESSING, ReplicaEntry, cut};
use crate::kinds::Resource;

/// The verdict of one replica about the signature of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Signature {
    /// The configuration requires none.
    NotRequired,
    /// What serves is signed as the entry requires.
    Trusted {
        /// The signers that the entry trusts: files with keys, and identities.
        keys: Vec<String>,
    },
    /// The desired version is not signed as required.
    Untrusted,
}

/// The beginning of a signer that is an identity.
const IDENTITY: &str = "the identity ";
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
                [identity] if identity.starts_with(IDENTITY) => identity.clone(),
                [key] => format!("a key of {key}"),
                keys => format!("a key of one of {}", keys.join(", ")),
            };
            condition("True", "Trusted", format!("the artifact is signed by {by}"))
        }
        Some(Signature::NotRequired) if is_same => {
            let message = "no signature is required: set signatures.keys or signatures.policies to require one";
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
        let SignatureRequirement::Policy(policy) = config.signature_requirement() else {
            return Self::NotRequired;
        };
        let keys = policy.signers.iter().map(|signer| match &signer.proof {
            SignerProof::Key(path) => path.display().to_string(),
            SignerProof::Identity { .. } => signer.to_string(),
        });
        Self::Trusted {
            keys: keys.collect(),
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
