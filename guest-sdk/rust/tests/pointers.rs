//! What a policy author reads about a malformed pointer: the pointer, the problem, and the line of the policy.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;

use serde_json::json;
use tollgate_sdk::PatchOperation;
use tollgate_sdk::prelude::*;
use tollgate_sdk::testing::TestReview;

thread_local! {
    /// The text, file and line of the last panic of this thread.
    static PANIC: RefCell<Option<(String, String, u32)>> = const { RefCell::new(None) };
}

/// A policy that calls one function, and is not interested in the answer.
struct Calling;

type Call = fn(Document);

thread_local! {
    static CALL: RefCell<Option<Call>> = const { RefCell::new(None) };
}

impl Policy for Calling {
    type Settings = serde_json::Value;

    fn configure(_: serde_json::Value) -> Result<Self, SettingsErrors> {
        Ok(Self)
    }
}

impl Validate for Calling {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        if let Some(call) = CALL.take() {
            call(review.object());
        }
        Ok(())
    }
}

fn remember(panic: &PanicHookInfo<'_>) {
    let text = panic.payload_as_str().unwrap_or_default().to_owned();
    let at = panic.location().map(|at| (at.file().to_owned(), at.line()));
    let (file, line) = at.unwrap_or_default();
    PANIC.set(Some((text, file, line)));
}

/// Returns the text and the line of the panic.
fn panic_of(call: Call) -> (String, u32) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            remember(panic);
            default(panic);
        }));
    });
    CALL.set(Some(call));
    let review = TestReview::create(json!({"spec": {}}));
    let ended = catch_unwind(AssertUnwindSafe(|| review.validate::<Calling>()));
    assert!(ended.is_err(), "the pointer was accepted");
    let (text, file, line) = PANIC.take().expect("there was a panic");
    assert_eq!(file, file!(), "{text}");
    (text, line)
}

#[test]
fn every_read_names_malformed_pointer_and_line_of_policy() {
    let first = line!() + 2;
    let reads: [Call; 11] = [
        |object| drop(object.get("spec/replicas")),
        |object| drop(object.text("spec/replicas")),
        |object| _ = object.integer("spec/replicas"),
        |object| _ = object.number("spec/replicas"),
        |object| _ = object.boolean("spec/replicas"),
        |object| _ = object.length("spec/replicas"),
        |object| drop(object.keys("spec/replicas")),
        |object| drop(object.json("spec/replicas")),
        |object| drop(object.read::<i64>("spec/replicas")),
        |object| drop(object.select("spec/replicas")),
        |object| drop(object.get_many(["/spec", "spec/replicas"])),
    ];
    for (read, line) in reads.into_iter().zip(first..) {
        assert_eq!(
            panic_of(read),
            (
                "`spec/replicas` is no JSON Pointer: it has no leading slash; write `/spec/replicas`"
                    .to_owned(),
                line
            )
        );
    }
}

#[test]
fn bad_escape_is_explained() {
    let (text, _) = panic_of(|object| drop(object.get("/metadata/annotations/a~2b")));
    assert_eq!(
        text,
        "`/metadata/annotations/a~2b` is no JSON Pointer: a `~` is followed by neither 0 nor 1; write `~0` for `~` and \
         `~1` for `/`, or make it with pointer![…]"
    );
}

#[test]
fn every_patch_function_names_malformed_pointer_and_line_of_policy() {
    let first = line!() + 2;
    let patches: [Call; 12] = [
        |_| drop(Patch::new().add("labels/a", "x")),
        |_| drop(Patch::new().replace("labels/a", "x")),
        |_| drop(Patch::new().remove("labels/a")),
        |_| drop(Patch::new().test("labels/a", "x")),
        |_| drop(Patch::new().rename("labels/a", "/b")),
        |_| drop(Patch::new().rename("/b", "labels/a")),
        |_| drop(Patch::new().copy("labels/a", "/b")),
        |_| drop(Patch::new().copy("/b", "labels/a")),
        |object| drop(Patch::new().set(object, "labels/a", "x")),
        |object| drop(Patch::new().append(object, "labels/a", "x")),
        |object| drop(Patch::new().insert(object, "labels/a", 0, "x")),
        |_| Patch::new().push(PatchOperation::Remove("labels/a".to_owned())),
    ];
    for (patch, line) in patches.into_iter().zip(first..) {
        assert_eq!(
            panic_of(patch),
            (
                "`labels/a` is no JSON Pointer: it has no leading slash; write `/labels/a`"
                    .to_owned(),
                line
            )
        );
    }
}

#[test]
fn checked_literal_is_text_of_pointer() {
    const PLACES: [&str; 2] = [
        at!("/spec/containers/*/image"),
        at!("/metadata/labels/a~1b"),
    ];
    assert_eq!(PLACES[1], pointer!["metadata", "labels", "a/b"].as_str());
    assert_eq!(at!(""), Pointer::root().as_str());
    let object = json!({"spec": {"replicas": 3}});
    CALL.set(Some(|object| {
        assert_eq!(object.integer(at!("/spec/replicas")), Some(3));
    }));
    assert!(
        TestReview::create(object)
            .validate::<Calling>()
            .is_allowed()
    );
}
