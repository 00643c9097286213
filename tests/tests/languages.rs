//! Runs the same cases with the same two plugins in every language: `languages/cases` with `languages/*`.
//!
//! `trusted-registries` is a typical policy. `actor` acts as the reviewed object says, and fails in every way that its
//! language has. A fault under `Fail` must never become an allow, and its message must say more than that the plugin
//! trapped. To add a language, add a folder.
//!
//! A policy that exists in only one language has a suite, which `tollgate test` runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_tests::binary::{tollgate, workspace};
use tollgate_tests::checker::{Checked, Endpoint};
use tollgate_tests::cli;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::languages;
use tollgate_tests::reviews::Review;
use tollgate_tests::server::{Server, metric};

/// The tests of this file run one after the other. Each compiles plugins of up to 19 MB on all processors, and beside
/// another one it exceeds the time limits of a small machine.
static PROCESSORS: Mutex<()> = Mutex::new(());

/// The message of a WebAssembly trap without further information.
const SAYS_NOTHING: &str = "`unreachable`";

/// File name of a policy's suite.
const SUITE: &str = "policy.test.yaml";
/// Folder with the built policy and its compiled code, which is kept between runs.
const BUILT: &str = "dist";
/// Folders that a build creates in a policy's folder.
const MADE: [&str; 4] = [BUILT, "node_modules", ".venv", "__pycache__"];

/// A language, and the folder of its plugins.
struct Language {
    name: String,
    folder: PathBuf,
}

/// Waits for the other tests of this file. A failed test does not fail the others.
fn alone() -> MutexGuard<'static, ()> {
    PROCESSORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns all languages that are built. A language that is not built is reported as skipped.
fn built() -> Vec<Language> {
    languages::names()
        .into_iter()
        .filter_map(|name| {
            let folder = languages::output(&name);
            if folder.join("actor.wasm").is_file() {
                return Some(Language { name, folder });
            }
            eprintln!(
                "SKIPPED: the plugins in {name} are not built: languages/{name}/build {}",
                folder.display()
            );
            None
        })
        .collect()
}

fn cases(plugin: &str) -> Value {
    let path = workspace()
        .join("languages/cases")
        .join(format!("{plugin}.json"));
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Expands texts that are too long to write down: `PAD:n` is n bytes of text, `NEST:n` is n nested lists.
fn grown(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let number = |prefix: &str| text.strip_prefix(prefix)?.parse::<usize>().ok();
            if let Some(length) = number("PAD:") {
                json!("a".repeat(length))
            } else if let Some(levels) = number("NEST:") {
                (0..levels).fold(json!(null), |nested, _| json!([nested]))
            } else {
                value.clone()
            }
        }
        Value::Array(elements) => elements.iter().map(grown).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| (name.clone(), grown(member)))
            .collect(),
        _ => value.clone(),
    }
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// Uses long limits, because a trap takes long while a Python component compiles.
fn configuration() -> Configuration {
    Configuration::new()
        .with("limits", json!({"timeout": "20s", "cpuTime": "20s"}))
        .with("requests", json!({"defaultTimeout": "30s"}))
        .with("engine.loadTimeout", "5m")
}

