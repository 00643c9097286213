//! A real kube-apiserver with its own etcd, and kubectl: the programs between Tollgate and its users.
//!
//! ```text
//! kubectl ──→ kube-apiserver ──(URL on loopback: HTTP/2)──────────────────────→ tollgate
//!                  │   └──(Service: HTTP/1.1)──→ service, which plays kube-proxy ─↗
//!                 etcd
//! ```
//!
//! No other part of a cluster runs: no controllers, no scheduler, no kubelet. Pods therefore stay pending, a deleted
//! namespace stays terminating, and nothing creates service accounts. All of admission is in kube-apiserver.

pub mod authority;
pub mod bulk;
mod cluster;
mod guard;
pub mod kubectl;
mod registration;
pub mod service;

pub use cluster::{ADMIN_TOKEN, Answer, Cluster, Start};
pub use registration::Registration;

/// Returns the shared cluster, or skips the test. The skip is reported past the test harness, which hides the output of
/// a passing test.
#[macro_export]
macro_rules! cluster_or_skip {
    () => {
        match $crate::kubernetes::Cluster::shared() {
            Some(cluster) => cluster,
            None => return,
        }
    };
}
