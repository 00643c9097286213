//! Write Tollgate admission plugins in Rust.
//!
//! A plugin is a type that holds the settings and implements [`Policy`] and [`Validate`], [`Mutate`] or both. One of
//! the macros [`validator!`], [`mutator!`] and [`plugin!`] exports it:
//!
//! ```
//! use tollgate_sdk::prelude::*;
//!
//! #[derive(serde::Deserialize)]
//! #[serde(deny_unknown_fields, rename_all = "camelCase")]
//! struct ReplicaLimit {
//!     #[serde(default = "ten")]
//!     max_replicas: i64,
//! }
//!
//! fn ten() -> i64 {
//!     10
//! }
//!
//! impl Policy for ReplicaLimit {
//!     type Settings = Self;
//!
//!     fn configure(settings: Self) -> Result<Self, SettingsErrors> {
//!         let mut errors = SettingsErrors::new();
//!         if settings.max_replicas < 1 {
//!             errors.at("/maxReplicas", "must be at least 1");
//!         }
//!         errors.or(settings)
//!     }
//! }
//!
//! impl Validate for ReplicaLimit {
//!     fn validate(&self, review: &Review) -> Result<(), Denial> {
//!         match review.object().integer(at!("/spec/replicas")) {
//!             Some(replicas) if replicas > self.max_replicas => Err(Denial::new("too many replicas")
//!                 .at("/spec/replicas", format!("must be at most {}", self.max_replicas))),
//!             _ => Ok(()),
//!         }
//!     }
//! }
//!
//! tollgate_sdk::validator! {
//!     ReplicaLimit,
//!     rules: [Rule::on([Operation::Create, Operation::Update], "apps", "v1", ["deployments"])],
//! }
//!
//! // In a test, without WebAssembly:
//! # fn main() {
//! use tollgate_sdk::testing::TestReview;
//!
//! let deployment = serde_json::json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 12}});
//! let outcome = TestReview::create(deployment).validate::<ReplicaLimit>();
//! assert_eq!(outcome.causes(), [("/spec/replicas", "must be at most 10")]);
//! # }
//! ```
//!
//! # The life of a plugin
//!
//! ```text
//! load      describe ─→ configure(settings) ─→ Policy::configure ─→ snapshot of the memory
//! request   a fresh instance of the snapshot ─→ Mutate::mutate   ─→ Mutation or Denial
//! request   a fresh instance of the snapshot ─→ Validate::validate ─→ () or Denial
//! ```
//!
//! Nothing carries over between requests, and a plugin needs no cleanup. A panic ends the call. The operator reads its
//! text and place, and the plugin's failure policy decides about the request.
//!
//! # Features
//!
//! - `bump-allocator` (default): memory for one review, which does not grow for a review of ordinary size.
//! - `access`: [`access::Action::check`], for plugins whose configuration grants the capability `access`.
//! - `clock`: [`clock::now`], for plugins whose configuration grants the capability `clock`.
//! - `cluster`: [`cluster::get`], [`cluster::find`] and [`cluster::list`], for plugins whose configuration has `lookups`.
//! - `images`: [`images::verify`], for plugins whose configuration has `images`.
//! - `pattern`: [`pattern::Pattern`], regular expressions that are compiled in `configure`.

#[cfg(feature = "access")]
pub mod access;
#[cfg(any(
    test,
    all(
        target_family = "wasm",
        target_os = "unknown",
        feature = "bump-allocator"
    )
))]
mod allocator;
#[doc(hidden)]
pub mod bindings;
#[cfg(feature = "clock")]
pub mod clock;
#[cfg(feature = "cluster")]
pub mod cluster;
mod denial;
#[doc(hidden)]
pub mod export;
mod host;
pub mod image;
#[cfg(feature = "images")]
pub mod images;
pub mod log;
mod manifest;
mod panic;
mod patch;
#[cfg(feature = "pattern")]
pub mod pattern;
mod pointer;
mod policy;
mod qualified_name;
mod review;
mod settings;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
#[cfg(any(not(target_arch = "wasm32"), feature = "cluster"))]
mod tree;

pub use bindings::imports::tollgate::admission::types::{
    AdmissionRequest, Cause, Denial, FromPath, GroupVersionKind, GroupVersionResource, Manifest,
    NewValue, Node, Operation, PatchOperation, PlaceValue, Rule, SettingsError, Value,
};
pub use denial::Findings;
pub use patch::{Mutation, Patch};
#[doc(hidden)]
pub use pointer::literal as __literal;
pub use pointer::{Pointer, PointerError, Pointers};
pub use policy::{Mutate, Plugin, Policy, Validate};
pub use qualified_name::{QualifiedName, QualifiedNameError};
pub use review::{Document, ReadError, Review};
pub use settings::SettingsErrors;

/// The items that nearly every plugin uses.
pub mod prelude {
    pub use crate::{
        Cause, Denial, Document, Findings, Mutate, Mutation, Node, Operation, Patch, Pointer,
        Pointers, Policy, QualifiedName, Review, Rule, SettingsErrors, Validate, Value, at,
        pointer,
    };
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
