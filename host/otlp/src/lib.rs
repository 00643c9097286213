//! Exports traces and log records to a collector, by OTLP over HTTP with protobuf.
//!
//! ```text
//! a review ─► Sampler ─► Exporter::offer (bounded queue) ─► one thread for each signal: batches ─► POST to the collector
//! ```
//!
//! - [`Sampler`] decides at the start of a review whether it is traced.
//! - [`Exporter`] takes items off the request path. An item that does not fit is dropped and counted.
//! - [`message`] has the messages of the protocol, with their numbers.
//!
//! Nothing here waits for a collector on the request path, and no failure of a collector affects an answer. The maker of an
//! item decides its content.

mod exporter;
mod identifiers;
mod sender;

pub mod message;

pub use exporter::{Exporter, Item, StartError};
pub use identifiers::{Identifiers, Sampler, TraceContext};
pub use sender::{SendError, check};
