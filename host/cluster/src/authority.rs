//! The own CA and the certificate of the server, in one Secret that all replicas share.
//!
//! ```text
//! Secret ─▶ stored: what it holds, and what is due by the clock (pure) ─▶ task: writes, and gives out the certificate
//! ```
//!
//! All replicas are equal: each of them reads the Secret, and makes the change that is due. kube-apiserver refuses a
//! write that is based on an old version. Then the replica takes over the version of the other one.

mod stored;
mod task;

pub use self::task::Certificate;
pub(crate) use self::task::keep;
