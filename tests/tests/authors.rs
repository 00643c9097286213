//! The commands of a policy author, starting from an empty folder: `new`, `build`, `test`, `bench`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_tests::binary::{profile_directory, tollgate, workspace};
use tollgate_tests::cli::{self, Ran};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::guests;
use tollgate_tests::reviews::{Review, pod};
use tollgate_tests::server::Server;

/// Exit code: everything is as expected.
const PASSED: i32 = 0;
/// Exit code: something is not as expected.
const FAILED: i32 = 1;
/// Exit code: something could not be done.
const ERROR: i32 = 2;
/// Time limit for a command that a user waits for.
const PATIENCE: Duration = Duration::from_secs(60);

fn run(folder: &Path, arguments: &[&str]) -> Ran {
    run_with(folder, arguments, &[])
}

fn run_with(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Ran {
    let mut command = cli::command(arguments);
    command
        .current_dir(folder)
        // Builds are kept, so that not every test run repeats them.
        .env("CARGO_TARGET_DIR", target("authors"))
        .envs(environment.iter().copied());
    cli::run(&mut command)
}

/// A folder beside that of the profile.
fn target(name: &str) -> PathBuf {
    let profile = profile_directory();
    profile
        .parent()
        .expect("a profile's folder lies in the target folder")
        .join(name)
}

fn folder() -> TempDir {
    let folder = tempfile::Builder::new()
        .prefix("tollgate-authors-")
        .tempdir();
    folder.expect("a temporary folder can be made: is TMPDIR writable?")
}

fn write(folder: &Path, name: &str, content: &Value) {
    fs::write(folder.join(name), content.to_string())
        .expect("a temporary folder can be written to");
}

/// Rules for every kind of object, on CREATE and UPDATE.
fn everything() -> Value {
    json!({"rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]})
}

fn labels(settings: Value) -> Value {
    let file = guests::build("required-labels");
    json!({"name": "labels", "source": format!("file:{}", file.display()), "settings": settings, "match": everything()})
}

fn labelled(team: &str) -> Value {
    let mut pod = pod("web");
    pod["metadata"]["labels"] = json!({"team": team});
    pod
}

#[test]
fn creates_builds_and_tests_rust_plugin() {
    let folder = folder();
    let clone = workspace().display().to_string();
    run(
        folder.path(),
        &[
            "new",
            "trusted-registries",
            "--lang",
            "rust",
            "--sdk",
            &clone,
        ],
    )
    .assert_clean(PASSED, &["trusted-registries/src/lib.rs", "tollgate build"]);
    let project = folder.path().join("trusted-registries");
    // Use the versions that are already downloaded.
    fs::copy(workspace().join("Cargo.lock"), project.join("Cargo.lock"))
        .expect("the lock file can be copied");

    run(&project, &["build"]).assert_clean(
        PASSED,
        &[
            "dist/trusted-registries.wasm",
            "digest   sha256:",
            "tollgate:admission/review@0.1.0",
            "mutates and validates",
        ],
    );
    run(&project, &["test"]).assert_clean(
        PASSED,
        &[
            "refuses other registries: an init container",
            "8 case(s) in 1 suite(s): 8 passed",
        ],
    );
    tests_no_stale_component(&project);
    let bench = run(
        &project,
        &[
            "bench",
            "trusted-registries",
            "--config",
            "tollgate.yaml",
            "--calls",
            "10",
            "-o",
            "json",
        ],
    );
    bench.assert_clean(PASSED, &[]);
    let bench: Value = serde_json::from_str(&bench.stdout).expect("it is JSON");
    assert_eq!(bench["phases"][1]["phase"], "validate");
    let rows = bench["phases"][1]["rows"]
        .as_array()
        .expect("there is a row for each size");
    assert_eq!(rows.len(), 4);
    // A policy that reads single fields costs the same for a small and a huge object.
    assert_eq!(rows[0]["fuel"], rows[3]["fuel"]);
    assert!(
        rows[0]["memoryBytes"]
            .as_u64()
            .is_some_and(|bytes| bytes > 0)
    );

    run(
        folder.path(),
        &["new", "trusted-registries", "--lang", "rust"],
    )
    .assert_clean(ERROR, &["trusted-registries: already exists"]);
}

/// Breaks a source of a project that is built, and repairs it.
fn tests_no_stale_component(project: &Path) {
    let source = project.join("src/lib.rs");
    let text = fs::read_to_string(&source).expect("the project has a source");
    fs::write(&source, format!("{text}\nfn broken(")).expect("the project can be written to");
    run(project, &["test"]).assert_clean(
        ERROR,
        &[
            "building .: src/lib.rs changed",
            "this file contains an unclosed delimiter",
            "cannot build ., so dist/trusted-registries.wasm is not used: `cargo build` failed",
        ],
    );
    run(project, &["test", "--no-build"]).assert_clean(
        ERROR,
        &["dist/trusted-registries.wasm is stale: src/lib.rs changed since it was built"],
    );
    fs::write(&source, text).expect("the project can be written to");
    let repaired = run(project, &["test"]);
    repaired.assert_clean(PASSED, &["8 passed"]);
    assert!(
        !repaired.said().contains("building"),
        "the sources are those of the component again"
    );
}

#[test]
fn says_what_to_do_if_new_or_build_fails() {
    let folder = folder();
    run(folder.path(), &["new", "Bad_Name", "--lang", "rust"]).assert_clean(
        ERROR,
        &[
            "cannot be the name of a policy",
            "such as trusted-registries",
        ],
    );
    run(folder.path(), &["new", "x", "--lang", "cobol"])
        .assert_clean(ERROR, &["[possible values: rust"]);
    for (resource, part) in [
        ("pods", "expected GROUP/VERSION/RESOURCE"),
        ("apps/v1/deployment", "deployments"),
    ] {
        let arguments = ["new", "x", "--lang", "rust", "--resource", resource];
        run(folder.path(), &arguments).assert_clean(ERROR, &[part]);
    }
    let sample = ["--template", "sample", "--resource", "v1/pods"];
    run(
        folder.path(),
        &[&["new", "x", "--lang", "rust"][..], &sample].concat(),
    )
    .assert_clean(ERROR, &["the sample is about Pods"]);
    let description = ["--description", "two\nlines"];
    run(
        folder.path(),
        &[&["new", "x", "--lang", "rust"][..], &description].concat(),
    )
    .assert_clean(ERROR, &["one line"]);
    run(folder.path(), &["new", "x", "--lang", "rust", "--sdk", "."])
        .assert_clean(ERROR, &["not a clone of Tollgate's repository"]);
    run(folder.path(), &["build"]).assert_clean(
        ERROR,
        &[
            "found no project, expected Cargo.toml (rust) or go.mod (go) or policy.ts (ts) or policy.js (js)",
            "tollgate new NAME",
        ],
    );
    run(folder.path(), &["test"])
        .assert_clean(ERROR, &["a file with a name like policy.test.yaml"]);
    run(folder.path(), &["bench", "none.wasm"]).assert_clean(ERROR, &["none.wasm: no such file"]);
}

#[test]
fn says_how_to_install_missing_toolchain() {
    let folder = folder();
    run(folder.path(), &["new", "x", "--lang", "rust"]).assert_clean(PASSED, &[]);
    let project = folder.path().join("x");
    // First a compiler without the target, then no compiler.
    run_with(&project, &["build"], &[("RUSTC", "false")])
        .assert_clean(ERROR, &["wasm32-unknown-unknown is not installed: run `rustup target add wasm32-unknown-unknown`"]);
    run_with(&project, &["build"], &[("RUSTC", "none-such")])
        .assert_clean(ERROR, &["cannot run rustc", "https://rustup.rs"]);
}

#[test]
fn reports_failing_suite_as_text_json_and_junit() {
    let folder = folder();
    let suite = json!({
        "plugins": [labels(json!({"labels": {"team": "[a-z]+"}}))],
        "defaults": {"object": labelled("shop")},
        "cases": [
            {"name": "right", "expect": "allow"},
            {"name": "wrong verdict", "set": {"/metadata/labels/team": "7"}, "expect": "allow"},
            {"name": "wrong cause", "set": {"/metadata/labels/team": "7"}, "expect": {"causes": [{"field": "/metadata/labels/owner"}]}},
            {"name": "too dear", "fuel": 100, "expect": "allow"},
            {"name": "never called", "operation": "DELETE", "expect": "allow"},
            {"name": "cannot be run", "set": {"/spec/containers/7/image": "x"}, "expect": "allow"},
        ],
    });
    write(folder.path(), "labels.test.yaml", &suite);
    let ran = run(
        folder.path(),
        &["test", "--junit", "results.xml", "--json", "results.json"],
    );
    ran.assert_clean(
        ERROR,
        &[
            "ok     right",
            "verdict: expected allow, got deny (403): labels: labels or annotations are missing or malformed",
            "- metadata.labels[owner]",
            r#"+ - "metadata.labels[team]: label team must match [a-z]+""#,
            "at most 100 is allowed",
            "got not-called: no plugin matches this review",
            "labels: asked for operation=DELETE apiGroup=\"\" apiVersion=v1 resource=pods namespace=",
            "its rules want operations=CREATE,UPDATE apiGroups=* apiVersions=* resources=*",
            "is not in the list, which has",
            "1 passed, 4 failed, 1 could not be run",
        ],
    );
    let results: Value = serde_json::from_slice(
        &fs::read(folder.path().join("results.json")).expect("it is written"),
    )
    .expect("it is JSON");
    assert_eq!(
        results["summary"],
        json!({"passed": 1, "failed": 4, "errors": 1})
    );
    let junit = fs::read_to_string(folder.path().join("results.xml")).expect("it is written");
    for count in [r#"tests="6""#, r#"failures="4""#, r#"errors="1""#] {
        assert!(junit.contains(count), "{count}: {junit}");
    }

    run(folder.path(), &["test", "--filter", "right"])
        .assert_clean(PASSED, &["1 case(s) in 1 suite(s): 1 passed"]);
    run(folder.path(), &["test", "--filter", "wrong"])
        .assert_clean(FAILED, &["0 passed, 2 failed"]);
    run(folder.path(), &["test", "--filter", "none such"])
        .assert_clean(ERROR, &["no case has a name that contains"]);
}

#[test]
fn reads_suite_as_strictly_as_configuration() {
    let folder = folder();
    let suite = json!({
        "plugins": [labels(json!({"labels": {}}))],
        "cases": [{"name": "x", "object": labelled("shop"), "operaton": "CREATE", "expect": {"verdikt": "allow"}}],
    });
    write(folder.path(), "x.test.yaml", &suite);
    run(folder.path(), &["test"]).assert_clean(
        ERROR,
        &[
            "x.test.yaml: ",
            "cases[0].operaton: unknown key, did you mean operation?",
            "cases[0].expect.verdikt: unknown key, did you mean verdict?",
        ],
    );
}

#[test]
fn writes_snapshot_on_update_and_compares_it_later() {
    let folder = folder();
    let suite = |settings: Value| {
        json!({
            "plugins": [labels(settings)],
            "fuelGrowth": 0,
            "cases": [{"name": "no owner", "object": labelled("shop"), "expect": {"snapshot": true}}],
        })
    };
    write(
        folder.path(),
        "a.test.yaml",
        &suite(json!({"labels": {"owner": null}})),
    );
    run(folder.path(), &["test"]).assert_clean(FAILED, &["snapshot: none in", "--update"]);
    run(folder.path(), &["test", "--update"]).assert_clean(PASSED, &[]);
    run(folder.path(), &["test"]).assert_clean(PASSED, &[]);
    write(
        folder.path(),
        "a.test.yaml",
        &suite(json!({"labels": {"owner": null, "cost": null}})),
    );
    run(folder.path(), &["test"]).assert_clean(
        FAILED,
        &[
            "snapshot: the result differs",
            "labels: label cost is required",
            "fuel: labels validate used",
        ],
    );
}

#[test]
fn runs_plugins_as_chain_and_rejects_unstable_output() {
    let folder = folder();
    let plugin = |name: &str, package: &str, settings: Value| json!({"name": name, "source": format!("file:{}", guests::build(package).display()), "settings": settings});
    let rewrite = |from: &str, to: &str| json!({"rewrite": [{"from": from, "to": to}]});
    let mut object = pod("web");
    object["spec"]["containers"][0]["image"] = json!("k8s.gcr.io/pause:3.9");
    let image = "/spec/containers/0/image";
    let suite = json!({
        "plugins": [
            plugin("rewrite", "image-rewrite", rewrite("k8s.gcr.io/", "registry.k8s.io/")),
            plugin("pull", "always-pull-images", json!({})),
        ],
        "cases": [
            {"name": "both change it", "object": object, "expect": {
                "fields": {image: "registry.k8s.io/pause:3.9", "/spec/containers/0/imagePullPolicy": "Always", "/spec/none": null},
                "annotations": {"pull.patched": "/spec/containers/0/imagePullPolicy"},
            }},
        ],
    });
    write(folder.path(), "chain.test.yaml", &suite);
    run(folder.path(), &["test"]).assert_clean(PASSED, &["ok     both change it"]);

    let mut appends = plugin(
        "again",
        "actor",
        json!({"append": {"/spec/containers/0/args": "--more"}}),
    );
    appends["match"] = everything();
    object["spec"]["containers"][0]["args"] = json!([]);
    let suite = json!({
        "plugins": [appends],
        "cases": [{"name": "adds more each time", "object": object, "expect": {"unchanged": false}}],
    });
    write(folder.path(), "chain.test.yaml", &suite);
    run(folder.path(), &["test"]).assert_clean(
        FAILED,
        &[
            "again: again changes its own output again",
            r#""path":"/spec/containers/0/args/1""#,
        ],
    );
}

#[test]
fn case_overrides_parts_of_a_review() {
    let folder = folder();
    let mut plugin = labels(json!({"labels": {"team": "[a-z]+"}}));
    plugin["match"]["excludeUsers"] = json!(["root"]);
    plugin["match"]["excludeNamespaces"] = json!(["kube-system"]);
    let suite = json!({
        "plugins": [plugin],
        "defaults": {"object": Review::create(labelled("shop")).build(), "user": "root"},
        "cases": [
            {"name": "the user of the review", "expect": "allow"},
            {"name": "another user", "user": "root", "expect": "not-called"},
            {"name": "another namespace", "namespace": "kube-system", "expect": "not-called"},
            {"name": "another operation", "operation": "DELETE", "expect": "not-called"},
            {"name": "another resource", "subResource": "status", "expect": "not-called"},
            {"name": "another object", "set": {"/metadata/labels/team": "7"}, "expect": "deny"},
            {"name": "an old object", "oldObject": labelled("7"), "fuel": "1M", "expect": "allow"},
        ],
    });
    write(folder.path(), "review.test.yaml", &suite);
    run(folder.path(), &["test"])
        .assert_clean(PASSED, &["7 passed", "ok     an old object  fuel "]);
}

#[test]
fn suite_names_resource_and_subresource() {
    let folder = folder();
    let rule = |operation: &str, group: &str, resource: &str| json!({"operations": [operation], "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource]});
    let actor = guests::build("actor");
    let suite = json!({
        "plugins": [{
            "name": "actor", "source": format!("file:{}", actor.display()), "settings": {"deny": "never"},
            "match": {"rules": [rule("CONNECT", "", "pods/exec"), rule("CREATE", "example.com", "mice")]},
        }],
        "cases": [
            {
                "name": "exec", "operation": "CONNECT", "resource": "pods", "subResource": "exec", "namespace": "shop",
                "object": {"apiVersion": "v1", "kind": "PodExecOptions", "command": ["sh"], "stdin": true},
                "expect": {"message": "never"},
            },
            {
                "name": "mouse", "object": {"apiVersion": "example.com/v1", "kind": "Mouse", "metadata": {"name": "jerry"}},
                "rows": [
                    {"name": "its plural", "resource": "mice", "expect": "deny"},
                    {"name": "the usual plural", "expect": "deny"},
                ],
            },
        ],
    });
    write(folder.path(), "actor.test.yaml", &suite);
    run(folder.path(), &["test"]).assert_clean(
        FAILED,
        &[
            "ok     exec",
            "ok     mouse: its plural",
            "FAIL   mouse: the usual plural",
            "actor.test.yaml: cases[1].rows[1]",
            "actor: asked for operation=CREATE apiGroup=example.com apiVersion=v1 resource=mouses namespace=default, \
             its rules want operations=CONNECT apiGroups=\"\" apiVersions=v1 resources=pods/exec; or operations=CREATE \
             apiGroups=example.com apiVersions=v1 resources=mice",
        ],
    );
}

#[test]
fn text_of_a_fault_is_shown_once() {
    let folder = folder();
    let mut starved = labels(json!({"labels": {"team": null}}));
    starved["limits"] = json!({"fuel": 1000});
    let suite = json!({
        "plugins": [starved],
        "cases": [{"name": "starved", "object": labelled("shop"), "expect": "allow"}],
    });
    write(folder.path(), "labels.test.yaml", &suite);
    let ran = run(folder.path(), &["test"]);
    ran.assert_clean(
        FAILED,
        &[
            "verdict: expected allow, got fault\n",
            "fault: labels ended with out-of-fuel: the plugin used all 1000 units (limits.fuel)",
        ],
    );
    assert_eq!(ran.said().matches("used all 1000 units").count(), 1);
}

#[test]
fn suite_sets_the_time() {
    let folder = folder();
    let window = guests::build("deploy-window");
    let settings =
        json!({"timeZone": "UTC", "windows": [{"days": ["Mon"], "from": "09:00", "to": "17:00"}]});
    let suite = json!({
        "plugins": [{"name": "window", "source": format!("file:{}", window.display()), "settings": settings,
                     "capabilities": ["clock"], "match": everything()}],
        "defaults": {"object": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {}}},
        "cases": [{"name": "window", "rows": [
            {"name": "monday noon", "now": "2026-07-06T12:00:00Z", "expect": "allow"},
            {"name": "sunday noon", "now": "2026-07-05T12:00:00Z", "expect": "deny"},
        ]}],
    });
    write(folder.path(), "window.test.yaml", &suite);
    run(folder.path(), &["test"]).assert_clean(PASSED, &["2 passed"]);
}

#[test]
fn compares_two_versions_and_validates_each_others_output() {
    let folder = folder();
    // Two policies stand for two versions: one sets and requires the pull policy, the other does nothing.
    let (strict, idle) = (
        guests::build("always-pull-images"),
        guests::build("disable-service-links"),
    );
    let suite = json!({
        "plugins": [{"name": "pull", "source": format!("file:{}", strict.display())}],
        "cases": [{"name": "sets it", "object": pod("web"), "expect": {"unchanged": false}}],
    });
    write(folder.path(), "pull.test.yaml", &suite);
    let idle = idle.display().to_string();
    run(folder.path(), &["test", "--against", &idle]).assert_clean(
        FAILED,
        &[
            "the result differs (- old, + new)",
            "against: while both versions serve, the new version denies the output of the old one: pull: images must \
             be pulled",
            "1 with a different result",
        ],
    );
    let same = strict.display().to_string();
    run(folder.path(), &["test", "--against", &same])
        .assert_clean(PASSED, &["0 with a different result"]);
}

#[test]
fn compares_version_with_its_own_settings() {
    let folder = folder();
    let suite = json!({
        "plugins": [labels(json!({"labels": {"team": null}}))],
        "cases": [{"name": "labelled", "object": labelled("shop"), "expect": "allow"}],
    });
    write(folder.path(), "labels.test.yaml", &suite);
    let old = guests::build("always-pull-images").display().to_string();
    run(folder.path(), &["test", "--against", &old]).assert_clean(
        ERROR,
        &[
            "the version of labels to compare with is not loaded",
            "pass them with --against-settings FILE",
        ],
    );
    let with = ["test", "--against", &old, "--against-settings", "old.yaml"];
    write(folder.path(), "old.yaml", &json!([]));
    run(folder.path(), &with)
        .assert_clean(ERROR, &["--against-settings: old.yaml: expected an object"]);
    write(folder.path(), "old.yaml", &json!({}));
    // The first policy denies an object for which the second does not set the pull policy.
    run(folder.path(), &with).assert_clean(FAILED, &["1 with a different result"]);
}

#[test]
fn watch_tests_again_when_configuration_changes() {
    let folder = folder();
    let configuration =
        |pattern: &str| json!({"plugins": [labels(json!({"labels": {"team": pattern}}))]});
    let suite = json!({
        "config": "tollgate.yaml",
        "cases": [{"name": "labelled", "object": labelled("shop"), "expect": "allow"}],
    });
    write(folder.path(), "tollgate.yaml", &configuration("[a-z]+"));
    write(folder.path(), "labels.test.yaml", &suite);
    let results = folder.path().join("results.json");
    let mut watching = Command::new(tollgate())
        .args(["test", "--watch", "--json", "results.json"])
        .current_dir(folder.path())
        .spawn()
        .expect("tollgate can be run");
    let come_to = |expected: Value| {
        let end = Instant::now() + PATIENCE;
        loop {
            let read: Option<Value> = fs::read(&results)
                .ok()
                .and_then(|text| serde_json::from_slice(&text).ok());
            let summary = read.map(|results| results["summary"].clone());
            if summary.as_ref() == Some(&expected) {
                return true;
            }
            if Instant::now() > end {
                println!("{summary:?} and not {expected}");
                return false;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let passes = come_to(json!({"passed": 1, "failed": 0, "errors": 0}));
    write(folder.path(), "tollgate.yaml", &configuration("[0-9]+"));
    let fails = come_to(json!({"passed": 0, "failed": 1, "errors": 0}));
    // An unreadable file is reported, and the command keeps watching.
    write(folder.path(), "tollgate.yaml", &json!({"plugin": []}));
    std::thread::sleep(Duration::from_secs(1));
    write(folder.path(), "tollgate.yaml", &configuration("[a-z]+"));
    let passes_again = come_to(json!({"passed": 1, "failed": 0, "errors": 0}));
    watching.kill().expect("it runs until it is ended");
    watching.wait().expect("it was started");
    assert!(passes && fails && passes_again);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suite_results_equal_answers_of_running_server() {
    let folder = folder();
    let required = guests::build("required-labels");
    let settings = json!({"labels": {"team": "[a-z]+", "owner": null}});
    let mut configuration = Configuration::new();
    configuration.plugin(
        "labels",
        &required,
        json!({"settings": settings, "match": everything()}),
    );
    let server = Server::start(configuration);
    let review = Review::create(labelled("7")).build();
    let answer = server.validate(&review).await;
    let status = &answer.json()["response"]["status"];
    // Each review has a new uid.
    let message = status["message"].as_str().unwrap_or_default();
    let (message, _) = message
        .rsplit_once(" (review ")
        .expect("it ends with the uid");

    let causes = status["details"]["causes"]
        .as_array()
        .expect("a denial has causes")
        .clone();
    let causes: Vec<Value> = causes
        .into_iter()
        .map(|cause| json!({"field": cause["field"], "message": cause["message"]}))
        .collect();
    let suite = json!({
        "plugins": [labels(settings)],
        "cases": [{"name": "as the server", "object": review, "expect": {
            "message": message, "code": status["code"], "causes": causes,
        }}],
    });
    write(folder.path(), "server.test.yaml", &suite);
    run(folder.path(), &["test"]).assert_clean(PASSED, &["1 passed"]);
}

#[test]
fn prints_completions_for_shells() {
    let folder = folder();
    for shell in ["bash", "zsh", "fish"] {
        run(folder.path(), &["completions", shell])
            .assert_clean(PASSED, &["tollgate", "manifests", "bench"]);
    }
}
