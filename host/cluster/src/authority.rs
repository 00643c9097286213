//! The own CA and the certificate of the server, in one Secret that all replicas share.
//!
//! ```text
//! Secret ─▶ stored: what it holds, and what is due by the clock (pure) ─▶ task: writes, and gives out the certificate
//! ```
//!
//! No replica is special: each of them looks at the Secret, and does what is due. kube-apiserver refuses a write that
//! is based on an old version. Then the replica takes what the other one wrote.

mod stored;
mod task;

pub use self::task::Certificate;
pub(crate) use self::task::keep;
