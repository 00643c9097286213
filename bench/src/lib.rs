//! Measures the cost of Tollgate, beside the same checks in plain Rust.
//!
//! ```text
//! plan ─→ measure ─┬─→ servers: tollgate serve   ◀──(TLS, HTTP/1.1)──┬─ load, a process of its own
//!                  ├─→ servers: native-control   ◀──────────────────┘
//!                  └─→ report: table, JSON, targets, plots, docs/performance.md
//! ```
//!
//! The native control (`bench/native`) is the host's own server, TLS, decoding and responding, with the checks compiled
//! in and no WebAssembly. [`load`] drives both in turn from its own process. [`plan`] defines the measurements,
//! [`measure`] runs the sides round by round, and [`report`] presents the results.

pub mod documents;
pub mod fairness;
pub mod load;
pub mod measure;
pub mod plan;
pub mod plugins;
pub mod process;
pub mod report;
pub mod servers;
