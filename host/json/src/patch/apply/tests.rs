use serde_json::{Value, json};

use super::*;
use crate::document::Number;

const SMALL: ApplyLimits = ApplyLimits {
    max_depth: 8,
    max_added_nodes: 1000,
    max_added_bytes: 10_000,
    max_steps: 10_000,
};

fn run(document: Value, patch: Value) -> Result<String, ApplyError> {
    let operations = Operation::parse_all(&Json::from(patch)).unwrap();
    apply(&Json::from(document), &operations, &SMALL).map(|result| result.to_text())
}

fn refused(document: Value, operation: Value) -> ApplyErrorKind {
    run(document, json!([operation])).unwrap_err().kind
}

fn pointer(text: &str) -> Pointer {
    Pointer::parse(text).unwrap()
}

#[test]
fn applies_all_six_operations() {
    for (patch, result) in [
        (
            json!([{"op": "add", "path": "/l/1", "value": "n"}]),
            r#"{"a":{"b":1},"l":["x","n","y"]}"#,
        ),
        (
            json!([{"op": "add", "path": "/l/-", "value": "n"}]),
            r#"{"a":{"b":1},"l":["x","y","n"]}"#,
        ),
        (
            json!([{"op": "add", "path": "/a", "value": null}]),
            r#"{"a":null,"l":["x","y"]}"#,
        ),
        (json!([{"op": "add", "path": "", "value": []}]), "[]"),
        (
            json!([{"op": "remove", "path": "/l/0"}]),
            r#"{"a":{"b":1},"l":["y"]}"#,
        ),
        (
            json!([{"op": "remove", "path": "/a"}]),
            r#"{"l":["x","y"]}"#,
        ),
        (
            json!([{"op": "replace", "path": "/a/b", "value": 2}]),
            r#"{"a":{"b":2},"l":["x","y"]}"#,
        ),
        (json!([{"op": "replace", "path": "", "value": {}}]), "{}"),
        (
            json!([{"op": "move", "from": "/l/0", "path": "/l/1"}]),
            r#"{"a":{"b":1},"l":["y","x"]}"#,
        ),
        (
            json!([{"op": "move", "from": "/a/b", "path": "/a"}]),
            r#"{"a":1,"l":["x","y"]}"#,
        ),
        (
            json!([{"op": "move", "from": "/a", "path": "/a"}]),
            r#"{"a":{"b":1},"l":["x","y"]}"#,
        ),
        (
            json!([{"op": "copy", "from": "/a", "path": "/l/0"}]),
            r#"{"a":{"b":1},"l":[{"b":1},"x","y"]}"#,
        ),
        (
            json!([{"op": "copy", "from": "", "path": "/a/b"}]),
            r#"{"a":{"b":{"a":{"b":1},"l":["x","y"]}},"l":["x","y"]}"#,
        ),
        (
            json!([{"op": "test", "path": "/a", "value": {"b": 1.0}}]),
            r#"{"a":{"b":1},"l":["x","y"]}"#,
        ),
        (json!([]), r#"{"a":{"b":1},"l":["x","y"]}"#),
    ] {
        let outcome = run(json!({"a": {"b": 1}, "l": ["x", "y"]}), patch.clone());
        assert_eq!(outcome.as_deref(), Ok(result), "{patch}");
    }
}

#[test]
fn rejects_inapplicable_operation_and_names_place() {
    use ApplyErrorKind as Kind;
    let out = |array, length| Kind::IndexOutOfBounds {
        array: pointer(array),
        length,
    };
    for (operation, kind) in [
        (
            json!({"op": "add", "path": "/x/y/z", "value": 1}),
            Kind::ParentMissing(pointer("/x")),
        ),
        (
            json!({"op": "add", "path": "/l/5/z", "value": 1}),
            Kind::ParentMissing(pointer("/l/5")),
        ),
        (
            json!({"op": "add", "path": "/n/x", "value": 1}),
            Kind::NotAContainer {
                at: pointer("/n"),
                found: "null",
            },
        ),
        (
            json!({"op": "add", "path": "/s/x/y", "value": 1}),
            Kind::NotAContainer {
                at: pointer("/s"),
                found: "string",
            },
        ),
        (
            json!({"op": "add", "path": "/l/3", "value": 1}),
            out("/l", 2),
        ),
        (json!({"op": "remove", "path": "/l/2"}), out("/l", 2)),
        (json!({"op": "remove", "path": "/l/-"}), out("/l", 2)),
        (
            json!({"op": "replace", "path": "/l/-", "value": 1}),
            out("/l", 2),
        ),
        (
            json!({"op": "add", "path": "/l/-1", "value": 1}),
            Kind::NotAnIndex {
                array: pointer("/l"),
            },
        ),
        (
            json!({"op": "add", "path": "/l/01", "value": 1}),
            Kind::NotAnIndex {
                array: pointer("/l"),
            },
        ),
        (
            json!({"op": "remove", "path": "/x"}),
            Kind::MemberMissing(pointer("/x")),
        ),
        (
            json!({"op": "replace", "path": "/x", "value": 1}),
            Kind::MemberMissing(pointer("/x")),
        ),
        (
            json!({"op": "copy", "from": "/x", "path": "/y"}),
            Kind::MemberMissing(pointer("/x")),
        ),
        (
            json!({"op": "move", "from": "/x", "path": "/x"}),
            Kind::MemberMissing(pointer("/x")),
        ),
        (
            json!({"op": "test", "path": "/x/y", "value": null}),
            Kind::ParentMissing(pointer("/x")),
        ),
        (
            json!({"op": "test", "path": "/l", "value": ["x"]}),
            Kind::TestFailed,
        ),
        (
            json!({"op": "move", "from": "/l", "path": "/l/0"}),
            Kind::MoveIntoOwnChild {
                from: pointer("/l"),
            },
        ),
        (
            json!({"op": "move", "from": "", "path": "/x"}),
            Kind::MoveIntoOwnChild { from: pointer("") },
        ),
        (json!({"op": "remove", "path": ""}), Kind::RemoveRoot),
    ] {
        assert_eq!(
            refused(
                json!({"l": ["x", "y"], "n": null, "s": "t"}),
                operation.clone()
            ),
            kind,
            "{operation}"
        );
    }
}

#[test]
fn failed_patch_changes_nothing() {
    let document = Json::from(json!({"a": [1]}));
    let patch = json!([{"op": "add", "path": "/a/0", "value": 0}, {"op": "remove", "path": "/b"}]);
    let error = apply(
        &document,
        &Operation::parse_all(&Json::from(patch)).unwrap(),
        &SMALL,
    )
    .unwrap_err();
    assert_eq!(
        (error.index, error.operation, error.path.as_str()),
        (1, "remove", "/b")
    );
    assert_eq!(
        error.to_string(),
        "operation 1 of the patch (`remove` at `/b`) does not apply"
    );
    assert_eq!(document.to_text(), r#"{"a":[1]}"#);
}

#[test]
fn untouched_parts_stay_shared() {
    let document = Json::from(json!({"a": {"x": [1]}, "b": {"y": [2]}}));
    let patch =
        Operation::parse_all(&Json::from(json!([{"op": "remove", "path": "/a/x/0"}]))).unwrap();
    let result = apply(&document, &patch, &SMALL).unwrap();
    assert!(
        result
            .member("b")
            .unwrap()
            .is_same(document.member("b").unwrap())
    );
    assert_eq!(document.at("/a/x/0").unwrap().unwrap().to_text(), "1");
}

#[test]
fn rejects_copies_that_grow_exponentially() {
    let mut patch = vec![json!({"op": "add", "path": "/a", "value": []})];
    for _ in 0..30 {
        patch.push(json!({"op": "copy", "from": "/a", "path": "/b"}));
        patch.push(json!({"op": "add", "path": "/a", "value": []}));
        patch.push(json!({"op": "copy", "from": "/b", "path": "/a/0"}));
        patch.push(json!({"op": "copy", "from": "/b", "path": "/a/1"}));
    }
    let operations = Operation::parse_all(&Json::from(Value::from(patch))).unwrap();
    let deep = ApplyLimits {
        max_depth: 1000,
        ..SMALL
    };
    let error = apply(&Json::from(json!({})), &operations, &deep).unwrap_err();
    assert_eq!(
        error.kind,
        ApplyErrorKind::TooManyNodes {
            max_added_nodes: 1000
        }
    );
    let error = apply(&Json::from(json!({})), &operations, &SMALL).unwrap_err();
    assert_eq!(error.kind, ApplyErrorKind::TooDeep { max_depth: 8 });
}

#[test]
fn rejects_too_deep_nesting() {
    let too_deep = ApplyErrorKind::TooDeep { max_depth: 8 };
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    assert!(
        run(
            json!({}),
            json!([{"op": "add", "path": "/a", "value": nested(7)}])
        )
        .is_ok()
    );
    assert_eq!(
        refused(
            json!({}),
            json!({"op": "add", "path": "/a", "value": nested(8)})
        ),
        too_deep
    );
    let document = json!({"a": nested(5), "b": {"c": {"d": {}}}});
    assert_eq!(
        refused(
            document.clone(),
            json!({"op": "copy", "from": "/a", "path": "/b/c/d/e"})
        ),
        too_deep
    );
    assert_eq!(
        refused(
            document,
            json!({"op": "move", "from": "/a", "path": "/b/c/d/e"})
        ),
        too_deep
    );
}

#[test]
fn rejects_too_much_text_and_too_many_steps() {
    let text = "x".repeat(4000);
    let big = json!({"op": "replace", "path": "/a", "value": text});
    assert_eq!(
        run(json!({"a": 1}), json!([big, big, big]))
            .unwrap_err()
            .kind,
        ApplyErrorKind::TooManyBytes {
            max_added_bytes: 10_000
        }
    );
    let list: Vec<u32> = (0..900).collect();
    let shift = json!({"op": "move", "from": "/0", "path": "/899"});
    assert_eq!(
        run(json!(list), Value::from(vec![shift; 20]))
            .unwrap_err()
            .kind,
        ApplyErrorKind::TooManySteps { max_steps: 10_000 }
    );
    // The length of a number is not limited, and numbers are compared digit by digit.
    let digits = Number::from_text(&"9".repeat(100_000));
    let document = Json::from(vec![Json::Number(digits)]);
    let tests = [Operation::Test {
        path: pointer("/0"),
        value: Json::from(json!(9)),
    }];
    let tight = ApplyLimits {
        max_steps: 1000,
        ..SMALL
    };
    assert_eq!(
        apply(&document, &tests, &tight).unwrap_err().kind,
        ApplyErrorKind::TooManySteps { max_steps: 1000 }
    );
    assert_eq!(
        apply(&document, &tests, &SMALL).unwrap_err().kind,
        ApplyErrorKind::TestFailed
    );
}

#[test]
fn errors_shorten_paths_and_show_no_control_characters() {
    let path = Pointer::from_tokens([format!("\n{}", "ü".repeat(10_000))]);
    let error = apply(
        &Json::from(json!({})),
        &[Operation::Remove { path }],
        &SMALL,
    )
    .unwrap_err();
    for text in [error.to_string(), error.kind.to_string()] {
        assert!(
            text.len() < 400 && !text.contains('\n') && text.contains("\\n"),
            "{text}"
        );
    }
}
