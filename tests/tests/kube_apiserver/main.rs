//! Tests the host between kubectl and a real kube-apiserver.
//!
//! All tests share one cluster. Each test registers its own host for its own namespaces, so that tests do not disturb
//! each other. A test that affects the whole cluster starts its own cluster.

mod access;
mod authentication;
mod away;
mod builtins;
mod bypasses;
mod certificates;
mod chart;
mod creations;
mod custom_resources;
mod effective;
mod explained;
mod faults;
mod fixtures;
mod images;
mod installed;
mod load;
mod lookups;
mod namespaces;
mod natural_order;
mod objects;
mod offline;
mod playground;
mod plugins_as_resources;
mod pods;
mod policies;
mod printed;
mod pull_secrets;
mod registrar;
mod resources;
mod rollouts;
mod scan;
mod scanning;
mod tenants;
mod traces;
mod uninstall;
mod upstream;
