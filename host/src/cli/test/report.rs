//! Writes the results for machines: JSON, and JUnit XML as CI servers read it.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::judge::Failure;
use super::run::{Tested, TestedCase};

/// Returns all results as JSON.
pub(super) fn json(tested: &[Tested]) -> Value {
    let count = |ended: &str| {
        tested
            .iter()
            .flat_map(|suite| &suite.cases)
            .filter(|case| case.ended() == ended)
            .count()
    };
    json!({
        "suites": tested.iter().map(|suite| json!({
            "file": suite.suite.display().to_string(),
            "cases": suite.cases.iter().map(case).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "summary": { "passed": count("passed"), "failed": count("failed"), "errors": count("error") },
    })
}

fn case(case: &TestedCase) -> Value {
    let mut value = json!({
        "name": case.name,
        "place": case.place,
        "ended": case.ended(),
        "error": case.error,
        "failures": case.failures.iter().map(text).collect::<Vec<_>>(),
    });
    if let Some(actual) = &case.actual {
        value["result"] = actual.to_json();
        let calls = actual.costs.iter().map(|cost| {
            json!({ "plugin": cost.plugin, "phase": cost.phase, "fuel": cost.fuel, "milliseconds": cost.milliseconds })
        });
        value["calls"] = calls.collect();
    }
    if let Some(comparison) = &case.comparison {
        value["against"] = comparison.to_json();
    }
    value
}

/// Returns all results as JUnit XML, with one `testsuite` per suite.
pub(super) fn junit(tested: &[Tested]) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for suite in tested {
        let count = |ended: &str| {
            suite
                .cases
                .iter()
                .filter(|case| case.ended() == ended)
                .count()
        };
        let seconds: f64 = suite.cases.iter().map(seconds_of).sum();
        let name = escaped(&suite.suite.display().to_string());
        let (tests, failures, errors) = (suite.cases.len(), count("failed"), count("error"));
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" time=\"{seconds:.6}\">"
        );
        for case in &suite.cases {
            let _ = write!(
                xml,
                "    <testcase classname=\"{name}\" name=\"{}\" time=\"{:.6}\"",
                escaped(&case.name),
                seconds_of(case)
            );
            xml.push_str(&body(case));
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn body(case: &TestedCase) -> String {
    let (element, texts) = match (&case.error, case.failures.is_empty()) {
        (None, true) => return "/>\n".to_owned(),
        (Some(error), _) => ("error", vec![error.clone()]),
        (None, false) => ("failure", case.failures.iter().map(text).collect()),
    };
    let first = texts
        .first()
        .and_then(|text| text.lines().next())
        .unwrap_or_default();
    format!(
        ">\n      <{element} message=\"{}\">{}</{element}>\n    </testcase>\n",
        escaped(first),
        escaped(&texts.join("\n"))
    )
}

fn seconds_of(case: &TestedCase) -> f64 {
    case.actual
        .as_ref()
        .map_or(0.0, |actual| actual.milliseconds() / 1000.0)
}

fn text(failure: &Failure) -> String {
    let mut lines = vec![failure.what.clone()];
    lines.extend(
        failure
            .difference
            .iter()
            .map(|line| anstream::adapter::strip_str(line).to_string()),
    );
    lines.join("\n")
}

/// Escapes text for XML 1.0, which does not allow most control characters.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(character),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            other if other.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tested(failures: Vec<Failure>) -> [Tested; 1] {
        [Tested {
            suite: "a.test.yaml".into(),
            cases: vec![TestedCase {
                suite: "a.test.yaml".into(),
                name: "denies <b> & \"c\"".to_owned(),
                place: "cases[0]".to_owned(),
                failures,
                error: None,
                actual: None,
                comparison: None,
            }],
        }]
    }

    #[test]
    fn escapes_failure_texts_in_xml() {
        let failure = Failure::new("message: expected it to contain \"a\u{1b}\"".to_owned());
        insta::assert_snapshot!(junit(&tested(vec![failure])), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites>
          <testsuite name="a.test.yaml" tests="1" failures="1" errors="0" time="0.000000">
            <testcase classname="a.test.yaml" name="denies &lt;b&gt; &amp; &quot;c&quot;" time="0.000000">
              <failure message="message: expected it to contain &quot;a�&quot;">message: expected it to contain &quot;a�&quot;</failure>
            </testcase>
          </testsuite>
        </testsuites>
        "#);
    }

    #[test]
    fn counts_passed_cases() {
        assert_eq!(
            json(&tested(Vec::new()))["summary"],
            serde_json::json!({"passed": 1, "failed": 0, "errors": 0})
        );
    }
}
