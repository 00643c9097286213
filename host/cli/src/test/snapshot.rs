//! Snapshots: the results of a suite's cases that somebody accepted last.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::actual::Actual;
use super::compare::Failure;
use crate::terminal::grouped;

/// The snapshots of a suite, by the names of its cases.
#[derive(Debug)]
pub(super) struct Snapshots {
    path: PathBuf,
    known: BTreeMap<String, Snapshot>,
    /// The results of this run.
    seen: BTreeMap<String, Snapshot>,
}

/// The result of one case.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Snapshot {
    result: Value,
    /// Fuel by plugin and phase.
    #[serde(default)]
    fuel: BTreeMap<String, u64>,
}

// === impl Snapshots ===

impl Snapshots {
    /// Reads the snapshots of a suite. For `policy.test.yaml` the file is `policy.snapshot.yaml`.
    pub(super) fn of(suite: &Path) -> anyhow::Result<Self> {
        let path = path_of(suite);
        let known = match std::fs::read_to_string(&path) {
            Ok(text) => serde_saphyr::from_str(&text).with_context(|| {
                format!(
                    "cannot read {}; write it again with --update",
                    path.display()
                )
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        Ok(Self {
            path,
            known,
            seen: BTreeMap::new(),
        })
    }

    /// Compares a case with its snapshot. With `update`, the result is accepted.
    pub(super) fn compare(
        &mut self,
        case: &str,
        actual: &Actual,
        growth_percent: u64,
        update: bool,
    ) -> Vec<Failure> {
        let now = Snapshot {
            result: actual.to_json(),
            fuel: actual.fuel_by_call(),
        };
        let known = self.known.get(case);
        let failures = match known {
            _ if update => Vec::new(),
            None => vec![Failure::new(format!(
                "snapshot: none in {}; look at the result with --verbose, and accept it with --update",
                self.path.display()
            ))],
            Some(known) => differences(known, &now, growth_percent),
        };
        self.seen.insert(case.to_owned(), now);
        failures
    }

    /// Writes the results of this run, if they differ from the snapshots. If only some cases were to run, the other
    /// cases keep their snapshots.
    pub(super) fn save(mut self, all_ran: bool) -> anyhow::Result<()> {
        let mut wanted = if all_ran {
            BTreeMap::new()
        } else {
            self.known.clone()
        };
        wanted.append(&mut self.seen);
        if wanted == self.known {
            return Ok(());
        }
        let failed = || format!("cannot write {}", self.path.display());
        if wanted.is_empty() {
            return std::fs::remove_file(&self.path).with_context(failed);
        }
        let text = format!(
            "# Written by `tollgate test --update`.\n{}",
            serde_saphyr::to_string(&wanted)?
        );
        std::fs::write(&self.path, text).with_context(failed)
    }
}

fn differences(known: &Snapshot, now: &Snapshot, growth_percent: u64) -> Vec<Failure> {
    let mut failures = Vec::new();
    if known.result != now.result {
        let what =
            "snapshot: the result differs (- snapshot, + got); accept it with --update".to_owned();
        failures.push(Failure::documents(what, &known.result, &now.result));
    }
    for (call, fuel) in &now.fuel {
        let Some(before) = known.fuel.get(call) else {
            continue;
        };
        let most = u128::from(*before) * u128::from(100 + growth_percent) / 100;
        if u128::from(*fuel) > most {
            failures.push(Failure::new(format!(
                "fuel: {call} used {}, expected {} of the snapshot; accept growth of more than {growth_percent} % \
                 (fuelGrowth) with --update",
                grouped(*fuel),
                grouped(*before)
            )));
        }
    }
    failures
}

fn path_of(suite: &Path) -> PathBuf {
    let name = suite.file_name().unwrap_or_default().to_string_lossy();
    let stem = [".test.yaml", ".test.yml", ".yaml", ".yml"]
        .iter()
        .find_map(|ending| name.strip_suffix(ending))
        .unwrap_or(&name);
    suite.with_file_name(format!("{stem}.snapshot.yaml"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot(verdict: &str, fuel: u64) -> Snapshot {
        Snapshot {
            result: json!({ "verdict": verdict }),
            fuel: [("limit validate".to_owned(), fuel)].into(),
        }
    }

    #[test]
    fn limits_growth_of_fuel_and_allows_any_decrease() {
        let known = snapshot("allow", 1000);
        assert!(differences(&known, &snapshot("allow", 1100), 10).is_empty());
        assert!(differences(&known, &snapshot("allow", 10), 10).is_empty());
        let failures = differences(&known, &snapshot("allow", 1101), 10);
        assert!(
            failures[0]
                .what
                .starts_with("fuel: limit validate used 1,101, expected 1,000 of the snapshot"),
            "{failures:?}"
        );
        assert_eq!(differences(&known, &snapshot("allow", 1001), 0).len(), 1);
    }

    #[test]
    fn shows_changed_result_as_difference() {
        let failures = differences(&snapshot("allow", 1), &snapshot("deny", 1), 10);
        let shown = failures[0].difference.join("\n");
        let shown = anstream::adapter::strip_str(&shown).to_string();
        assert_eq!(shown, "- verdict: allow\n+ verdict: deny");
    }

    #[test]
    fn places_snapshot_beside_its_suite() {
        assert_eq!(
            path_of(Path::new("a/policy.test.yaml")),
            Path::new("a/policy.snapshot.yaml")
        );
    }
}
