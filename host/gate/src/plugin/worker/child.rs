//! Runs one child from its start to its end.

use std::os::unix::process::ExitStatusExt as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::{Either, join, select};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
    BufReader,
};
use tokio::sync::oneshot;
use tollgate_admission::text::{Limit, one_line};

use super::pace::{Pace, Watched};
use super::{
    CODE_FACTOR, COMPONENT_FACTOR, PrepareError, ProtocolError, WALL_FACTOR, Worker, blocking,
};
use crate::plugin::protocol::{Line, Manifest, MemoryLine, Order, Stage, Task};
use tollgate_component::Separated;
use tollgate_config::Limits;
use tollgate_engine::Code;

/// Maximum length of a line from the child. The longest part of a line is a manifest's schema.
const MAX_LINE_BYTES: u64 = 4 << 20;
/// Maximum length of a reason. The host shows, logs and repeats it, and it may contain the plugin's own words.
const MAX_REASON: Limit = Limit::Bytes(2048);
/// Maximum number of bytes that are kept from the beginning of the child's standard error.
const MAX_STDERR_BYTES: u64 = 64 << 10;
/// Maximum number of images and memories of one component. A component has one for each module with a memory.
const MAX_IMAGES: usize = 1000;
/// Size of the pieces in which the host takes code from the child and writes it.
const PIECE_BYTES: u64 = 1 << 20;
/// Interval at which the host checks a child.
const WATCH_PERIOD: Duration = Duration::from_millis(50);
const SIGXCPU: i32 = rustix::process::Signal::XCPU.as_raw();

/// A child that has not been started yet.
pub(super) struct Child<'w> {
    worker: &'w Worker,
    plugin: String,
    began: Instant,
    limit: Duration,
    memory_bytes: u64,
    limits: Limits,
    /// Number of memories whose modules the child compiles.
    memories: usize,
    /// Takes the code that the child hands over before it runs guest code. None if the child is to keep it, or has
    /// handed it over.
    handed_over: Option<oneshot::Sender<HandedOver>>,
}

/// The code that a child has made for its own run.
pub(super) struct HandedOver {
    pub(super) code: Arc<Code>,
    /// The reason why the code lacks the instrumentation that takes a snapshot.
    pub(super) uninstrumented: Option<String>,
}

/// The result of a child that has finished its task.
pub(super) enum ChildResult {
    /// The child described the plugin, and configured it if ordered to.
    Configured {
        manifest: Manifest,
        fallback: Option<String>,
        component: Separated,
    },
    /// The child separated the contents of memories from a component.
    Separated(Separated),
    /// The child compiled a component.
    Compiled {
        code: Code,
        /// Place of each image in the code.
        places: Vec<u64>,
        /// The code of the memories of the order, each with the place of its content.
        laid_out: Vec<(Code, u64)>,
    },
}

// === impl Child ===

impl<'w> Child<'w> {
    pub(super) fn new(worker: &'w Worker, order: &Order) -> Self {
        Self {
            worker,
            plugin: order.plugin.clone(),
            began: Instant::now(),
            limit: Duration::from_secs(order.cpu_seconds),
            memory_bytes: order.memory_bytes,
            limits: order.limits.clone(),
            memories: match &order.task {
                Task::Compile { memories, .. } => memories.len(),
                _ => 0,
            },
            handed_over: None,
        }
    }

    /// The same child, with a receiver for the code that it makes for its own run.
    pub(super) fn with_receiver(self, handed_over: oneshot::Sender<HandedOver>) -> Self {
        Self {
            handed_over: Some(handed_over),
            ..self
        }
    }

