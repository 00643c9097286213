//! The host's side of preparing a plugin: starts the child, hears it out, and can do without it.

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::process::{Child, Command};

use crate::pipeline::text::{Limit, one_line};

use super::protocol::{Line, Manifest, Order, Stage};

/// A line of the child's is cut off here: a manifest's schema is the longest thing in one.
const MAX_LINE_BYTES: u64 = 4 << 20;
/// What is kept of a reason: it is shown, logged and repeated, and may be the plugin's own words.
const MAX_REASON: Limit = Limit::Bytes(2048);
/// What is kept of the child's standard error: its beginning.
const MAX_STDERR_BYTES: u64 = 64 << 10;
/// The clock runs this many times as long as the CPU limit: the child is niced and the machine may be busy.
const WALL_FACTOR: u32 = 4;

/// Starts children that prepare plugins.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    /// The `tollgate` binary.
    pub(super) executable: PathBuf,
    pub(super) max_component_bytes: u64,
}

/// A plugin that went through all stages.
pub(super) struct Prepared {
    pub(super) manifest: Manifest,
    pub(super) component: Vec<u8>,
    pub(super) fallback: Option<String>,
}

/// Why a plugin could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The plugin is at fault.
    #[error("{stage}: {reason}")]
    Refused {
        /// Where it failed.
        stage: Stage,
        /// Why.
        reason: String,
    },
    /// It took too long.
    #[error(
        "{stage}: it took more than {} s of CPU, or {} s by the clock (engine.loadTimeout)",
        .limit.as_secs(), (*.limit * WALL_FACTOR).as_secs()
    )]
    TooSlow {
        /// What it was at.
        stage: Stage,
        /// The limit.
        limit: Duration,
    },
    /// The child ended on its own: for want of memory, by the system's hand, or by a panic.
    #[error(
        "{stage}: the process that prepares it ended with {status}; it may have {memory_bytes} bytes of memory \
         (engine.loadMemory){}", Tail(.stderr)
    )]
    Lost {
        /// What it was at.
        stage: Stage,
        /// How it ended.
        status: ExitStatus,
        /// The limit.
        memory_bytes: u64,
        /// The beginning of what it printed.
        stderr: String,
    },
    /// What it made is too large.
    #[error(
        "the prepared component has {bytes} bytes; it may have {limit_bytes} (4 × engine.maxPlugin)"
    )]
    TooLarge {
        /// How large.
        bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// The child could not be started or heard.
    #[error("the process that prepares plugins cannot be run: {0}")]
    Process(#[from] std::io::Error),
    /// The child said something else.
    #[error("the process that prepares plugins did not keep to its protocol: {0}")]
    Protocol(String),
}

struct Tail<'a>(&'a str);

/// A stage that the child was at when it was lost.
struct Heard {
    stage: Stage,
    end: Option<Result<Prepared, PrepareError>>,
}

// === impl Worker ===

impl Worker {
    /// Prepares a plugin; where a child is lost over the snapshot, does without one.
    pub(super) async fn prepare(
        &self,
        mut order: Order,
        bytes: &[u8],
    ) -> Result<Prepared, PrepareError> {
        let error = match self.run(&order, bytes).await {
            Err(
                error @ (PrepareError::Lost { stage, .. } | PrepareError::TooSlow { stage, .. }),
            ) if matches!(stage, Stage::Snapshot | Stage::CompileSnapshot) => error,
            other => return other,
        };
        order.snapshot = false;
        let mut prepared = self.run(&order, bytes).await?;
        prepared.fallback = Some(error.to_string());
        Ok(prepared)
    }

