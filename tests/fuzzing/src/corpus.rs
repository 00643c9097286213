//! The committed inputs, and variations of them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::choices::Choices;

/// Returns the folder of the committed inputs, which has a folder for each target.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// Returns the files of a target in the order of their names.
///
/// # Panics
/// Panics if the folder cannot be read.
#[must_use]
pub fn inputs(target: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder().join(target)).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    paths.sort();
    paths
}

/// Picks one of the inputs and changes it a few times.
pub fn changed(inputs: &[Vec<u8>], choices: &mut Choices<'_>) -> Vec<u8> {
    let mut data = choices.pick(inputs).clone();
    for _ in 0..=choices.below(4) {
        change(&mut data, inputs, choices);
    }
    data
}

/// Changes an input as libFuzzer does: replaces a byte, removes a piece, repeats a piece, inserts a piece of another
/// input, or adds a byte.
fn change(data: &mut Vec<u8>, inputs: &[Vec<u8>], choices: &mut Choices<'_>) {
    let place = choices.below(data.len());
    let length = choices.below(32).min(data.len() - place);
    match choices.below(5) {
        0 if !data.is_empty() => data[place] = choices.byte(),
        1 => drop(data.drain(place..place + length)),
        2 => {
            let piece = data[place..place + length].to_vec();
            data.splice(place..place, piece);
        }
        3 => {
            let other = choices.pick(inputs);
            let from = choices.below(other.len());
            let piece = other[from..(from + length).min(other.len())].to_vec();
            data.splice(place..place, piece);
        }
        _ => data.insert(place, choices.byte()),
    }
}
