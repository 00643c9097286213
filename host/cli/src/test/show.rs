//! Prints the results for a person.

use super::compare::Failure;
use super::run::{Tested, TestedCase};
use crate::terminal::{
    BAD, FAINT, GOOD, NOTABLE, STRONG, grouped, milliseconds, plain, plain_indented, say,
};

/// Prints a case when it ends.
pub(super) fn case(case: &TestedCase, verbose: bool) {
    let (style, word) = match case.ended() {
        "passed" => (GOOD, "ok   "),
        "failed" => (BAD, "FAIL "),
        _ => (BAD, "ERROR"),
    };
    let cost = case.actual.as_ref().map(|actual| {
        format!(
            "  {FAINT}{}, {}{FAINT:#}",
            actual.fuel_of_calls(),
            milliseconds(actual.milliseconds())
        )
    });
    let name = plain(&case.name);
    say!(
        "{style}{word}{style:#}  {STRONG}{name}{STRONG:#}{}",
        cost.unwrap_or_default()
    );
    if !case.passed() {
        say!(
            "       {FAINT}{}: {}{FAINT:#}",
            plain(&case.suite.display().to_string()),
            case.place
        );
    }
    if let Some(error) = &case.error {
        say!("       {BAD}{}{BAD:#}", plain(error));
    }
    for Failure { what, difference } in &case.failures {
        say!("       {BAD}{}{BAD:#}", plain(what));
        for line in difference {
            say!("         {line}");
        }
    }
    if verbose {
        details(case);
    }
    comparison(case);
}

/// Prints the result of a case and the cost of each call.
fn details(case: &TestedCase) {
    let Some(actual) = &case.actual else { return };
    for cost in &actual.costs {
        let fuel = grouped(cost.fuel_of_one_call);
        let time = milliseconds(cost.milliseconds);
        say!(
            "       {FAINT}{} {}: fuel {fuel}, {time}{FAINT:#}",
            cost.plugin,
            cost.phase
        );
    }
    let result = serde_saphyr::to_string(&actual.to_json()).unwrap_or_default();
    for line in result.lines() {
        say!("       {FAINT}{}{FAINT:#}", plain_indented(line));
    }
}

/// Prints the differences from another version.
fn comparison(case: &TestedCase) {
    let Some(comparison) = &case.comparison else {
        return;
    };
    if comparison.is_changed() {
        let failure = Failure::documents(String::new(), &comparison.old, &comparison.new);
        say!("       {NOTABLE}the result differs (- old, + new){NOTABLE:#}");
        for line in failure.difference {
            say!("         {line}");
        }
    }
    let (old, new) = comparison.fuel;
    if old != new {
        say!(
            "       {FAINT}fuel {} before, {} now{FAINT:#}",
            grouped(old),
            grouped(new)
        );
    }
}

/// Prints the number of passed and failed cases.
pub(super) fn summary(tested: &[Tested]) {
    let cases = || tested.iter().flat_map(|suite| &suite.cases);
    let count = |ended: &str| cases().filter(|case| case.ended() == ended).count();
    let (passed, failed, errors) = (count("passed"), count("failed"), count("error"));
    let style = if failed + errors == 0 { GOOD } else { BAD };
    let mut more = String::new();
    if errors > 0 {
        more.push_str(&format!(", {errors} could not be run"));
    }
    let compared = cases().filter_map(|case| case.comparison.as_ref());
    if compared.clone().next().is_some() {
        let changed = compared
            .filter(|comparison| comparison.is_changed())
            .count();
        more.push_str(&format!("; {changed} with a different result"));
    }
    say!(
        "\n{style}{} case(s) in {} suite(s): {passed} passed, {failed} failed{more}{style:#}",
        cases().count(),
        tested.len()
    );
}
