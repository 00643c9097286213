//! Policies give the same answer for the parts of a review that they read as for the whole review.

use serde_json::{Value as Json, json};
use tollgate_sdk::SettingsErrors;

use super::oracle::mutation::{Pool, mutate};
use super::oracle::random::Random;
use super::parts;
use crate::program::Program;
use crate::template::{self, Source, Template};

/// The random reviews of each policy, beside those that are written down.
const SIZE: usize = 120;
const SEED: u64 = 23;

/// Policies, separated by `===`, and their modules by `---`. The first module is that of the template, without its header.
/// Under the comment `whole`, the analysis leaves nothing out.
pub(super) const POLICIES: &str = include_str!("whole/policies.rego");
const HEADER: &str = "package t\nimport future.keywords.every\nimport future.keywords.contains\nimport future.keywords.if\n";
const WHOLE: &str = "# whole\n";

type Answer = Result<Vec<(String, String)>, String>;

pub(super) fn source(text: &str, index: usize) -> Source {
    Source {
        place: template::place().child(index),
        text: match index {
            0 => format!("{HEADER}{text}"),
            _ => text.to_owned(),
        },
        is_v1: false,
    }
}

pub(super) fn compiled(policy: &str) -> Program {
    let mut sources = policy.split("\n---\n").enumerate();
    let mut next = || sources.next().map(|(index, text)| source(text, index));
    let template = Template {
        kind: "It".to_owned(),
        schema: None,
        module: next().unwrap(),
        libs: std::iter::from_fn(next).collect(),
    };
    let mut errors = SettingsErrors::new();
    let program = Program::compile(&template, Some(json!({})), &mut errors);
    program.unwrap_or_else(|| panic!("{policy}\n{}", errors.or(()).unwrap_err()))
}

fn answer(program: &Program, review: &regorus::Value) -> Answer {
    let violations = program.violations(review, &regorus::Value::new_object(), None)?;
    let violations = violations
        .into_iter()
        .map(|one| (one.message, one.details.unwrap_or_default().to_string()));
    Ok(violations.collect())
}

pub(super) fn reviews() -> Vec<Json> {
    let pod = json!({
        "metadata": { "name": "web", "namespace": "shop", "labels": { "owner": "blue", "web": "x", "app": { "x": true } } },
        "spec": {
            "hostNetwork": true, "replicas": 3, "name": "pod", "args": ["x", "y"], "ports": [80],
            "first": { "image": "busybox" }, "next": { "next": { "next": { "a": 1 } } },
            "containers": [
                { "name": "a", "image": "nginx" }, { "name": "b", "image": "redis", "privileged": true, "x": 1 },
                { "name": "c" },
            ],
            "volumes": [{ "name": "a", "other": "o" }, { "name": "a", "image": "nginx" }],
        },
    });
    let review = |object: &Json, old: &Json| {
        json!({
            "uid": "1", "operation": "UPDATE", "userInfo": { "username": "jane", "groups": [] },
            "object": object, "oldObject": old, "options": null,
        })
    };
    let mut bare = pod.clone();
    bare["metadata"] = json!({ "name": "web" });
    bare["spec"] = json!({ "first": {}, "containers": [{ "name": "a", "image": "nginx" }], "volumes": [{ "name": "a", "image": "nginx" }] });
    let mut odd = pod.clone();
    odd["metadata"]["labels"] = json!([{ "x": "y" }, "blue", null]);
    odd["spec"] = json!({
        "hostNetwork": null, "args": { "x": "y" }, "ports": { "0": 1 }, "replicas": "4", "first": { "name": "f" },
        "containers": { "0": { "image": "nginx", "name": "n" } }, "volumes": "none",
    });
    let mut green = pod.clone();
    green["metadata"]["labels"]["owner"] = json!("green");
    let empty = json!({ "spec": {} });
    vec![
        review(&pod, &bare),
        review(&bare, &pod),
        review(&odd, &pod),
        review(&pod, &odd),
        review(&pod, &green),
        review(&empty, &Json::Null),
        review(&Json::Null, &pod),
    ]
}

#[test]
fn parts_that_a_policy_reads_give_the_answer_of_the_whole_review() {
    let base = reviews();
    let mut pool = Pool::default();
    base.iter().for_each(|review| pool.add(review));
    let mut wrong = Vec::new();
    for policy in POLICIES.trim_end().split("\n===\n") {
        let program = compiled(policy);
        if program.shape.is_whole() != policy.starts_with(WHOLE) {
            wrong.push(format!("{policy}\n  reads {:?}", program.shape));
        }
        let mut random = Random::new(SEED, policy);
        let mutated = (0..SIZE).map(|index| {
            let mut review = base[index % base.len()].clone();
            mutate(&mut review["object"], &pool, &mut random);
            review
        });
        let mut answers = Vec::new();
        for review in base.iter().cloned().chain(mutated) {
            let whole = regorus::Value::from(review.clone());
            let whole = answer(&program, &whole);
            let parts = answer(&program, &parts::read(&review, &program.shape));
            if whole != parts {
                wrong.push(format!(
                    "{policy}\n  whole {whole:?}\n  parts {parts:?}\n  {review}"
                ));
                break;
            }
            answers.push(whole);
        }
        // A policy that answers everything alike shows nothing.
        let violates = answers
            .iter()
            .any(|one| one.as_ref().is_ok_and(|some| !some.is_empty()));
        let differs = answers.iter().any(|one| *one != answers[0]);
        if !violates || !differs {
            wrong.push(format!("{policy}\n  always {:?}", answers.first()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
