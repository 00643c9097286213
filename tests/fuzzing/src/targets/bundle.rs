//! Bundles, trusted roots and lists of referrers: they are read, or rejected with an error of limited length.

use tollgate_gate::fuzzing::registry::{
    bundle, is_layers_digest, keyless, next_page_of, referrers,
};

/// Limit for an error. A bundle names identities, which are cut.
const LONGEST_ERROR_BYTES: usize = 4096;
/// The key that has signed the bundles of the corpus.
const KEY: &str = "3059301306072a8648ce3d020106082a8648ce3d0301070342000403554fcd859e1c033e8e2b9215ba23cff1174d1a32d9b0a9bef7a849\
                   b2c7b81c5ea3c1b848ad84b29047f258fc52b313a9dcf1d636f43f24d7cfb69c1ca1743d";

/// The page of a list whose `Link` header is read.
const PAGE: &str =
    "https://registry.example.com/v2/apps/app/referrers/sha256:00?artifactType=a%2Fb";

/// Reads the bytes as a bundle, as a trusted root with a bundle in the next line, as a list of referrers, and as the header
/// that names its next page.
///
/// The digest that is asked for is in no bundle of the corpus, so none may be accepted, however its signature is.
pub fn target(data: &[u8]) {
    is_refused(bundle(&key(), data));
    if let Some(end) = data.iter().position(|byte| *byte == b'\n') {
        is_refused(keyless(&data[..end], &data[end + 1..]));
    }
    for digest in referrers(data) {
        assert!(is_layers_digest(&digest), "`{digest}` is no digest");
    }
    if let Ok(header) = std::str::from_utf8(data)
        && let Some(next) = next_page_of(PAGE, header)
    {
        let is_home = next.starts_with("https://registry.example.com/");
        assert!(is_home, "`{next}` is not at the registry");
    }
}

fn is_refused(read: Result<(), String>) {
    let error = read.expect_err("no signature of the digest exists");
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

fn key() -> Vec<u8> {
    let digits: Vec<u32> = KEY.chars().filter_map(|digit| digit.to_digit(16)).collect();
    let bytes = digits.chunks_exact(2).map(|pair| pair[0] * 16 + pair[1]);
    bytes.filter_map(|byte| u8::try_from(byte).ok()).collect()
}
