//! Compares regorus, as the plugin uses it, with OPA.
//!
//! `answers_of_opa_are_given_here` replays recorded answers. The two ignored tests need OPA: `cargo xtask oracles` builds
//! it and runs them.

pub(super) mod cases;
mod explained;
pub(super) mod mutation;
pub(super) mod opa;
pub(super) mod random;

use std::path::Path;

use serde_json::{Value as Json, json};

use super::library::{library, own};
use cases::{Input, Subject, subjects};
use explained::explanation;
use opa::Opa;
use random::{Random, fingerprint};

/// The violations, as messages and details, or why the evaluation fails.
pub(super) type Answer = Result<Vec<(String, Json)>, String>;

/// The seed of the recorded answers.
const SEED: u64 = 19;
/// The reviews of each case in the recorded answers: the case itself, and random ones.
const RECORDED_SIZE: usize = 2;
/// The reviews of each load of a template in the differential.
const SIZE: usize = 100;
const RECORDED: &str = "src/tests/oracle/recorded.json";

/// Sorts violations, and writes details in one way.
pub(super) fn sorted(mut violations: Vec<(String, Json)>) -> Vec<(String, Json)> {
    for (_, details) in &mut violations {
        simplify(details);
        // Gatekeeper gives an empty object where a template has no details.
        if *details == json!({}) {
            *details = Json::Null;
        }
    }
    violations.sort_by_cached_key(|(message, details)| (message.clone(), details.to_string()));
    violations
}

/// Writes whole numbers without a fraction: OPA and regorus keep different forms of them.
fn simplify(value: &mut Json) {
    match value {
        Json::Number(number) if !number.is_i64() => {
            let float = number.as_f64().unwrap_or_default();
            if float.fract() == 0.0 && float.abs() < 1e15 {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "the line before compares the size"
                )]
                let whole = float as i64;
                *value = json!(whole);
            }
        }
        Json::Array(elements) => elements.iter_mut().for_each(simplify),
        Json::Object(members) => members.values_mut().for_each(simplify),
        _ => {}
    }
}

/// Whether both give the same violations, or both give none because the evaluation fails.
pub(super) fn is_same(ours: &Answer, theirs: &Answer) -> bool {
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => ours == theirs,
        (Err(_), Err(_)) => true,
        _ => false,
    }
}

pub(super) fn shown(answer: &Answer) -> String {
    match answer {
        Ok(violations) => json!(violations).to_string(),
        Err(error) => format!("error: {error}"),
    }
}

pub(super) fn all() -> Vec<Subject> {
    let mut all = library().map_or_else(Vec::new, |folder| subjects(&folder));
    all.extend(subjects(&own()));
    all
}

/// The recorded answers of one template, by the fingerprints of the reviews.
pub(super) fn recorded_inputs(subject: &Subject, mut visit: impl FnMut(&cases::Batch)) {
    let mut random = Random::new(SEED, &subject.name);
    for number in 0..subject.cases() {
        visit(&subject.batch(number, RECORDED_SIZE, &mut random));
    }
}

fn key(load: &str, input: &Input) -> String {
    format!("{:016x}", fingerprint(load) ^ fingerprint(&input.line()))
}

#[test]
fn answers_of_opa_are_given_here() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORDED);
    let recorded: Json = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let (mut compared, mut wrong) = (0, Vec::new());
    for subject in all() {
        let answers = recorded["templates"][&subject.name].as_array();
        let mut answers = answers.into_iter().flatten();
        recorded_inputs(&subject, |batch| {
            for input in &batch.inputs {
                let next = answers
                    .next()
                    .filter(|one| one[0] == key(&batch.load, input));
                let Some(one) = next else {
                    wrong.push(format!(
                        "{}: has other reviews than those recorded; run `cargo xtask oracles --only opa`",
                        subject.name
                    ));
                    return;
                };
                compared += 1;
                let ours = batch.evaluate(input);
                let theirs = match one[1].as_str() {
                    Some(error) => Err(error.to_owned()),
                    None => Ok(serde_json::from_value(one[1].clone()).unwrap()),
                };
                if !is_same(&ours, &theirs) && explanation(&subject.name, &ours, &theirs).is_none()
                {
                    wrong.push(difference(&subject.name, input, &ours, &theirs));
                }
            }
        });
    }
    println!("{compared} answers of OPA {}", recorded["opa"]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 0);
}

