//! `tollgate dev`: builds, serves and tests a project at every change, and shows each review.
//!
//! The project is in C, with a script in the compiler's place: it copies the plugin that the source names.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use reqwest::{Certificate, Client};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_tests::binary::tollgate;
use tollgate_tests::reviews::{Review, pod};
use tollgate_tests::wat::marker;

/// Time limit for a round, which builds and compiles.
const PATIENCE: Duration = Duration::from_secs(60);

/// Stands for clang: copies the plugin that policy.c names.
const COMPILER: &str = r#"#!/bin/sh
[ "$1" = --version ] && exit 0
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

/// `tollgate dev`, while it runs.
struct Running {
    child: Child,
    said: Arc<Mutex<String>>,
}

// === impl Project ===

impl Project {
    fn new() -> Self {
        let root = tempfile::Builder::new()
            .prefix("tollgate-playground-")
            .tempdir();
        let root = root.expect("a temporary folder can be made: is TMPDIR writable?");
        let project = Self { root };
        for folder in ["bin", "plugins", "policy/include", "policy/src", "objects"] {
            fs::create_dir_all(project.path(folder)).expect("a folder can be made");
        }
        for version in ["one", "two"] {
            let plugin = project.path("plugins").join(version).with_extension("wasm");
            fs::write(plugin, marker("version", version)).expect("a plugin can be written");
        }
        for tool in ["clang", "wasm-ld"] {
            let file = project.path("bin").join(tool);
            fs::write(&file, COMPILER).expect("a script can be written");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755))
                .expect("a script can be made executable");
        }
        project.write("policy/policy.c", "one");
        project.write("policy/compile_flags.txt", "-Iinclude\n");
        project.write("policy/include/tollgate.h", "");
        project.write("policy/src/tollgate.c", "");
        project.write("objects/pod.json", &pod("existing").to_string());
        let config = json!({"plugins": [{"name": "marker", "source": "file:./dist/policy.wasm"}]});
        project.write("policy/tollgate.yaml", &config.to_string());
        let suite = json!({
            "config": "tollgate.yaml",
            "cases": [{
                "name": "marks a Pod",
                "object": pod("web"),
                "expect": {"fields": {"/metadata/labels/version": "one"}},
            }],
        });
        project.write("policy/policy.test.yaml", &suite.to_string());
        project
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a temporary folder can be written to");
    }

    fn start(&self, arguments: &[&str]) -> Running {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let tools = [self.path("bin")].into_iter();
        let path = std::env::join_paths(tools.chain(std::env::split_paths(&path)));
        let mut child = Command::new(tollgate())
            .args(["dev", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .current_dir(self.path("policy"))
            .env("PATH", path.expect("the folders have no colons"))
            .env("PLUGINS", self.path("plugins"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("tollgate cannot be run: {error}"));
        let said = Arc::new(Mutex::new(String::new()));
        let mut stdout = child.stdout.take().expect("it is piped");
        let reader = said.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..count]);
                print!("{text}");
                reader.lock().expect("no thread panics").push_str(&text);
            }
        });
        Running { child, said }
    }
}

// === impl Running ===

impl Running {
    fn said(&self) -> String {
        self.said.lock().expect("no thread panics").clone()
    }

