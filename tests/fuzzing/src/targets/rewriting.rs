//! Rewriting a plugin does not change its answers: snapshot, joined, trimmed and original.

use std::cell::OnceCell;

use tollgate::fuzzing::rewriting::{Compared, Rewriting};

use crate::choices::Choices;
use crate::plugin;

thread_local! {
    /// The engine for all inputs, because each engine reserves gigabytes of addresses.
    static REWRITING: OnceCell<Rewriting> = const { OnceCell::new() };
}

/// Generates a plugin from the bytes, and compares all its forms.
pub fn target(data: &[u8]) {
    if let Err(difference) = compare(&mut Choices::new(data)) {
        panic!("{difference:#}");
    }
}

/// Compares the forms of a generated plugin, and returns the result.
///
/// # Errors
/// The difference.
///
/// # Panics
/// If there is no room for an engine.
pub fn compare(choices: &mut Choices<'_>) -> Result<Compared, String> {
    let module = plugin::generate(choices);
    REWRITING.with(|rewriting| {
        let rewriting =
            rewriting.get_or_init(|| Rewriting::new().expect("an engine can be set up"));
        rewriting
            .compare(module)
            .map_err(|difference| format!("{difference:#}"))
    })
}
