//! Generates plugins: core modules that fit the contract and run random code.
//!
//! ```text
//! shape     what there is: imports, memories, tables, globals, tags, functions and their types
//! body      random functions of it: valid by construction, mostly without traps, bounded by fuel at the latest
//! entry     what the contract asks for: allocator, checksum, describe, configure, mutate, validate
//! encode    the module, with the contract's world embedded
//! ```
//!
//! An answer has a checksum over all memories, globals and tables. So two forms of one plugin with different state give
//! different answers.

mod body;
mod encode;
mod entry;
mod shape;

use crate::choices::Choices;
use shape::Shape;

/// Generates a core module with its embedded world, like a toolchain.
#[must_use]
pub fn generate(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut shape = Shape::choose(choices);
    let bodies = entry::bodies(&mut shape, choices);
    encode::encode(&shape, &bodies, choices)
}
