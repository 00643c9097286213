//! A program that embeds the library reviews with real plugins. It is its own preparer.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_tests::reviews::{Review, pod};
use tollgate_tests::{binary, guests, wat};

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
    embed_with(plugin, review, settings, None)
}

/// Runs `embed PLUGIN REVIEW SETTINGS NAMESPACES`.
fn embed_with(plugin: &Path, review: &Value, settings: &Value, namespaces: Option<&Path>) -> Ran {
    let folder = folder();
    let review_file = folder.path().join("review.json");
    let settings_file = folder.path().join("settings.json");
    std::fs::write(&review_file, review.to_string()).expect("the review can be written");
    std::fs::write(&settings_file, settings.to_string()).expect("the settings can be written");
    let output = Command::new(binary::example("embed"))
        .arg(plugin)
        .args([review_file, settings_file])
        .args(namespaces)
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

/// Warns, reads a label of the namespace, and warns with it.
const READS_TEAM: &str = r#"
    (import "tollgate:admission/review@0.1.0" "get" (func $get (param i32 i32 i32 i32)))
    (import "tollgate:admission/review@0.1.0" "warn" (func $warn (param i32 i32)))
    (data (i32.const 1024) "once/metadata/labels/team")
    (func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
        (call $warn (i32.const 1024) (i32.const 4))
        (call $get (i32.const 4) (i32.const 1028) (i32.const 21) (i32.const 2048))
        (if (i32.load8_u (i32.const 2048))
            (then (call $warn (i32.load (i32.const 2064)) (i32.load (i32.const 2068)))))
        (i32.const 256))"#;

/// The source of the namespaces has to wait, so the host calls the plugin again. Nobody sees the first attempt.
#[test]
fn waits_for_source_of_namespaces() {
    let folder = folder();
    let plugin = folder.path().join("plugin.wasm");
    std::fs::write(&plugin, wat::plugin("validator", READS_TEAM)).expect("it can be written");
    let shop = json!({"metadata": {"name": "shop", "labels": {"team": "blue"}}});
    std::fs::write(folder.path().join("shop.json"), shop.to_string()).expect("it can be written");
    std::fs::write(folder.path().join("bank.json"), "{").expect("it can be written");
    let reviewed = |namespace: &str| {
        let mut review = Review::create(pod("web")).build();
        review["request"]["namespace"] = json!(namespace);
        embed_with(&plugin, &review, &json!({}), Some(folder.path()))
    };
    let ran = reviewed("shop");
    assert_eq!(ran.code, Some(ALLOWED), "{}", ran.stderr);
    let warnings: Vec<&str> = ran
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("warning: "))
        .collect();
    assert_eq!(warnings, ["example: once", "example: blue"]);
    for (namespace, words) in [
        ("young", "the namespace `young` does not exist in "),
        ("bank", "cannot look up the namespace `bank`: "),
    ] {
        let ran = reviewed(namespace);
        assert_eq!(ran.code, Some(DENIED), "{}", ran.stderr);
        let verdict = ran.line("verdict: ");
        assert!(verdict.contains("namespace-unavailable"), "{verdict}");
        assert!(verdict.contains(words), "{verdict}");
    }
}
