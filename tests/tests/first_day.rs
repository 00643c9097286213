//! The first day of a policy author in every language: from an empty folder and the installed binary to a server that
//! denies one Pod and changes another.
//!
//! The test uses nothing from this repository. The SDK comes with the binary, and the build dependencies come from the
//! language's own registry. A language whose tools are not installed is skipped and reported as skipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::json;
use tollgate_tests::binary::{profile_directory, tollgate, workspace};
use tollgate_tests::checker::Endpoint;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::left_out;
use tollgate_tests::reviews::{Review, pod};
use tollgate_tests::server::Server;

/// Part of the error with which `tollgate build` reports a missing tool.
const NOT_INSTALLED: &str = ": install ";

/// The result of a command.
struct Ran {
    code: Option<i32>,
    said: String,
}

/// Tools that builds find before those that are installed.
#[derive(Default)]
struct Tools {
    programs: Option<PathBuf>,
    libraries: Vec<PathBuf>,
}

// === impl Tools ===

impl Tools {
    /// Zig, if C is built with it.
    fn usual() -> Self {
        Self {
            programs: toolchain("zig").map(|folder| folder.join("bin")),
            ..Self::default()
        }
    }

    /// Debian's clang, if it is there and works.
    fn clang() -> Option<Self> {
        let folder = toolchain("clang")?.join("usr");
        let libraries = [
            "lib/x86_64-linux-gnu",
            "lib/aarch64-linux-gnu",
            "lib/llvm-19/lib",
        ];
        let tools = Self {
            programs: Some(folder.join("bin")),
            libraries: libraries.map(|library| folder.join(library)).into(),
        };
        let mut clang = Command::new(folder.join("bin/clang-19"));
        let output = tools.give_to(clang.arg("--version")).output();
        output
            .is_ok_and(|output| output.status.success())
            .then_some(tools)
    }

    fn is_clang(&self) -> bool {
        !self.libraries.is_empty()
    }

    fn give_to<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let programs = self.programs.clone().into_iter();
        let path = std::env::join_paths(programs.chain(std::env::split_paths(&path)));
        command.env("PATH", path.expect("the folders have no colons"));
        if self.is_clang() {
            let libraries = std::env::join_paths(&self.libraries);
            command.env(
                "LD_LIBRARY_PATH",
                libraries.expect("the folders have no colons"),
            );
        }
        command
    }
}

fn target() -> PathBuf {
    let profile = profile_directory();
    let target = profile.parent();
    target
        .expect("a profile's folder lies in the target folder")
        .to_owned()
}

/// The folder of a toolchain, where the scripts in `languages` put it.
fn toolchain(name: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(target().join("toolchains")).ok()?;
    let mut folders = entries.filter_map(Result::ok).map(|entry| entry.path());
    folders.find(|path| {
        let file = path.file_name().unwrap_or_default();
        file.to_string_lossy().starts_with(name)
    })
}

/// Runs the binary. Prints the command, its output and its duration, as an author sees them.
fn run(folder: &Path, arguments: &[&str]) -> Ran {
    let tools = match arguments.first() {
        Some(&"build") => Tools::usual(),
        _ => Tools::default(),
    };
    run_with(&tools, folder, arguments)
}

fn run_with(tools: &Tools, folder: &Path, arguments: &[&str]) -> Ran {
    let began = Instant::now();
    let output = tools
        .give_to(&mut Command::new(tollgate()))
        .args(arguments)
        .current_dir(folder)
        // Builds are kept, so that not every test run repeats them.
        .env("CARGO_TARGET_DIR", target().join("authors"))
        .env_remove("VIRTUAL_ENV")
        .output()
        .unwrap_or_else(|error| panic!("tollgate cannot be run: {error}"));
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    println!(
        "$ tollgate {}\n{said}[{:.1} s]\n",
        arguments.join(" "),
        began.elapsed().as_secs_f32()
    );
    Ran {
        code: output.status.code(),
        said,
    }
}

impl Ran {
    #[track_caller]
    fn assert(&self, words: &[&str]) {
        assert_eq!(self.code, Some(0), "{}", self.said);
        for word in words {
            assert!(
                self.said.contains(word),
                "`{word}` is not in:\n{}",
                self.said
            );
        }
    }
}

/// A malformed literal pointer is a type error, which ends the build with its place and what to write.
fn assert_types_are_checked(project: &Path) {
    let policy = project.join("policy.ts");
    let text = std::fs::read_to_string(&policy).expect("the policy can be read");
    let wrong = format!(
        "{text}\nexport function wrong(review: Review) {{\n  return review.object.integer('spec/replicas');\n}}\n"
    );
    std::fs::write(&policy, wrong).expect("the policy can be written");
    let refused = run(project, &["build"]);
    assert_eq!(refused.code, Some(2), "{}", refused.said);
    for word in [
        "policy.ts(",
        "error TS2345",
        "it has no leading slash; write /spec/replicas",
    ] {
        assert!(
            refused.said.contains(word),
            "`{word}` is not in:\n{}",
            refused.said
        );
    }
    std::fs::write(&policy, text).expect("the policy can be written");
}

async fn first_day(language: &str) {
    first_day_with(&Tools::usual(), language).await;
}

