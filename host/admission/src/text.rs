//! Makes text from plugins safe for its destination.
//!
//! kube-apiserver drops a warning that holds a control character, and an audit annotation whose key is not a
//! qualified name. A terminal obeys escape sequences. The cost of these functions follows the size that is kept, not
//! the size that a plugin sent.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The part of a text that is kept.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// This many Unicode scalar values, which Go calls runes.
    Characters(usize),
    /// This many bytes of UTF-8.
    Bytes(usize),
}

/// Marks the place where a text was cut.
const ELLIPSIS: char = '…';
/// Limit of `IsQualifiedName` for the part after the slash. The part before the slash is the webhook's name.
const MAX_KEY_BYTES: usize = 63;
/// Digits of the key's SHA-256 that are used: 32 bits tell the few keys of one plugin apart.
const KEY_HASH_DIGITS: usize = 8;
/// Objects whose member names are data. Kubernetes writes such names in brackets.
const MAPS: [&str; 13] = [
    "annotations",
    "binaryData",
    "capacity",
    "data",
    "defaultRequest",
    "hard",
    "labels",
    "limits",
    "matchLabels",
    "nodeSelector",
    "overhead",
    "requests",
    "stringData",
];

/// Returns the text on one line, without control characters and superfluous space, cut to the limit.
#[must_use]
pub fn one_line(text: &str, limit: Limit) -> String {
    let mut line = String::new();
    let mut left = limit;
    // Where to cut if the rest does not fit: after the last character that leaves room for the ellipsis.
    let mut fits_with_ellipsis = 0;
    let mut pending_space = false;
    for character in text.chars() {
        if character.is_whitespace() || disturbs(character) {
            pending_space = !line.is_empty();
            continue;
        }
        let space = pending_space.then_some(' ');
        pending_space = false;
        for character in space.into_iter().chain([character]) {
            if left.takes(ELLIPSIS).is_some() {
                fits_with_ellipsis = line.len();
            }
            let Some(less) = left.takes(character) else {
                line.truncate(fits_with_ellipsis);
                line.truncate(line.trim_end().len());
                if limit.takes(ELLIPSIS).is_some() {
                    line.push(ELLIPSIS);
                }
                return line;
            };
            left = less;
            line.push(character);
        }
    }
    line
}

/// Joins as many items as fit, with `separator` between them. If some are left out, the text ends with their number.
#[must_use]
pub fn joined<I>(items: I, separator: &str, max_bytes: usize) -> String
where
    I: ExactSizeIterator<Item: AsRef<str>>,
{
    joined_parts(items.map(|item| [item]), separator, max_bytes)
}

/// Like [`joined`], for items that consist of several parts. The parts of an item are not joined before.
#[must_use]
pub fn joined_parts<I, T, const PARTS: usize>(items: I, separator: &str, max_bytes: usize) -> String
where
    I: ExactSizeIterator<Item = [T; PARTS]>,
    T: AsRef<str>,
{
    /// Room for the separator and `+18446744073709551615 more`.
    const REST_BYTES: usize = 32;
    let count = items.len();
    let mut text = String::new();
    for (index, parts) in items.enumerate() {
        let bytes: usize = parts.iter().map(|part| part.as_ref().len()).sum();
        let reserve = if index + 1 == count { 0 } else { REST_BYTES };
        if text.len() + separator.len() + bytes + reserve > max_bytes {
            let separator = if index == 0 { "" } else { separator };
            write!(text, "{separator}+{} more", count - index).expect("a String takes every write");
            break;
        }
        if index > 0 {
            text.push_str(separator);
        }
        for part in &parts {
            text.push_str(part.as_ref());
        }
    }
    text
}

/// Formats a JSON Pointer as Kubernetes prints a field: `/spec/containers/0/image` becomes
/// `spec.containers[0].image`, and `/metadata/labels/app.kubernetes.io~1name` becomes
/// `metadata.labels[app.kubernetes.io/name]`.
///
/// Returns none for the whole object. A text that is not a pointer counts as a field path already.
#[must_use]
pub fn field_path(pointer: &str) -> Option<String> {
    /// Paths in Kubernetes' own types stay below 200.
    const LIMIT: Limit = Limit::Bytes(512);
    let Some(pointer) = pointer.strip_prefix('/') else {
        return Some(one_line(pointer, LIMIT)).filter(|path| !path.is_empty());
    };
    let mut path = String::new();
    let mut within_map = false;
    for token in pointer.split('/') {
        let token = token.replace("~1", "/").replace("~0", "~");
        if token.starts_with('[') && token.ends_with(']') {
            path.push_str(&token);
        } else if within_map || !is_field_name(&token) {
            write!(path, "[{token}]").expect("a String takes every write");
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&token);
        }
        within_map = !within_map && MAPS.contains(&token.as_str());
        if path.len() > 4096 {
            break;
        }
    }
    Some(one_line(&path, LIMIT))
}

