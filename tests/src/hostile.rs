//! The hostile modules: those in `hostile/`, and those that are too large to be written down.

use std::collections::BTreeMap;
use std::path::Path;

use crate::{guests, wat};

/// Every hostile module by its fixture's name.
///
/// # Panics
/// When one of them is not valid text.
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

/// A plugin that has nothing against anything and changes nothing.
///
/// # Panics
/// Never, as long as the prelude is valid.
#[must_use]
pub fn harmless() -> Vec<u8> {
    wat::plugin("plugin", "")
}

/// A plugin of some bytes over the size given: valid, with a custom section that nobody reads.
///
/// # Panics
/// Never, as long as the prelude is valid.
#[must_use]
pub fn larger_than(bytes: usize) -> Vec<u8> {
    guests::with_section(&harmless(), "padding", &vec![0; bytes])
}

/// A module of a few hundred kilobytes that a compiler takes minutes and gigabytes for.
///
/// Loops in loops, and in the innermost every local is read and written: at the head of each loop every local needs
/// a value of its own, so that what the compiler holds grows with loops × locals while the module grows with
/// loops + locals.
///
/// # Panics
/// Never, as long as the text is valid.
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
    wat::plugin("validator", &text)
}
