//! A project that `tollgate dev` builds, serves and tests at every change.
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
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binary::tollgate;
use crate::reviews::pod;
use crate::wat::marker;

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

/// A project in a temporary folder, with the stand-in for its toolchain. `policy/policy.c` names the version of the plugin:
/// `one` or `two`.
#[derive(Debug)]
pub struct Project {
    root: TempDir,
}

/// `tollgate dev`, while it runs.
#[derive(Debug)]
pub struct Running {
    /// The process.
    pub child: Child,
    said: Arc<Mutex<String>>,
}

// === impl Project ===

impl Project {
    /// Creates a project whose plugin writes the label `version` with the value `one`.
    ///
    /// # Panics
    /// Panics if no temporary folder can be created or written to.
    #[must_use]
    pub fn new() -> Self {
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

    /// Returns the path of a file.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Writes a file.
    ///
    /// # Panics
    /// Panics if the file cannot be written.
    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a temporary folder can be written to");
    }

    /// Returns the command `tollgate dev`.
    ///
    /// # Panics
    /// Panics if a folder in PATH has a colon.
    #[must_use]
    pub fn dev(&self, arguments: &[&str]) -> Command {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let tools = [self.path("bin")].into_iter();
        let path = std::env::join_paths(tools.chain(std::env::split_paths(&path)));
        let mut command = Command::new(tollgate());
        command
            .args(["dev", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .current_dir(self.path("policy"))
            .env("PATH", path.expect("the folders have no colons"))
            .env("PLUGINS", self.path("plugins"));
        command
    }

    /// Starts `tollgate dev`.
    ///
    /// # Panics
    /// Panics if it cannot be run.
    #[must_use]
    pub fn start(&self, arguments: &[&str]) -> Running {
        Running::start(self.dev(arguments))
    }
}

impl Default for Project {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Running ===

impl Running {
    /// Starts the command and reads what it prints.
    ///
    /// # Panics
    /// Panics if it cannot be run.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        let mut child = command
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
        Self { child, said }
    }

    /// Returns all that was printed.
    ///
    /// # Panics
    /// Never: no thread panics while it has the lock.
    #[must_use]
    pub fn said(&self) -> String {
        self.said.lock().expect("no thread panics").clone()
    }

    /// Waits until a text is printed after the first `from` bytes, and returns the position after it.
    ///
    /// # Panics
    /// Panics if that takes longer than a round can take.
    #[track_caller]
    pub fn until(&self, from: usize, text: &str) -> usize {
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
    ///
    /// # Panics
    /// Panics if a mark is not printed.
    #[must_use]
    pub fn between(&self, before: &str, after: &str) -> String {
        let said = self.said();
        let (_, rest) = said.split_once(before).expect("it is printed");
        let (text, _) = rest.split_once(after).expect("it is printed");
        text.to_owned()
    }

    /// Sends a review to the address that `tollgate dev` prints. Returns the status and the body of the answer.
    ///
    /// # Panics
    /// Panics if there is no answer.
    pub async fn mutate(&self, review: &Value) -> (u16, String) {
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