/// Builds an annotation key `<plugin>.<key>` that kube-apiserver keeps.
///
/// A key stays as it is if it is a qualified name without a slash, is short enough, and is not in `reserved`. Any
/// other key is made valid and gets a hash of the original, so that two keys never become the same. `plugin` is a DNS
/// label, or that of a namespace and a DNS label with a slash between them.
#[must_use]
pub fn annotation_key(plugin: &str, key: &str, reserved: &[&str]) -> String {
    // A plugin of a namespace has a webhook of its own, and kube-apiserver puts the webhook's name before the key.
    let plugin = plugin.rsplit('/').next().unwrap_or(plugin);
    let room = MAX_KEY_BYTES.saturating_sub(plugin.len() + 1);
    if key.len() <= room && is_name(key) && !reserved.contains(&key) {
        return format!("{plugin}.{key}");
    }
    let room = room.saturating_sub(KEY_HASH_DIGITS + 1);
    let mut clean = String::with_capacity(room);
    for character in key.chars() {
        if clean.len() == room {
            break;
        }
        match character {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' | '.' => clean.push(character),
            // Write one dash for a whole run of characters. Otherwise a key of emoji would be nothing but dashes.
            _ if clean.ends_with('-') => {}
            _ => clean.push('-'),
        }
    }
    let clean = clean.trim_matches(['-', '_', '.']);
    let hash = Sha256::digest(key.as_bytes());
    let mut name = format!("{plugin}.{clean}");
    if !clean.is_empty() {
        name.push('-');
    }
    for byte in hash.iter().take(KEY_HASH_DIGITS / 2) {
        write!(name, "{byte:02x}").expect("a String takes every write");
    }
    name
}

/// Whether a character moves the cursor, hides text or changes its direction.
fn disturbs(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}' | '\u{feff}')
}

fn is_field_name(token: &str) -> bool {
    let mut bytes = token.bytes();
    bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || matches!(first, b'_' | b'$'))
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'$'))
}

