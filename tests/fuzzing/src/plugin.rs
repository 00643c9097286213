//! Generates plugins: core modules that fit the contract and otherwise contain random code.
//!
//! ```text
//! shape    the parts: imports, memories, tables, globals, tags, functions and their types
//! body     random functions: valid by construction, mostly without traps, and limited by fuel
//! entry    the functions that the contract requires: allocator, checksum, describe, configure, mutate, validate
//! encode   the module, with the contract's world embedded
//! ```
//!
//! Answers carry a checksum over all memories, globals and tables. Two forms of a plugin that differ in any state
//! therefore give different answers.

mod body;
mod encode;
mod entry;
mod shape;

use crate::choices::Choices;
use shape::Shape;

/// Generates a core module with its world embedded, as a toolchain outputs it.
#[must_use]
pub fn generate(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut shape = Shape::choose(choices);
    let bodies = entry::bodies(&mut shape, choices);
    encode::encode(&shape, &bodies, choices)
}
