//! Runs credential helpers: programs of other vendors, named `docker-credential-NAME`.
//!
//! A helper may hang, so its time is limited. When the time is over, the host kills the helper and all processes that
//! it started. If a helper is already running for the same registry, callers wait for its answer and do not start it
//! again.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use docker_credential::DockerCredential;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

/// The helpers that are running.
#[derive(Default)]
pub(super) struct Helpers(Mutex<HashMap<Question, WeakShared<BoxFuture<'static, HelperResult>>>>);

/// The question to a helper: its name, and the registry.
type Question = (String, String);
/// The result of a run; `None` if the helper has no credential. An error only names the helper and says how it failed.
type HelperResult = Result<Option<Answer>, String>;

/// The output of a helper.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

/// A helper and the processes that it started. Dropping the group kills them.
struct Group(Option<Pid>);

/// Time limit of a run: ten times as long as a helper takes that asks a cloud.
const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_ANSWER_BYTES: u64 = 64 << 10;
/// The output of helpers that have no credential; their exit status is 1. The protocol of helpers prescribes both.
const NOT_FOUND: &str = "credentials not found in native keychain";
/// The user name in the output if the secret is an identity token.
const TOKEN: &str = "<token>";

// === impl Helpers ===

impl Helpers {
    /// The credential that a helper has for a registry.
    pub(super) async fn ask(
        &self,
        name: &str,
        server: &str,
    ) -> Result<Option<DockerCredential>, String> {
        let answer = self.running(name, server).await?;
        Ok(answer.map(|Answer { username, secret }| {
            if username == TOKEN {
                DockerCredential::IdentityToken(secret)
            } else {
                DockerCredential::UsernamePassword(username, secret)
            }
        }))
    }

    /// The run that is under way, or a new one. A run is aborted when no caller waits for it any more.
    fn running(&self, name: &str, server: &str) -> Shared<BoxFuture<'static, HelperResult>> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|_, run| run.upgrade().is_some());
        let question = (name.to_owned(), server.to_owned());
        let under_way = running.get(&question).and_then(WeakShared::upgrade);
        if let Some(run) = under_way.filter(|run| run.peek().is_none()) {
            return run;
        }
        let program = format!("docker-credential-{name}");
        let server = server.to_owned();
        let run = async move {
            match tokio::time::timeout(TIMEOUT, run(&program, &server)).await {
                Ok(answer) => answer,
                Err(_elapsed) => Err(format!(
                    "{program} took more than {} s for {server} and was killed",
                    TIMEOUT.as_secs()
                )),
            }
        };
        let run = run.boxed().shared();
        if let Some(weak) = run.downgrade() {
            running.insert(question, weak);
        }
        run
    }
}

/// Runs a helper. Errors show no part of its output, which may be the secret itself.
async fn run(program: &str, server: &str) -> HelperResult {
    let cannot = |error: std::io::Error| format!("failed to run {program}: {error}");
    let mut child = Command::new(program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(cannot)?;
    let mut group = Group::of(&child);
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(format!("failed to run {program}: its pipes are missing"));
    };
    let write = async {
        // A helper that exits early breaks the pipe. Its output still counts.
        drop(stdin.write_all(server.as_bytes()).await);
        drop(stdin);
    };
    let mut text = Vec::new();
    let mut stdout = stdout.take(MAX_ANSWER_BYTES);
    let ((), heard) = tokio::join!(write, stdout.read_to_end(&mut text));
    heard.map_err(cannot)?;
    if text.len() as u64 == MAX_ANSWER_BYTES {
        return Err(format!(
            "the output of {program} for {server} is too long for a credential"
        ));
    }
    let status = child.wait().await.map_err(cannot)?;
    // Processes that the helper left running on purpose, such as an agent, are not killed.
    group.0 = None;
    if status.success() {
        let answer = serde_json::from_slice(&text);
        return answer
            .map(Some)
            .map_err(|_| format!("the output of {program} for {server} is not a credential"));
    }
    if text.trim_ascii() == NOT_FOUND.as_bytes() {
        return Ok(None);
    }
    Err(format!("{program} failed for {server} ({status})"))
}

// === impl Group ===

impl Group {
    fn of(child: &Child) -> Self {
        let leader = child.id().and_then(|id| i32::try_from(id).ok());
        Self(leader.and_then(Pid::from_raw))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // The group may already have ended.
            let _: Result<(), _> = kill_process_group(leader, Signal::KILL);
        }
    }
}
