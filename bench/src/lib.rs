//! Measures the cost of Tollgate, beside the same checks in plain Rust and beside webhooks as people write them.
//!
//! ```text
//! plan ─→ measure ─┬─→ servers: tollgate serve   ◀──(TLS, HTTP/1.1)──┬─ load, a process of its own
//!                  ├─→ servers: native-control   ◀──────────────────┤
//!                  ├─→ peers: Go, kube-rs        ◀──────────────────┘
//!                  └─→ report: table, JSON, targets, plots, docs/reference/performance.md
//! ```
//!
//! The native control (`bench/native`) uses the host's own server, TLS, decoder and encoder. Its checks are compiled
//! in, and it has no WebAssembly. The [`peers`] share nothing with the host. [`load`] sends requests to all of them in turn from its own process. [`plan`] defines the
//! measurements, [`measure`] runs the sides round by round, and [`report`] writes the results.

pub mod documents;
pub mod fairness;
pub mod load;
pub mod measure;
pub mod peers;
pub mod plan;
pub mod plugins;
pub mod process;
pub mod report;
pub mod servers;
