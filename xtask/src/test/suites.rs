//! Runs the binaries that `cargo test` builds, and the examples of the documentation.
//!
//! `cargo test` runs one binary after the other, and some suites wait for most of their time: for leases, certificates
//! and timeouts. These suites run beside the suites that compute.

mod follow;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use self::follow::follow;
use crate::cargo;
use crate::terminal::{self, FAINT, STRONG};
use crate::test::count::Count;
use crate::workspace::Workspace;

/// Names of the suites that wait for most of their time.
const WAITING: [&str; 5] = [
    "images",
    "kube_apiserver",
    "matching",
    "registry",
    "startup",
];
/// Time between progress reports.
const REPORT_PERIOD: Duration = Duration::from_secs(30);

/// A binary with tests.
#[derive(Debug, PartialEq)]
struct Suite {
    /// The name of the target, such as `hostile`.
    name: String,
    source: PathBuf,
    program: PathBuf,
    /// The folder of the package, which is the working directory of the tests.
    folder: PathBuf,
}

/// A suite that ended beside the others, with its whole output.
struct Ended<'s> {
    suite: &'s Suite,
    lines: Vec<String>,
    result: anyhow::Result<()>,
}

/// The suite that runs beside the others, and the number of lines that it has printed.
type Running<'s> = Mutex<Option<(&'s Suite, usize)>>;

/// Prints and counts the results.
struct Results<'r> {
    workspace: &'r Workspace,
    count: &'r mut Count,
    failed: Vec<String>,
    began: Instant,
}

/// Builds all suites, runs them and counts their tests.
pub(super) fn run(workspace: &Workspace, count: &mut Count) -> anyhow::Result<()> {
    let suites = build(workspace)?;
    let (waiting, others): (Vec<_>, Vec<_>) = suites
        .iter()
        .partition(|suite| WAITING.contains(&suite.name.as_str()));
    let mut results = Results {
        workspace,
        count,
        failed: Vec::new(),
        began: Instant::now(),
    };
    let running = Running::default();
    let (send, ended) = channel();
    let examples = std::thread::scope(|scope| {
        let running = &running;
        scope.spawn(move || run_beside(workspace, &waiting, running, &send));
        for suite in others {
            results.run(suite, running);
            ended.try_iter().for_each(|suite| results.print(suite));
        }
        let examples = examples(workspace, results.count);
        results.print_rest(&ended, running);
        examples
    });
    anyhow::ensure!(
        results.failed.is_empty(),
        "{} of {} suites failed: {}",
        results.failed.len(),
        suites.len(),
        results.failed.join(", ")
    );
    examples
}

