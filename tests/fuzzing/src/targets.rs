//! What is fuzzed, by name. Each target panics where something does not hold.

pub mod address;
pub mod condition;
pub mod config;
pub mod existing;
pub mod patch;
pub mod protocol;
pub mod registry;
pub mod review;
pub mod rewriting;

/// A target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// As its corpus's folder is called.
    pub name: &'static str,
    /// Takes any bytes.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: &[Target] = &[
    target("address", address::target),
    target("condition", condition::target),
    target("config", config::target),
    target("existing", existing::target),
    target("patch", patch::target),
    target("protocol", protocol::target),
    target("registry", registry::target),
    target("review", review::target),
    target("rewriting", rewriting::target),
];

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}
