//! Writes the results for machines: JSON, and JUnit XML as CI servers read it.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, TestCaseStatus, TestSuite};
use serde_json::{Value, json};

use super::actual::Actual;
use super::compare::Failure;
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
            json!({
                "plugin": cost.plugin, "phase": cost.phase, "fuel": cost.fuel,
                "fuelOfOneCall": cost.fuel_of_one_call, "milliseconds": cost.milliseconds,
            })
        });
        value["calls"] = calls.collect();
    }
    if let Some(comparison) = &case.comparison {
        value["against"] = comparison.to_json();
    }
    value
}

/// Returns all results as JUnit XML, with one `testsuite` per suite.
pub(super) fn junit(tested: &[Tested]) -> anyhow::Result<String> {
    let mut report = Report::new("tollgate");
    for suite in tested {
        let name = suite.suite.display().to_string();
        let mut written = TestSuite::new(name.as_str());
        written.set_time(suite.cases.iter().map(duration).sum());
        for case in &suite.cases {
            let mut test = quick_junit::TestCase::new(case.name.as_str(), status(case));
            test.set_classname(name.as_str()).set_time(duration(case));
            written.add_test_case(test);
        }
        report.add_test_suite(written);
    }
    Ok(report.to_string()?)
}

fn status(case: &TestedCase) -> TestCaseStatus {
    let (kind, texts) = match (&case.error, case.failures.is_empty()) {
        (None, true) => return TestCaseStatus::success(),
        (Some(error), _) => (NonSuccessKind::Error, vec![error.clone()]),
        (None, false) => (
            NonSuccessKind::Failure,
            case.failures.iter().map(text).collect(),
        ),
    };
    let first = texts
        .first()
        .and_then(|text| text.lines().next())
        .unwrap_or_default();
    let mut status = TestCaseStatus::non_success(kind);
    status.set_message(first).set_description(texts.join("\n"));
    status
}

fn duration(case: &TestedCase) -> Duration {
    let milliseconds = case.actual.as_ref().map_or(0.0, Actual::milliseconds);
    Duration::from_secs_f64(milliseconds / 1000.0)
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
        insta::assert_snapshot!(junit(&tested(vec![failure])).unwrap(), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites name="tollgate" tests="1" skipped="0" failures="1" errors="0">
            <testsuite name="a.test.yaml" tests="1" skipped="0" errors="0" failures="1" time="0.000">
                <testcase name="denies &lt;b&gt; &amp; &quot;c&quot;" classname="a.test.yaml" time="0.000">
                    <failure message="message: expected it to contain &quot;a">message: expected it to contain &quot;a</failure>
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
