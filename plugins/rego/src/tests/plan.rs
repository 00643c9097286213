//! Plans give the answers of OPA, and of the interpreter where that does.

use regorus::Value as Rego;
use serde_json::json;

use super::oracle::cases::Input;
use super::oracle::mutation::{Pool, mutate};
use super::oracle::opa::Opa;
use super::oracle::random::Random;
use super::oracle::{Answer, all, is_same, recorded_inputs, shown, sorted};
use super::{parts, whole};
use crate::program::{self, Program};

/// Policies in the form of those in `whole/policies.rego`. Comments at the beginning are marks.
const POLICIES: &str = include_str!("plan/policies.rego");
/// OPA does not load the policy.
const REJECTED: &str = "# rejected by OPA\n";
/// The interpreter answers other than OPA, and the plan as OPA.
const WRONG: &str = "# wrong in regorus\n";
/// The policy has no plan.
const UNPLANNED: &str = "# no plan\n";
/// The random reviews of each policy, beside those that are written down.
const SIZE: usize = 120;
const SEED: u64 = 29;

struct Policy {
    text: &'static str,
    /// None: not known.
    is_rejected: Option<bool>,
    is_wrong: bool,
    is_planned: bool,
}

fn policies() -> impl Iterator<Item = Policy> {
    let policies = POLICIES.trim_end().split("\n===\n");
    policies.map(|text| Policy {
        text,
        is_rejected: Some(text.contains(REJECTED)),
        is_wrong: text.contains(WRONG),
        is_planned: !text.contains(UNPLANNED),
    })
}

fn inputs(policy: &str) -> Vec<Input> {
    let base = whole::reviews();
    let mut pool = Pool::default();
    base.iter().for_each(|review| pool.add(review));
    // Marks change no reviews.
    let policy: Vec<&str> = policy
        .lines()
        .filter(|line| !line.starts_with("# "))
        .collect();
    let mut random = Random::new(SEED, &policy.join("\n"));
    let mutated = (0..SIZE).map(|index| {
        let mut review = base[index % base.len()].clone();
        mutate(&mut review["object"], &pool, &mut random);
        review
    });
    let all = base.iter().cloned().chain(mutated);
    let input = |review| Input {
        review,
        parameters: json!({}),
    };
    all.map(input).collect()
}

fn read(result: Result<Rego, String>) -> Answer {
    let violations = program::violations(&result?)?.into_iter();
    let violations = violations.map(|one| (one.message, one.details.unwrap_or_default()));
    Ok(sorted(violations.collect()))
}

fn document(input: &Input) -> Rego {
    let [review, parameters] =
        [&input.review, &input.parameters].map(|one| Rego::from(one.clone()));
    program::input(&review, &parameters, None)
}

/// The answer of the plugin: that of the plan, or that of the interpreter.
fn answer(program: &Program, document: Rego) -> Answer {
    match program.planned(&document) {
        Some(value) => read(Ok(value)),
        None => read(program.interpreted(document)),
    }
}

fn difference(input: &Input, ours: &Answer, theirs: &Answer, name: &str) -> String {
    let (ours, theirs) = (shown(ours), shown(theirs));
    format!("  {}\n  plan {ours}\n  {name} {theirs}", input.line())
}

#[test]
fn plans_give_the_answers_of_the_interpreter() {
    let mut wrong = Vec::new();
    for policy in policies() {
        let program = whole::compiled(policy.text);
        if program.plan.is_ok() != policy.is_planned {
            let reason = program.plan.as_ref().err();
            wrong.push(format!("{}\n  no plan: {reason:?}", policy.text));
        }
        let inputs = inputs(policy.text);
        let different = inputs.iter().find_map(|input| {
            let ours = answer(&program, document(input));
            let theirs = read(program.interpreted(document(input)));
            let is_same = is_same(&ours, &theirs);
            (!is_same).then(|| difference(input, &ours, &theirs, "interpreter"))
        });
        if different.is_some() != policy.is_wrong {
            let different = different.unwrap_or_else(|| "  no difference".to_owned());
            wrong.push(format!("{}\n{different}", policy.text));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn parts_that_a_policy_reads_give_the_answer_of_the_whole_review() {
    let mut wrong = Vec::new();
    for policy in policies() {
        let program = whole::compiled(policy.text);
        let different = inputs(policy.text).iter().find_map(|input| {
            let parts = parts::read(&input.review, &program.shape);
            let parts = program::input(&parts, &Rego::new_object(), None);
            let [whole, parts] =
                [document(input), parts].map(|document| answer(&program, document));
            let is_same = is_same(&whole, &parts);
            (!is_same).then(|| difference(input, &whole, &parts, "parts"))
        });
        wrong.extend(different.map(|different| format!("{}\n{different}", policy.text)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn templates_of_suites_have_plans_with_the_answers_of_the_interpreter() {
    let (mut planned, mut evaluated, mut wrong) = (0, 0, Vec::new());
    for subject in all() {
        recorded_inputs(&subject, |batch| {
            for input in &batch.inputs {
                let document = document(input);
                let Some(value) = batch.program.planned(&document) else {
                    wrong.push(format!(
                        "{}: {:?}",
                        subject.name,
                        batch.program.plan.as_ref().err()
                    ));
                    continue;
                };
                planned += 1;
                let (ours, theirs) = (read(Ok(value)), read(batch.program.interpreted(document)));
                evaluated += usize::from(ours.as_ref().is_ok_and(|some| !some.is_empty()));
                if !is_same(&ours, &theirs) {
                    let different = difference(input, &ours, &theirs, "interpreter");
                    wrong.push(format!("{}\n{different}", subject.name));
                }
            }
        });
    }
    println!("{planned} reviews with a plan, {evaluated} with violations");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// `cargo xtask oracles` runs it by the name that it shares with another test.
#[test]
#[ignore = "needs OPA: `cargo xtask oracles --only opa`"]
fn random_reviews_get_the_same_violations_as_in_opa() {
    let mut opa = Opa::start();
    let mut wrong = Vec::new();
    let others = whole::POLICIES.trim_end().split("\n===\n");
    let others = others.map(|text| Policy {
        text,
        is_rejected: None,
        is_wrong: false,
        is_planned: false,
    });
    for policy in policies().chain(others) {
        let program = whole::compiled(policy.text);
        if policy.is_rejected.is_none() && program.plan.is_err() {
            continue;
        }
        let texts = policy.text.split("\n---\n").enumerate();
        let texts: Vec<String> = texts
            .map(|(index, text)| whole::source(text, index).text)
            .collect();
        let load = json!({ "rego": texts[0], "v1": false, "libs": texts[1..], "inventory": {} });
        let inputs = inputs(policy.text);
        let (version, answers) = opa.ask(&load.to_string(), &inputs);
        if policy
            .is_rejected
            .is_some_and(|expected| expected != version.is_none())
        {
            let why = answers.first().map(shown);
            wrong.push(format!("{}\n  OPA: {version:?} {why:?}", policy.text));
        }
        let both = inputs.iter().zip(&answers).filter(|_| version.is_some());
        let different = both.into_iter().find_map(|(input, theirs)| {
            let ours = answer(&program, document(input));
            (!is_same(&ours, theirs)).then(|| difference(input, &ours, theirs, "OPA"))
        });
        if let Some(different) = different {
            wrong.push(format!("{}\n{different}", policy.text));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_pattern_with_a_key_twice_has_no_plan() {
    let program = whole::compiled(
        r#"violation[{"msg": m}] { {"owner": m, "owner": m} = input.review.object.metadata.labels }"#,
    );
    assert_eq!(program.plan.err(), Some("a pattern with a key twice"));
}
