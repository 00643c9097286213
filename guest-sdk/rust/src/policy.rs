//! The traits of a plugin: a policy is configured from settings, and evaluates reviews.

use std::cell::RefCell;
use std::thread::LocalKey;

use serde::de::DeserializeOwned;

use crate::{Denial, Manifest, Mutation, Review, SettingsErrors};

/// A policy that is configured from settings.
///
/// The host calls [`configure`](Self::configure) once when it loads the plugin, and keeps a snapshot of the memory
/// after it. Do expensive work (regular expressions, tables) there, because no request pays for it.
pub trait Policy: Sized + 'static {
    /// The settings as they are in the configuration. `#[serde(deny_unknown_fields)]` reports typing errors.
    /// `#[serde(default)]` lets the plugin run without settings, which are then `{}`.
    type Settings: DeserializeOwned;

    /// Checks the settings and prepares the policy. Must be deterministic, because the host may call it again.
    ///
    /// # Errors
    /// All errors in the settings, each with its setting. The host then does not load the plugin.
    fn configure(settings: Self::Settings) -> Result<Self, SettingsErrors>;
}

/// A policy that evaluates requests, exported with [`validator!`](crate::validator) or [`plugin!`](crate::plugin).
pub trait Validate: Policy {
    /// Evaluates the review. The object is the result of all mutators.
    ///
    /// # Errors
    /// The denial. A panic is not a denial but a fault of the plugin, and the failure policy decides about the request.
    fn validate(&self, review: &Review) -> Result<(), Denial>;
}

/// A policy that changes objects, exported with [`mutator!`](crate::mutator) or [`plugin!`](crate::plugin).
///
/// The host may call it on its own output. It must then change nothing.
pub trait Mutate: Policy {
    /// Evaluates the review and returns the changes. On DELETE there is no object, and nothing to change.
    ///
    /// # Errors
    /// The denial. A panic is not a denial but a fault of the plugin, and the failure policy decides about the request.
    fn mutate(&self, review: &Review) -> Result<Mutation, Denial>;
}

/// A policy with a manifest and a static slot. The export macros implement it.
pub trait Plugin: Policy {
    /// Returns the plugin's manifest.
    fn manifest() -> Manifest;

    /// Returns the slot of the configured policy.
    #[doc(hidden)]
    fn slot() -> &'static LocalKey<RefCell<Option<Self>>>;
}
