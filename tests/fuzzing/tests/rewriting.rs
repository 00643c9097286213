//! Generated plugins give the same answers before and after they are rewritten.

use std::collections::BTreeMap;
use std::time::Instant;

use tollgate_fuzzing::choices::Choices;
use tollgate_fuzzing::targets::rewriting::compare;
use tollgate_gate::fuzzing::rewriting::{Alike, Compared};

/// Variable for the number of plugins to generate. `cargo xtask fuzz rewriting` sets a higher number.
const MODULES: &str = "TOLLGATE_FUZZ_MODULES";
const DEFAULT_MODULES: u64 = 200;
/// Variable for the first seed. Each plugin has its own seed.
const SEED: &str = "TOLLGATE_FUZZ_SEED";

#[derive(Default)]
struct Sum {
    refused: BTreeMap<String, u64>,
    as_they_came: BTreeMap<String, u64>,
    alike: u64,
    joined: u64,
    lent: u64,
    kept: u64,
    calls_in_kept: u64,
    baseline: u64,
    answers: u64,
    faults: BTreeMap<&'static str, u64>,
    snapshot_bytes: usize,
    served_bytes: usize,
    differences: Vec<(u64, String)>,
}

#[test]
fn rewritten_plugins_answer_as_they_came() {
    let number = |name: &str, default: u64| {
        let given = std::env::var(name).ok();
        given.map_or(default, |text| text.parse().expect("it is a number"))
    };
    let modules = number(MODULES, DEFAULT_MODULES);
    let first = number(SEED, 1);
    let began = Instant::now();
    let mut sum = Sum::default();
    for seed in first..first + modules {
        let outcome = std::panic::catch_unwind(|| compare(&mut Choices::seeded(seed)));
        sum.add(seed, outcome.unwrap_or_else(|_| Err("panicked".to_owned())));
        let done = seed - first + 1;
        if done.is_multiple_of(500) {
            eprintln!("{done} modules, {} s", began.elapsed().as_secs());
        }
    }
    sum.print(modules, began);
    if let Some((seed, difference)) = sum.differences.first() {
        panic!(
            "{} of {modules} plugins answer differently when they are rewritten; {SEED}={seed}: {difference}",
            sum.differences.len()
        );
    }
    if modules < 100 {
        return;
    }
    // With fewer plugins, the test would show nothing.
    assert!(sum.alike >= modules / 2, "few plugins can be loaded");
    assert!(sum.joined >= sum.alike / 2, "few have a shim");
    assert!(sum.lent >= sum.alike / 4, "few can import their memory");
    assert!(sum.kept >= sum.alike / 50, "few instances can be kept");
    // Most generated plugins have instructions that the compilers of languages do not use.
    assert!(
        sum.baseline >= sum.alike / 50,
        "the baseline compiler supports none"
    );
    assert!(sum.answers > 0 && !sum.faults.is_empty());
}

// === impl Sum ===

impl Sum {
    fn add(&mut self, seed: u64, outcome: Result<Compared, String>) {
        match outcome {
            Ok(Compared::Refused(why)) => *self.refused.entry(why).or_default() += 1,
            Ok(Compared::AsItCame(why)) => *self.as_they_came.entry(why).or_default() += 1,
            Ok(Compared::Alike(Alike {
                is_joined,
                is_lent,
                calls_in_kept,
                has_baseline,
                snapshot_bytes,
                served_bytes,
                answers,
                faults,
            })) => {
                self.alike += 1;
                self.joined += u64::from(is_joined);
                self.lent += u64::from(is_lent);
                self.kept += u64::from(calls_in_kept > 0);
                self.calls_in_kept += u64::from(calls_in_kept);
                self.baseline += u64::from(has_baseline);
                self.answers += u64::from(answers);
                self.snapshot_bytes += snapshot_bytes;
                self.served_bytes += served_bytes;
                for fault in faults {
                    *self.faults.entry(fault).or_default() += 1;
                }
            }
            Err(difference) => {
                if self.differences.len() < 20 {
                    eprintln!("seed {seed}: {difference}\n");
                }
                self.differences.push((seed, difference));
            }
        }
    }

    fn print(&self, modules: u64, began: Instant) {
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "rewriting: {modules} modules in {seconds:.0} s, {} alike ({} with a shim, {} also with an imported memory, {} also with the baseline compiler), {} differ",
            self.alike,
            self.joined,
            self.lent,
            self.baseline,
            self.differences.len()
        );
        println!(
            "  calls: {} answered, faults {:?}",
            self.answers, self.faults
        );
        println!(
            "  kept instances: {} calls of {} modules",
            self.calls_in_kept, self.kept
        );
        println!(
            "  bytes: {} of snapshots, {} served",
            self.snapshot_bytes, self.served_bytes
        );
        println!("  refused: {:?}", self.refused);
        println!("  served as they came: {:?}", self.as_they_came);
    }
}
