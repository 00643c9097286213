use regorus::Value;

use crate::numbers::{shortest, to_number};

#[test]
fn strings_are_numbers_if_go_reads_them() {
    for (text, expected) in [
        ("12", Some("12")),
        ("00", Some("0")),
        ("-007.50", Some("-7.50")),
        ("+1", Some("1")),
        (".5", Some("0.5")),
        ("1.", Some("1")),
        ("1e3", Some("1e3")),
        ("9007199254740993", Some("9007199254740993")),
        ("", None),
        ("inf", None),
        ("-Infinity", None),
        ("nan", None),
        ("1e999", None),
        ("1 ", None),
        ("0x10", None),
        ("100m", None),
    ] {
        let expected =
            expected.map_or(Value::Undefined, |text| Value::from_json_str(text).unwrap());
        assert_eq!(to_number(vec![Value::from(text)]), expected, "{text}");
    }
}

#[test]
fn floats_are_written_as_go_writes_them() {
    for (number, expected) in [
        (0.5, "0.5"),
        (-1.25, "-1.25"),
        (100_000.5, "100000.5"),
        (1_000_000.5, "1.0000005e+06"),
        (1_000_000_007.5, "1.0000000075e+09"),
        (0.0001, "0.0001"),
        (0.000_01, "1e-05"),
        (1e100, "1e+100"),
    ] {
        assert_eq!(shortest(number), expected);
    }
}
