//! Answers of registries, and references to their content: they are read, or rejected with an error of limited length.

use tollgate_config::Reference;
use tollgate_gate::fuzzing::registry::{count_signatures, is_layers_digest, is_signed, layer};

/// Limit for an error, which must fit in a log line, whatever a registry sends.
const LONGEST_ERROR_BYTES: usize = 2048;

/// Reads the bytes as each part of an answer.
pub fn target(data: &[u8]) {
    match layer(data) {
        Ok(digest) => assert!(is_layers_digest(&digest), "`{digest}` is no digest"),
        Err(error) => is_a_line(&error),
    }
    match count_signatures(data) {
        Ok(count) => assert!(count <= 1000, "{count} signatures"),
        Err(error) => is_a_line(&error),
    }
    let (key, rest) = data.split_at(data.len() / 2);
    let (payload, signature) = rest.split_at(rest.len() / 2);
    assert!(!is_signed(key, payload, signature), "a forged signature");
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(reference) = Reference::parse(text)
    {
        let written = reference.to_string();
        let again = Reference::parse(&written);
        assert!(
            again.is_ok_and(|again| again == reference),
            "`{written}` is another reference"
        );
    }
}

fn is_a_line(error: &str) {
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