/// Adds the plugin once for each of the settings that it must reject.
fn with_refused(configuration: &mut Configuration, wasm: &Path, cases: &Value, granted: &Value) {
    for (index, refused) in cases["refused"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        configuration.plugin(
            &format!("refused-{index}"),
            wasm,
            json!({
                "settings": refused["settings"], "failurePolicy": "Ignore", "capabilities": granted,
                "match": {"rules": [{"operations": ["DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["leases"]}]},
            }),
        );
    }
}

async fn check_refused(server: &Server, language: &str, cases: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for (index, refused) in cases["refused"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        let status = server.plugin_status(&format!("refused-{index}")).await;
        let reason = status["reason"].as_str().unwrap_or_default();
        let mut says = texts(&refused["says"]);
        let is_said = if refused["any"] == true {
            says.any(|said| reason.contains(said))
        } else {
            says.all(|said| reason.contains(said))
        };
        // The host tries again after a while, and is loading then.
        let is_refused = status["state"] == "failed" || status["state"] == "loading";
        if !is_refused || !is_said {
            wrong.push(format!(
                "{language}: the settings {} are {} with: {reason}",
                refused["settings"], status["state"]
            ));
        }
    }
    wrong
}

/// Returns the differences between an answer and its case. Causes carry the plugin's name, which cases omit.
fn differences(checked: &Checked, plugin: &str, case: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut expect = |what: &str, expected: &Value, found: Value| {
        if !expected.is_null() && *expected != found {
            wrong.push(format!("{what} is {found}, not {expected}"));
        }
    };
    let status = checked.status.clone().unwrap_or_default();
    expect("allowed", &case["allowed"], json!(checked.allowed));
    expect("code", &case["code"], status["code"].clone());
    let causes: Vec<Value> = status["details"]["causes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|cause| {
            let message = cause["message"].as_str().unwrap_or_default();
            let own = message
                .strip_prefix(&format!("{plugin}: "))
                .unwrap_or(message);
            json!([cause["field"], own])
        })
        .collect();
    expect("the list of causes", &case["causes"], json!(causes));
    expect(
        "the list of warnings",
        &case["warnings"],
        json!(checked.warnings),
    );
    expect("the patch", &case["patch"], json!(checked.patch));
    for (key, value) in case["annotations"].as_object().into_iter().flatten() {
        expect(
            &format!("the annotation {key}"),
            value,
            json!(checked.audit_annotations.get(key)),
        );
    }
    let message = status["message"].as_str().unwrap_or_default();
    if let Some(said) = case["message"].as_str()
        && !message.contains(said)
    {
        wrong.push(format!("the message is {message:?}, without {said:?}"));
    }
    wrong
}

#[tokio::test]
#[expect(
    clippy::await_holding_lock,
    reason = "each test has its own thread and runtime"
)]
async fn the_same_policy_has_the_same_verdict_in_every_language() {
    let _alone = alone();
    let cases = cases("trusted-registries");
    let mut wrong = Vec::new();
    for Language { name, folder } in built() {
        let wasm = folder.join("trusted-registries.wasm");
        let mut configuration = configuration();
        for (settings, values) in cases["settings"].as_object().into_iter().flatten() {
            configuration.plugin(settings, &wasm, json!({"settings": values}));
        }
        with_refused(&mut configuration, &wasm, &cases, &json!([]));
        let server = Server::start(configuration);
        wrong.extend(check_refused(&server, &name, &cases).await);
        for (settings, _) in cases["settings"].as_object().into_iter().flatten() {
            let configured = server.plugin_status(settings).await["configured"].clone();
            if configured["once"] != true {
                wrong.push(format!("{name}: there is no snapshot: {configured}"));
            }
        }
        for case in cases["cases"].as_array().into_iter().flatten() {
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"},
                "spec": grown(&case["spec"])});
            let review = Review::create(pod).build();
            let plugin = case["settings"].as_str().unwrap_or_default();
            let endpoint = if case["patch"].is_null() && case["becomes"].is_null() {
                Endpoint::Validate
            } else {
                Endpoint::Mutate
            };
            let path = match endpoint {
                Endpoint::Mutate => "mutate",
                Endpoint::Validate => "validate",
            };
            let answer = server.post(&format!("/{path}/{plugin}"), &review).await;
            let checked = answer.checked(endpoint, &review);
            let mut found = differences(&checked, plugin, case);
            let spec = checked.patched_object.as_ref().map(|pod| &pod["spec"]);
            if !case["becomes"].is_null() && spec != Some(&case["becomes"]) {
                found.push(format!("the spec became {spec:?}, not {}", case["becomes"]));
            }
            wrong.extend(
                found
                    .into_iter()
                    .map(|found| format!("{name}: {}: {found}", case["name"])),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Answers and fuel of a plugin in one kind of code.
async fn answers(server: &Server, reviews: &[(Endpoint, Value)]) -> Vec<(Value, f64)> {
    let fuel = async || {
        let metrics = server.metrics().await;
        metric(
            &metrics,
            "tollgate_plugin_fuel_total",
            &[("plugin", "policy")],
        )
    };
    let mut answers = Vec::new();
    for (endpoint, review) in reviews {
        let path = match endpoint {
            Endpoint::Mutate => "/mutate/policy",
            Endpoint::Validate => "/validate/policy",
        };
        let before = fuel().await;
        let mut answer = server.post(path, review).await.json();
        // The record of the review has an identifier of its own.
        answer["response"]["auditAnnotations"].take();
        answers.push((answer, fuel().await - before));
    }
    answers
}

#[tokio::test]
#[expect(
    clippy::await_holding_lock,
    reason = "each test has its own thread and runtime"
)]
async fn interim_code_answers_as_optimised_code_and_settings_share_both() {
    let _alone = alone();
    let cases = cases("trusted-registries");
    let mut interim = Vec::new();
    for Language { name, folder } in built() {
        // Known answers would be those of interim code.
        let mut configuration = configuration().with("engine.answerCache", 0);
        let mut settings = cases["settings"].as_object().into_iter().flatten();
        let wasm = folder.join("trusted-registries.wasm");
        let (_, own) = settings.next().expect("there are settings");
        configuration.plugin("policy", &wasm, json!({"settings": own}));
        let (_, others) = settings.next().expect("there are other settings");
        let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}]);
        let other = json!({"settings": others, "match": {"rules": rules}});
        configuration.plugin("other", &wasm, other);
        let server = Server::start(configuration);
        server.assert_all_loaded().await;
        let code_of = async |name| server.plugin_status(name).await["code"].clone();
        let code = || code_of("policy");
        if code().await != "interim" {
            assert_eq!(code().await, "optimised", "{name}");
            continue;
        }
        let reviews: Vec<_> = cases["cases"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|case| {
                let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"},
                    "spec": grown(&case["spec"])});
                let review = Review::create(pod).build();
                [Endpoint::Mutate, Endpoint::Validate].map(|endpoint| (endpoint, review.clone()))
            })
            .collect();
        let first = answers(&server, &reviews).await;
        // The code of a small plugin can be replaced in the meantime.
        let was_interim = code().await == "interim";
        assert!(
            first.iter().any(|(_, fuel)| *fuel > 0.0),
            "{name}: {first:?}"
        );
        let began = Instant::now();
        while code().await != "optimised" {
            assert!(
                began.elapsed() < Duration::from_secs(300),
                "{name}: never optimised"
            );
            // Calls go on while the code is replaced.
            assert_eq!(answers(&server, &reviews[..1]).await, first[..1], "{name}");
        }
        assert_eq!(answers(&server, &reviews).await, first, "{name}");
        // The last call of interim code may go on for a moment.
        while code_of("other").await != "optimised" || server.mapped_code().len() != 1 {
            let mapped = server.mapped_code();
            assert!(
                began.elapsed() < Duration::from_secs(300),
                "{name}: {mapped:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if was_interim {
            interim.push(name);
        }
    }
    for large in ["go", "javascript", "python"] {
        let is_built = built().iter().any(|language| language.name == large);
        let has_interim = interim.iter().any(|name| name == large);
        assert_eq!(
            has_interim, is_built,
            "{large}: all answers of interim code were seen"
        );
    }
}

