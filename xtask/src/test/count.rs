//! Counts tests from the output of their binaries.

use std::fmt;

/// The tests of all binaries together.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Count {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// Tests of a binary that has started and not reported yet.
    pending: u64,
    /// Tests that were skipped past the harness. The harness counts them as passed.
    left_out: Vec<String>,
    /// Steps, or parts of them, that could not run.
    not_done: Vec<String>,
}

/// Prefix of the line with which a test reports that it was skipped.
const LEFT_OUT: &str = "SKIPPED: ";

// === impl Count ===

impl Count {
    /// Reads a line of a test binary's output.
    pub(super) fn read(&mut self, line: &str) {
        if let Some(tests) = line.strip_prefix("running ").and_then(|rest| {
            rest.strip_suffix(" tests")
                .or_else(|| rest.strip_suffix(" test"))
        }) {
            self.end();
            self.pending = tests.parse().unwrap_or(0);
        } else if let Some((_, what)) = line.split_once(LEFT_OUT) {
            self.left_out.push(what.to_owned());
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.pending = 0;
            let amount = |what: &str| {
                let mut parts = result.split([';', '.']).map(str::trim);
                let amount =
                    parts.find_map(|part| part.strip_suffix(what)?.trim().parse::<u64>().ok());
                amount.unwrap_or(0)
            };
            self.passed += amount("passed");
            self.failed += amount("failed");
            self.skipped += amount("ignored");
        }
    }

    /// Notes that a binary ended or another one started. If a binary ended without a result, all of its tests count as
    /// failed, because it is unknown which ones passed.
    pub(super) fn end(&mut self) {
        self.failed += std::mem::take(&mut self.pending);
    }

    /// Notes that a check could not run because something is missing.
    pub(super) fn skip(&mut self, what: String) {
        println!("  {LEFT_OUT}{what}");
        self.not_done.push(what);
    }

    /// Returns the skipped tests and the steps that could not run.
    pub(super) fn left_out(&self) -> impl Iterator<Item = &String> {
        self.left_out.iter().chain(&self.not_done)
    }

    /// Whether a test failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed > 0
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left_out = self.left_out.len() as u64;
        let passed = self.passed.saturating_sub(left_out);
        let skipped = self.skipped + left_out + self.not_done.len() as u64;
        write!(
            f,
            "{passed} passed, {} failed, {skipped} skipped",
            self.failed
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(lines: &[&str]) -> String {
        let mut count = Count::default();
        lines.iter().for_each(|line| count.read(line));
        count.end();
        count.to_string()
    }

    #[test]
    fn adds_up_results_of_several_binaries() {
        assert_eq!(
            count(&[
                "running 3 tests",
                "test a ... ok",
                "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
                "running 1 test",
                "test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.25s",
            ]),
            "2 passed, 1 failed, 1 skipped"
        );
    }

    #[test]
    fn counts_tests_that_print_skipped() {
        assert_eq!(
            count(&[
                "running 2 tests",
                "SKIPPED: `go` does not run",
                "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            ]),
            "1 passed, 0 failed, 1 skipped"
        );
    }

    #[test]
    fn counts_unavailable_checks_as_skipped() {
        let mut count = Count::default();
        count.read("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s");
        count.skip("cannot fetch the advisory database".to_owned());
        assert_eq!(count.to_string(), "3 passed, 0 failed, 1 skipped");
        assert_eq!(count.left_out().count(), 1);
        assert!(!count.has_failed());
    }

    #[test]
    fn counts_missing_results_of_crashed_binary_as_failed() {
        let second = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(
            count(&["running 4 tests", "running 1 test", second]),
            "1 passed, 4 failed, 0 skipped"
        );
        assert_eq!(
            count(&["running 2 tests", "test a ... ok"]),
            "0 passed, 2 failed, 0 skipped"
        );
    }
}