/// Whether a text can be the part of a qualified name after the slash, apart from its length.
fn is_name(text: &str) -> bool {
    let alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    alphanumeric(bytes.first())
        && alphanumeric(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

// === impl Limit ===

impl Limit {
    /// Returns the limit that is left after the character. None if there is no room for the character.
    fn takes(self, character: char) -> Option<Self> {
        match self {
            Self::Characters(left) => left.checked_sub(1).map(Self::Characters),
            Self::Bytes(left) => left.checked_sub(character.len_utf8()).map(Self::Bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_no_control_characters_or_superfluous_space() {
        for (text, expected) in [
            ("plain", "plain"),
            ("", ""),
            (" \n\t ", ""),
            ("  a\r\n\tb  c \n", "a b c"),
            ("\u{1b}[31mred\u{1b}[0m", "[31mred [0m"),
            ("a\u{0}b\u{85}c\u{9f}d\u{2028}e", "a b c d e"),
            ("right\u{202e}tfel", "right tfel"),
            ("größe 🚪", "größe 🚪"),
        ] {
            assert_eq!(one_line(text, Limit::Characters(100)), expected);
        }
    }

    #[test]
    fn cuts_line_within_limit() {
        for (text, limit, expected) in [
            ("abcdef", Limit::Characters(6), "abcdef"),
            ("abcdefg", Limit::Characters(6), "abcde…"),
            ("äöüäöüä", Limit::Characters(6), "äöüäö…"),
            ("abcd  efgh", Limit::Characters(6), "abcd…"),
            ("abcdefg", Limit::Bytes(6), "abc…"),
            ("abcdefg", Limit::Bytes(7), "abcdefg"),
            ("🚪🚪🚪", Limit::Bytes(11), "🚪🚪…"),
            ("🚪🚪🚪", Limit::Bytes(10), "🚪…"),
            ("abcdef   ", Limit::Bytes(6), "abcdef"),
            ("abc", Limit::Bytes(2), ""),
            ("abc", Limit::Characters(0), ""),
        ] {
            assert_eq!(one_line(text, limit), expected, "{text} {limit:?}");
        }
    }

    #[test]
    fn cuts_text_of_ten_megabytes() {
        assert_eq!(
            one_line(&"x".repeat(10_000_000), Limit::Characters(256))
                .chars()
                .count(),
            256
        );
        assert_eq!(
            one_line(&"\n".repeat(10_000_000), Limit::Characters(256)),
            ""
        );
    }

    #[test]
    fn list_reports_number_of_omitted_items() {
        assert_eq!(joined(["/a", "/b"].iter(), ",", 100), "/a,/b");
        let many: Vec<String> = (0..1000).map(|index| format!("/spec/{index}")).collect();
        assert_eq!(
            joined(many.iter(), ",", 64),
            "/spec/0,/spec/1,/spec/2,/spec/3,+996 more"
        );
        assert_eq!(joined(["x".repeat(1000)].iter(), ",", 64), "+1 more");
        assert_eq!(joined(Vec::<String>::new().iter(), ",", 64), "");
    }

    #[test]
    fn joins_parts_like_whole_items() {
        let items: Vec<[String; 3]> = (0..40)
            .map(|index| [format!("plugin-{index}"), "@".to_owned(), "0".repeat(12)])
            .collect();
        for count in [0, 1, 2, 40] {
            for max_bytes in [10, 64, 1024] {
                let items = &items[..count];
                let whole: Vec<String> = items.iter().map(|parts| parts.concat()).collect();
                let parts = items.iter().cloned();
                assert_eq!(
                    joined_parts(parts, ",", max_bytes),
                    joined(whole.iter(), ",", max_bytes),
                    "{count} items in {max_bytes} bytes"
                );
            }
        }
    }

    #[test]
    fn converts_pointer_to_field_path() {
        for (pointer, expected) in [
            ("/spec/containers/0/image", "spec.containers[0].image"),
            (
                "/metadata/labels/app.kubernetes.io~1name",
                "metadata.labels[app.kubernetes.io/name]",
            ),
            ("/metadata/labels/app", "metadata.labels[app]"),
            ("/metadata/labels", "metadata.labels"),
            ("/metadata/labels/labels", "metadata.labels[labels]"),
            (
                "/spec/template/metadata/annotations/a~0b",
                "spec.template.metadata.annotations[a~b]",
            ),
            (
                "/spec/containers/0/resources/limits/cpu",
                "spec.containers[0].resources.limits[cpu]",
            ),
            (
                "/spec/selector/matchLabels/app",
                "spec.selector.matchLabels[app]",
            ),
            ("/data/8080", "data[8080]"),
            ("/spec/containers/-", "spec.containers[-]"),
            ("/spec//x", "spec[].x"),
            ("/metadata/labels/[withheld]", "metadata.labels[withheld]"),
            ("spec.containers[0].image", "spec.containers[0].image"),
            ("/spec/a\nb", "spec[a b]"),
        ] {
            assert_eq!(field_path(pointer).as_deref(), Some(expected), "{pointer}");
        }
        assert_eq!(field_path(""), None);
        assert_eq!(field_path(" \n"), None);
        assert!(field_path(&"/a".repeat(1_000_000)).unwrap().len() <= 512);
    }

    #[test]
    fn keeps_valid_annotation_key() {
        for key in ["a", "checked-by", "Rule_1.v2", &"k".repeat(55)] {
            assert_eq!(
                annotation_key("labels", key, &["patched"]),
                format!("labels.{key}")
            );
        }
    }

    #[test]
    fn replaces_invalid_annotation_key_with_distinct_valid_one() {
        let key = |key: &str| annotation_key("labels", key, &["patched"]);
        insta::assert_snapshot!(key("patched"), @"labels.patched-d7017ebc");
        insta::assert_snapshot!(key("example.com/rule"), @"labels.example.com-rule-a50e410f");
        insta::assert_snapshot!(key("🚪🚪🚪"), @"labels.af896f66");
        insta::assert_snapshot!(key(""), @"labels.e3b0c442");
        insta::assert_snapshot!(key(&"k".repeat(1000)), @"labels.kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk-27fed049");
        let hostile = [
            "",
            "/",
            "//",
            "🚪",
            "🚪🚪",
            ".",
            "-a",
            "a-",
            "a/b",
            "a b",
            "a\nb",
            "\u{0}",
            &"k".repeat(56),
            &"k".repeat(57),
        ];
        let long = format!("{}/guard", "n".repeat(63));
        assert_eq!(annotation_key(&long, "denied", &[]), "guard.denied");
        let mut seen = std::collections::BTreeSet::new();
        for plugin in ["a", "p-1", &"p".repeat(40)] {
            for text in hostile {
                let key = annotation_key(plugin, text, &[]);
                assert!(
                    key.len() <= 63 && is_name(&key) && key.starts_with(&format!("{plugin}.")),
                    "{key}"
                );
                assert!(seen.insert(key));
            }
        }
    }
}
