//! `tollgate test` and `tollgate bench` build the project of a component first, and never run a stale one.
//!
//! The projects are in C, with a script in the compiler's place: it copies the plugin that the source names. So the suite
//! needs no toolchain, and counts how often the compiler runs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_tests::binary::tollgate;
use tollgate_tests::reviews::pod;
use tollgate_tests::wat::marker;

/// Exit code: everything is as expected.
const PASSED: i32 = 0;
/// Exit code: something is not as expected.
const FAILED: i32 = 1;
/// Exit code: something could not be done.
const ERROR: i32 = 2;
/// Time limit for a command that a user waits for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time in which `--watch` would have noticed a change.
const A_WHILE: Duration = Duration::from_secs(2);

/// Stands for clang: copies the plugin that policy.c names.
const COMPILER: &str = r#"#!/bin/sh
[ "$1" = --version ] && exit 0
echo built >> "$BUILDS"
for output; do :; done
plugin="$PLUGINS/$(cat policy.c).wasm"
if [ ! -f "$plugin" ]; then
  echo "policy.c:1:1: error: unknown name '$(cat policy.c)'" >&2
  exit 1
fi
cp "$plugin" "$output"
"#;

/// A project in a temporary folder, with the stand-in for its toolchain.
struct Project {
    root: TempDir,
}

struct Ran {
    code: Option<i32>,
    said: String,
    stdout: String,
}

// === impl Ran ===

impl Ran {
    #[track_caller]
    fn assert(&self, code: i32, words: &[&str]) -> &Self {
        assert_eq!(self.code, Some(code), "{}", self.said);
        for word in words {
            assert!(
                self.said.contains(word),
                "`{word}` is not in:\n{}",
                self.said
            );
        }
        self
    }

    #[track_caller]
    fn assert_without(&self, word: &str) {
        assert!(!self.said.contains(word), "`{word}` is in:\n{}", self.said);
    }
}

// === impl Project ===

