//! The contract's imports for a review in memory, one per thread.

use std::borrow::Cow;
use std::cell::RefCell;

use serde_json::Value as Json;

use super::{Effects, TestReview, namespace};
use crate::bindings::imports::tollgate::admission::logging::Level;
use crate::bindings::imports::tollgate::admission::review::Part;
use crate::{AdmissionRequest, Node, Pointer, Value};

thread_local! {
    static REVIEW: RefCell<Option<TestReview>> = const { RefCell::new(None) };
    static EFFECTS: RefCell<Effects> = const { RefCell::new(Effects::none()) };
}

/// Runs a policy within a review.
pub(super) fn with_review<T>(review: TestReview, call: impl FnOnce() -> T) -> (T, Effects) {
    /// Clears the review on drop, so that a panicking policy leaves none to the next test of the thread.
    struct Clear;

    impl Drop for Clear {
        fn drop(&mut self) {
            REVIEW.take();
        }
    }

    EFFECTS.take();
    REVIEW.replace(Some(review));
    let clear = Clear;
    let answer = call();
    drop(clear);
    (answer, EFFECTS.take())
}

pub(crate) fn request() -> AdmissionRequest {
    read(|review| review.request.clone())
}

pub(crate) fn get(part: Part, at: &str) -> Option<Value> {
    at_place(part, at, describe)
}

pub(crate) fn get_json(part: Part, at: &str) -> Option<String> {
    at_place(part, at, Json::to_string)
}

pub(crate) fn get_many(part: Part, at: &[String]) -> Vec<Option<Value>> {
    at.iter().map(|at| get(part, at)).collect()
}

pub(crate) fn keys(part: Part, at: &str) -> Option<Vec<String>> {
    at_place(part, at, |value| {
        Some(value.as_object()?.keys().cloned().collect())
    })?
}

pub(crate) fn select(part: Part, pattern: &str) -> Vec<Node> {
    let tokens = tokens(pattern);
    read(|review| {
        let mut nodes = Vec::new();
        if let Some(document) = document(review, part) {
            walk(&tokens, &document, &Pointer::root(), &mut nodes);
        }
        nodes
    })
}

pub(crate) fn warn(message: &str) {
    read(|_| ());
    EFFECTS.with_borrow_mut(|effects| effects.warnings.push(message.to_owned()));
}

pub(crate) fn annotate(key: &str, value: &str) {
    read(|_| ());
    EFFECTS.with_borrow_mut(|effects| effects.annotations.insert(key.to_owned(), value.to_owned()));
}

pub(crate) fn log(level: Level, message: &str) {
    EFFECTS.with_borrow_mut(|effects| effects.logs.push((level, message.to_owned())));
}

#[cfg(feature = "clock")]
pub(crate) fn now() -> crate::bindings::clock::tollgate::admission::clock::Datetime {
    let now = read(|review| review.now)
        .expect("a test of a policy that reads the clock sets it: TestReview::now");
    let since = now
        .duration_since(std::time::UNIX_EPOCH)
        .expect("the clock is not before 1970");
    crate::bindings::clock::tollgate::admission::clock::Datetime {
        seconds: since.as_secs(),
        nanoseconds: since.subsec_nanos(),
    }
}

fn read<T>(read: impl FnOnce(&TestReview) -> T) -> T {
    REVIEW.with_borrow(|review| {
        read(
            review
                .as_ref()
                .expect("there is no review outside of `mutate` and `validate`"),
        )
    })
}

fn document(review: &TestReview, part: Part) -> Option<Cow<'_, Json>> {
    match part {
        Part::Object => review.object.as_ref().map(Cow::Borrowed),
        Part::OldObject => review.old_object.as_ref().map(Cow::Borrowed),
        Part::Options => review.options.as_ref().map(Cow::Borrowed),
        Part::Request => Some(Cow::Borrowed(&review.document)),
        Part::Namespace => namespace::of(review).map(Cow::Owned),
    }
}

fn at_place<T>(part: Part, at: &str, answer: impl FnOnce(&Json) -> T) -> Option<T> {
    let tokens = tokens(at);
    read(|review| {
        let document = document(review, part)?;
        let mut here = &*document;
        for token in &tokens {
            here = child(here, token)?;
        }
        Some(answer(here))
    })
}

/// Panics on a malformed pointer. The host ends the call, so a test must not pass with one.
fn tokens(pointer: &str) -> Vec<String> {
    assert!(
        pointer.is_empty() || pointer.starts_with('/'),
        "`{pointer}` is no JSON Pointer: no leading slash"
    );
    let mut bytes = pointer.bytes();
    while let Some(byte) = bytes.next() {
        assert!(
            byte != b'~' || matches!(bytes.next(), Some(b'0' | b'1')),
            "`{pointer}` is no JSON Pointer: `~` is followed by neither 0 nor 1"
        );
    }
    pointer
        .split('/')
        .skip(1)
        .map(|token| token.replace("~1", "/").replace("~0", "~"))
        .collect()
}

fn child<'d>(value: &'d Json, token: &str) -> Option<&'d Json> {
    match value {
        Json::Object(members) => members.get(token),
        Json::Array(elements) => {
            let is_index = token == "0"
                || (!token.starts_with('0') && token.bytes().all(|byte| byte.is_ascii_digit()));
            elements.get(token.parse::<usize>().ok().filter(|_| is_index)?)
        }
        _ => None,
    }
}

fn walk(tokens: &[String], here: &Json, at: &Pointer, nodes: &mut Vec<Node>) {
    let Some((token, rest)) = tokens.split_first() else {
        nodes.push(Node {
            pointer: at.to_string(),
            value: describe(here),
        });
        return;
    };
    match here {
        Json::Array(elements) if token == "*" => {
            for (index, element) in elements.iter().enumerate() {
                walk(rest, element, &at.child(index), nodes);
            }
        }
        Json::Object(members) if token == "*" => {
            for (name, value) in members {
                walk(rest, value, &at.child(name), nodes);
            }
        }
        _ => {
            if let Some(value) = child(here, token) {
                walk(rest, value, &at.child(token), nodes);
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "no test has four thousand million elements"
)]
fn describe(value: &Json) -> Value {
    match value {
        Json::Null => Value::Null,
        Json::Bool(boolean) => Value::Boolean(*boolean),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Value::Integer(integer),
            None => Value::Number(
                number
                    .as_f64()
                    .expect("a JSON number is a double, if rounded"),
            ),
        },
        Json::String(text) => Value::Text(text.clone()),
        Json::Array(elements) => Value::Array(elements.len() as u32),
        Json::Object(members) => Value::Object(members.len() as u32),
    }
}