    /// Starts the child and reads its result, within its limits. Dropping the future kills the child.
    pub(super) async fn run(
        mut self,
        order: &Order,
        code: Option<Arc<Code>>,
        bytes: &[u8],
        pace: &mut Pace<'_>,
    ) -> Result<ChildResult, PrepareError> {
        let mut process = self.worker.spares.take()?;
        let mut watched = pace.watch(process.id());
        let (Some(mut stdin), Some(stdout), Some(stderr)) = (
            process.stdin.take(),
            process.stdout.take(),
            process.stderr.take(),
        ) else {
            return Err(PrepareError::Protocol(ProtocolError::NoPipes));
        };
        let mut line = serde_json::to_vec(order)
            .map_err(|error| PrepareError::Protocol(ProtocolError::Json(error)))?;
        line.push(b'\n');
        let write = async move {
            // A child that ends early breaks the pipe. Its earlier lines still count.
            let _: Result<(), PrepareError> = async {
                stdin.write_all(&line).await?;
                if let Some(code) = code {
                    send(code, &mut stdin).await?;
                }
                Ok(stdin.write_all(bytes).await?)
            }
            .await;
        };
        let complain = async {
            let mut text = Vec::new();
            let _: std::io::Result<usize> =
                stderr.take(MAX_STDERR_BYTES).read_to_end(&mut text).await;
            String::from_utf8_lossy(&text).into_owned()
        };
        let heard = Heard::default();
        let handed_over = self.handed_over.take();
        let listen = self.listen(BufReader::new(stdout), &heard, handed_over);
        let converse = async {
            let (listened, complaint) = (join(write, listen), complain);
            tokio::pin!(listened, complaint);
            let (((), result), complaint) = match select(listened, complaint).await {
                Either::Left((listened, complaint)) => (listened, Either::Left(complaint)),
                Either::Right((text, listened)) => (listened.await, Either::Right(text)),
            };
            if let Some(result) = result? {
                return Ok(Ok(result));
            }
            let stderr = match complaint {
                Either::Left(complaint) => complaint.await,
                Either::Right(text) => text,
            };
            Ok::<_, PrepareError>(Err((process.wait().await?, stderr)))
        };
        let ended = tokio::select! {
            ended = converse => ended?,
            error = self.watch(&heard, &mut watched) => return Err(error),
        };
        let stage = heard.stage();
        match ended {
            Ok(result) => {
                self.note("result");
                // A child that has sent its result has nothing left to do but to give back its memory. The next one waits for
                // that, because the pod's memory limit has room for one at a time.
                let _: std::io::Result<()> = process.kill().await;
                result
            }
            // The soft limit of CPU time sends SIGXCPU. SIGKILL comes from the system when memory is short.
            Err((status, _)) if status.signal() == Some(SIGXCPU) => Err(PrepareError::TooSlow {
                stage,
                limit: self.limit,
            }),
            Err((status, stderr)) => Err(PrepareError::Lost {
                stage,
                status,
                memory_bytes: self.memory_bytes,
                stderr,
            }),
        }
    }

    /// Logs how far the child is.
    fn note(&self, what: impl std::fmt::Display) {
        let milliseconds = self.began.elapsed().as_millis();
        tracing::debug!(plugin = self.plugin, %what, milliseconds, "preparing");
    }

    /// Watches the child, and returns once it has taken too long. The child's own statements about time do not count.
    async fn watch(&self, heard: &Heard, watched: &mut Watched<'_, '_>) -> PrepareError {
        let began = Instant::now();
        let max_standstill = self.worker.max_standstill;
        let mut times = 0;
        loop {
            tokio::time::sleep(WATCH_PERIOD).await;
            if std::mem::replace(&mut times, heard.times()) != times {
                watched.heard();
            }
            let idle = watched.poll();
            let stage = heard.stage();
            if idle >= max_standstill {
                return PrepareError::Standstill {
                    stage,
                    limit: max_standstill,
                };
            }
            if began.elapsed() >= self.limit * WALL_FACTOR {
                return PrepareError::TooSlow {
                    stage,
                    limit: self.limit,
                };
            }
        }
    }

