//! Kept sets of a TUF repository: they are verified from a pinned root, or rejected with an error of limited length.

use tollgate_gate::fuzzing::registry::tuf;

/// Limit for an error. It names files and roles of the repository, and is cut.
const LONGEST_ERROR_BYTES: usize = 16 << 10;
/// The root that the sets of the corpus follow from.
const PINNED: &[u8] = include_bytes!("tuf-root.json");
const TARGET: &str = "trusted_root.json";
/// The authorities in the targets that the keys of the repository have signed.
const SIGNED: [&str; 3] = ["first", "second", "delegated"];

/// Verifies the bytes as a kept set, and as a pinned root with a kept set in the next line.
///
/// # Panics
/// Panics if a target is accepted that nobody has signed, or if an error is not one short line.
pub fn target(data: &[u8]) {
    match tuf(PINNED, data, TARGET) {
        Ok(text) => assert!(
            SIGNED
                .iter()
                .any(|name| text.contains(&format!("\"commonName\": \"{name}\""))),
            "nobody has signed `{text}`"
        ),
        Err(error) => is_short(&error),
    }
    if let Some(end) = data.iter().position(|byte| *byte == b'\n')
        && let Err(error) = tuf(&data[..end], &data[end + 1..], TARGET)
    {
        is_short(&error);
    }
}

fn is_short(error: &str) {
    assert!(
        error.len() <= LONGEST_ERROR_BYTES,
        "an error of {} bytes",
        error.len()
    );
    assert!(
        !error.contains(char::is_control),
        "control characters in an error: {error:?}"
    );
}
