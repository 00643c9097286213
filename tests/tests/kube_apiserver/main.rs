//! The host between kubectl and a real kube-apiserver.
//!
//! All tests share one cluster. Each registers a host of its own, for namespaces of its own, so that they do not get
//! into each other's way; what is about the whole cluster has a cluster to itself.

mod authentication;
mod away;
mod bypasses;
mod custom_resources;
mod faults;
mod fixtures;
mod load;
mod objects;
mod offline;
mod printed;
mod resources;
mod upstream;