    /// Reads the child's output to the end. Returns `None` if the child ends before its output is complete.
    async fn listen(
        &self,
        mut stdout: impl AsyncBufRead + Unpin,
        heard: &Heard,
        mut handed_over: Option<oneshot::Sender<HandedOver>>,
    ) -> Result<Option<Result<ChildResult, PrepareError>>, PrepareError> {
        let mut laid_out = Vec::new();
        loop {
            let mut line = Vec::new();
            (&mut stdout)
                .take(MAX_LINE_BYTES)
                .read_until(b'\n', &mut line)
                .await?;
            if line.last() != Some(&b'\n') {
                if line.len() as u64 == MAX_LINE_BYTES {
                    return Err(PrepareError::Protocol(ProtocolError::LongLine {
                        limit_bytes: MAX_LINE_BYTES,
                    }));
                }
                return Ok(None);
            }
            let line = serde_json::from_slice(&line)
                .map_err(|error| PrepareError::Protocol(ProtocolError::Json(error)))?;
            heard.again();
            match line {
                Line::Confined { missing } => self.worker.heard_of_confinement(&missing),
                Line::Stage(stage) => {
                    self.note(stage);
                    heard.at(stage);
                }
                Line::Refused {
                    stage,
                    reason,
                    is_fault,
                } => {
                    let reason = one_line(&reason, MAX_REASON);
                    return Ok(Some(Err(PrepareError::Refused {
                        stage,
                        reason,
                        is_fault,
                    })));
                }
                Line::Configured {
                    manifest,
                    fallback,
                    component_bytes,
                    images,
                    memories,
                } => {
                    let component = self
                        .take_component(stdout, component_bytes, &images, &memories)
                        .await?;
                    return Ok(component.map(|component| {
                        Ok(ChildResult::Configured {
                            manifest: manifest.bounded(),
                            fallback: fallback.map(|reason| one_line(&reason, MAX_REASON)),
                            component: component?,
                        })
                    }));
                }
                Line::Separated {
                    component_bytes,
                    images,
                } => {
                    let component = self
                        .take_component(stdout, component_bytes, &images, &[])
                        .await?;
                    return Ok(component.map(|component| component.map(ChildResult::Separated)));
                }
                Line::LaidOut { code_bytes, place } => {
                    if laid_out.len() == self.memories {
                        return Err(PrepareError::Protocol(ProtocolError::Unordered));
                    }
                    if let Err(error) = self.fits("compiled code", code_bytes, CODE_FACTOR) {
                        return Ok(Some(Err(error)));
                    }
                    let Some(code) = self.take_code(&mut stdout, code_bytes, heard).await? else {
                        return Ok(None);
                    };
                    laid_out.push((code, place));
                }
                Line::Compiled {
                    code_bytes,
                    fallback,
                    places,
                } => {
                    if let Err(error) = self.fits("compiled code", code_bytes, CODE_FACTOR) {
                        return Ok(Some(Err(error)));
                    }
                    let Some(code) = self.take_code(&mut stdout, code_bytes, heard).await? else {
                        return Ok(None);
                    };
                    // A guest that has broken out comes too late: the child has handed the code over already.
                    let Some(handed_over) = handed_over.take() else {
                        return Ok(Some(Ok(ChildResult::Compiled {
                            code,
                            places,
                            laid_out,
                        })));
                    };
                    let uninstrumented = fallback.map(|reason| one_line(&reason, MAX_REASON));
                    // The receiver waits until this child has ended.
                    drop(handed_over.send(HandedOver {
                        code: Arc::new(code),
                        uninstrumented,
                    }));
                }
            }
        }
    }

