//! A plugin's way from a file to a guest that can be called.
//!
//! ```text
//! source → read (size cap) → digest
//!   → prepare, in a child process under CPU and memory limits:
//!       componentize → instrument → compile → admit → describe → configure → snapshot
//!       → join → trim → compile
//!   → link (the code comes from the cache that the child filled) → match → publish
//! ```
//!
//! The bytes are untrusted: a compiler cannot be interrupted, and neither it nor the snapshot's rewriting may be
//! trusted not to panic or to run out of memory. So all of it happens in a process that can be lost.

mod componentize;
mod load;
mod outline;
pub mod prepare;
mod protocol;
mod set;
mod shadow;
mod shim;
mod trim;
mod worker;

pub(crate) use componentize::{componentize, exports, imports};
pub use load::{LoadError, Loader};
pub use protocol::{Manifest, Stage};
pub(crate) use set::Asked;
pub(crate) use set::PluginCode;
pub use set::{LoadedPlugin, Plugin, PluginSet, PluginState};
pub(crate) use shadow::Shadow;
pub use worker::PrepareError;
