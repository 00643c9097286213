//! What a plugin is, in Rust: settings turned into a policy, and a policy that judges reviews.

use std::cell::RefCell;
use std::thread::LocalKey;

use serde::de::DeserializeOwned;

use crate::{Denial, Manifest, Mutation, Review, SettingsErrors};

/// Settings turned into something that judges.
///
/// The host calls [`configure`](Self::configure) once when it loads the plugin and keeps a snapshot of what it
/// leaves in memory. Whatever is expensive (regular expressions, tables) belongs there: no request pays for it.
pub trait Policy: Sized + 'static {
    /// The settings as the configuration has them. `#[serde(deny_unknown_fields)]` turns a typing error into an
    /// error; `#[serde(default)]` makes the plugin run without settings, which are `{}` then.
    type Settings: DeserializeOwned;

    /// Checks the settings and prepares the policy. Must be deterministic: the host may run it again.
    ///
    /// # Errors
    /// Everything that is wrong with the settings, by setting. The host then does not load the plugin.
    fn configure(settings: Self::Settings) -> Result<Self, SettingsErrors>;
}

/// A policy that judges requests, exported with [`validator!`](crate::validator) or
/// [`plugin!`](crate::plugin).
pub trait Validate: Policy {
    /// Judges the review on the object as every mutator left it.
    ///
    /// # Errors
    /// The denial. A panic is not a denial but a fault of the plugin, which follows its failure policy.
    fn validate(&self, review: &Review) -> Result<(), Denial>;
}

/// A policy that changes objects, exported with [`mutator!`](crate::mutator) or [`plugin!`](crate::plugin).
///
/// It may run again on its own output, and must then change nothing.
pub trait Mutate: Policy {
    /// Judges the review and says what is to change. On DELETE there is no object, and nothing to change.
    ///
    /// # Errors
    /// The denial. A panic is not a denial but a fault of the plugin, which follows its failure policy.
    fn mutate(&self, review: &Review) -> Result<Mutation, Denial>;
}

/// A policy with a manifest and a place in memory. The export macros implement it.
pub trait Plugin: Policy {
    /// What the plugin says of itself.
    fn manifest() -> Manifest;

    /// Where the configured policy is kept.
    #[doc(hidden)]
    fn slot() -> &'static LocalKey<RefCell<Option<Self>>>;
}
