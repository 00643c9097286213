//! Tests the host between kubectl and a real kube-apiserver.
//!
//! All tests share one cluster. Each test registers its own host for its own namespaces, so that tests do not disturb
//! each other. A test that affects the whole cluster starts its own cluster.

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
