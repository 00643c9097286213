//! The load generator: HTTP/1.1 with keep-alive over TLS, as kube-apiserver uses it, from its own process.
//!
//! - Closed loop: each connection sends the next request when the previous one is answered. This saturates the server. The
//!   generator does not sleep meanwhile. Otherwise the server's own write would wake it, and the kernel would count that
//!   for the server. On a virtual machine, waking a processor takes 2 to 10 µs for each answer.
//! - Fixed rate: requests are due at even intervals, whatever the server does. A latency counts from the moment at
//!   which the request was due, not from when a connection was free. A stall of the server therefore counts for every
//!   request that waited (no coordinated omission).
//!
//! The first answer is parsed and checked. Every other answer must equal it byte for byte.

mod answer;
mod client;
mod pacer;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::process::CpuTimes;
use answer::Reference;
pub use answer::{Expected, PatchOperation};
use client::{Client, Request};
use pacer::Pacer;

/// The requests to send, the way to send them, and the expected answers.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Order {
    /// The server's address and port.
    pub address: std::net::SocketAddr,
    /// The CA of the server's certificate.
    pub ca: PathBuf,
    /// The path of the requests, such as `/validate`.
    pub path: String,
    /// The file that contains the review.
    pub body: PathBuf,
    /// Number of kept-alive connections.
    pub connections: usize,
    /// The pace of the requests.
    pub pace: Pace,
    /// Time before counting starts.
    pub warm_up: Duration,
    /// Time for which requests count.
    pub duration: Duration,
    /// Number of requests after which the run ends, however long it took.
    pub max_requests: u64,
    /// The server's process. Its CPU time is read at the start and the end of counting.
    pub process: u32,
    /// Whether each review has another value of the label `team`. The answers are the same.
    pub differ: bool,
    /// The expected content of every answer.
    pub expected: Expected,
}

/// The pace of the requests.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Pace {
    /// Each connection sends as fast as it is answered.
    Saturating,
    /// This many requests per second, over all connections.
    PerSecond(f64),
}

/// Results from the end of the warm-up to the end.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// Number of answered requests.
    pub requests: u64,
    /// Wall time of the counting.
    pub wall_seconds: f64,
    /// CPU time of all threads of the server's process.
    pub server_cpu_seconds: f64,
    /// Latencies in nanoseconds, each with its number of requests.
    pub latencies: Vec<(u64, u64)>,
    /// The patch in the answers. Empty if they have none.
    pub patch: Vec<PatchOperation>,
}

/// Range of the histogram: a microsecond to a minute, to three digits.
const LOWEST_NANOSECONDS: u64 = 1_000;
const HIGHEST_NANOSECONDS: u64 = 60_000_000_000;
const DIGITS: u8 = 3;

/// The state that the connections share. One thread runs them all.
struct Shared {
    request: Request,
    expected: Expected,
    reference: RefCell<Option<Reference>>,
    histogram: RefCell<Histogram<u64>>,
    counting: Cell<bool>,
    counted: Cell<u64>,
    max_requests: u64,
    next_due: Cell<u64>,
    interval: Option<Duration>,
    began: Instant,
    ends: Instant,
}

// === impl Order ===

impl Order {
    /// Carries out the order in its own process, which runs `executable`.
    ///
    /// # Errors
    /// Fails if the process cannot be run, or if the server gives a wrong answer.
    pub fn run_in_process(&self, executable: &std::path::Path) -> anyhow::Result<Measured> {
        let mut child = Command::new(executable)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", executable.display()))?;
        let input = child.stdin.take().context("standard input was piped")?;
        serde_json::to_writer(input, self)?;
        let output = child.wait_with_output()?;
        anyhow::ensure!(
            output.status.success(),
            "the load generator failed ({}); its own message above names the cause",
            output.status
        );
        serde_json::from_slice(&output.stdout).context("cannot parse the load generator's result")
    }

    /// Carries out the order.
    ///
    /// # Errors
    /// Fails if the server cannot be reached or gives a wrong answer.
    pub fn run(self) -> anyhow::Result<Measured> {
        anyhow::ensure!(self.connections > 0, "`connections` is 0; use at least 1");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        tokio::task::LocalSet::new().block_on(&runtime, self.drive())
    }

