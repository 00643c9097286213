//! Recordings of admission reviews, with the answers of a server.
//!
//! ```text
//! a review ─► Recorder (bounded queue) ─► one thread: Redactor ─► Ring ─► segments in a folder
//!                                                                              │
//!                                             tollgate replay ◄─ Recording ◄───┘
//! ```
//!
//! - [`Recorder`] takes reviews off the request path. A review that does not fit is dropped and counted.
//! - [`Redactor`] replaces the content of Secrets and configured places by keyed hashes.
//! - [`Ring`] writes segments and deletes the oldest ones, so that a recording has a bounded size.
//! - [`Recording`] reads segments, also those that a crash cut short.
//! - [`audit`] makes a recording from the audit log of kube-apiserver.
//!
//! The format is described in `docs/reference/recordings.md`.

pub mod audit;
mod format;
mod read;
mod recorder;
mod redact;
mod segment;

pub use format::{
    CallNote, Endpoint, FORMAT, FormatError, Header, Origin, PluginNote, PluginSetNote, Record,
};
pub use read::{Damage, Entry, OpenError, Recording, Records};
pub use recorder::{Captured, DropReason, Observer, Recorder, RecorderOptions, StartError};
pub use redact::{PatternError, Redacted, Redactor, is_content};
pub use segment::{Ring, RingOptions, Written};
