//! Rewriting a plugin does not change its answers: snapshot, joined, trimmed and original form agree.

use std::cell::OnceCell;

use tollgate_gate::fuzzing::rewriting::{Compared, Rewriting};

use crate::choices::Choices;
use crate::plugin;

thread_local! {
    /// All inputs share one engine, because an engine reserves gigabytes of address space.
    static REWRITING: OnceCell<Rewriting> = const { OnceCell::new() };
}

/// Derives a plugin from the bytes and compares all its forms.
pub fn target(data: &[u8]) {
    if let Err(difference) = compare(&mut Choices::new(data)) {
        panic!("{difference:#}");
    }
}

/// Does the same as `target`, and returns the result.
///
/// # Errors
/// Returns the difference as text.
///
/// # Panics
/// Panics if there is no room for an engine.
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
