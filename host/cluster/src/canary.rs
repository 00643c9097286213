//! The condition `Effective`: whether kube-apiserver calls a plugin's webhook and gets an answer.
//!
//! ```text
//! entry: the canary's rule in every webhook entry (pure) ─▶ registrar: applies, and compares with the live rules (pure)
//!                                                                   │ entries, shortfalls
//! keys: challenges and proofs (pure) ◀─▶ prover: on every replica   ▼
//!          └──────────────────────────── task: on the leader, a dry run per entry ─▶ answer: what was shown (pure)
//! effect: the words about a plugin (pure) ─▶ status, metrics
//! ```
//!
//! Every replica has a key pair for as long as it runs, and announces the public key in its Lease. The leader signs its
//! nonce, and the replica that gets the review signs its proof. So no Secret has to be shared, and only who may write
//! Leases in the installation's namespace can pretend to be a replica.

mod answer;
mod definition;
mod effect;
mod entry;
mod keys;
mod note;
mod prover;
mod shortfall;
mod task;

#[cfg(test)]
mod tests;

pub use self::definition::{canary_definition, canary_definition_yaml};
pub(crate) use self::{
    answer::Sightings,
    effect::Effect,
    entry::{Entry, add, entries},
    keys::Key,
    prover::Own,
    shortfall::{Shortfall, of_configuration, of_namespaces},
    task::Prober,
};