/// Builds what `cargo test --workspace` runs, and returns the binaries in a fixed order.
fn build(workspace: &Workspace) -> anyhow::Result<Vec<Suite>> {
    let mut command = workspace.cargo();
    command.args([
        "test",
        "--workspace",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    println!("$ {}", cargo::typed(&command));
    let mut suites = Vec::new();
    cargo::messages(&mut command, |message| suites.extend(suite(&message)))?;
    anyhow::ensure!(!suites.is_empty(), "cargo built no tests");
    suites.sort_by(|one, other| (&one.folder, &one.source).cmp(&(&other.folder, &other.source)));
    Ok(suites)
}

/// Reads a message of cargo. Returns None unless cargo built a binary with tests.
fn suite(message: &Value) -> Option<Suite> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let path = |value: &Value| value.as_str().map(PathBuf::from);
    Some(Suite {
        name: message["target"]["name"].as_str()?.to_owned(),
        source: path(&message["target"]["src_path"])?,
        program: path(&message["executable"])?,
        folder: path(&message["manifest_path"])?
            .parent()
            .map(Path::to_owned)?,
    })
}

/// Runs the examples of the documentation.
fn examples(workspace: &Workspace, count: &mut Count) -> anyhow::Result<()> {
    let mut command = workspace.cargo();
    command.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
    println!("\n$ {}", cargo::typed(&command));
    let result = cargo::read(&mut command, |line| count.read(line));
    count.end();
    result
}

/// Runs suites one after the other. Sends each when it has ended.
fn run_beside<'s>(
    workspace: &Workspace,
    suites: &[&'s Suite],
    running: &Running<'s>,
    ended: &Sender<Ended<'s>>,
) {
    let set = |now| *running.lock().unwrap_or_else(PoisonError::into_inner) = now;
    for suite in suites {
        let mut lines = Vec::new();
        set(Some((*suite, 0)));
        let result = suite.run(workspace, |line| {
            lines.extend(line.map(str::to_owned));
            set(Some((*suite, lines.len())));
        });
        set(None);
        let ended_now = Ended {
            suite,
            lines,
            result,
        };
        if ended.send(ended_now).is_err() {
            break;
        }
    }
}

// === impl Suite ===

impl Suite {
    /// Runs all tests. Calls `line` with each line of the output, and with None after each [`REPORT_PERIOD`].
    fn run(&self, workspace: &Workspace, line: impl FnMut(Option<&str>)) -> anyhow::Result<()> {
        let mut command = workspace.program(&self.program, &self.folder);
        let status = follow(&mut command, REPORT_PERIOD, line)?;
        anyhow::ensure!(status.success(), "{status}");
        Ok(())
    }
}

// === impl Results ===

impl<'s> Results<'_> {
    /// Runs a suite, and prints its output as it comes.
    fn run(&mut self, suite: &Suite, beside: &Running<'s>) {
        self.begin(suite);
        let result = suite.run(self.workspace, |line| match line {
            Some(line) => {
                println!("{line}");
                self.count.read(line);
            }
            None => report(self.began, beside),
        });
        self.end(suite, result);
    }

    /// Prints the output of a suite that has ended.
    fn print(&mut self, ended: Ended<'s>) {
        self.begin(ended.suite);
        for line in &ended.lines {
            println!("{line}");
            self.count.read(line);
        }
        self.end(ended.suite, ended.result);
    }

    /// Waits for the suites that run beside the others, and prints them.
    fn print_rest(&mut self, ended: &Receiver<Ended<'s>>, running: &Running<'s>) {
        loop {
            match ended.recv_timeout(REPORT_PERIOD) {
                Ok(suite) => self.print(suite),
                Err(RecvTimeoutError::Timeout) => report(self.began, running),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn begin(&self, suite: &Suite) {
        let shown = self.workspace.shown(&suite.source);
        anstream::println!("\n{STRONG}{shown}{STRONG:#}");
    }

    fn end(&mut self, suite: &Suite, result: anyhow::Result<()>) {
        self.count.end();
        if let Err(error) = result {
            let shown = self.workspace.shown(&suite.source);
            self.failed.push(format!("{shown} ({error:#})"));
        }
    }
}

/// Prints the time, and the progress of the suite that runs beside the others.
fn report(began: Instant, running: &Running<'_>) {
    let time = terminal::time(began.elapsed());
    let running = running.lock().unwrap_or_else(PoisonError::into_inner);
    let beside = running.map_or_else(String::new, |(suite, lines)| {
        format!(", beside {}, which has printed {lines} lines", suite.name)
    });
    anstream::eprintln!("{FAINT}  … {time}{beside}{FAINT:#}");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn suites_are_the_binaries_with_tests() {
        let message = json!({
            "reason": "compiler-artifact",
            "manifest_path": "/w/tests/Cargo.toml",
            "target": {"name": "hostile", "kind": ["test"], "src_path": "/w/tests/tests/hostile.rs"},
            "profile": {"test": true},
            "executable": "/w/target/debug/deps/hostile-1",
        });
        let expected = Suite {
            name: "hostile".to_owned(),
            source: "/w/tests/tests/hostile.rs".into(),
            program: "/w/target/debug/deps/hostile-1".into(),
            folder: "/w/tests".into(),
        };
        assert_eq!(suite(&message), Some(expected));
        for (key, value) in [
            ("reason", json!("build-finished")),
            ("profile", json!({"test": false})),
            ("executable", json!(null)),
        ] {
            let mut other = message.clone();
            other[key] = value;
            assert_eq!(suite(&other), None, "{key}");
        }
    }
}
