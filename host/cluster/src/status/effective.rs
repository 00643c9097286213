//! The condition `Effective`: whether kube-apiserver calls the plugin's webhooks and gets answers.
//!
//! The leader says so in its own entry, like the words about the registration.

use super::{Condition, ReplicaEntry};
use crate::canary::Effect;
use crate::kinds::Resource;

/// The type of the condition.
const EFFECTIVE: &str = "Effective";

/// Returns the condition of a plugin. While no entry of this generation has words about it, the condition stays as it is
/// written.
pub(crate) fn effective(resource: &Resource, entries: &[ReplicaEntry]) -> Option<Condition> {
    let said = entries
        .iter()
        .filter(|entry| entry.generation == resource.generation)
        .filter_map(|entry| entry.effect.as_ref());
    // The worst counts, if the replicas of two installations have words.
    match said.min_by_key(|said| Effect::rank(said)) {
        Some(said) => Some(Condition {
            kind: EFFECTIVE,
            status: said.status,
            reason: said.reason.clone(),
            message: said.message.clone(),
            generation: resource.generation,
        }),
        None => Condition::written(resource, EFFECTIVE),
    }
}
