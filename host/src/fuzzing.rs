//! Doors to what is private, for those who fuzz it. Not an interface: whatever is here changes with what lies behind it.

pub mod rewriting;

pub use crate::condition::fuzzing as condition;
pub use crate::pipeline::fuzzing as existing;
pub use crate::plugin::fuzzing as protocol;
pub use crate::registry::fuzzing as registry;
