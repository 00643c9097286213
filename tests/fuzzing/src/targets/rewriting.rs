//! Rewriting a plugin changes nothing that it answers: snapshot, joined, trimmed, and as it came.

use std::cell::OnceCell;

use tollgate::fuzzing::rewriting::{Compared, Rewriting};

use crate::choices::Choices;
use crate::plugin;

thread_local! {
    /// An engine reserves gigabytes of addresses: one for all inputs.
    static REWRITING: OnceCell<Rewriting> = const { OnceCell::new() };
}

/// Makes a plugin of the bytes and compares all forms of it.
pub fn target(data: &[u8]) {
    if let Err(difference) = compare(&mut Choices::new(data)) {
        panic!("{difference:#}");
    }
}

/// The same, with what came of it.
///
/// # Errors
/// The difference.
///
/// # Panics
/// When there is no room for an engine.
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
