//! Tollgate: a WebAssembly plugin host for Kubernetes admission.
//!
//! ```text
//! kube-apiserver ── HTTPS ──▶ server ──▶ review ──▶ pipeline ──▶ review ──▶ answer
//!                            listener,   decode     match          respond
//!                            caps,                  mutate ┐
//!                            drain                  validate├─▶ engine: a fresh instance per call
//!                                                   merge   │   fuel, CPU, wall, memory, output
//!                                                   patch ──┘   typed faults
//!
//! configuration ─▶ config ─▶ plugin: read → prepare (child process) → link → the live set
//!           └──────── live: finds changes, reconciles, and swaps the set ─────────┘
//! ```
//!
//! The modules are the stages:
//!
//! - [`server`] owns the connection.
//! - [`review`] reads and writes the wire format.
//! - [`pipeline`] leads a review through the plugins.
//! - [`condition`] evaluates the expressions that decide whether a plugin is called.
//! - [`patch`] defines what a mutation may change, and how kube-apiserver is told.
//! - [`engine`] is the sandbox with its limits.
//! - [`plugin`] turns a file into a guest.
//! - [`config`] reads the operator's configuration.
//! - [`live`] brings changes of the configuration and the plugins into service.
//! - [`decision`] records what is reported about a review afterwards.
//! - [`comparison`] records what is reported about a shadow version.
//! - [`manifests`] registers the host with kube-apiserver.

pub mod cli;
pub mod comparison;
pub mod condition;
pub mod config;
pub mod decision;
pub mod document;
pub mod engine;
mod file;
#[doc(hidden)]
pub mod fuzzing;
mod kubernetes;
pub mod live;
pub mod manifests;
mod memory;
pub mod metrics;
pub mod patch;
pub mod pipeline;
pub mod plugin;
pub mod registry;
pub mod review;
pub mod server;
mod stamp;
pub mod telemetry;
