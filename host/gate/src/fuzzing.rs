//! Access to private code for fuzz targets. This module is not a stable interface.

pub mod rewriting;

pub use crate::pipeline::fuzzing as existing;
pub use crate::plugin::fuzzing as protocol;
pub use tollgate_config::condition::fuzzing as condition;
pub use tollgate_oci::fuzzing as registry;
