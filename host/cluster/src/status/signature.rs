//! The condition `Verified`: whether the plugin's artifact is signed as required.

use serde_json::{Value, json};
use tollgate_config::{PluginConfig, SignaturePolicy, SignatureRequirement};

use super::{Condition, PROGRESSING, ReplicaEntry, cut};
use crate::kinds::Resource;

/// The verdict of one replica about the signature of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Signature {
    /// The configuration requires none.
    NotRequired,
    /// The serving artifact is signed as the entry requires.
    Trusted {
        /// Whose signatures were required, in words.
        by: String,
    },
    /// The desired version is not signed as required, or no policy covers its repository.
    Untrusted,
}

const UNCOVERED: &str = "no policy of signatures.policies covers the repository of the artifact: add one, or take the \
    artifact from another repository";
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
        // An entry that is not ready says itself why.
        let message = match entry.is_ready {
            true => UNCOVERED.to_owned(),
            false => entry.named_message(entries.len()),
        };
        return condition("False", "Untrusted", message);
    }
    if current.len() < entries.len() {
        let message = "some replicas have not reported this generation".to_owned();
        return condition("Unknown", PROGRESSING, message);
    }
    let is_same = current
        .iter()
        .all(|entry| entry.signature == first.signature);
    match &first.signature {
        Some(Signature::Trusted { by }) if is_same => {
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

/// Says whose signatures a policy requires.
fn required(policy: &SignaturePolicy) -> String {
    let signers: Vec<String> = policy.signers.iter().map(ToString::to_string).collect();
    match (policy.threshold, signers.as_slice()) {
        (_, [only]) => only.clone(),
        (1, all) => format!("one of {}", all.join(", ")),
        (threshold, all) => format!("{threshold} of {}", all.join(", ")),
    }
}

// === impl Signature ===

impl Signature {
    /// The verdict about a version that serves. Tollgate loads an artifact only if it is signed as the entry requires. A
    /// group is as trusted as its least trusted member.
    pub(crate) fn of_serving(config: &PluginConfig) -> Self {
        if config.is_group() {
            let mut by = Vec::new();
            let mut is_required = true;
            for part in &config.parts {
                match Self::of_serving(part) {
                    Self::Untrusted => return Self::Untrusted,
                    Self::NotRequired => is_required = false,
                    Self::Trusted { by: signers } if by.contains(&signers) => {}
                    Self::Trusted { by: signers } => by.push(signers),
                }
            }
            return match is_required {
                true => Self::Trusted {
                    by: by.join(" and "),
                },
                false => Self::NotRequired,
            };
        }
        match config.signature_requirement() {
            SignatureRequirement::Nothing => Self::NotRequired,
            SignatureRequirement::Policy(policy) => Self::Trusted {
                by: required(policy),
            },
            SignatureRequirement::Uncovered => Self::Untrusted,
        }
    }

    pub(super) fn read(entry: &Value) -> Option<Self> {
        let by = entry["keys"].as_array().into_iter().flatten();
        let by: Vec<&str> = by.filter_map(Value::as_str).collect();
        match entry["signature"].as_str()? {
            "NotRequired" => Some(Self::NotRequired),
            "Trusted" => Some(Self::Trusted { by: by.join(", ") }),
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
        if let Self::Trusted { by } = self {
            entry["keys"] = json!([by]);
        }
    }
}
