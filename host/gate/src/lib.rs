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
//! - [`pipeline`] leads a review through the plugins.
//! - [`plugin`] turns a file into a guest.
//! - [`live`] brings changes of the configuration and the plugins into service.
//! - [`decision`] records the facts about a review that are shown afterwards.
//! - [`export`] hands reviews to the exporters of traces and decisions.
//! - [`recording`] hands reviews to the recorder.
//! - [`shadow`] compares a plugin with its shadow version.
//! - [`idle`] is for threads that must not hold up reviews.
//!
//! The other stages are separate crates: `tollgate_server`, `tollgate_admission`, `tollgate_config`,
//! `tollgate_engine` and `tollgate_json`.

pub mod decision;
pub mod export;
#[doc(hidden)]
pub mod fuzzing;
pub mod idle;
pub mod live;
pub mod pipeline;
pub mod plugin;
pub mod recording;
pub mod shadow;
