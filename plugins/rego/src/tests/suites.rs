//! Runs the suites of Gatekeeper's library.

use serde_json::{Value as Json, json};
use tollgate_sdk::testing::{Outcome, TestReview};

use super::library::{library, one, suites, yaml};
use crate::Gatekeeper;

/// Compares one assertion with the messages of a case.
fn mismatch(assertion: &Json, messages: &[String]) -> Option<String> {
    let pattern = assertion.get("message").and_then(Json::as_str);
    let regex = pattern.map(|pattern| regex::Regex::new(pattern).unwrap());
    let counted = messages
        .iter()
        .filter(|message| regex.as_ref().is_none_or(|regex| regex.is_match(message)));
    let count = counted.count() as u64;
    let holds = match assertion.get("violations") {
        None => count > 0,
        Some(Json::String(word)) if word == "no" => count == 0,
        Some(Json::String(word)) if word == "yes" => count > 0,
        Some(Json::Bool(any)) => *any == (count > 0),
        Some(number) => number.as_u64() == Some(count),
    };
    (!holds).then(|| format!("{assertion}: {count} of {messages:?}"))
}

fn messages(outcome: &Outcome<()>) -> Vec<String> {
    if outcome.is_allowed() {
        return Vec::new();
    }
    let causes = &outcome.denial().causes;
    causes.iter().map(|cause| cause.message.clone()).collect()
}

#[test]
fn gatekeepers_library_gives_the_expected_results() {
    let Some(library) = library() else {
        println!("SKIPPED: the suites of gatekeeper-library are not here");
        return;
    };
    let files = suites(&library);
    let (mut cases, mut wrong) = (0, Vec::new());
    for file in &files {
        let folder = file.parent().unwrap();
        for test in one(file)["tests"].as_array().unwrap() {
            let path = |value: &Json| folder.join(value.as_str().unwrap());
            let mut constraint = one(&path(&test["constraint"]));
            constraint["spec"]["enforcementAction"] = json!("deny");
            let template = one(&path(&test["template"]));
            for case in test["cases"].as_array().unwrap() {
                cases += 1;
                let inventory = case["inventory"].as_array();
                let inventory: Vec<Json> = inventory
                    .into_iter()
                    .flatten()
                    .flat_map(|file| yaml(&path(file)))
                    .collect();
                let object = one(&path(&case["object"]));
                let review = match object["kind"] == "AdmissionReview" {
                    true => TestReview::from_review(object),
                    false => TestReview::create(object),
                };
                let settings = json!({
                    "template": template, "constraints": [constraint], "inventory": inventory,
                    "enforcementPoint": "gator.gatekeeper.sh",
                });
                let review = review.settings(settings);
                let name = format!("{}: {}: {}", folder.display(), test["name"], case["name"]);
                let run = std::panic::catch_unwind(|| messages(&review.validate::<Gatekeeper>()));
                match run {
                    Ok(messages) => {
                        let assertions = case["assertions"].as_array().unwrap();
                        let failed = assertions.iter().filter_map(|one| mismatch(one, &messages));
                        wrong.extend(failed.map(|why| format!("{name}: {why}")));
                    }
                    Err(error) => {
                        let text = error.downcast_ref::<String>().cloned().unwrap_or_default();
                        wrong.push(format!("{name}: {text}"));
                    }
                }
            }
        }
    }
    println!(
        "{} suites, {cases} cases, {} wrong",
        files.len(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cases > 0);
}
