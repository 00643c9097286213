//! Expected texts are those of OPA, which formats with Go's `fmt`.

use regorus::Value;
use serde_json::{Value as Json, json};

fn formatted(format: &str, values: Json) -> String {
    let text = crate::sprintf::sprintf(vec![Value::from(format), Value::from(values)]);
    text.as_string().unwrap().to_string()
}

#[test]
fn formats_values_like_opa() {
    for (format, values, expected) in [
        ("%v is %v", json!(["a", 3]), "a is 3"),
        ("<%s>", json!(["a"]), "<a>"),
        (
            "%v",
            json!([["a", 1, null, true]]),
            "[\"a\", 1, null, true]",
        ),
        (
            "%v",
            json!([{ "b": 1, "a": "x" }]),
            "{\"a\": \"x\", \"b\": 1}",
        ),
        ("%d%%", json!([50]), "50%"),
        ("%5d|%-5d|%05d", json!([42, 42, 42]), "   42|42   |00042"),
        ("%x %X %o %b", json!([255, 255, 8, 5]), "ff FF 10 101"),
        ("%.2f", json!([1.5]), "1.50"),
        ("%q", json!(["a\"b"]), "\"a\\\"b\""),
        (
            "%10s|%-4s|%.2s",
            json!(["ab", "ab", "abc"]),
            "        ab|ab  |ab",
        ),
        ("no verbs", json!([]), "no verbs"),
    ] {
        assert_eq!(
            formatted(format, values.clone()),
            expected,
            "{format} {values}"
        );
    }
}

#[test]
fn wrong_arguments_are_text_and_no_error() {
    for (format, values, expected) in [
        ("%v and %v", json!(["a"]), "a and %!v(MISSING)"),
        ("%d", json!([]), "%!d(MISSING)"),
        ("%d", json!(["a"]), "%!d(string=a)"),
        ("%s", json!([3]), "%!s(int=3)"),
        ("a", json!(["b"]), "a%!(EXTRA string=b)"),
        ("100%", json!([]), "100%!(NOVERB)"),
    ] {
        assert_eq!(
            formatted(format, values.clone()),
            expected,
            "{format} {values}"
        );
    }
}

#[test]
fn wide_padding_is_cut() {
    assert_eq!(formatted("%999999999d", json!([1])).len(), 1024);
}
