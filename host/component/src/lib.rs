//! Rewrites of WebAssembly components that Tollgate loads.
//!
//! - `componentize` turns a core module with embedded WIT into a component.
//! - `shim` removes the modules that only pass calls on.
//! - `trim` removes what a plugin's exports cannot reach.
//!
//! All of them read bytes that nobody has checked.

mod componentize;
mod outline;
mod shim;
pub mod trim;

pub use componentize::{ComponentizeError, componentize, exports, imports};
pub use shim::without_shim;
pub use trim::{Missing, trim};