#[tokio::test]
#[expect(
    clippy::await_holding_lock,
    reason = "each test has its own thread and runtime"
)]
async fn no_way_to_fail_is_an_allow_and_each_is_told_to_the_operator() {
    let _alone = alone();
    let cases = cases("actor");
    let mut wrong = Vec::new();
    for Language { name, folder } in built() {
        let wasm = folder.join("actor.wasm");
        let mut configuration = configuration();
        let granted = json!(["access", "cluster", "images"]);
        configuration.plugin("actor", &wasm, json!({"capabilities": granted}));
        with_refused(&mut configuration, &wasm, &cases, &granted);
        let server = Server::start(configuration);
        wrong.extend(check_refused(&server, &name, &cases).await);
        for case in cases["cases"].as_array().into_iter().flatten() {
            if !case["only"].is_null() && !texts(&case["only"]).any(|only| only == name) {
                continue;
            }
            let is_mutation = case["do"].is_null();
            let what = if is_mutation {
                &case["mutate"]
            } else {
                &case["do"]
            };
            let (path, endpoint) = if is_mutation {
                ("/mutate/actor", Endpoint::Mutate)
            } else {
                ("/validate/actor", Endpoint::Validate)
            };
            let mut data = grown(&case["data"]);
            if data.is_null() {
                data = json!({});
            }
            data["do"] = what.clone();
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}, "data": data});
            let review = Review::create(object.clone()).build();
            let checked = server.post(path, &review).await.checked(endpoint, &review);
            if !case["fault"].is_null() {
                println!("{}", fault_row(&name, what, &checked));
            }
            let found = case_differences(&checked, case, &object);
            wrong.extend(
                found
                    .into_iter()
                    .map(|found| format!("{name}: {what}: {found}")),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Formats a fault as a table row: the language, the plugin's action, and the result.
fn fault_row(language: &str, what: &Value, checked: &Checked) -> String {
    let status = checked.status.clone().unwrap_or_default();
    let verdict = if checked.allowed {
        "ALLOWED"
    } else {
        "refused"
    };
    let message = status["message"].as_str().unwrap_or_default();
    format!(
        "| {language} | {} | {verdict} | {} |",
        what.as_str().unwrap_or_default(),
        message.replace('|', "\\|").replace('\n', " ")
    )
}

/// Returns the differences between the result of an action and its case.
fn case_differences(checked: &Checked, case: &Value, object: &Value) -> Vec<String> {
    let faults: Vec<&str> = texts(&case["fault"]).collect();
    if !faults.is_empty() {
        return fault_differences(checked, case, &faults);
    }
    if !case["denied"].is_null() {
        let mut denied = case["denied"].clone();
        denied["allowed"] = json!(false);
        return differences(checked, "actor", &denied);
    }
    let mut expected = case.clone();
    expected["allowed"] = json!(true);
    let mut wrong = differences(checked, "actor", &expected);
    if let Some(becomes) = case["becomes"].as_object() {
        let mut after = object.clone();
        for (name, member) in becomes {
            if name == "metadata" {
                after["metadata"]["annotations"] = member["annotations"].clone();
            } else {
                after[name] = member.clone();
            }
        }
        let found = checked.patched_object.as_ref();
        if found != Some(&after) {
            wrong.push(format!("the object became {found:?}, not {after}"));
        }
    }
    wrong
}

fn fault_differences(checked: &Checked, case: &Value, faults: &[&str]) -> Vec<String> {
    let mut wrong = Vec::new();
    let status = checked.status.clone().unwrap_or_default();
    let message = status["message"].as_str().unwrap_or_default();
    if checked.allowed {
        wrong.push("it was ALLOWED".to_owned());
    }
    let fault = checked.audit_annotations.get("actor.fault");
    if !faults
        .iter()
        .any(|expected| fault.is_some_and(|fault| fault == expected))
    {
        wrong.push(format!("the fault is {fault:?}, none of {faults:?}"));
    }
    if message.contains(SAYS_NOTHING) {
        wrong.push(format!("it says nothing: {message}"));
    }
    for said in texts(&case["says"]) {
        if !message.contains(said) {
            wrong.push(format!("the message is {message:?}, without {said:?}"));
        }
    }
    if case["place"] == true && !names_a_place(message) {
        wrong.push(format!(
            "the message is {message:?}, without a file and line"
        ));
    }
    wrong
}

/// Whether the message has a place with a line number: `(at FILE:LINE)` or `(at FILE:LINE:COLUMN)`.
fn names_a_place(message: &str) -> bool {
    let Some((_, place)) = message.rsplit_once("(at ") else {
        return false;
    };
    let mut parts = place.split([':', ')']);
    let file = parts.next().unwrap_or_default();
    let line = parts.next().and_then(|line| line.parse::<u32>().ok());
    file.contains('.') && line.is_some_and(|line| line > 0)
}

/// Returns the policies of a language that have a suite.
fn with_suite(language: &str) -> Vec<PathBuf> {
    let folder = workspace().join("languages").join(language);
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut policies: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|policy| policy.join(SUITE).is_file())
        .collect();
    policies.sort();
    policies
}

