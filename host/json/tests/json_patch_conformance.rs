//! RFC 6902 as its public test vectors have it.
//!
//! The vectors are not part of this repository: they are looked for in the folder that `TOLLGATE_SHARED` names,
//! or in `shared` beside the repository. Without them the unit tests of `tollgate_json::patch` still cover each rule.

use std::io::Write as _;
use std::path::PathBuf;

use serde_json::Value;
use tollgate_json::document::Json;
use tollgate_json::patch::{ApplyLimits, Operation, apply, diff};

/// Says what was not tested past the test harness, which swallows what a passing test prints.
macro_rules! skipped {
    ($($message:tt)*) => {
        writeln!(std::io::stderr(), "SKIPPED: {}", format_args!($($message)*)).expect("stderr takes it")
    };
}

fn vectors(name: &str) -> Option<Vec<Value>> {
    let shared = std::env::var_os("TOLLGATE_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let path = shared.join("conformance/json-patch").join(name);
    match std::fs::read(&path) {
        Ok(text) => Some(serde_json::from_slice(&text).expect("the vectors are a JSON array")),
        Err(error) => {
            skipped!(
                "{} cannot be read ({error}); set TOLLGATE_SHARED to its folder",
                path.display()
            );
            None
        }
    }
}

fn outcome(document: &Json, patch: &Json) -> Result<Json, String> {
    let operations =
        Operation::parse_all(patch).map_err(|error| format!("{error}: {}", error.kind))?;
    apply(document, &operations, &ApplyLimits::default())
        .map_err(|error| format!("{error}: {}", error.kind))
}

fn check(name: &str, at_least: usize) {
    let Some(vectors) = vectors(name) else { return };
    let mut run = 0;
    for (index, vector) in vectors.iter().enumerate() {
        let (Some(document), Some(patch)) = (vector.get("doc"), vector.get("patch")) else {
            continue;
        };
        if vector.get("disabled").and_then(Value::as_bool) == Some(true) {
            continue;
        }
        run += 1;
        let document = Json::from(document.clone());
        let outcome = outcome(&document, &Json::from(patch.clone()));
        match (outcome, vector.get("expected")) {
            (Ok(result), Some(expected)) => {
                let expected = Json::from(expected.clone());
                assert!(
                    result == expected,
                    "{name}[{index}] {vector}: came to {}",
                    result.to_text()
                );
                let again = apply(
                    &document,
                    &diff(&document, &expected),
                    &ApplyLimits::default(),
                );
                assert!(
                    again == Ok(expected),
                    "{name}[{index}] {vector}: the difference does not lead there"
                );
            }
            // A vector without `expected` and without `error` only has to apply.
            (Ok(result), None) => {
                assert!(
                    vector.get("error").is_none(),
                    "{name}[{index}] {vector}: came to {}",
                    result.to_text()
                );
            }
            (Err(error), _) => assert!(
                vector.get("error").is_some(),
                "{name}[{index}] {vector}: {error}"
            ),
        }
    }
    assert!(run >= at_least, "{name} has only {run} enabled vectors");
    eprintln!("{name}: {run} vectors");
}

#[test]
fn agrees_with_public_vectors() {
    check("tests.json", 80);
}

#[test]
fn agrees_with_vectors_of_specification() {
    check("spec_tests.json", 15);
}
