//! A program that embeds the library reviews with real plugins. It is its own preparer.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_tests::reviews::{Review, pod};
use tollgate_tests::{binary, guests};

/// Exit codes of the example.
const ALLOWED: i32 = 0;
const DENIED: i32 = 1;
const FAILED: i32 = 2;

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs `embed PLUGIN REVIEW SETTINGS`.
fn embed(plugin: &Path, review: &Value, settings: &Value) -> Ran {
    let folder = folder();
    let review_file = folder.path().join("review.json");
    let settings_file = folder.path().join("settings.json");
    std::fs::write(&review_file, review.to_string()).expect("the review can be written");
    std::fs::write(&settings_file, settings.to_string()).expect("the settings can be written");
    let output = Command::new(binary::example("embed"))
        .arg(plugin)
        .args([review_file, settings_file])
        .output()
        .unwrap_or_else(|error| panic!("the example cannot be run: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let ran = Ran {
        code: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    };
    println!("{:?}\n{}{}", ran.code, ran.stdout, ran.stderr);
    ran
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder can be created")
}

impl Ran {
    /// Returns the rest of the line that begins with these words.
    #[track_caller]
    fn line(&self, begin: &str) -> &str {
        let mut lines = self.stdout.lines();
        lines
            .find_map(|line| line.strip_prefix(begin))
            .unwrap_or_else(|| panic!("no line begins with `{begin}`:\n{}", self.stdout))
    }

    #[track_caller]
    fn response(&self) -> Value {
        let review: Value = serde_json::from_str(self.line("response: ")).expect("it is JSON");
        assert_eq!(review["kind"], "AdmissionReview", "{review}");
        review["response"].clone()
    }
}

/// The plugin denies a pod that it has not changed, so the validator must have seen the changed object.
#[test]
fn changes_the_object_and_validates_the_changed_one() {
    let plugin = guests::build("always-pull-images");
    let review = Review::create(pod("web")).build();
    let ran = embed(&plugin, &review, &json!({}));
    assert_eq!(ran.code, Some(ALLOWED), "{}", ran.stderr);
    assert_eq!(ran.line("verdict: "), "allowed");
    let patch: Value = serde_json::from_str(ran.line("patch: ")).expect("it is JSON");
    let expected = json!([
        {"op": "add", "path": "/spec/containers/0/imagePullPolicy", "value": "Always"}
    ]);
    assert_eq!(patch, expected);
    assert!(ran.line("mutate example: ").starts_with("patched"));
    assert!(ran.line("validate example: ").starts_with("allowed"));
    assert!(ran.line("plugin: example ").starts_with("sha256:"));
    let response = ran.response();
    assert_eq!(response["uid"], review["request"]["uid"]);
    assert_eq!(response["allowed"], true);
    assert_eq!(response["patchType"], "JSONPatch");
}

#[test]
fn denies_with_the_message_of_the_plugin() {
    let plugin = guests::build("required-labels");
    let review = Review::create(pod("web")).build();
    let ran = embed(&plugin, &review, &json!({"labels": {"team": null}}));
    assert_eq!(ran.code, Some(DENIED), "{}", ran.stderr);
    let verdict = ran.line("verdict: ");
    assert!(
        verdict.starts_with("denied with ") && verdict.contains("team"),
        "{verdict}"
    );
    assert!(ran.line("validate example: ").starts_with("denied"));
    let response = ran.response();
    assert_eq!(response["allowed"], false);
    assert!(response["patch"].is_null(), "{response}");
}

#[test]
fn refuses_what_is_no_review() {
    let plugin = guests::build("required-labels");
    let ran = embed(&plugin, &pod("web"), &json!({"labels": {"team": null}}));
    assert_eq!(ran.code, Some(FAILED));
    assert!(
        ran.stderr.contains("not an AdmissionReview"),
        "{}",
        ran.stderr
    );
}

#[test]
fn names_a_plugin_that_is_not_loaded() {
    let folder = folder();
    let plugin = folder.path().join("plugin.wasm");
    std::fs::write(&plugin, "no WebAssembly").expect("the file can be written");
    let review = Review::create(pod("web")).build();
    let ran = embed(&plugin, &review, &json!({}));
    assert_eq!(ran.code, Some(FAILED));
    let reason = "the plugin example is not loaded: ";
    assert!(ran.stderr.contains(reason), "{}", ran.stderr);
}
