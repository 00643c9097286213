//! Formats text like the PodSecurity admission controller: Go's quotes, its plurals and its order.

use std::borrow::Borrow;
use std::fmt::Write as _;

/// Joins items as `"a", "b"`. The items are not escaped.
pub(crate) fn quoted<T: Borrow<str>>(items: impl IntoIterator<Item = T>) -> String {
    let mut text = String::new();
    for item in items {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push('"');
        text.push_str(item.borrow());
        text.push('"');
    }
    text
}

/// Returns the singular or the plural.
pub(crate) fn plural<'w>(singular: &'w str, plural: &'w str, count: usize) -> &'w str {
    if count == 1 { singular } else { plural }
}

/// Quotes a string like Go's `%q`.
pub(crate) fn literal(text: &str) -> String {
    let mut literal = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => literal.push_str("\\\""),
            '\\' => literal.push_str("\\\\"),
            '\u{7}' => literal.push_str("\\a"),
            '\u{8}' => literal.push_str("\\b"),
            '\u{b}' => literal.push_str("\\v"),
            '\u{c}' => literal.push_str("\\f"),
            '\n' => literal.push_str("\\n"),
            '\r' => literal.push_str("\\r"),
            '\t' => literal.push_str("\\t"),
            '\0'..='\u{1f}' | '\u{7f}' => write_code(&mut literal, 'x', 2, character),
            _ if is_printable(character) => literal.push(character),
            '\0'..='\u{ffff}' => write_code(&mut literal, 'u', 4, character),
            _ => write_code(&mut literal, 'U', 8, character),
        }
    }
    literal.push('"');
    literal
}

/// Whether Go prints the character unescaped. Rust's debug format escapes the same characters, but in another form.
fn is_printable(character: char) -> bool {
    character == '\'' || character.escape_debug().len() == 1
}

fn write_code(literal: &mut String, prefix: char, width: usize, character: char) {
    write!(literal, "\\{prefix}{:0width$x}", u32::from(character))
        .expect("a String takes every write");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_is_what_go_prints() {
        for (text, expected) in [
            ("", r#""""#),
            ("unconfined", r#""unconfined""#),
            ("it's \"ü\" \\", r#""it's \"ü\" \\""#),
            ("\u{7}\u{8}\t\n\u{b}\u{c}\r", r#""\a\b\t\n\v\f\r""#),
            ("\0\u{1b}\u{7f}", r#""\x00\x1b\x7f""#),
            ("\u{a0}\u{200b}\u{e0001}", r#""\u00a0\u200b\U000e0001""#),
            ("\u{1f600}", "\"\u{1f600}\""),
        ] {
            assert_eq!(literal(text), expected);
        }
    }

    #[test]
    fn one_thing_is_not_several() {
        assert_eq!(plural("container", "containers", 1), "container");
        assert_eq!(plural("container", "containers", 2), "containers");
        assert_eq!(quoted(["a", "b"]), r#""a", "b""#);
        assert_eq!(quoted([""]), r#""""#);
    }
}