    async fn run(&self, order: &Order, bytes: &[u8]) -> Result<Prepared, PrepareError> {
        let limit = Duration::from_secs(order.cpu_seconds);
        let mut child = Command::new(&self.executable)
            .arg("prepare")
            .env_clear()
            // The allocator would map a gigabyte ahead, and what is mapped for writing counts against the child's limit.
            .env("MIMALLOC_ARENA_EAGER_COMMIT", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut heard = Heard {
            stage: Stage::Read,
            end: None,
        };
        let (status, stderr) = match tokio::time::timeout(
            limit * WALL_FACTOR,
            self.converse(&mut child, order, bytes, &mut heard),
        )
        .await
        {
            Ok(ended) => ended?,
            Err(_elapsed) => {
                return Err(PrepareError::TooSlow {
                    stage: heard.stage,
                    limit,
                });
            }
        };
        let stage = heard.stage;
        match heard.end {
            Some(end) => end,
            // Past the soft limit of CPU time comes SIGXCPU; SIGKILL is the system's, for want of memory.
            None if status.signal() == Some(SIGXCPU) => Err(PrepareError::TooSlow { stage, limit }),
            None => Err(PrepareError::Lost {
                stage,
                status,
                memory_bytes: order.memory_bytes,
                stderr,
            }),
        }
    }

    async fn converse(
        &self,
        child: &mut Child,
        order: &Order,
        bytes: &[u8],
        heard: &mut Heard,
    ) -> Result<(ExitStatus, String), PrepareError> {
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(PrepareError::Protocol("its pipes are missing".to_owned()));
        };
        let mut line =
            serde_json::to_vec(order).map_err(|error| PrepareError::Protocol(error.to_string()))?;
        line.push(b'\n');
        let tell = async {
            // A child that ends early breaks the pipe; what it said before is what counts.
            if stdin.write_all(&line).await.is_ok() {
                let _: std::io::Result<()> = stdin.write_all(bytes).await;
            }
            drop(stdin);
        };
        let complain = async {
            let mut text = Vec::new();
            let _: std::io::Result<usize> =
                stderr.take(MAX_STDERR_BYTES).read_to_end(&mut text).await;
            String::from_utf8_lossy(&text).into_owned()
        };
        let ((), listened, stderr) = tokio::join!(tell, self.listen(stdout, heard), complain);
        listened?;
        Ok((child.wait().await?, stderr))
    }

    async fn listen(
        &self,
        stdout: impl AsyncRead + Unpin,
        heard: &mut Heard,
    ) -> Result<(), PrepareError> {
        let mut stdout = BufReader::new(stdout);
        loop {
            let mut line = Vec::new();
            (&mut stdout)
                .take(MAX_LINE_BYTES)
                .read_until(b'\n', &mut line)
                .await?;
            if line.last() != Some(&b'\n') {
                if line.len() as u64 == MAX_LINE_BYTES {
                    let what = format!("a line of more than {MAX_LINE_BYTES} bytes");
                    return Err(PrepareError::Protocol(what));
                }
                return Ok(());
            }
            match serde_json::from_slice(&line)
                .map_err(|error| PrepareError::Protocol(error.to_string()))?
            {
                Line::Stage(stage) => heard.stage = stage,
                Line::Refused { stage, reason } => {
                    let reason = one_line(&reason, MAX_REASON);
                    heard.end = Some(Err(PrepareError::Refused { stage, reason }));
                    return Ok(());
                }
                Line::Prepared {
                    component_bytes, ..
                } if component_bytes > self.max_component_bytes => {
                    let limit_bytes = self.max_component_bytes;
                    heard.end = Some(Err(PrepareError::TooLarge {
                        bytes: component_bytes,
                        limit_bytes,
                    }));
                    return Ok(());
                }
                Line::Prepared {
                    manifest,
                    fallback,
                    component_bytes,
                } => {
                    let mut component = Vec::new();
                    (&mut stdout)
                        .take(component_bytes)
                        .read_to_end(&mut component)
                        .await?;
                    if component.len() as u64 == component_bytes {
                        let fallback = fallback.map(|reason| one_line(&reason, MAX_REASON));
                        heard.end = Some(Ok(Prepared {
                            manifest: manifest.bounded(),
                            component,
                            fallback,
                        }));
                    }
                    return Ok(());
                }
            }
        }
    }
}

const SIGXCPU: i32 = rustix::process::Signal::XCPU.as_raw();

impl std::fmt::Display for Tail<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A panic's text comes before a note on how to see its backtrace.
        let mut said = self
            .0
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with("note:"));
        match said.next_back() {
            Some(last) => write!(f, "; it printed: {last}"),
            None => Ok(()),
        }
    }
}