/// Copies the files of a suite and its public keys, without the results of an earlier `tollgate build`.
fn copy_suite(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
    let entries = fs::read_dir(from).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    for entry in entries.filter_map(Result::ok) {
        let (path, name) = (entry.path(), entry.file_name());
        if path
            .extension()
            .is_some_and(|ending| ending == "yaml" || ending == "pub")
        {
            fs::copy(&path, to.join(name))
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        } else if path.is_dir() && !MADE.iter().any(|made| name == *made) {
            copy_suite(&path, &to.join(name));
        }
    }
}

/// Runs a suite with a built plugin. Returns the output if a case failed.
fn run_suite(language: &str, built: &Path, plugin: &str, suite: &Path) -> Option<String> {
    let file = format!("{plugin}.wasm");
    fs::create_dir_all(suite.join(BUILT)).expect("a folder in the target folder can be made");
    fs::copy(built.join(&file), suite.join(BUILT).join(&file))
        .unwrap_or_else(|error| panic!("{}: {error}", built.join(&file).display()));
    let output = Command::new(tollgate())
        .args(["test", SUITE])
        .current_dir(suite)
        .output()
        .unwrap_or_else(|error| panic!("tollgate cannot be run: {error}"));
    let said = format!(
        "{language}: {plugin}\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    println!("{said}");
    (!output.status.success()).then_some(said)
}

#[test]
fn lookups_answer_alike_in_every_language() {
    assert_cases_pass("cluster");
}

#[test]
fn rights_answer_alike_in_every_language() {
    assert_cases_pass("access");
}

#[test]
fn images_answer_alike_in_every_language() {
    assert_cases_pass("images");
}

/// Runs a suite of `languages/cases` with the actor of each language.
fn assert_cases_pass(capability: &str) {
    let _alone = alone();
    let cases = workspace().join("languages/cases").join(capability);
    let mut wrong = Vec::new();
    for Language { name, folder } in built() {
        let suite = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(capability)
            .join(&name);
        copy_suite(&cases, &suite);
        wrong.extend(run_suite(&name, &folder, "actor", &suite));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_suite_of_every_policy_passes() {
    let _alone = alone();
    let mut wrong = Vec::new();
    for Language { name, folder } in built() {
        for policy in with_suite(&name) {
            let plugin = policy
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let suite = Path::new(env!("CARGO_TARGET_TMPDIR"))
                .join("suites")
                .join(&plugin);
            copy_suite(&policy, &suite);
            wrong.extend(run_suite(&name, &folder, &plugin, &suite));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Settings, modules and a suite of a policy in Python. The host gives a call little fuel.
const PYTHON_PROJECT: [(&str, &str); 6] = [
    ("pyproject.toml", "[project]\nname = \"places\"\nversion = \"0.1.0\"\n"),
    (
        "policy.py",
        "\
from rules import limits
from tollgate_sdk import ALLOW, Manifest, Rule

manifest = Manifest(\"places\", \"0.1.0\", rules=[Rule([\"*\"], [\"\"], [\"v1\"], [\"configmaps\"])])


def validate(review, settings):
    return limits.check(review.object)
",
    ),
    ("rules/__init__.py", ""),
    (
        "rules/limits.py",
        "\
from tollgate_sdk import ALLOW


def check(document):
    if document.text(\"/data/do\") == \"late\":
        from . import late
        return late.check(document)
    return [][5]
",
    ),
    (
        "rules/late.py",
        "import statistics\nfrom tollgate_sdk import ALLOW, Denial\ndef check(document):\n    return Denial(f'mean {statistics.mean([1, 3])}')\n",
    ),
    (
        "tollgate.yaml",
        "\
engine: { cacheDirectory: ./dist/compiled }
plugins: [{ name: places, source: \"file:./dist/places.wasm\", limits: { fuel: 4M } }]
",
    ),
];

fn write_all(folder: &Path, files: &[(&str, &str)]) {
    for (name, content) in files {
        let file = folder.join(name);
        let parent = file.parent().expect("a file lies in a folder");
        fs::create_dir_all(parent).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        fs::write(&file, content).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
}

/// The build writes the policy's own modules into a component that it keeps. The plugin imports them when it loads.
#[test]
fn python_modules_load_and_fail_at_their_own_lines() {
    let _alone = alone();
    let toolchain = languages::output("python").join("../../toolchains/python");
    let Ok(environment) = fs::canonicalize(toolchain) else {
        eprintln!("SKIPPED: the plugins in python are not built");
        return;
    };
    let project = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-project");
    write_all(&project, &PYTHON_PROJECT);
    let run = |arguments: &[&str]| {
        let mut command = cli::command(arguments);
        command
            .current_dir(&project)
            .env("VIRTUAL_ENV", &environment);
        cli::run(&mut command)
    };
    run(&["build"]).assert(0, &["checked  version 0.1.0, validates"]);
    let component = project.join(BUILT).join("places.wasm");
    let first = fs::read(&component).expect("the build wrote the component");

    let object = |what: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"do": what}});
    let suite = json!({
        "config": "tollgate.yaml",
        "defaults": {"namespace": "default"},
        "cases": [
            {"name": "late", "object": object("late"), "expect": {"verdict": "deny", "message": "mean 2"}},
            {"name": "fails", "object": object("fail"), "expect": "allow"},
        ],
    });
    let suite = [("places.test.yaml", suite.to_string())];
    write_all(
        &project,
        &suite.each_ref().map(|(name, text)| (*name, text.as_str())),
    );
    run(&["test"]).assert(
        1,
        &[
            "1 passed, 1 failed",
            "IndexError: list index out of range",
            "at rules/limits.py:8",
        ],
    );

    write_all(
        &project,
        &[("rules/late.py", "import statistics\n\n1 / 0\n")],
    );
    write_all(
        &project,
        &[(
            "policy.py",
            &format!("import rules.late\n{}", PYTHON_PROJECT[1].1),
        )],
    );
    run(&["build"]).assert(
        1,
        &[
            "REJECTED BY THE HOST",
            "ZeroDivisionError: ",
            "at rules/late.py:3",
        ],
    );
    let second = fs::read(&component).expect("the build wrote the component");
    let differing = first.iter().zip(&second).map(|(one, other)| one != other);
    let differing: Vec<usize> = differing
        .enumerate()
        .filter_map(|(at, differs)| differs.then_some(at))
        .collect();
    let (Some(least), Some(most)) = (differing.first(), differing.last()) else {
        panic!("the components are the same");
    };
    assert!(
        first.len() == second.len() && most - least < 4096,
        "{least} to {most}"
    );
}
