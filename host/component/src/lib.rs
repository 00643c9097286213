//! Rewrites of WebAssembly components that Tollgate loads.
//!
//! - `componentize` turns a core module with embedded WIT into a component.
//! - `shim` removes the modules that only pass calls on.
//! - `flatten` takes a plugin's component out of one that only adds traps.
//! - `order` puts modules that come in a random order into one order.
//! - `separate` takes the contents of memories out, so that plugins share code.
//! - `lend` lets a component import its memories, so that plugins share compiled code.
//! - `keep` lets an instance be reset after a call.
//! - `trim` removes what a plugin's exports cannot reach.
//!
//! All of them read bytes that nobody has checked.

mod componentize;
mod flatten;
mod keep;
mod lend;
mod order;
mod outline;
mod separate;
mod shim;
pub mod trim;

pub use componentize::{ComponentizeError, componentize, exports, imports};
pub use flatten::flattened;
pub use keep::{RESET, kept};
pub use lend::{Lent, LentMemory, Wanted, WantedError, lent, memory_import, parted, wanted};
pub use order::ordered;
pub use separate::{Separated, SlotError, separate, slots};
pub use shim::without_shim;
pub use trim::{Missing, trim};
