//! Turns a plugin's file into a guest that can be called.
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
//! The bytes are untrusted. A compiler cannot be interrupted. Neither the compiler nor the rewriting of the snapshot is
//! trusted not to panic or run out of memory. All of these steps therefore run in processes that the host can lose.

mod excepting;
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod images;
mod load;
mod lookups;
pub mod prepare;
mod protocol;
mod rollout;
mod set;
mod shadow;
mod worker;

pub use group::Group;
pub use load::{LoadError, Loader};
pub use protocol::{Manifest, Stage};
pub(crate) use rollout::{Answering, FollowUp, InRollout, Outcome, Rollout, Tally, Versions};
pub(crate) use set::PluginCode;
pub(crate) use set::RequestFilter;
pub use set::{LoadedPlugin, Plugin, PluginSet, PluginState};
pub(crate) use shadow::Shadow;
pub use worker::{PrepareError, ProtocolError};
