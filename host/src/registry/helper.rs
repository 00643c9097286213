//! Credential helpers, `docker-credential-NAME`: programs of somebody else's, which may hang. So they have a limited
//! time, are ended with all that they started when it is over, and whoever wants the same of one that is running waits
//! for what that says.

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
pub(super) struct Helpers(Mutex<HashMap<Question, WeakShared<BoxFuture<'static, Said>>>>);

/// What a helper is asked: its name, and the registry.
type Question = (String, String);
/// None where it has none; the error says no more than which helper, and what it did.
type Said = Result<Option<Answer>, String>;

/// What a helper prints.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

/// A helper and what it has started, ended when this goes.
struct Group(Option<Pid>);

/// Ten times what one takes that asks a cloud.
const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_ANSWER_BYTES: u64 = 64 << 10;
/// What they print, and end with 1, where they have no credential: a part of their protocol.
const NOT_FOUND: &str = "credentials not found in native keychain";
/// What they give as the name where the secret is an identity token.
const TOKEN: &str = "<token>";

// === impl Helpers ===

impl Helpers {
    /// What a helper has for a registry.
    pub(super) async fn ask(
        &self,
        name: &str,
        server: &str,
    ) -> Result<Option<DockerCredential>, String> {
        let said = self.running(name, server).await?;
        Ok(said.map(|Answer { username, secret }| {
            if username == TOKEN {
                DockerCredential::IdentityToken(secret)
            } else {
                DockerCredential::UsernamePassword(username, secret)
            }
        }))
    }

    /// The run that is under way, or a new one. It ends when nobody waits for it any more.
    fn running(&self, name: &str, server: &str) -> Shared<BoxFuture<'static, Said>> {
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
                Ok(said) => said,
                Err(_elapsed) => Err(format!(
                    "{program} took more than {} s for {server} and was ended",
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

/// Nothing of what it prints is told: it may be the secret itself.
async fn run(program: &str, server: &str) -> Said {
    let cannot = |error: std::io::Error| format!("{program} cannot be run: {error}");
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
        return Err(format!("{program} cannot be run: its pipes are missing"));
    };
    let tell = async {
        // One that ends early breaks the pipe; what it said is what counts.
        drop(stdin.write_all(server.as_bytes()).await);
        drop(stdin);
    };
    let mut text = Vec::new();
    let mut stdout = stdout.take(MAX_ANSWER_BYTES);
    let ((), heard) = tokio::join!(tell, stdout.read_to_end(&mut text));
    heard.map_err(cannot)?;
    if text.len() as u64 == MAX_ANSWER_BYTES {
        return Err(format!(
            "{program} printed more than a credential for {server}"
        ));
    }
    let status = child.wait().await.map_err(cannot)?;
    // What it has left running on purpose, as an agent, goes on.
    group.0 = None;
    if status.success() {
        let answer = serde_json::from_slice(&text);
        return answer
            .map(Some)
            .map_err(|_| format!("what {program} printed for {server} is no credential"));
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
            // It may have ended by itself.
            let _: Result<(), _> = kill_process_group(leader, Signal::KILL);
        }
    }
}
