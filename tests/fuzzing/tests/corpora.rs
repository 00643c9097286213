//! Replays the inputs that fuzzing found interesting, on this compiler.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tollgate_fuzzing::choices::Choices;
use tollgate_fuzzing::corpus;
use tollgate_fuzzing::targets::TARGETS;

/// Number of random inputs for each target, in addition to the committed ones.
const RANDOM_INPUTS: u64 = 300;
/// Limit for the size of all committed inputs, because every clone of the repository contains them.
const MOST_BYTES: u64 = 1 << 20;

#[test]
fn every_target_holds_for_its_corpus() {
    let mut failed = Vec::new();
    for target in TARGETS {
        let inputs = corpus::inputs(target.name);
        assert!(!inputs.is_empty(), "fuzz/corpus/{} is empty", target.name);
        for path in &inputs {
            let data = fs::read(path).expect("an input can be read");
            if std::panic::catch_unwind(|| (target.run)(&data)).is_err() {
                failed.push(format!("{} for {}", target.name, path.display()));
            }
        }
        println!("{}: {} inputs", target.name, inputs.len());
    }
    assert!(failed.is_empty(), "does not hold: {failed:#?}");
}

#[test]
fn every_target_holds_for_changed_inputs() {
    let mut failed = Vec::new();
    // Rewriting has its own test with more inputs.
    for target in TARGETS.iter().filter(|target| target.name != "rewriting") {
        let inputs: Vec<Vec<u8>> = corpus::inputs(target.name)
            .iter()
            .map(|path| fs::read(path).expect("an input can be read"))
            .collect();
        for seed in 0..random_inputs() {
            let mut choices = Choices::seeded(seed);
            let data = corpus::changed(&inputs, &mut choices);
            if std::panic::catch_unwind(|| (target.run)(&data)).is_err() {
                let text = String::from_utf8_lossy(&data).into_owned();
                failed.push(format!("{} for seed {seed}: {text:?}", target.name));
            }
        }
    }
    assert!(failed.is_empty(), "does not hold: {failed:#?}");
}

fn random_inputs() -> u64 {
    let given = std::env::var("TOLLGATE_FUZZ_INPUTS").ok();
    given.map_or(RANDOM_INPUTS, |text| text.parse().expect("it is a number"))
}

#[test]
fn corpora_are_small_and_belong_to_targets() {
    let known: BTreeSet<&str> = TARGETS.iter().map(|target| target.name).collect();
    let mut bytes = 0;
    for entry in fs::read_dir(corpus::folder()).expect("fuzz/corpus is there") {
        let entry = entry.expect("the folder can be read");
        let name = entry.file_name().into_string().expect("a name is text");
        assert!(known.contains(name.as_str()), "there is no target `{name}`");
        for path in corpus::inputs(&name) {
            bytes += fs::metadata(path).expect("it is there").len();
        }
    }
    assert!(bytes <= MOST_BYTES, "fuzz/corpus has {bytes} bytes");
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    for name in known {
        assert!(
            targets.join(format!("{name}.rs")).is_file(),
            "libFuzzer does not have `{name}`"
        );
    }
}
