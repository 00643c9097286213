//! Lists the fault kinds of each phase, so that metrics show a kind before its first fault.

use tollgate_admission::Phase;

/// Fault kinds of mutators and of validators.
const OF_BOTH: [&str; 14] = [
    "access-unavailable",
    "contract-violation",
    "cpu-deadline",
    "deadline",
    "engine-error",
    "match-condition",
    "memory",
    "namespace-unavailable",
    "not-loaded",
    "out-of-fuel",
    "output-too-large",
    "tenant-budget",
    "trap",
    "unreadable",
];
/// Fault kinds of mutators only.
const OF_MUTATORS: [&str; 4] = ["bad-patch", "conflict", "lossy-object", "not-converging"];
/// Fault kinds of a plugin that is not loaded.
pub const UNLOADED: [&str; 2] = ["not-loaded", "unreadable"];

/// The fault kinds that a call of this phase can end with.
pub fn kinds(phase: Phase) -> Vec<&'static str> {
    let mut kinds = OF_BOTH.to_vec();
    if phase == Phase::Mutate {
        kinds.extend(OF_MUTATORS);
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_every_documented_kind_from_start() {
        let page = include_str!("../../../../docs/concepts/failure-modes.md");
        let (_, table) = page
            .split_once("## Faults\n")
            .expect("the page has a section \"Faults\"");
        let (table, _) = table.split_once("\n## ").expect("another section follows");
        let documented = table.lines().filter_map(|line| {
            let (kind, _) = line.strip_prefix("| `")?.split_once('`')?;
            Some(kind)
        });
        let mut documented: Vec<&str> = documented.collect();
        let mut known = kinds(Phase::Mutate);
        documented.sort_unstable();
        known.sort_unstable();
        assert_eq!(known, documented);
    }
}
