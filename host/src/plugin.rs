//! A plugin's way from a file to a guest that can be called.
//!
//! ```text
//! source → read (size cap) → digest
//!   → prepare, in child processes without files or network, under limits of CPU time and memory:
//!       one runs guest code:  componentize → instrument → compile for once → admit → describe → configure
//!                             → snapshot → join → trim → component
//!       another does not:     compile → code
//!   → store → link → match → publish
//! ```
//!
//! The bytes are untrusted: a compiler cannot be interrupted, and neither it nor the snapshot's rewriting may be
//! trusted not to panic or to run out of memory. So all of it happens in processes that can be lost.

mod componentize;
#[doc(hidden)]
pub mod fuzzing;
mod load;
mod outline;
pub mod prepare;
mod protocol;
mod set;
mod shadow;
mod shim;
mod store;
mod trim;
mod worker;

pub(crate) use componentize::{componentize, exports, imports};
pub use load::{LoadError, Loader};
pub use protocol::{Manifest, Stage};
pub(crate) use set::Asked;
pub(crate) use set::PluginCode;
pub use set::{LoadedPlugin, Plugin, PluginSet, PluginState};
pub(crate) use shadow::Shadow;
pub(crate) use shim::without_shim;
pub(crate) use store::Code;
pub(crate) use trim::trim;
pub use worker::PrepareError;
