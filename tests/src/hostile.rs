//! The hostile modules: those in `hostile/`, and some that are too large to write down.

use std::collections::BTreeMap;
use std::path::Path;

use crate::{guests, wat};

/// Returns every hostile module by its fixture's name.
///
/// # Panics
/// Panics if one of them is not valid text.
#[must_use]
pub fn all() -> BTreeMap<String, Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile");
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    let mut modules: BTreeMap<String, Vec<u8>> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "wat"))
        .map(|path| {
            (
                path.file_stem()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
                wat::fixture(&path),
            )
        })
        .collect();
    modules.insert("not-wasm".to_owned(), b"#!/bin/sh\nrm -rf /\n".to_vec());
    modules.insert("empty".to_owned(), Vec::new());
    let whole = wat::plugin("validator", "");
    modules.insert(
        "truncated".to_owned(),
        whole[..whole.len() * 2 / 3].to_vec(),
    );
    modules
}

/// Creates a plugin that allows everything and changes nothing.
///
/// # Panics
/// Panics only if the prelude is invalid.
#[must_use]
pub fn harmless() -> Vec<u8> {
    wat::plugin("plugin", "")
}

/// Creates a valid plugin slightly larger than `bytes`, with a custom section that nobody reads.
///
/// # Panics
/// Panics only if the prelude is invalid.
#[must_use]
pub fn larger_than(bytes: usize) -> Vec<u8> {
    guests::with_section(&harmless(), "padding", &vec![0; bytes])
}

/// Creates a module of a few hundred kilobytes that takes a compiler minutes and gigabytes.
///
/// The module nests loops, and the innermost loop reads and writes every local. Each local therefore needs its own
/// value at the head of each loop. The compiler's memory grows with loops × locals, but the module only with loops +
/// locals.
///
/// # Panics
/// Panics only if the text is invalid.
#[must_use]
pub fn slow_to_compile(loops: usize, locals: usize) -> Vec<u8> {
    let mut text = String::from("(func $slow (param i32) (result i32)");
    for _ in 0..locals {
        text.push_str(" (local i64)");
    }
    for _ in 0..loops {
        text.push_str("(loop ");
    }
    for local in 1..=locals {
        let other = local % locals + 1;
        text.push_str(&format!(
            "(local.set {local} (i64.add (local.get {local}) (local.get {other})))"
        ));
    }
    for _ in 0..loops {
        text.push_str("(br_if 0 (local.get 0)))");
    }
    text.push_str("(i32.wrap_i64 (local.get 1)))");
    // In a table, it counts as code of a review. Code that no review can reach is never compiled with optimising.
    text.push_str("(table $kept 1 funcref) (elem (table $kept) (i32.const 0) func $slow)");
    wat::plugin("validator", &text)
}
