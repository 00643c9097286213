//! The load generator: HTTP/1.1 with keep-alive over TLS, like kube-apiserver, from its own process.
//!
//! In a closed loop, each connection sends the next request after the answer to the previous one, which saturates the
//! server. At a fixed rate, requests are due at even intervals, whatever the server does. A latency counts from the
//! moment when the request was due, and not from the moment when a connection was free. So a stalling server is charged
//! for every waiting request (no coordinated omission).
//!
//! The generator checks that every answer equals the first one byte for byte. The first answer is read and checked.

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

/// The requests to send, their pace, and the expected answer.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Order {
    /// The server's address and port.
    pub address: std::net::SocketAddr,
    /// The CA of the server's certificate.
    pub ca: PathBuf,
    /// The path, such as `/validate`.
    pub path: String,
    /// A file with the review.
    pub body: PathBuf,
    /// The number of kept-alive connections.
    pub connections: usize,
    /// The pace of the requests.
    pub pace: Pace,
    /// The time before the measurement, in which requests are sent and not counted.
    pub warm_up: Duration,
    /// The duration of the measurement.
    pub duration: Duration,
    /// The number of requests after which the measurement ends.
    pub max_requests: u64,
    /// The server's process. Its CPU time is read at the start and at the end of the measurement.
    pub process: u32,
    /// The expected content of every answer.
    pub expected: Expected,
}

/// The pace of requests.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Pace {
    /// Each connection sends as soon as it gets an answer.
    Saturating,
    /// A number of requests per second, over all connections.
    PerSecond(f64),
}

/// The measurements between the end of the warm-up and the end.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// The number of answered requests.
    pub requests: u64,
    /// The duration of the measurement.
    pub wall_seconds: f64,
    /// The CPU time of the server's process, over all threads.
    pub server_cpu_seconds: f64,
    /// Latencies in nanoseconds, each with its number of requests.
    pub latencies: Vec<(u64, u64)>,
    /// The patch in the answers. Empty if they have none.
    pub patch: Vec<PatchOperation>,
}

/// The range of latencies: from a microsecond to a minute, with three digits.
const LOWEST_NANOSECONDS: u64 = 1_000;
const HIGHEST_NANOSECONDS: u64 = 60_000_000_000;
const DIGITS: u8 = 3;

/// The shared state of the connections. One thread runs them all.
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
    /// Executes the order in its own process, which runs `executable`.
    ///
    /// # Errors
    /// If the process cannot run, or the server gives a wrong answer.
    pub fn run_in_process(&self, executable: &std::path::Path) -> anyhow::Result<Measured> {
        let mut child = Command::new(executable)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} cannot be run", executable.display()))?;
        let input = child.stdin.take().context("standard input is a pipe")?;
        serde_json::to_writer(input, self)?;
        let output = child.wait_with_output()?;
        anyhow::ensure!(
            output.status.success(),
            "the load generator failed ({}); it says above what was wrong",
            output.status
        );
        serde_json::from_slice(&output.stdout).context("the load generator's result is unreadable")
    }

    /// Executes the order.
    ///
    /// # Errors
    /// If the server cannot be reached or gives a wrong answer.
    pub fn run(self) -> anyhow::Result<Measured> {
        anyhow::ensure!(
            self.connections > 0,
            "`connections` is 0; it takes one to send a request"
        );
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        tokio::task::LocalSet::new().block_on(&runtime, self.drive())
    }

    async fn drive(self) -> anyhow::Result<Measured> {
        let body = std::fs::read(&self.body)
            .with_context(|| format!("{} cannot be read", self.body.display()))?;
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
            request: Request::new(self.address, &self.path, body),
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

        tokio::time::sleep_until(counting_begins.into()).await;
        let cpu_before = CpuTimes::of(self.process)?;
        let counting_began = Instant::now();
        shared.counting.set(true);
        shared.until_done().await;
        // Read before the last answers arrive, because these are not counted either.
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
        /// The longest delay until the end of the measurement is noticed.
        const GLANCE: Duration = Duration::from_millis(2);
        while !self.is_done() {
            let left = self.ends.saturating_duration_since(Instant::now());
            tokio::time::sleep(left.min(GLANCE)).await;
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

/// Creates a histogram for latencies in nanoseconds.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(LOWEST_NANOSECONDS, HIGHEST_NANOSECONDS, DIGITS)
        .expect("the bounds are in order and the digits at most 5")
}