async fn first_day_with(tools: &Tools, language: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made: is TMPDIR writable?");
    run(folder.path(), &["new", "house-rules", "--lang", language])
        .assert(&["house-rules/policy.test.yaml", "house-rules/sdk"]);
    let project = folder.path().join("house-rules");
    if language == "rust" {
        // Use the versions that are already downloaded.
        let lock = std::fs::copy(workspace().join("Cargo.lock"), project.join("Cargo.lock"));
        lock.expect("the lock file can be copied");
    }
    let built = run_with(tools, &project, &["build"]);
    if built.code == Some(2) && built.said.contains(NOT_INSTALLED) {
        left_out(&format!("{language}, from an empty folder: {}", built.said));
        return;
    }
    built.assert(&[
        "dist/house-rules.wasm",
        "digest   sha256:",
        "imports  tollgate:admission/",
        "mutates and validates",
        "resources=pods,pods/ephemeralcontainers",
    ]);
    assert!(!built.said.contains("wasi"), "{}", built.said);
    if tools.is_clang() {
        built.assert(&["$ clang-19 ", "-fuse-ld=/"]);
    }
    if language == "ts" {
        built.assert(&["tsc --noEmit"]);
        assert_types_are_checked(&project);
    }
    run(&project, &["test"]).assert(&[
        "ok     refuses other registries: an init container",
        "8 case(s) in 1 suite(s): 8 passed, 0 failed",
    ]);

    let mut configuration = Configuration::new().with(
        "engine.cacheDirectory",
        project.join("dist/compiled").display().to_string(),
    );
    configuration.plugin(
        "house-rules",
        &project.join("dist/house-rules.wasm"),
        json!({"settings": {"allowed": ["registry.example.com"], "defaultTag": "stable"}}),
    );
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    let mut refused = pod("web");
    refused["spec"]["containers"][0]["image"] = json!("nginx:1.29");
    let review = Review::create(refused).build();
    let answer = server
        .validate(&review)
        .await
        .checked(Endpoint::Validate, &review);
    let status = answer.status.clone().unwrap_or_default();
    println!("POST /validate: {status:#}");
    assert!(!answer.allowed);
    assert_eq!(
        status["details"]["causes"][0]["message"],
        "house-rules: must be from one of: registry.example.com"
    );
    let mut changed = pod("web");
    changed["spec"]["containers"][0]["image"] = json!("registry.example.com/app");
    let review = Review::create(changed).build();
    let answer = server
        .mutate(&review)
        .await
        .checked(Endpoint::Mutate, &review);
    println!("POST /mutate: {}", json!(answer.patch));
    let object = answer.patched_object.unwrap_or_default();
    assert_eq!(
        object["spec"]["containers"][0]["image"],
        "registry.example.com/app:stable"
    );
}

/// An empty policy for another resource builds, passes its suite, and has nothing of the sample in it.
fn empty_day(language: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made: is TMPDIR writable?");
    let arguments = [
        "new",
        "replicas",
        "--lang",
        language,
        "--resource",
        "apps/v1/deployments",
    ];
    let more = ["--description", "Limits \"replicas\"", "--ci", "github"];
    run(folder.path(), &[&arguments[..], &more[..]].concat()).assert(&[
        "replicas/policy.test.yaml",
        "replicas/.github/workflows/policy.yaml",
    ]);
    let project = folder.path().join("replicas");
    if language == "rust" {
        let lock = std::fs::copy(workspace().join("Cargo.lock"), project.join("Cargo.lock"));
        lock.expect("the lock file can be copied");
    }
    let built = run(&project, &["build"]);
    if built.code == Some(2) && built.said.contains(NOT_INSTALLED) {
        left_out(&format!("{language}, an empty policy: {}", built.said));
        return;
    }
    built.assert(&[
        "dist/replicas.wasm",
        "validates",
        "apiGroups=apps",
        "resources=deployments",
    ]);
    assert!(!built.said.contains("mutates"), "{}", built.said);
    run(&project, &["inspect", "dist/replicas.wasm"]).assert(&["Limits \"replicas\""]);
    run(&project, &["test"]).assert(&["2 case(s) in 1 suite(s): 2 passed, 0 failed"]);
}

#[tokio::test]
async fn rust_empty() {
    empty_day("rust");
}

#[tokio::test]
async fn go_empty() {
    empty_day("go");
}

#[tokio::test]
async fn typescript_empty() {
    empty_day("ts");
}

#[tokio::test]
async fn javascript_empty() {
    empty_day("js");
}

#[tokio::test]
async fn python_empty() {
    empty_day("python");
}

#[tokio::test]
async fn c_empty() {
    empty_day("c");
}

#[tokio::test]
async fn rust() {
    first_day("rust").await;
}

#[tokio::test]
async fn go() {
    first_day("go").await;
}

#[tokio::test]
async fn typescript() {
    first_day("ts").await;
}

#[tokio::test]
async fn javascript() {
    first_day("js").await;
}

#[tokio::test]
async fn python() {
    first_day("python").await;
}

#[tokio::test]
async fn c() {
    first_day("c").await;
}

#[tokio::test]
async fn c_with_clang_of_debian() {
    let Some(clang) = Tools::clang() else {
        left_out(
            "C with clang, from an empty folder: clang is not in target/toolchains, or does not run",
        );
        return;
    };
    first_day_with(&clang, "c").await;
}
