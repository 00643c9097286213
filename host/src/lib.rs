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
//!           └──────── live: looks for what has changed, and swaps the set ────────┘
//! ```
//!
//! The modules are the stages: [`server`] owns the connection, [`review`] the wire format, [`pipeline`] the way
//! through the plugins, [`condition`] the expressions that decide about it, [`patch`] what a mutation may do and how
//! it is told to kube-apiserver, [`engine`] the sandbox and its limits, [`plugin`] how a file becomes a guest,
//! [`config`] what the operator said, [`live`] how a change of that comes into force, [`decision`] what is told of a
//! review afterwards, [`comparison`] what of a candidate, [`manifests`] how kube-apiserver learns of the host.

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