    async fn drive(self) -> anyhow::Result<Measured> {
        let body = std::fs::read(&self.body)
            .with_context(|| format!("cannot read {}", self.body.display()))?;
        let connector = client::connector(&self.ca)?;
        let mut clients = Vec::new();
        for _ in 0..self.connections {
            clients.push(Client::connect(&connector, self.address).await?);
        }
        let began = Instant::now();
        let counting_begins = began + self.warm_up;
        let ends = counting_begins + self.duration;
        let interval = match self.pace {
            Pace::Saturating => None,
            Pace::PerSecond(rate) => Some(Duration::from_secs_f64(1.0 / rate)),
        };
        let shared = Rc::new(Shared {
            request: Request::new(self.address, &self.path, body, self.differ)?,
            expected: self.expected,
            reference: RefCell::new(None),
            histogram: RefCell::new(histogram()),
            counting: Cell::new(false),
            counted: Cell::new(0),
            max_requests: self.max_requests,
            next_due: Cell::new(0),
            interval,
            began,
            ends,
        });
        let connections: Vec<_> = clients
            .into_iter()
            .map(|client| tokio::task::spawn_local(shared.clone().drive(client)))
            .collect();
        if self.pace == Pace::Saturating {
            // It ends with the `LocalSet` that runs everything here.
            tokio::task::spawn_local(stay_awake());
        }

        tokio::time::sleep_until(counting_begins.into()).await;
        let cpu_before = CpuTimes::of(self.process)?;
        let counting_began = Instant::now();
        shared.counting.set(true);
        shared.until_done().await;
        // Read before the last answers arrive, because these do not count either.
        let cpu = CpuTimes::of(self.process)?.since(&cpu_before);
        let wall = counting_began.elapsed();
        shared.counting.set(false);
        for connection in connections {
            connection.await??;
        }
        let patch = shared.reference.borrow_mut().take();
        let histogram = shared.histogram.borrow();
        Ok(Measured {
            requests: shared.counted.get(),
            wall_seconds: wall.as_secs_f64(),
            server_cpu_seconds: cpu.as_secs_f64(),
            latencies: histogram
                .iter_recorded()
                .map(|step| (step.value_iterated_to(), step.count_since_last_iteration()))
                .collect(),
            patch: patch.map(Reference::into_patch).unwrap_or_default(),
        })
    }
}

// === impl Shared ===

impl Shared {
    /// Runs one connection to its end.
    async fn drive(self: Rc<Self>, mut client: Client) -> anyhow::Result<()> {
        let mut pacer = Pacer::new()?;
        while !self.is_done() {
            let due = match self.interval {
                None => Instant::now(),
                Some(interval) => {
                    let index = self.next_due.replace(self.next_due.get() + 1);
                    let due = self.began + interval.mul_f64(index as f64);
                    if due >= self.ends {
                        break;
                    }
                    pacer.until(due).await?;
                    due
                }
            };
            let body = client.send(&self.request).await?;
            let took = due.elapsed();
            self.check(&body)?;
            if self.counting.get() {
                self.counted.set(self.counted.get() + 1);
                let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
                self.histogram.borrow_mut().saturating_record(nanoseconds);
            }
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.counted.get() >= self.max_requests || Instant::now() >= self.ends
    }

    async fn until_done(&self) {
        /// Longest delay until the end of counting is noticed.
        const POLL_PERIOD: Duration = Duration::from_millis(2);
        while !self.is_done() {
            let left = self.ends.saturating_duration_since(Instant::now());
            tokio::time::sleep(left.min(POLL_PERIOD)).await;
        }
    }

    fn check(&self, body: &[u8]) -> anyhow::Result<()> {
        let mut reference = self.reference.borrow_mut();
        match &*reference {
            Some(reference) => reference.check(body),
            None => {
                *reference = Some(Reference::read(body, &self.expected)?);
                Ok(())
            }
        }
    }
}

/// Keeps the thread from sleeping. It looks for answers, and never waits for them.
async fn stay_awake() {
    loop {
        tokio::task::yield_now().await;
    }
}

/// Creates a histogram for latencies in nanoseconds.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(LOWEST_NANOSECONDS, HIGHEST_NANOSECONDS, DIGITS)
        .expect("the bounds are in order and the digits at most 5")
}
