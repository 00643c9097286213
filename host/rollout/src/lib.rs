//! Rollouts: a new version of a plugin takes effect step by step, and rolls back automatically when a gate fails.
//!
//! ```text
//! plan (configuration) + state + observations + time → the next state and its reason      decide   (pure)
//! plan + state + namespace                           → which version answers a request    part     (pure)
//! state ⇄ a file, so that a restart resumes                                               store
//! ```
//!
//! Replicas of a cluster share one state. Its leader decides by the sum of their reports, and the others follow:
//!
//! ```text
//! plan + common state + reports of all replicas + time → the next common state            lead     (pure)
//! own state + common state + own observations + time   → the next own state               follow   (pure)
//! ```
//!
//! Until the promotion, the old version stays loaded. It decides outside the share, before the step that enforces,
//! and when the new version has a fault.

mod decide;
mod follow;
mod identity;
mod lead;
mod part;
mod report;
mod state;
mod store;
#[cfg(test)]
mod tests;

pub use decide::{Decision, Lack, Wait, decide};
pub use follow::{hold, obeys};
pub use identity::Identity;
pub use lead::{Common, Led, View, departed, lead};
pub use part::{Part, Stage, Version};
pub use report::{Asked, Commons, Heard, Report, Reports, Told};
pub use state::{By, Change, Mean, Observations, Phase, State};
pub use store::{Store, Unusable};
