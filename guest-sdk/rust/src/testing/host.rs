//! The contract's imports for a review in memory, one per thread.

use std::borrow::Cow;
use std::cell::RefCell;

use serde_json::Value as Json;

use super::{Effects, TestReview, namespace};
use crate::bindings::imports::tollgate::admission::logging::Level;
use crate::bindings::imports::tollgate::admission::review::Part;
use crate::{AdmissionRequest, Node, Value, tree};

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
    at_place(part, at, tree::describe)
}

pub(crate) fn get_json(part: Part, at: &str) -> Option<String> {
    at_place(part, at, Json::to_string)
}

pub(crate) fn get_many(part: Part, at: &[String]) -> Vec<Option<Value>> {
    at.iter().map(|at| get(part, at)).collect()
}

pub(crate) fn keys(part: Part, at: &str) -> Option<Vec<String>> {
    at_place(part, at, tree::keys)?
}

pub(crate) fn select(part: Part, pattern: &str) -> Vec<Node> {
    let tokens = tree::tokens(pattern);
    read(|review| {
        document(review, part).map_or_else(Vec::new, |document| tree::select(&document, &tokens))
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

pub(super) fn read<T>(read: impl FnOnce(&TestReview) -> T) -> T {
    read_if_any(read).expect("there is no review outside of `mutate` and `validate`")
}

/// Reads the review of the running test, if there is one.
pub(super) fn read_if_any<T>(read: impl FnOnce(&TestReview) -> T) -> Option<T> {
    REVIEW.with_borrow(|review| review.as_ref().map(read))
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
    let tokens = tree::tokens(at);
    read(|review| {
        let document = document(review, part)?;
        Some(answer(tree::at(&document, &tokens)?))
    })
}
