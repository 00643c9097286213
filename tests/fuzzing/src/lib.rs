//! The fuzz targets: one function each, which takes any bytes and panics if a property does not hold.
//!
//! `fuzz/` passes them to libFuzzer. The tests here replay libFuzzer's findings on every compiler.

pub mod choices;
pub mod corpus;
pub mod document;
pub mod plugin;
pub mod targets;
