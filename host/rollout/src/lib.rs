//! Rollouts: a new version of a plugin takes effect step by step, and goes back by itself when a gate does not pass.
//!
//! ```text
//! plan (configuration) + state + observations + time → the next state and its reason      decide   (pure)
//! plan + state + namespace                           → which version answers a request    part     (pure)
//! state ⇄ a file, so that a restart resumes                                               store
//! ```
//!
//! Until a rollout is promoted, the old version stays loaded and decides wherever the new one does not: outside the
//! share, before the step that enforces, and when the new version faults.

mod decide;
mod part;
mod state;
mod store;
#[cfg(test)]
mod tests;

pub use decide::{Decision, Wait, decide};
pub use part::{Part, Stage, Version};
pub use state::{By, Change, Identity, Mean, Observations, Phase, State};
pub use store::Store;
