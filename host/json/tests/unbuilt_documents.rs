//! A document that is built when it is read is the document that the parser builds at once.

use bytes::Bytes;
use proptest::prelude::*;
use tollgate_json::document::{Account, Json, ParseError, Pointer, index_within, parse};
use tollgate_json::patch::{ApplyLimits, Operation, apply, diff, merge_patch};

const MAX_DEPTH: u32 = 7;
const LIMITS: ApplyLimits = ApplyLimits {
    max_depth: MAX_DEPTH,
    max_added_nodes: 100,
    max_added_bytes: 10_000,
    max_steps: 100_000,
};

fn index(text: &[u8]) -> Result<Json, ParseError> {
    index_within(
        &Bytes::copy_from_slice(text),
        MAX_DEPTH,
        &Account::unlimited(),
    )
}

/// Strings as they are written, in every way that they can be.
fn string() -> impl Strategy<Value = String> {
    let part = proptest::sample::select(vec![
        "a",
        "b",
        "name",
        " ",
        "é",
        "\u{1f600}",
        "\u{2028}",
        "<",
        "/",
        "\u{7f}",
        r"\/",
        r#"\""#,
        r"\\",
        r"\b",
        r"\f",
        r"\n",
        r"\r",
        r"\t",
        r"\u0000",
        r"\u001f",
        r"\u001F",
        r"\u0008",
        r"\u0061",
        r"\u003c",
        r"\u003C",
        r"\u00e9",
        r"\ud83d\ude00",
        r"\uD83D\uDE00",
        r"\u2028",
        "0123456789abcdef",
        "sixteen bytes or",
    ]);
    proptest::collection::vec(part, 0..4).prop_map(|parts| format!("\"{}\"", parts.concat()))
}

/// Few names, some of which are the same when they are read.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(vec![
            r#""a""#,
            r#""b""#,
            r#""c""#,
            r#""""#,
            r#""name""#,
            r#""\u0061""#,
            r#""n\u0061me""#,
            r#""k:{\"a\":1}""#,
            r#""f:metadata""#,
            r#""f:metadatb""#,
        ])
        .prop_map(str::to_owned),
        string(),
    ]
}

fn leaf() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => string(),
        1 => proptest::sample::select(vec!["null", "true", "false"]).prop_map(str::to_owned),
        2 => proptest::sample::select(vec![
            "0", "-0", "1", "-1", "12", "1.0", "1.50", "-0.0", "1e3", "1E+3", "1e-3", "0e0", "9223372036854775807",
            "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "123456789012345678",
            "1234567890123456789", "123456789012345678901234567890", "1e400",
        ])
        .prop_map(str::to_owned),
    ]
}

/// White space, which is rare.
fn space() -> impl Strategy<Value = &'static str> {
    prop_oneof![30 => Just(""), 1 => proptest::sample::select(vec![" ", "\n", "\t\r\n", "  "])]
}

fn text() -> impl Strategy<Value = String> {
    let value = leaf().prop_recursive(5, 60, 6, |inner| {
        let element = (space(), inner.clone(), space())
            .prop_map(|(before, value, after)| format!("{before}{value}{after}"))
            .boxed();
        let member = (space(), name(), space(), element.clone())
            .prop_map(|(before, name, after, value)| format!("{before}{name}{after}:{value}"));
        let list = |open: char, close: char, items: Vec<String>| format!("{open}{}{close}", items.join(","));
        prop_oneof![
            1 => space().prop_map(|space| format!("{{{space}}}")),
            1 => space().prop_map(|space| format!("[{space}]")),
            4 => proptest::collection::vec(element, 1..6).prop_map(move |items| list('[', ']', items)),
            6 => proptest::collection::vec(member, 1..7).prop_map(move |items| list('{', '}', items)),
        ]
    });
    (space(), value, space()).prop_map(|(before, value, after)| format!("{before}{value}{after}"))
}

