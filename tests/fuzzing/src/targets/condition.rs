//! Match conditions: any expression over any object ends within its budget, and metering does not change its value.

use std::fmt::Write as _;
use std::sync::Arc;

use tollgate_admission::review::decode::decode;
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_config::condition::{BUDGET, Condition, Decision, decide, decide_inline};
use tollgate_gate::fuzzing::condition::{metered, unmetered};
use tollgate_json::document::Json;

use crate::choices::Choices;
use crate::document;

/// Expressions that cost less than this are also evaluated without a meter.
const CHEAP_UNITS: u64 = 20_000;
const REVIEW: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"name":"web","namespace":"shop","operation":"UPDATE","userInfo":{"username":"jane","groups":["dev","ops"]},"object":{},"oldObject":{"metadata":{"name":"web","labels":{"a":"x"}},"spec":{"replicas":2}}}}"#;

/// Reads an expression from the first line and the object from the rest, or derives both from the bytes.
pub fn target(data: &[u8]) {
    let written = std::str::from_utf8(data).ok();
    let written = written.and_then(|text| text.split_once('\n'));
    let (expression, object) = match written.and_then(|(expression, object)| {
        Some((expression.to_owned(), serde_json::from_str(object).ok()?))
    }) {
        Some(written) => written,
        None => {
            let mut choices = Choices::new(data);
            let object = document::object(&mut choices);
            let mut expression = String::new();
            boolean(&mut expression, &mut choices, 0);
            (expression, object)
        }
    };
    let object = Json::from(object);
    let request = request(&object);
    let Ok(condition) = Condition::compile("fuzzed", &expression) else {
        return;
    };
    let evaluated = metered(&condition, &request, Some(&object));
    assert!(evaluated.units <= BUDGET);
    assert_eq!(
        evaluated,
        metered(&condition, &request, Some(&object)),
        "not the same again"
    );
    let decision = decide(std::slice::from_ref(&condition), &request, Some(&object));
    let as_decided = match &decision {
        Decision::Holds => Some(true),
        Decision::Fails(0) => Some(false),
        Decision::Fails(other) => panic!("there is no condition {other}"),
        Decision::Unclear(_) => None,
    };
    assert_eq!(as_decided, evaluated.value);
    let conditions = std::slice::from_ref(&condition);
    if let Ok(inline) = decide_inline(conditions, &request, Some(&object)) {
        assert_eq!(inline, decision, "the smaller budget decides otherwise");
    }
    // The crate is built without its own `matches`.
    if evaluated.units < CHEAP_UNITS && !expression.contains("matches") {
        assert_eq!(
            evaluated.value,
            unmetered(&condition, &request, Some(&object)),
            "metering changes the value of `{expression}`"
        );
    }
}

fn request(object: &Json) -> Arc<AdmissionRequest> {
    let mut request = decode(REVIEW.as_bytes(), 32)
        .expect("it is a review")
        .request;
    request.object = Some(object.clone());
    Arc::new(request)
}

const PLACES: [&str; 12] = [
    "object",
    "oldObject",
    "request",
    "object.metadata",
    "object.spec",
    "object.spec.containers",
    "oldObject.metadata.labels",
    "request.userInfo.groups",
    "object.metadata.labels",
    "object.a",
    "object.b.name",
    "object.spec.containers[0]",
];
const TEXTS: [&str; 8] = [
    "''",
    "'x'",
    "'web'",
    "'registry.test/app:1'",
    "'a,b,c'",
    "'[a-z]+'",
    "object.metadata.name",
    "request.namespace",
];
const NAMES: [&str; 5] = ["x", "y", "a", "name", "labels"];

