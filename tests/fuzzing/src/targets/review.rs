//! Documents from outside: the host accepts the same documents as another decoder, and reads them alike, at once or when
//! they are wanted.

use bytes::Bytes;
use serde_json::Value;
use tollgate_admission::review::decode::{DecodeError, decode};
use tollgate_admission::review::head::decode_head;
use tollgate_json::document::{Account, Json, ParseError, ParseErrorKind, index_within, parse};

/// Depth limit, which is below the depth at which `serde_json` gives up.
const MAX_DEPTH: u32 = 100;

/// Reads the bytes as a document, as a review and as the head of a review.
pub fn target(data: &[u8]) {
    let ours = parse(data, MAX_DEPTH);
    match (&ours, serde_json::from_slice::<Value>(data)) {
        (Ok(ours), Ok(theirs)) => {
            assert!(is_same(ours, &theirs), "{} is not {theirs}", ours.to_text());
            assert!(ours.depth() <= MAX_DEPTH, "deeper than the limit");
            written_reads_alike(ours);
        }
        // A number that no double can hold is still a number, and the host writes its text unchanged.
        (Ok(_), Err(error)) => assert!(
            error.to_string().starts_with("number out of range"),
            "accepted what is no JSON: {error}"
        ),
        (Err(error), Ok(theirs)) => match error.kind {
            ParseErrorKind::TooDeep { .. } => assert!(depth(&theirs) > MAX_DEPTH, "not too deep"),
            ParseErrorKind::TooMany { .. } | ParseErrorKind::NoRoom(_) => {}
            ParseErrorKind::Syntax(what) => panic!("refused JSON: {what} at {}", error.offset),
        },
        (Err(error), Err(_)) => assert!(error.offset <= data.len(), "outside of the text"),
    }

    read_when_wanted(data, &ours);

    let review = decode(data, MAX_DEPTH);
    match (&ours, &review) {
        (Ok(document), Ok(review)) => {
            let request = document.member("request").expect("it has been decoded");
            let uid = request.member("uid").and_then(Json::as_text);
            assert_eq!(uid, Some(review.request.uid.as_str()));
            let same = |name: &str, read: Option<&Json>| {
                let there = request.member(name).filter(|value| !value.is_null());
                assert!(there == read, "`{name}` is not what was sent");
            };
            same("object", review.request.object.as_ref());
            same("oldObject", review.request.old_object.as_ref());
        }
        (Err(_), Ok(_)) => panic!("a review that is no document"),
        (Ok(_), Err(DecodeError::NotJson(_))) => panic!("a document that is no JSON"),
        _ => {}
    }
    // However a body is cut off, its head says nothing that the whole body does not say.
    for length in [data.len() / 4, data.len() / 2, data.len()] {
        if let Some(head) = decode_head(&data[..length], &Account::unlimited()) {
            assert!(!head.request.uid.is_empty());
            assert!(head.request.object.is_none() && head.request.old_object.is_none());
        }
    }
}

/// Checks that a document that is built when it is read is the one that is built at once.
fn read_when_wanted(data: &[u8], built: &Result<Json, ParseError>) {
    let text = Bytes::copy_from_slice(data);
    let unbuilt = || index_within(&text, MAX_DEPTH, &Account::unlimited());
    match (built, unbuilt()) {
        (Ok(built), Ok(document)) => {
            let text = built.to_text();
            assert_eq!(document.to_text(), text, "written without being read");
            assert!(document == *built, "reads differently");
            assert_eq!(document.to_text(), text, "written after it was read");
        }
        (Err(expected), Err(error)) => assert_eq!(&error, expected),
        (Ok(_), Err(error)) => panic!("refused by the index alone: {error}"),
        (Err(error), Ok(_)) => panic!("accepted by the index alone: {error}"),
    }
}

/// Checks that a written document reads as the same document, and is written the same way again.
fn written_reads_alike(document: &Json) {
    let text = document.to_text();
    let again = parse(text.as_bytes(), MAX_DEPTH).expect("what is written is JSON");
    assert!(again == *document, "reads differently when it is written");
    assert_eq!(again.to_text(), text);
}

fn is_same(ours: &Json, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Json::Null, Value::Null) => true,
        (Json::Bool(ours), Value::Bool(theirs)) => ours == theirs,
        (Json::Number(ours), Value::Number(theirs)) => {
            let read: serde_json::Number =
                serde_json::from_str(&Json::Number(ours.clone()).to_text())
                    .expect("a number's text is a number");
            read == *theirs
        }
        (Json::Text(ours), Value::String(theirs)) => **ours == **theirs,
        (Json::Array(ours), Value::Array(theirs)) => {
            ours.len() == theirs.len()
                && ours
                    .iter()
                    .zip(theirs)
                    .all(|(ours, theirs)| is_same(ours, theirs))
        }
        (Json::Object(ours), Value::Object(theirs)) => {
            ours.len() == theirs.len()
                && ours.iter().all(|(name, ours)| {
                    theirs
                        .get(&**name)
                        .is_some_and(|theirs| is_same(ours, theirs))
                })
        }
        _ => false,
    }
}

fn depth(value: &Value) -> u32 {
    match value {
        Value::Array(elements) => 1 + elements.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