fn difference(name: &str, input: &Input, ours: &Answer, theirs: &Answer) -> String {
    format!(
        "{name}\n  input {}\n  here  {}\n  OPA   {}",
        input.line(),
        shown(ours),
        shown(theirs)
    )
}

#[test]
#[ignore = "needs OPA: `cargo xtask oracles --only opa`"]
fn records_answers_of_opa() {
    let mut opa = Opa::start();
    let (mut templates, mut version) = (Vec::new(), String::new());
    for subject in all() {
        let mut answers = Vec::new();
        recorded_inputs(&subject, |batch| {
            let (opa, said) = opa.evaluate(batch);
            version = opa;
            for (input, answer) in batch.inputs.iter().zip(said) {
                let answer = match answer {
                    Ok(violations) => json!(violations),
                    Err(error) => json!(error),
                };
                answers.push(format!("   {}", json!([key(&batch.load, input), answer])));
            }
        });
        templates.push(format!(
            "  {}: [\n{}\n  ]",
            json!(subject.name),
            answers.join(",\n")
        ));
    }
    let text = format!(
        "{{\n \"opa\": {}, \"seed\": {SEED},\n \"templates\": {{\n{}\n }}\n}}\n",
        json!(version),
        templates.join(",\n")
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORDED);
    println!("{RECORDED}: {} bytes", text.len());
    std::fs::write(path, text).unwrap();
}

/// The counts of one template.
#[derive(Default)]
struct Row {
    objects: usize,
    violated: usize,
    failed: usize,
    equal: usize,
    explained: usize,
    different: usize,
    first: Option<String>,
}

// === impl Row ===

impl Row {
    fn count(&mut self, name: &str, input: &Input, ours: &Answer, theirs: &Answer) {
        self.objects += 1;
        self.violated += usize::from(theirs.as_ref().is_ok_and(|some| !some.is_empty()));
        self.failed += usize::from(theirs.is_err());
        if is_same(ours, theirs) {
            self.equal += 1;
            return;
        }
        let reason = explanation(name, ours, theirs);
        match reason {
            Some(_) => self.explained += 1,
            None => self.different += 1,
        }
        if self.first.is_none() || (reason.is_none() && self.different == 1) {
            let reason = reason.unwrap_or("not explained");
            let text = difference(name, input, ours, theirs);
            self.first = Some(format!("{text}\n  why   {reason}"));
        }
    }
}

#[test]
#[ignore = "needs OPA, and takes minutes: `cargo xtask oracles --only opa`"]
fn random_reviews_get_the_same_violations_as_in_opa() {
    let number = |name: &str, default: usize| {
        let text = std::env::var(name).ok();
        text.map_or(default, |text| text.parse().unwrap())
    };
    let objects = number("TOLLGATE_DIFFERENTIAL_OBJECTS", 20_000);
    let seed = number("TOLLGATE_DIFFERENTIAL_SEED", 1) as u64;
    let mut opa = Opa::start();
    println!(
        "{:<44} {:>8} {:>9} {:>7} {:>8} {:>10} {:>10}",
        "template", "objects", "violated", "failed", "equal", "explained", "different"
    );
    let mut examples = Vec::new();
    let mut different = 0;
    for subject in all() {
        let mut random = Random::new(seed, &subject.name);
        let mut row = Row::default();
        let mut batch_number = 0;
        while row.objects < objects {
            let size = SIZE.min(objects - row.objects);
            let batch = subject.batch(batch_number, size, &mut random);
            let (_, theirs) = opa.evaluate(&batch);
            for (input, theirs) in batch.inputs.iter().zip(&theirs) {
                row.count(&subject.name, input, &batch.evaluate(input), theirs);
            }
            batch_number += 1;
        }
        println!(
            "{:<44} {:>8} {:>9} {:>7} {:>8} {:>10} {:>10}",
            subject.name,
            row.objects,
            row.violated,
            row.failed,
            row.equal,
            row.explained,
            row.different
        );
        different += row.different;
        examples.extend(row.first);
    }
    for example in &examples {
        println!("\n{example}");
    }
    assert_eq!(
        different, 0,
        "regorus and OPA differ, and src/tests/oracle/explained.rs does not say why"
    );
}
