//! A real kube-apiserver with its own etcd, and kubectl.
//!
//! ```text
//! kubectl ──→ kube-apiserver ──(URL on loopback: HTTP/2)──────────────────────→ tollgate
//!                  │   └──(Service: HTTP/1.1)──→ service, which plays kube-proxy ─↗
//!                 etcd
//! ```
//!
//! The cluster has no other components: no controllers, no scheduler, no kubelet. Pods stay pending, a deleted
//! namespace stays terminating, and service accounts are not created. Admission needs only kube-apiserver.

pub mod authority;
mod cluster;
mod guard;
pub mod kubectl;
mod registration;
pub mod service;

pub use cluster::{ADMIN_TOKEN, Cluster, Start};
pub use registration::Registration;

/// Returns the shared cluster, or skips the test. The message of a skipped test bypasses the harness, which swallows
/// the output of passing tests.
#[macro_export]
macro_rules! cluster_or_skip {
    () => {
        match $crate::kubernetes::Cluster::shared() {
            Some(cluster) => cluster,
            None => return,
        }
    };
}