/// Text with a few bytes replaced, removed or added, mostly by others that mean something in JSON.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let bytes = br#"{}[]:,"\ 0-.eEtfnu/"#
        .iter()
        .copied()
        .chain([0, 0x1f, 0x7f, 0x80, 0xc3, 0xff]);
    let byte = proptest::sample::select(bytes.collect::<Vec<u8>>());
    let damage = (any::<proptest::sample::Index>(), 0..3_u8, byte);
    (text(), proptest::collection::vec(damage, 0..4)).prop_map(|(text, damages)| {
        let mut text = text.into_bytes();
        for (place, kind, byte) in damages {
            let place = place.index(text.len().max(1)).min(text.len());
            match kind {
                0 => text.insert(place, byte),
                1 if place < text.len() => text[place] = byte,
                _ if place < text.len() => drop(text.remove(place)),
                _ => {}
            }
        }
        text
    })
}

/// Every place of a document.
fn places(json: &Json, here: &Pointer, all: &mut Vec<Pointer>) {
    all.push(here.clone());
    match json {
        Json::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                places(element, &here.child(&index.to_string()), all);
            }
        }
        Json::Object(members) => {
            for (name, value) in members.iter() {
                places(value, &here.child(name), all);
            }
        }
        _ => {}
    }
}

fn length(json: &Json) -> Option<usize> {
    match json {
        Json::Array(elements) => Some(elements.len()),
        Json::Object(members) => Some(members.len()),
        _ => None,
    }
}

fn compare(text: &[u8]) {
    if let Some(built) = compare_whole(text) {
        compare_places(text, &built);
    }
}

/// Returns the document if it can be read.
fn compare_whole(text: &[u8]) -> Option<Json> {
    let built = match (parse(text, MAX_DEPTH), index(text)) {
        (Ok(built), Ok(_)) => built,
        (built, unbuilt) => {
            assert_eq!(built.err(), unbuilt.err());
            return None;
        }
    };
    let fresh = || index(text).unwrap();
    let expected = built.to_text();
    assert_eq!(fresh().to_text(), expected);
    assert!(fresh().count_nodes(usize::MAX) >= built.count_nodes(usize::MAX));
    assert_eq!(fresh().depth(), built.depth());
    assert!(fresh() == built && built == fresh() && fresh() == fresh());
    assert!(fresh().equivalent(&built) && fresh().equivalent(&fresh()));
    assert_eq!(diff(&fresh(), &built), []);
    Some(built)
}

