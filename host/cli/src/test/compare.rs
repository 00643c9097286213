//! Compares the actual result of a case with the expected one.

use serde_json::Value;
use tollgate_json::document::Json;

use super::actual::{Actual, Fault};
use super::expect::{Cause, Expectation, Verdict};
use crate::review::difference;
use crate::terminal::{grouped, plain};

/// A difference from the expected result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The place, the expected value and the actual value.
    pub(super) what: String,
    /// A diff, line by line, in colours.
    pub(super) difference: Vec<String>,
}

/// Returns all differences between a result and the expectation. `object` is the expected object.
pub(super) fn compare_result(
    actual: &Actual,
    expect: &Expectation,
    object: Option<&Json>,
    fuel: Option<u64>,
) -> Vec<Failure> {
    let mut failures = Vec::new();
    verdict(actual, expect, &mut failures);
    refusal(actual, expect, &mut failures);
    texts(actual, expect, &mut failures);
    changed(actual, expect, object, &mut failures);
    for cost in &actual.costs {
        let used = cost.fuel_of_one_call;
        if let Some(most) = fuel.filter(|most| used > *most) {
            let (used, most) = (grouped(used), grouped(most));
            failures.push(Failure::new(format!(
                "fuel: {} used {used} in {}; at most {most} is allowed",
                cost.plugin, cost.phase
            )));
        }
    }
    failures
}

fn verdict(actual: &Actual, expect: &Expectation, failures: &mut Vec<Failure>) {
    if let Some(verdict) = expect.verdict.filter(|verdict| *verdict != actual.verdict) {
        // The text of a fault follows below.
        let got = match actual.verdict {
            Verdict::Fault if !actual.faults.is_empty() => Verdict::Fault.as_str().to_owned(),
            _ => described(actual),
        };
        failures.push(Failure {
            what: format!("verdict: expected {}, got {got}", verdict.as_str()),
            difference: mismatches(actual),
        });
    } else if expect.verdict.is_none() && actual.verdict == Verdict::NotCalled {
        failures.push(Failure {
            what: "verdict: no plugin was called; expect not-called if that is right".to_owned(),
            difference: mismatches(actual),
        });
    }
    match &expect.fault {
        Some(kind) if !actual.faults.iter().any(|fault| fault.kind == kind) => {
            let faults = actual.faults.iter();
            let faults: Vec<String> = faults.map(Fault::described).collect();
            let got = match faults.is_empty() {
                true => described(actual),
                false => faults.join("; "),
            };
            failures.push(Failure::new(format!("fault: expected {kind}, got {got}")));
        }
        None if expect.verdict != Some(Verdict::Fault) => {
            // Under failurePolicy Ignore, nobody would notice the fault.
            for fault in &actual.faults {
                failures.push(Failure::new(format!("fault: {}", fault.described())));
            }
        }
        _ => {}
    }
}

fn refusal(actual: &Actual, expect: &Expectation, failures: &mut Vec<Failure>) {
    // The message and the causes of a fault repeat its text, which is shown already.
    let is_shown = expect.verdict != Some(Verdict::Fault) && !actual.faults.is_empty();
    if actual.verdict == Verdict::Fault && is_shown {
        return;
    }
    let message = actual.message.as_deref().unwrap_or_default();
    if let Some(part) = expect
        .message
        .as_ref()
        .filter(|part| !message.contains(*part))
    {
        failures.push(Failure::new(format!(
            "message: expected it to contain {part:?}, got {message:?}"
        )));
    }
    if expect.code.is_some() && expect.code != actual.code {
        let got = actual
            .code
            .map_or("none".to_owned(), |code| code.to_string());
        failures.push(Failure::new(format!(
            "code: expected {}, got {got}",
            expect.code.unwrap_or_default()
        )));
    }
    let Some(causes) = &expect.causes else { return };
    let fits = |(cause, (field, message)): (&Cause, &(Option<String>, String))| {
        cause
            .field
            .as_ref()
            .is_none_or(|expected| Some(expected) == field.as_ref())
            && cause
                .message
                .as_ref()
                .is_none_or(|part| message.contains(part))
    };
    if causes.len() != actual.causes.len() || !causes.iter().zip(&actual.causes).all(fits) {
        let got: Vec<String> = actual
            .causes
            .iter()
            .map(|(field, message)| line(field.as_deref(), Some(own_words(actual, message))))
            .collect();
        // A cause that fits is shown as it is, even if only a part of it is expected. Then the diff does not mark it.
        let expected = causes.iter().enumerate().map(|(index, cause)| {
            let got = actual.causes.get(index).filter(|got| fits((cause, got)));
            got.map_or_else(
                || line(cause.field.as_deref(), cause.message.as_deref()),
                |(field, message)| line(field.as_deref(), Some(own_words(actual, message))),
            )
        });
        failures.push(Failure::lists("causes", expected.collect(), got));
    }
}