    /// Waits until a text is printed after the first `from` bytes, and returns the position after it.
    #[track_caller]
    fn until(&self, from: usize, text: &str) -> usize {
        let began = Instant::now();
        loop {
            let said = self.said();
            if let Some(at) = said[from..].find(text) {
                return from + at + text.len();
            }
            assert!(
                began.elapsed() < PATIENCE,
                "`{text}` is not in:\n{}",
                &said[from..]
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the text between two marks.
    fn between(&self, before: &str, after: &str) -> String {
        let said = self.said();
        let (_, rest) = said.split_once(before).expect("it is printed");
        let (text, _) = rest.split_once(after).expect("it is printed");
        text.to_owned()
    }

    async fn mutate(&self, review: &Value) -> (u16, String) {
        let ca_bundle = self.between("--cacert ", " ");
        let url = self.between("--data-binary @- ", "\n");
        let certificate = fs::read(Path::new(&ca_bundle)).expect("the CA is there");
        let certificate = Certificate::from_pem(&certificate).expect("the CA is PEM");
        let client = Client::builder()
            .tls_built_in_root_certs(false)
            .add_root_certificate(certificate)
            .no_proxy()
            .build()
            .expect("a client can be made");
        let answer = client
            .post(url)
            .header("content-type", "application/json")
            .body(review.to_string())
            .send()
            .await
            .expect("the server answers");
        let status = answer.status().as_u16();
        (status, answer.text().await.expect("the answer is text"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn serves_last_good_version_after_failed_build() {
    let project = Project::new();
    let running = project.start(&["--review", "../objects"]);
    let at = running.until(0, "waiting for a change");
    let said = running.said();
    for words in [
        "serving  marker ",
        "tollgate review --config tollgate.yaml FILE -o request |",
        "ok     marks a Pod",
        "reviewing 1 object(s)",
        "version: one",
        "1 object(s): 1 allowed (1 changed), 0 denied, 0 in error",
    ] {
        assert!(said.contains(words), "`{words}` is not in:\n{said}");
    }
    assert!(!said.contains('\u{1b}'), "no colours without a terminal");

    let review = Review::create(pod("web")).build();
    let (status, body) = running.mutate(&review).await;
    assert_eq!(status, 200, "{body}");
    let at = running.until(at, "changed  mutate    CREATE Pod ");
    let at = running.until(at, "version: one");

    // A source that does not compile: the version before keeps answering.
    project.write("policy/policy.c", "broken");
    let at = running.until(at, "NOT SERVED:");
    let at = running.until(at, "still serving the version of ");
    let (status, _) = running.mutate(&review).await;
    assert_eq!(status, 200);
    let at = running.until(at, "version: one");

    // A source that compiles and does not pass its suite is served, so that it can be tried.
    project.write("policy/policy.c", "two");
    let at = running.until(at, "serving  marker ");
    let at = running.until(at, "FAIL   marks a Pod");
    let at = running.until(at, "reviewing 1 object(s)");
    let at = running.until(at, "waiting for a change");
    let (status, _) = running.mutate(&review).await;
    assert_eq!(status, 200);
    running.until(at, "version: two");
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_project_can_be_repaired_and_ends_on_interrupt() {
    let project = Project::new();
    project.write("policy/policy.c", "broken");
    let mut running = project.start(&["--no-test"]);
    let at = running.until(0, "nothing is served yet: reviews get 503");
    let at = running.until(at, "waiting for a change");
    project.write("policy/policy.c", "one");
    let at = running.until(at, "serving  marker ");
    running.until(at, "waiting for a change");
    assert!(!running.said().contains("marks a Pod"), "no suite is run");
    let scratch = running.between("--cacert ", "/tls/");
    assert!(Path::new(&scratch).is_dir());

    let process = i32::try_from(running.child.id()).expect("a process id is small");
    let process = Pid::from_raw(process).expect("a process id is not 0");
    kill_process(process, Signal::INT).expect("it runs");
    let status = running.child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0));
    assert!(!Path::new(&scratch).exists(), "nothing stays behind");
}

#[test]
fn taken_port_is_reported_with_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it is bound").to_string();
    let project = Project::new();
    let output = Command::new(tollgate())
        .args(["dev", "--listen", &address])
        .current_dir(project.path("policy"))
        .output()
        .expect("tollgate can be run");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("choose another address with --listen"),
        "{said}"
    );
}

#[test]
fn request_of_a_manifest_is_printed() {
    let project = Project::new();
    let output = Command::new(tollgate())
        .args(["review", "--config", "tollgate.yaml", "-o", "request"])
        .arg("../objects/pod.json")
        .current_dir(project.path("policy"))
        .output()
        .expect("tollgate can be run");
    assert_eq!(output.status.code(), Some(0));
    let review: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(review["kind"], "AdmissionReview");
    assert_eq!(review["request"]["object"]["metadata"]["name"], "existing");
}
