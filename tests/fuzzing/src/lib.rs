//! What is fuzzed: one function per target, each of which takes any bytes and panics where something does not hold.
//!
//! `fuzz/` hands them to libFuzzer; the tests here replay what it has found on every compiler.

pub mod choices;
pub mod corpus;
pub mod document;
pub mod plugin;
pub mod targets;