fn compare_places(text: &[u8], built: &Json) {
    let fresh = || index(text).unwrap();
    let expected = built.to_text();
    let mut all = Vec::new();
    places(built, &Pointer::root(), &mut all);
    let read = fresh();
    for place in &all {
        let (expected, found) = (built.lookup(place).unwrap(), read.lookup(place).unwrap());
        assert_eq!(length(found), length(expected), "{place}");
        assert_eq!(found.to_text(), expected.to_text(), "{place}");
    }
    assert_eq!(read.to_text(), expected);
    // Whether something was read does not change the count.
    assert_eq!(
        read.count_nodes(usize::MAX),
        fresh().count_nodes(usize::MAX)
    );
    if fresh().to_text().len() == text.len() {
        // Nothing is repeated.
        assert_eq!(read.count_nodes(usize::MAX), built.count_nodes(usize::MAX));
    }
    // A change at any place changes the text there, and nowhere else.
    for place in &all {
        let operation = [Operation::Replace {
            path: place.clone(),
            value: Json::text("changed"),
        }];
        let changed = |json: &Json| apply(json, &operation, &LIMITS).map(|json| json.to_text());
        let unread = fresh();
        assert_eq!(changed(&unread), changed(built), "{place}");
        assert_eq!(
            unread.to_text(),
            expected,
            "a change must not show in the original"
        );
    }
    let patch = Json::from(serde_json::json!({"a": null, "name": {"b": 1}, "c": []}));
    assert_eq!(
        merge_patch(&fresh(), &patch).to_text(),
        merge_patch(built, &patch).to_text()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn unbuilt_document_is_the_one_that_the_parser_builds(text in text()) {
        compare(text.as_bytes());
    }

    #[test]
    fn damaged_text_is_refused_alike(text in damaged()) {
        compare(&text);
    }

    /// The scan looks at 1 KiB of the text at a time. The damaged text is where that part ends.
    #[test]
    fn text_at_the_end_of_a_window_is_read_alike(
        text in damaged(),
        length in 780..1_050_usize,
        padding in proptest::sample::select(vec!["x", " ", "é", r"\n", r"\u00e9"]),
    ) {
        let padding = padding.repeat(length / padding.len());
        let text = [format!("[\"{padding}\",").as_bytes(), &text, b"]"].concat();
        compare_whole(&text);
    }
}

#[test]
fn objects_with_very_many_members_are_the_same() {
    for count in [23, 24, 25, 70, 511, 512, 513, 2_000] {
        let member = |index: usize| format!("\"member-{index}\":[{index}]");
        let members: Vec<String> = (0..count).map(member).collect();
        let members = members.join(",");
        compare_whole(format!("{{\"all\":{{{members}}}}}").as_bytes());
        compare_whole(format!("{{\"all\":{{{members},\"member-7\":null}}}}").as_bytes());
    }
}

#[test]
fn long_texts_are_the_same() {
    for length in (0..70).chain([5_000]) {
        let plain = "x".repeat(length);
        for text in [
            format!("[\"{plain}\"]"),
            format!("[\"{plain}\\\"{plain}\"]"),
            format!("{{\"{plain}\":1,\"{plain}\":2}}"),
            format!("{{\"{plain}a\":1,\"{plain}b\":2}}"),
            format!("[\"{plain}"),
            format!("[\"{plain}\u{1}\"]"),
            format!("[1{}]", "0".repeat(length)),
            format!("[{}]", " ".repeat(length)),
            format!("{}[]{}", " ".repeat(length), "\n".repeat(length)),
        ] {
            compare(text.as_bytes());
        }
    }
}

#[test]
fn nesting_is_limited_alike() {
    for levels in 1..12 {
        compare(format!("{}{}", "[".repeat(levels), "]".repeat(levels)).as_bytes());
        compare(format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels)).as_bytes());
    }
}

#[test]
fn values_are_limited_alike() {
    for values in [1_999_998, 1_999_999, 2_000_000] {
        let zeros = vec!["0"; values].join(",");
        let empty = vec!["[]"; values - 1].join(",");
        for text in [format!("[{zeros}]"), format!("[[{empty}]]")] {
            let (built, unbuilt) = (parse(text.as_bytes(), MAX_DEPTH), index(text.as_bytes()));
            assert_eq!(built.is_ok(), values < 2_000_000);
            assert_eq!(built.err(), unbuilt.err());
        }
    }
}

/// Names are compared once for each object, whatever asks about the objects around it.
#[test]
fn deep_objects_that_repeat_names_are_the_same() {
    for repeated in [r#""a":1,"a":2"#, r#""a":1,"b":2"#] {
        for levels in 0..6 {
            let inner = format!("{{{repeated}}}");
            let outer =
                |inner: String, level: usize| format!(r#"{{"a":{inner},"b":[{level},{{"a":0}}]}}"#);
            compare((0..levels).fold(inner, outer).as_bytes());
        }
    }
}

#[test]
fn many_readers_find_the_same_values() {
    let containers: Vec<String> = (0..500)
        .map(|index| format!(r#"{{"name":"c-{index}","env":[{{"n":{index}}}]}}"#))
        .collect();
    let text = format!(r#"{{"spec":{{"containers":[{}]}}}}"#, containers.join(","));
    let document = index(text.as_bytes()).unwrap();
    let read = |index: usize| {
        let place = format!("/spec/containers/{index}/env/0");
        document.at(&place).unwrap().unwrap()
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..500).map(read).collect::<Vec<&Json>>()))
            .collect();
        for reader in readers {
            for (index, found) in reader.join().unwrap().into_iter().enumerate() {
                assert!(found.is_same(read(index)));
                assert_eq!(found.to_text(), format!(r#"{{"n":{index}}}"#));
            }
        }
    });
}
