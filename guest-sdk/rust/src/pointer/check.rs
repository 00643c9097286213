//! The check of a JSON Pointer: at compile time for a literal, and at the author's line for any other text.
//!
//! The host also checks every pointer. But it knows neither the line nor a way to say it, because its fault ends the
//! call.

use super::PointerError;

const TILDE: u8 = b'~';

/// A JSON Pointer as a literal, checked at compile time: `at!("/spec/replicas")` is the text `"/spec/replicas"`.
///
/// ```
/// use tollgate_sdk::{Review, at};
///
/// fn replicas(review: &Review) -> Option<i64> {
///     review.object().integer(at!("/spec/replicas"))
/// }
/// ```
///
/// A malformed literal does not compile:
///
/// ```compile_fail,E0080
/// tollgate_sdk::at!("spec/replicas");
/// ```
///
/// ```compile_fail,E0080
/// tollgate_sdk::at!("/metadata/annotations/a~b");
/// ```
///
/// [`pointer!`](crate::pointer) creates a pointer from names that are known only at run time.
#[macro_export]
macro_rules! at {
    ($pointer:literal) => {
        const {
            $crate::__literal(
                $pointer,
                ::core::concat!(
                    "`", $pointer, "` is no JSON Pointer: it has no leading slash; write `/", $pointer, "`"
                ),
                ::core::concat!(
                    "`", $pointer, "` is no JSON Pointer: a `~` is followed by neither 0 nor 1; write `~0` for `~` \
                     and `~1` for `/`"
                ),
            )
        }
    };
}

/// Returns a literal if it is a pointer. [`at!`](crate::at) calls it while it compiles.
///
/// # Panics
/// With one of the two texts if it is not a pointer.
#[must_use]
pub const fn literal(
    pointer: &'static str,
    no_leading_slash: &'static str,
    bad_escape: &'static str,
) -> &'static str {
    match error(pointer.as_bytes()) {
        None => pointer,
        Some(PointerError::NoLeadingSlash) => panic!("{}", no_leading_slash),
        Some(PointerError::BadEscape) => panic!("{}", bad_escape),
    }
}

/// Returns a pointer unchanged, and ends the call at the caller's line if it is malformed.
///
/// Every read calls this function. So it looks at eight bytes at a time, and only for a `~`. A pointer of 30 bytes
/// costs some 60 units of fuel, and 30 more for each escape. A read costs some 300.
#[inline]
#[track_caller]
pub(crate) fn checked(pointer: &str) -> &str {
    let bytes = pointer.as_bytes();
    let has_slash = matches!(bytes, [] | [b'/', ..]);
    if !has_slash || has_bad_escape(bytes) {
        refuse_malformed(pointer);
    }
    pointer
}

#[cold]
#[track_caller]
fn refuse_malformed(pointer: &str) {
    match error(pointer.as_bytes()) {
        None => {}
        Some(PointerError::NoLeadingSlash) => {
            panic!("`{pointer}` is no JSON Pointer: it has no leading slash; write `/{pointer}`")
        }
        Some(PointerError::BadEscape) => panic!(
            "`{pointer}` is no JSON Pointer: a `~` is followed by neither 0 nor 1; write `~0` for `~` and `~1` for `/`, \
             or make it with pointer![…]"
        ),
    }
}

/// Returns what is wrong with a pointer.
pub(super) const fn error(pointer: &[u8]) -> Option<PointerError> {
    if !matches!(pointer, [] | [b'/', ..]) {
        return Some(PointerError::NoLeadingSlash);
    }
    let mut rest = pointer;
    while let [byte, after @ ..] = rest {
        if *byte == TILDE && !matches!(after, [b'0' | b'1', ..]) {
            return Some(PointerError::BadEscape);
        }
        rest = after;
    }
    None
}

/// Whether a `~` is followed by neither 0 nor 1.
fn has_bad_escape(mut rest: &[u8]) -> bool {
    while let Some(at) = first_tilde(rest) {
        if !matches!(rest.get(at + 1), Some(b'0' | b'1')) {
            return true;
        }
        rest = &rest[at + 2..];
    }
    false
}

fn first_tilde(bytes: &[u8]) -> Option<usize> {
    const LOWEST_BITS: u64 = u64::from_le_bytes([0x01; 8]);
    const HIGHEST_BITS: u64 = u64::from_le_bytes([0x80; 8]);
    const TILDES: u64 = u64::from_le_bytes([TILDE; 8]);
    let (words, rest) = bytes.as_chunks();
    for (number, word) in words.iter().enumerate() {
        // In a word that was combined with eight `~`, a `~` is a zero byte. The lowest bit that is left is that of the
        // first zero byte: below it, nothing borrows.
        let combined = u64::from_le_bytes(*word) ^ TILDES;
        let found = combined.wrapping_sub(LOWEST_BITS) & !combined & HIGHEST_BITS;
        if found != 0 {
            return Some(number * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let at = rest.iter().position(|byte| *byte == TILDE)?;
    Some(words.len() * 8 + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_first_tilde_at_every_place_of_every_length() {
        for length in 0..40 {
            let without = vec![b'}'; length];
            assert_eq!(first_tilde(&without), None, "{length}");
            for place in 0..length {
                let mut with = vec![0x7f; length];
                with[place] = TILDE;
                assert_eq!(first_tilde(&with), Some(place), "of {length}");
                // The byte that a borrow would change, and another `~`.
                for behind in place + 1..length {
                    with[behind] = TILDE ^ 1;
                    assert_eq!(first_tilde(&with), Some(place), "of {length}");
                    with[behind] = TILDE;
                    assert_eq!(first_tilde(&with), Some(place), "of {length}");
                }
            }
        }
        assert_eq!(first_tilde("/ü/\u{fe}\u{7f}/é🚧".as_bytes()), None);
    }

    #[test]
    fn both_checks_agree() {
        let parts = ["", "~", "~0", "~1", "~2", "a", "ü", "/", "abcdefg"];
        for first in parts {
            for second in parts {
                for third in parts {
                    let pointer = format!("/{first}{second}{third}");
                    let is_bad = error(pointer.as_bytes()).is_some();
                    assert_eq!(has_bad_escape(pointer.as_bytes()), is_bad, "{pointer}");
                }
            }
        }
    }

    #[test]
    fn accepts_exactly_the_pointers_of_rfc_6901() {
        for good in ["", "/", "//", "/a~0b~1", "/~01", "/ü"] {
            assert_eq!(error(good.as_bytes()), None, "{good}");
            assert_eq!(checked(good), good);
        }
        for bad in ["spec", "~0", " /a"] {
            assert_eq!(
                error(bad.as_bytes()),
                Some(PointerError::NoLeadingSlash),
                "{bad}"
            );
        }
        for bad in ["/~", "/a~", "/~2", "/~0~", "/~/0"] {
            assert_eq!(
                error(bad.as_bytes()),
                Some(PointerError::BadEscape),
                "{bad}"
            );
        }
        assert_eq!(crate::at!("/a~1b/*"), "/a~1b/*");
    }
}
