//! A real kube-apiserver with an etcd of its own, and kubectl: what Tollgate's users have between them and it.
//!
//! ```text
//! kubectl ──→ kube-apiserver ──(URL on loopback: HTTP/2)──────────────────────→ tollgate
//!                  │   └──(Service: HTTP/1.1)──→ service, which plays kube-proxy ─↗
//!                 etcd
//! ```
//!
//! There is no other part of a cluster: no controllers, no scheduler, no kubelet. Pods stay pending, a namespace that
//! is deleted stays terminating, service accounts are not made. What admission is about is all in kube-apiserver.

pub mod authority;
mod cluster;
mod guard;
pub mod kubectl;
mod registration;
pub mod service;

pub use cluster::{ADMIN_TOKEN, Cluster, Start};
pub use registration::Registration;

/// The shared cluster, or the end of the test: what is left out is said past the harness, which swallows what a
/// passing test prints.
#[macro_export]
macro_rules! cluster_or_skip {
    () => {
        match $crate::kubernetes::Cluster::shared() {
            Some(cluster) => cluster,
            None => return,
        }
    };
}