fn boolean(out: &mut String, choices: &mut Choices<'_>, depth: u32) {
    if depth > 4 || out.len() > 600 {
        out.push_str(if choices.chance(50) { "true" } else { "false" });
        return;
    }
    let next = depth + 1;
    match choices.below(18) {
        0 | 1 => {
            out.push('(');
            boolean(out, choices, next);
            out.push_str(if choices.chance(50) { " && " } else { " || " });
            boolean(out, choices, next);
            out.push(')');
        }
        2 => {
            out.push('!');
            boolean(out, choices, next);
        }
        3 | 4 => {
            number(out, choices, next);
            out.push_str(choices.word(&[" == ", " < ", " >= ", " != "]));
            number(out, choices, next);
        }
        5 | 6 => {
            text(out, choices, next);
            out.push_str(choices.word(&[" == ", " < ", " in ", " != "]));
            match choices.below(3) {
                0 => list(out, choices, next),
                _ => text(out, choices, next),
            }
        }
        7 => {
            let place = choices.word(&PLACES);
            let name = choices.word(&NAMES);
            let _ = write!(out, "has({place}.{name})");
        }
        8..11 => {
            list(out, choices, next);
            let variable = choices.word(&["e", "f"]);
            let macro_name = choices.word(&["all", "exists", "exists_one"]);
            let _ = write!(out, ".{macro_name}({variable}, ");
            if choices.chance(50) {
                let _ = write!(out, "{variable} == ");
                text(out, choices, next);
            } else {
                boolean(out, choices, next);
            }
            out.push(')');
        }
        11..13 => {
            text(out, choices, next);
            let function = choices.word(&["contains", "startsWith", "endsWith", "matches"]);
            let _ = write!(out, ".{function}(");
            text(out, choices, next);
            out.push(')');
        }
        13 => {
            list(out, choices, next);
            out.push_str(choices.word(&[" == ", " != "]));
            list(out, choices, next);
        }
        14 => {
            boolean(out, choices, next);
            out.push_str(" ? ");
            boolean(out, choices, next);
            out.push_str(" : ");
            boolean(out, choices, next);
        }
        15 => {
            let place = choices.word(&PLACES);
            let other = choices.word(&PLACES);
            let _ = write!(out, "{place} == {other}");
        }
        16 => {
            out.push_str("optional.of(");
            number(out, choices, next);
            out.push_str(").hasValue()");
        }
        _ => out.push_str("true"),
    }
}

fn number(out: &mut String, choices: &mut Choices<'_>, depth: u32) {
    if depth > 5 {
        out.push('1');
        return;
    }
    let next = depth + 1;
    match choices.below(8) {
        0..3 => {
            let _ = write!(out, "{}", choices.long().cast_signed());
        }
        3 => {
            out.push_str("size(");
            if choices.chance(50) {
                list(out, choices, next);
            } else {
                text(out, choices, next);
            }
            out.push(')');
        }
        4 => {
            out.push('(');
            number(out, choices, next);
            out.push_str(choices.word(&[" + ", " - ", " * ", " / ", " % "]));
            number(out, choices, next);
            out.push(')');
        }
        5 => {
            text(out, choices, next);
            out.push_str(choices.word(&[".indexOf(", ".lastIndexOf("]));
            text(out, choices, next);
            out.push(')');
        }
        6 => {
            out.push_str("int(");
            text(out, choices, next);
            out.push(')');
        }
        _ => out.push_str("object.spec.replicas"),
    }
}

fn text(out: &mut String, choices: &mut Choices<'_>, depth: u32) {
    if depth > 5 {
        out.push_str("'x'");
        return;
    }
    let next = depth + 1;
    match choices.below(12) {
        0..5 => out.push_str(choices.word(&TEXTS)),
        5 => {
            out.push('(');
            text(out, choices, next);
            out.push_str(" + ");
            text(out, choices, next);
            out.push(')');
        }
        6 => {
            text(out, choices, next);
            out.push_str(".replace(");
            text(out, choices, next);
            out.push_str(", ");
            text(out, choices, next);
            out.push(')');
        }
        7 => {
            list(out, choices, next);
            out.push_str(".join(");
            text(out, choices, next);
            out.push(')');
        }
        8 => {
            text(out, choices, next);
            out.push_str(choices.word(&[
                ".lowerAscii()",
                ".upperAscii()",
                ".trim()",
                ".charAt(0)",
                ".substring(1)",
            ]));
        }
        9 => {
            out.push_str("string(");
            number(out, choices, next);
            out.push(')');
        }
        10 => {
            let place = choices.word(&PLACES);
            let name = choices.word(&NAMES);
            let _ = write!(out, "{place}['{name}']");
        }
        _ => out.push_str("'\\u2028é'"),
    }
}

fn list(out: &mut String, choices: &mut Choices<'_>, depth: u32) {
    if depth > 5 {
        out.push_str("[1, 2]");
        return;
    }
    let next = depth + 1;
    match choices.below(8) {
        0..3 => out.push_str(choices.word(&PLACES)),
        3 => {
            out.push('[');
            for place in 0..choices.below(4) {
                if place > 0 {
                    out.push_str(", ");
                }
                text(out, choices, next);
            }
            out.push(']');
        }
        4 => {
            text(out, choices, next);
            out.push_str(".split(");
            text(out, choices, next);
            out.push(')');
        }
        5 => {
            list(out, choices, next);
            out.push_str(".map(m, ");
            text(out, choices, next);
            out.push(')');
        }
        6 => {
            list(out, choices, next);
            out.push_str(".filter(n, ");
            boolean(out, choices, next);
            out.push(')');
        }
        _ => {
            out.push('(');
            list(out, choices, next);
            out.push_str(" + ");
            list(out, choices, next);
            out.push(')');
        }
    }
}