impl Project {
    /// Creates a project whose source names the plugin `one`, with a suite that expects the label of that plugin.
    fn new() -> Self {
        let root = tempfile::Builder::new().prefix("tollgate-fresh-").tempdir();
        let root = root.expect("a temporary folder can be made: is TMPDIR writable?");
        let project = Self { root };
        for folder in ["bin", "plugins", "policy/include", "policy/src"] {
            fs::create_dir_all(project.root.path().join(folder)).expect("a folder can be made");
        }
        for version in ["one", "two"] {
            let plugin = project
                .root
                .path()
                .join("plugins")
                .join(version)
                .with_extension("wasm");
            fs::write(plugin, marker("version", version)).expect("a plugin can be written");
        }
        for tool in ["clang", "wasm-ld"] {
            let file = project.root.path().join("bin").join(tool);
            fs::write(&file, COMPILER).expect("a script can be written");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755))
                .expect("a script can be made executable");
        }
        project.write("policy.c", "one");
        project.write("compile_flags.txt", "-Iinclude\n");
        project.write("include/tollgate.h", "");
        project.write("src/tollgate.c", "");
        project.write_json("pod.yaml", &pod("web"));
        project.write_json(
            "tollgate.yaml",
            &json!({"plugins": [{"name": "marker", "source": "file:./dist/policy.wasm"}]}),
        );
        let expected = json!({"fields": {"/metadata/labels/version": "one"}});
        project.write_json(
            "policy.test.yaml",
            &json!({
                "config": "tollgate.yaml",
                "cases": [{"name": "marks a Pod", "object": "pod.yaml", "expect": expected}],
            }),
        );
        project
    }

    fn folder(&self) -> PathBuf {
        self.root.path().join("policy")
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder().join(name), text).expect("a temporary folder can be written to");
    }

    fn write_json(&self, name: &str, content: &Value) {
        self.write(name, &content.to_string());
    }

    fn command(&self, folder: &Path, arguments: &[&str]) -> Command {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let tools = [self.root.path().join("bin")].into_iter();
        let path = std::env::join_paths(tools.chain(std::env::split_paths(&path)));
        let mut command = Command::new(tollgate());
        command
            .args(arguments)
            .current_dir(folder)
            .env("PATH", path.expect("the folders have no colons"))
            .env("PLUGINS", self.root.path().join("plugins"))
            .env("BUILDS", self.root.path().join("builds"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        self.run_in(&self.folder(), arguments)
    }

    fn run_in(&self, folder: &Path, arguments: &[&str]) -> Ran {
        let output = self
            .command(folder, arguments)
            .output()
            .unwrap_or_else(|error| panic!("tollgate cannot be run: {error}"));
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = format!("{stdout}{}", String::from_utf8_lossy(&output.stderr));
        println!("$ tollgate {}\n{said}", arguments.join(" "));
        Ran {
            code: output.status.code(),
            said,
            stdout,
        }
    }

    /// Returns how often the compiler has run.
    fn builds(&self) -> usize {
        let log = fs::read_to_string(self.root.path().join("builds"));
        log.unwrap_or_default().lines().count()
    }
}

#[test]
fn test_builds_first_and_only_after_a_change() {
    let project = Project::new();
    project.run(&["test"]).assert(
        PASSED,
        &["it has no component yet", "$ clang", "ok     marks a Pod"],
    );
    assert_eq!(project.builds(), 1);
    project
        .run(&["test"])
        .assert(PASSED, &["1 passed"])
        .assert_without("building");
    assert_eq!(project.builds(), 1);

    project.write("policy.c", "two");
    project.run(&["test"]).assert(
        FAILED,
        &[
            "building .: policy.c changed",
            r#"/metadata/labels/version: expected "one", got "two""#,
        ],
    );
    // The header is a source, too, and the suite is none.
    project.write("include/tollgate.h", "// changed");
    project.write("policy.c", "one");
    project.write_json("pod.yaml", &pod("other"));
    project.run(&["test"]).assert(
        PASSED,
        &["building .: include/tollgate.h, policy.c changed"],
    );
    assert_eq!(project.builds(), 3);
    project.write_json("pod.yaml", &pod("web"));
    project.run(&["test"]).assert(PASSED, &[]);
    assert_eq!(project.builds(), 3);
}

#[test]
fn failed_build_runs_no_component() {
    let project = Project::new();
    project.run(&["test"]).assert(PASSED, &[]);
    project.write("policy.c", "broken");
    for arguments in [
        &["test"][..],
        &["bench", "dist/policy.wasm", "--calls", "10"],
    ] {
        let ran = project.run(arguments);
        ran.assert(
            ERROR,
            &[
                "policy.c:1:1: error: unknown name 'broken'",
                "cannot build ., so dist/policy.wasm is not used",
            ],
        );
        ran.assert_without("marks a Pod");
        ran.assert_without("median");
    }
    // Nothing has been built since, so the next run does not take the old component either.
    project
        .run(&["test"])
        .assert(ERROR, &["policy.c:1:1: error"]);
    project.write("policy.c", "one");
    project.run(&["test"]).assert(PASSED, &["1 passed"]);
}

#[test]
fn without_building_a_stale_component_is_refused() {
    let project = Project::new();
    project
        .run(&["build"])
        .assert(PASSED, &["dist/policy.wasm", "mutates"]);
    assert!(project.folder().join("dist/policy.wasm.stamp").is_file());
    let builds = project.builds();
    project
        .run(&["test", "--no-build"])
        .assert(PASSED, &["1 passed"])
        .assert_without("stale");
    project.write("policy.c", "two");
    let stale =
        "dist/policy.wasm is stale: policy.c changed since it was built; run `tollgate build .`";
    project.run(&["test", "--no-build"]).assert(ERROR, &[stale]);
    project
        .run(&["bench", "marker", "--config", "tollgate.yaml", "--no-build"])
        .assert(ERROR, &[stale]);
    assert_eq!(project.builds(), builds);
}

#[test]
fn component_built_by_hand_is_reported() {
    let project = Project::new();
    let component = project.folder().join("dist/policy.wasm");
    fs::create_dir(project.folder().join("dist")).expect("a folder can be made");
    fs::write(&component, marker("version", "one")).expect("a component can be written");
    project.run(&["test", "--no-build"]).assert(
        PASSED,
        &[
            "dist/policy.wasm may be stale: `tollgate build` did not build it",
            "1 passed",
        ],
    );
    assert_eq!(project.builds(), 0);
    project.run(&["test"]).assert(PASSED, &["building ."]);
    fs::write(&component, marker("version", "two")).expect("a component can be written");
    project.run(&["test", "--no-build"]).assert(
        FAILED,
        &["may be stale: something else than `tollgate build` wrote it"],
    );
    project.run(&["test"]).assert(PASSED, &["building ."]);
    assert_eq!(project.builds(), 2);
    // Without the toolchain, the message says how to go on.
    fs::write(&component, marker("version", "one")).expect("a component can be written");
    project.write("compile_flags.txt", "");
    project.run(&["test"]).assert(
        ERROR,
        &["to use dist/policy.wasm as it is, pass --no-build"],
    );
}

#[test]
fn suite_without_a_project_needs_no_toolchain() {
    let project = Project::new();
    project.run(&["build"]).assert(PASSED, &[]);
    for source in ["policy.c", "compile_flags.txt"] {
        fs::remove_file(project.folder().join(source)).expect("it exists");
    }
    let builds = project.builds();
    project
        .run(&["test"])
        .assert(PASSED, &["1 passed"])
        .assert_without("stale");
    assert_eq!(project.builds(), builds);
}

#[test]
fn component_elsewhere_and_moved_project_stay_known() {
    let project = Project::new();
    project
        .run(&["build", "-o", "../out/policy.wasm"])
        .assert(PASSED, &[]);
    project.write_json(
        "tollgate.yaml",
        &json!({"plugins": [{"name": "marker", "source": "file:../out/policy.wasm"}]}),
    );
    project.run(&["test"]).assert(PASSED, &["1 passed"]);
    assert_eq!(project.builds(), 1);
    let moved = project.root.path().join("moved");
    fs::create_dir(&moved).expect("a folder can be made");
    for name in ["policy", "out"] {
        fs::rename(project.root.path().join(name), moved.join(name)).expect("it can be moved");
    }
    let folder = moved.join("policy");
    project
        .run_in(&folder, &["test"])
        .assert(PASSED, &["1 passed"]);
    assert_eq!(project.builds(), 1);
    fs::write(folder.join("policy.c"), "two").expect("it can be written");
    project
        .run_in(&folder, &["test"])
        .assert(FAILED, &["policy.c changed"]);
    assert_eq!(project.builds(), 2);
}

#[test]
fn results_are_no_sources() {
    let project = Project::new();
    let with_results = ["test", "--json", "results.json", "--junit", "results.xml"];
    project.run(&with_results).assert(PASSED, &[]);
    project.run(&with_results).assert(PASSED, &[]);
    project.run(&["test"]).assert(PASSED, &[]);
    assert_eq!(project.builds(), 1);
}

#[test]
fn bench_builds_and_takes_its_object_from_the_suite() {
    let project = Project::new();
    let bench = ["bench", "dist/policy.wasm", "--calls", "10"];
    project.run(&bench).assert(
        PASSED,
        &[
            "building .",
            "policy.test.yaml: cases[0]: marks a Pod",
            "policy mutate",
        ],
    );
    project.write("policy.c", "two");
    let json = project.run(&[&bench[..], &["-o", "json"]].concat());
    json.assert(PASSED, &["policy.c changed"]);
    let measured: Value = serde_json::from_str(&json.stdout).expect("only JSON is on stdout");
    assert_eq!(
        measured["object"],
        "policy.test.yaml: cases[0]: marks a Pod"
    );
    assert_eq!(project.builds(), 2);

    let rules = json!([{"operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}]);
    project.write_json(
        "other.yaml",
        &json!({"plugins": [{"name": "marker", "source": "file:./dist/policy.wasm", "match": {"rules": rules}}]}),
    );
    project
        .run(&["bench", "marker", "--config", "other.yaml", "--object", "pod.yaml", "--calls", "10"])
        .assert(
            PASSED,
            &[
                "a server would not call marker with this object: asked for operation=CREATE apiGroup=\"\" apiVersion=v1 \
                 resource=pods namespace=default, its rules want operations=CREATE apiGroups=apps apiVersions=v1 \
                 resources=deployments",
            ],
        );
}

#[test]
fn watch_builds_when_a_source_changes() {
    let project = Project::new();
    project.write("policy.c", "broken");
    let mut watching = project
        .command(
            &project.folder(),
            &["test", "--watch", "--json", "results.json"],
        )
        .stdout(Stdio::null())
        .spawn()
        .expect("tollgate can be run");
    let results = project.folder().join("results.json");
    let come_to = |passed: u64, failed: u64| {
        let end = Instant::now() + PATIENCE;
        loop {
            let read: Option<Value> = fs::read(&results)
                .ok()
                .and_then(|text| serde_json::from_slice(&text).ok());
            let summary = read.map(|results| results["summary"].clone());
            if summary == Some(json!({"passed": passed, "failed": failed, "errors": 0})) {
                return true;
            }
            if Instant::now() > end {
                println!("{summary:?}");
                return false;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    // The first build fails, so nothing is tested until the source is repaired.
    std::thread::sleep(A_WHILE);
    let tested_before = results.exists();
    project.write("policy.c", "one");
    let passes = come_to(1, 0);
    project.write("policy.c", "two");
    let fails = come_to(0, 1);
    project.write("policy.c", "one");
    let passes_again = come_to(1, 0);
    let builds = project.builds();
    std::thread::sleep(A_WHILE);
    let builds_later = project.builds();
    watching.kill().expect("it runs until it is ended");
    watching.wait().expect("it was started");
    assert!(!tested_before, "nothing was built, and a component was run");
    assert!(passes && fails && passes_again);
    assert_eq!(builds, builds_later, "it builds without a change");
}