fn texts(actual: &Actual, expect: &Expectation, failures: &mut Vec<Failure>) {
    if let Some(warnings) = &expect.warnings {
        let fits = |(part, warning): (&String, &String)| warning.contains(part);
        if warnings.len() != actual.warnings.len()
            || !warnings.iter().zip(&actual.warnings).all(fits)
        {
            let got = actual.warnings.iter();
            let got: Vec<String> = got
                .map(|warning| own_words(actual, warning).to_owned())
                .collect();
            let expected = warnings.iter().enumerate().map(|(index, part)| {
                let got = actual.warnings.get(index).filter(|got| fits((part, got)));
                got.map_or(part.as_str(), |got| own_words(actual, got))
                    .to_owned()
            });
            failures.push(Failure::lists("warnings", expected.collect(), got));
        }
    }
    for (key, expected) in &expect.annotations {
        let got = actual.annotations.get(key);
        if got != expected.as_ref() {
            let shown =
                |text: Option<&String>| text.map_or("none".to_owned(), |text| format!("{text:?}"));
            failures.push(Failure::new(format!(
                "annotations: {key}: expected {}, got {}",
                shown(expected.as_ref()),
                shown(got)
            )));
        }
    }
}

fn changed(
    actual: &Actual,
    expect: &Expectation,
    object: Option<&Json>,
    failures: &mut Vec<Failure>,
) {
    match expect.unchanged {
        Some(true) if !actual.patch.is_empty() => {
            let places: Vec<&str> = actual
                .patch
                .iter()
                .map(|operation| operation.path().as_str())
                .collect();
            failures.push(Failure::new(format!(
                "unchanged: the object was changed at {}",
                places.join(", ")
            )));
        }
        Some(false) if actual.patch.is_empty() => {
            failures.push(Failure::new(
                "unchanged: expected the object to be changed".to_owned(),
            ));
        }
        _ => {}
    }
    if object.is_none() && expect.fields.is_empty() {
        return;
    }
    let Some(after) = &actual.object else {
        failures.push(Failure::new(
            "object: no object is left after the mutators to compare with".to_owned(),
        ));
        return;
    };
    if let Some(expected) = object.filter(|expected| !expected.equivalent(after)) {
        failures.push(Failure {
            what: "object: not as expected (- expected, + got)".to_owned(),
            difference: difference::lines(expected, after, false),
        });
    }
    for (pointer, expected) in &expect.fields {
        let got = after.at(pointer).ok().flatten();
        let expected_value = Some(Json::from(expected.clone())).filter(|_| !expected.is_null());
        let fits = match (&expected_value, got) {
            (Some(expected_value), Some(got)) => expected_value.equivalent(got),
            (None, None | Some(Json::Null)) => true,
            _ => false,
        };
        if !fits {
            let shown = |json: Option<&Json>| json.map_or("nothing".to_owned(), Json::to_text);
            failures.push(Failure::new(format!(
                "fields: {pointer}: expected {}, got {}",
                shown(expected_value.as_ref()),
                shown(got)
            )));
        }
    }
}

/// Lists the reasons why no plugin was called, for the lines below a failure.
fn mismatches(actual: &Actual) -> Vec<String> {
    let mismatches = actual.mismatches.iter();
    mismatches.map(|mismatch| plain(mismatch)).collect()
}

/// Describes the verdict and its reason.
fn described(actual: &Actual) -> String {
    let verdict = actual.verdict.as_str();
    match (&actual.message, actual.code) {
        (Some(message), Some(code)) => format!("{verdict} ({code}): {message}"),
        _ if actual.verdict == Verdict::NotCalled => {
            format!("{verdict}: no plugin matches this review")
        }
        _ => verdict.to_owned(),
    }
}

/// Returns a message without the plugin's name. The host adds the name, so suites do not contain it.
fn own_words<'a>(actual: &Actual, message: &'a str) -> &'a str {
    let own = actual
        .costs
        .iter()
        .find_map(|cost| message.strip_prefix(&cost.plugin)?.strip_prefix(": "));
    own.unwrap_or(message)
}

fn line(field: Option<&str>, message: Option<&str>) -> String {
    match (field, message) {
        (Some(field), Some(message)) => format!("{field}: {message}"),
        (Some(one), None) | (None, Some(one)) => one.to_owned(),
        (None, None) => "(any)".to_owned(),
    }
}