    /// Reads a component, the images that were separated from it, and the contents of the memories that it imports.
    ///
    /// Returns `None` if the child ends before it has sent all of them.
    async fn take_component(
        &self,
        mut stdout: impl AsyncBufRead + Unpin,
        bytes: u64,
        images: &[u64],
        memories: &[MemoryLine],
    ) -> Result<Option<Result<Separated, PrepareError>>, PrepareError> {
        let contents = memories.iter().map(|memory| memory.bytes);
        let sizes: Vec<u64> = images.iter().copied().chain(contents).collect();
        let image_bytes = sizes.iter().copied().fold(0, u64::saturating_add);
        let fits = self
            .fits("prepared component", bytes, 1)
            .and_then(|()| self.fits("memory of the prepared component", image_bytes, 1));
        if let Err(error) = fits {
            return Ok(Some(Err(error)));
        }
        let are_usual = memories.len() <= self.limits.memories as usize
            && memories.iter().all(|memory| memory.fits(&self.limits));
        if !are_usual {
            return Err(PrepareError::Protocol(ProtocolError::Memory));
        }
        if sizes.len() > MAX_IMAGES {
            return Err(PrepareError::Protocol(ProtocolError::Images {
                limit: MAX_IMAGES,
            }));
        }
        let mut pieces = Vec::new();
        for bytes in std::iter::once(bytes).chain(sizes) {
            let mut piece = Vec::new();
            let mut rest = (&mut stdout).take(bytes);
            rest.read_to_end(&mut piece).await?;
            if rest.limit() > 0 {
                return Ok(None);
            }
            pieces.push(piece);
        }
        let contents = pieces.split_off(1 + images.len());
        let images = pieces.split_off(1);
        let component = pieces.pop().unwrap_or_default();
        let memories = memories.iter().zip(contents);
        let memories = memories.map(|(memory, content)| Arc::new(memory.with(content)));
        Ok(Some(Ok(Separated {
            component,
            images,
            memories: memories.collect(),
        })))
    }

    /// Writes the code to a file piece by piece, so that the host never holds all of it in memory.
    ///
    /// Returns `None` if the child ends before it has sent all of the code.
    async fn take_code(
        &self,
        mut stdout: impl AsyncBufRead + Unpin,
        bytes: u64,
        heard: &Heard,
    ) -> Result<Option<Code>, PrepareError> {
        let store = self.worker.store.clone();
        let mut writing = blocking(move || store.write()).await??;
        while writing.bytes() < bytes {
            let mut piece = Vec::new();
            (&mut stdout)
                .take(PIECE_BYTES.min(bytes - writing.bytes()))
                .read_to_end(&mut piece)
                .await?;
            if piece.is_empty() {
                return Ok(None);
            }
            heard.again();
            writing = blocking(move || writing.write(&piece).map(|()| writing)).await??;
        }
        let code = blocking(move || writing.end()).await??;
        Ok(Some(code))
    }

    fn fits(&self, what: &'static str, bytes: u64, factor: u64) -> Result<(), PrepareError> {
        let limit_bytes = self.worker.max_component_bytes.saturating_mul(factor);
        if bytes <= limit_bytes {
            return Ok(());
        }
        Err(PrepareError::TooLarge {
            what,
            bytes,
            limit_bytes,
            factor: factor * COMPONENT_FACTOR,
        })
    }
}

/// Sends code to a child piece by piece, so that the host never holds all of it in memory.
async fn send(code: Arc<Code>, stdin: &mut (impl AsyncWrite + Unpin)) -> Result<(), PrepareError> {
    let mut sent = 0;
    loop {
        let code = code.clone();
        let piece = blocking(move || code.read(sent, PIECE_BYTES as usize)).await??;
        if piece.is_empty() {
            return Ok(());
        }
        stdin.write_all(&piece).await?;
        sent += piece.len() as u64;
    }
}

/// The last stage that the child has reported, and the number of its messages so far.
struct Heard(Mutex<(Stage, u64)>);

// === impl Heard ===

impl Default for Heard {
    fn default() -> Self {
        Self(Mutex::new((Stage::Read, 0)))
    }
}

impl Heard {
    fn at(&self, stage: Stage) {
        self.lock().0 = stage;
    }

    fn stage(&self) -> Stage {
        self.lock().0
    }

    fn again(&self) {
        self.lock().1 += 1;
    }

    fn times(&self) -> u64 {
        self.lock().1
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Stage, u64)> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
