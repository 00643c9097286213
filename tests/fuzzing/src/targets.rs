//! The fuzz targets, by name. Each target panics if a property does not hold.

pub mod address;
pub mod bundle;
pub mod condition;
pub mod config;
pub mod existing;
pub mod patch;
pub mod protocol;
pub mod registry;
pub mod review;
pub mod rewriting;
pub mod tuf;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the target and of the folder of its corpus.
    pub name: &'static str,
    /// The function to run, which takes any bytes.
    pub run: fn(&[u8]),
}

/// All fuzz targets.
pub const TARGETS: &[Target] = &[
    target("address", address::target),
    target("bundle", bundle::target),
    target("condition", condition::target),
    target("config", config::target),
    target("existing", existing::target),
    target("patch", patch::target),
    target("protocol", protocol::target),
    target("registry", registry::target),
    target("review", review::target),
    target("rewriting", rewriting::target),
    target("tuf", tuf::target),
];

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}