// === impl Failure ===

impl Failure {
    pub(super) fn new(what: String) -> Self {
        Self {
            what,
            difference: Vec::new(),
        }
    }

    fn lists(what: &str, expected: Vec<String>, got: Vec<String>) -> Self {
        Self::documents(
            format!("{what}: not as expected (- expected, + got)"),
            &Value::from(expected),
            &Value::from(got),
        )
    }

    /// Creates a failure for two documents that should be equal.
    pub(super) fn documents(what: String, expected: &Value, got: &Value) -> Self {
        let (expected, got) = (Json::from(expected.clone()), Json::from(got.clone()));
        Self {
            what,
            difference: difference::lines(&expected, &got, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn denied() -> Actual {
        Actual {
            verdict: Verdict::Deny,
            code: Some(403),
            message: Some("limit: too many replicas (spec.replicas: must be at most 3)".to_owned()),
            causes: vec![(
                Some("spec.replicas".to_owned()),
                "limit: must be at most 3".to_owned(),
            )],
            warnings: vec!["limit: old API".to_owned()],
            annotations: [("limit.seen".to_owned(), "yes".to_owned())].into(),
            faults: Vec::new(),
            patch: Vec::new(),
            object: Some(Json::from(json!({"spec": {"replicas": 4.0}}))),
            costs: vec![super::super::actual::Cost {
                plugin: "limit".to_owned(),
                phase: "validate",
                fuel: 1930,
                fuel_of_one_call: 1930,
                milliseconds: 0.2,
            }],
            mismatches: Vec::new(),
        }
    }

    fn whats(actual: &Actual, expect: &Expectation, fuel: Option<u64>) -> Vec<String> {
        let failures = compare_result(actual, expect, None, fuel);
        failures.into_iter().map(|failure| failure.what).collect()
    }

    fn cause(field: &str, message: &str) -> Cause {
        Cause {
            field: Some(field.to_owned()),
            message: Some(message.to_owned()),
        }
    }

    #[test]
    fn tells_an_unexpected_fault_once() {
        let text = "the plugin aborted: boom (at src/lib.rs:28:49)";
        let actual = Actual {
            verdict: Verdict::Fault,
            code: Some(500),
            message: Some(format!("limit: {text}")),
            causes: vec![(None, format!("limit: {text}"))],
            faults: vec![super::super::actual::Fault {
                plugin: "limit".to_owned(),
                kind: "trap",
                message: text.to_owned(),
            }],
            warnings: Vec::new(),
            annotations: BTreeMap::new(),
            ..denied()
        };
        let expect = Expectation {
            verdict: Some(Verdict::Deny),
            message: Some("too many".to_owned()),
            code: Some(403),
            causes: Some(vec![cause("spec.replicas", "must be at most 3")]),
            ..Expectation::default()
        };
        let whats = whats(&actual, &expect, None);
        assert_eq!(whats.len(), 2, "{whats:?}");
        assert!(whats[0].starts_with("verdict: expected "), "{whats:?}");
        assert!(
            whats[1].starts_with("fault: ") && whats[1].contains(text),
            "{whats:?}"
        );
    }

    #[test]
    fn accepts_expected_results() {
        let expect = Expectation {
            verdict: Some(Verdict::Deny),
            message: Some("too many".to_owned()),
            code: Some(403),
            causes: Some(vec![cause("spec.replicas", "must be at most 3")]),
            warnings: Some(vec!["old API".to_owned()]),
            annotations: [
                ("limit.seen".to_owned(), Some("yes".to_owned())),
                ("limit.none".to_owned(), None),
            ]
            .into(),
            fields: [
                ("/spec/replicas".to_owned(), json!(4)),
                ("/spec/none".to_owned(), Value::Null),
            ]
            .into(),
            unchanged: Some(true),
            ..Expectation::default()
        };
        assert!(whats(&denied(), &expect, Some(1930)).is_empty());
    }

    #[test]
    fn reports_every_unexpected_result() {
        let expect = Expectation {
            verdict: Some(Verdict::Allow),
            causes: Some(vec![
                cause("spec.replicas", "must be at most 3"),
                cause("spec.paused", "no"),
            ]),
            warnings: Some(Vec::new()),
            annotations: [("limit.seen".to_owned(), None)].into(),
            fields: [("/spec/replicas".to_owned(), json!(3))].into(),
            unchanged: Some(false),
            ..Expectation::default()
        };
        insta::assert_snapshot!(whats(&denied(), &expect, Some(1929)).join("\n"), @r#"
        verdict: expected allow, got deny (403): limit: too many replicas (spec.replicas: must be at most 3)
        causes: not as expected (- expected, + got)
        warnings: not as expected (- expected, + got)
        annotations: limit.seen: expected none, got "yes"
        unchanged: expected the object to be changed
        fields: /spec/replicas: expected 3, got 4.0
        fuel: limit used 1,930 in validate; at most 1,929 is allowed
        "#);
    }

    #[test]
    fn differences_show_only_mismatches_without_plugin_names() {
        let mut actual = denied();
        let second = "limit: must not be paused".to_owned();
        actual.causes.push((Some("spec.paused".to_owned()), second));
        let expect = Expectation {
            causes: Some(vec![
                cause("spec.replicas", "at most 3"),
                cause("spec.paused", "must be paused"),
            ]),
            warnings: Some(vec!["new API".to_owned()]),
            ..Expectation::default()
        };
        let failures = compare_result(&actual, &expect, None, None);
        let lines: Vec<String> = failures
            .iter()
            .flat_map(|failure| &failure.difference)
            .map(|line| anstream::adapter::strip_str(line).to_string())
            .collect();
        let changed = lines.iter().filter(|line| line.starts_with(['-', '+']));
        assert_eq!(
            changed.collect::<Vec<_>>(),
            [
                "- - \"spec.paused: must be paused\"",
                "+ - \"spec.paused: must not be paused\"",
                "- - new API",
                "+ - old API",
            ]
        );
    }

    #[test]
    fn shows_the_text_of_a_fault_once() {
        let mut actual = denied();
        let text = "out of fuel: the plugin used all 100 units (limits.fuel)";
        actual.verdict = Verdict::Fault;
        actual.code = Some(500);
        actual.message = Some(format!("limit: {text}"));
        actual.faults.push(super::super::actual::Fault {
            plugin: "limit".to_owned(),
            kind: "out-of-fuel",
            message: text.to_owned(),
        });
        let allow = Expectation {
            verdict: Some(Verdict::Allow),
            ..Expectation::default()
        };
        insta::assert_snapshot!(whats(&actual, &allow, None).join("\n"), @r"
        verdict: expected allow, got fault
        fault: limit ended with out-of-fuel: the plugin used all 100 units (limits.fuel)
        ");
        let trap = Expectation {
            fault: Some("trap".to_owned()),
            ..Expectation::default()
        };
        assert_eq!(
            whats(&actual, &trap, None),
            [
                "fault: expected trap, got limit ended with out-of-fuel: the plugin used all 100 units (limits.fuel)"
            ]
        );
    }

    #[test]
    fn lists_what_was_asked_for_below_an_unexpected_verdict() {
        let mut actual = denied();
        actual.verdict = Verdict::NotCalled;
        (actual.code, actual.message) = (None, None);
        actual.mismatches = vec!["limit: asked for pods, its rules want nodes".to_owned()];
        let deny = Expectation {
            verdict: Some(Verdict::Deny),
            ..Expectation::default()
        };
        let failures = compare_result(&actual, &deny, None, None);
        assert_eq!(
            failures[0].what,
            "verdict: expected deny, got not-called: no plugin matches this review"
        );
        assert_eq!(failures[0].difference, actual.mismatches);
    }

    #[test]
    fn counts_fuel_as_limits_do() {
        let mut actual = denied();
        // The plugin was called again, and its turn cost more than any call.
        actual.costs[0].fuel = 3000;
        let none = Expectation {
            verdict: Some(Verdict::Deny),
            ..Expectation::default()
        };
        assert!(whats(&actual, &none, Some(1930)).is_empty());
        assert_eq!(actual.fuel_of_calls(), "fuel 1,930 in validate");
        let mut other = actual.costs[0].clone();
        other.plugin = "other".to_owned();
        other.fuel_of_one_call = 2500;
        actual.costs.push(other);
        assert_eq!(
            actual.fuel_of_calls(),
            "fuel at most 2,500 in each of 2 calls"
        );
    }

    #[test]
    fn unexpected_fault_fails_an_allowed_case() {
        let mut actual = denied();
        actual.verdict = Verdict::Allow;
        actual.faults.push(super::super::actual::Fault {
            plugin: "limit".to_owned(),
            kind: "trap",
            message: "trap: unreachable".to_owned(),
        });
        let allow = Expectation {
            verdict: Some(Verdict::Allow),
            ..Expectation::default()
        };
        assert_eq!(
            whats(&actual, &allow, None),
            ["fault: limit ended with trap: unreachable"]
        );
        let expected = Expectation {
            fault: Some("trap".to_owned()),
            ..allow
        };
        assert!(whats(&actual, &expected, None).is_empty());
    }
}
