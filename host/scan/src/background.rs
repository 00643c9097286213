//! The background scan of a server: judges this replica's part of the cluster again and again, and writes policy reports.
//!
//! ```text
//! turn     when a scan begins: by the interval, or because plugins, exceptions or replicas changed
//! share    which namespaces are this replica's
//! round    metadata page by page → the objects that changed → judge
//! memory   the results that count as long as nothing changes, within scan.maxMemory
//! publish  the results, in both of these forms
//! writer   the policy reports that differ
//! board    what readers of the admin listener learn: times, and counts by namespace and plugin
//! ```
//!
//! Everything runs on one thread of the lowest priority, with its own connection to kube-apiserver and its own place in
//! the engine. The thread takes a quarter of a processor at most. No review waits for it.

mod board;
mod counts;
mod memory;
mod pace;
mod publish;
mod round;
mod share;
mod source;
#[cfg(test)]
mod tests;
mod turn;
mod writer;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use futures_util::future::FutureExt as _;
use tokio::runtime::Handle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tollgate_admission::access::NoAuthorizer;
use tollgate_admission::namespaces::{Lookup, Namespaces, Pending};
use tollgate_cluster::{Client, Members, Served, connect, discover};
use tollgate_config::{Config, Scan};
use tollgate_engine::Engine;
use tollgate_gate::idle;
use tollgate_gate::pipeline::Pipeline;
use tollgate_telemetry::metrics::{Metrics, Scanned};

pub use self::board::Board;
use self::board::Exceptions;
use self::memory::Memory;
use self::pace::Pace;
use self::publish::Published;
use self::round::{Round, Tally};
use self::share::Share;
use self::source::Cluster;
use self::turn::Turn;
use self::writer::{ClusterReports, Writer};
use crate::finding::Verdict;
use crate::inventory::{choose, rules, wants, without_rules};
use crate::judge::{self, Bench};
use crate::report::Layout;
use crate::state::Seen;

/// The background scan. Dropping it ends the scan after the call under way.
#[derive(Debug)]
pub struct Background {
    stop: CancellationToken,
}

/// The parts of the server that a background scan needs.
pub struct Parts {
    /// The settings.
    pub scan: Scan,
    /// The configuration that the server was started with.
    pub config: Config,
    /// The engine of the server.
    pub engine: Engine,
    /// The pipeline of the server, which has the plugins in effect.
    pub pipeline: Arc<Pipeline>,
    /// Where plugins and selectors learn about Namespaces.
    pub namespaces: Arc<dyn Namespaces>,
    /// The replicas that share the scan.
    pub members: Members,
    /// The metrics of the server.
    pub metrics: Arc<Metrics>,
    /// Where readers of the admin listener learn about the scan.
    pub board: Arc<Board>,
}

/// The values that stay from one scan to the next.
struct Kept {
    memory: Memory,
    writer: Writer,
}

/// Why a plugin is not told about rights.
const NO_USER: &str = "a scan has no user whose rights could be asked for";

/// The namespaces of the server, asked on the server's runtime. A connection of the server must not depend on a thread
/// that may have to wait for a processor.
#[derive(Debug)]
struct Elsewhere {
    namespaces: Arc<dyn Namespaces>,
    runtime: Handle,
}

/// Time between two looks at whether a scan is due.
const TICK: Duration = Duration::from_secs(2);
/// Pause after a failure to set up the connection.
const RETRY: Duration = Duration::from_secs(30);
/// Time limit for the list of resources.
const DISCOVERY_LIMIT: Duration = Duration::from_secs(300);
/// After this many faults in a row, a plugin is not called any more in the same scan.
const MOST_FAULTS: u32 = 20;

// === impl Background ===

impl Background {
    /// Starts the thread. Must be called within the server's runtime.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(parts: Parts) -> std::io::Result<Self> {
        let stop = CancellationToken::new();
        let (stopped, runtime) = (stop.clone(), Handle::current());
        thread::Builder::new()
            .name("tollgate-scan".to_owned())
            .spawn(move || work(&parts, runtime, &stopped))?;
        Ok(Self { stop })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn work(parts: &Parts, server: Handle, stop: &CancellationToken) {
    idle::lower_priority();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "cannot create the runtime of the background scan; nothing is scanned");
            return;
        }
    };
    parts.metrics.scan.begin(parts.scan.interval);
    parts.board.follow(parts.members.clone());
    runtime.block_on(async {
        tokio::select! {
            () = stop.cancelled() => {}
            () = run(parts, server) => {}
        }
    });
}

/// Scans again and again.
async fn run(parts: &Parts, server: Handle) {
    let client = client().await;
    let namespaces: Arc<dyn Namespaces> = Arc::new(Elsewhere {
        namespaces: parts.namespaces.clone(),
        runtime: server,
    });
    let engine = parts.engine.for_scans().with_namespaces(namespaces.clone());
    let engine = engine.with_authorizer(Arc::new(NoAuthorizer::because(NO_USER)));
    // Reviews have metrics of their own.
    let metrics = Metrics::new();
    let mut kept = Kept::new(&parts.scan);
    let mut turn = Turn::default();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(replicas) = parts.members.ready() else {
            continue;
        };
        let (plugins, now) = (parts.pipeline.live(), SystemTime::now());
        let current = turn::Circumstances::new(&plugins, replicas.clone(), now);
        let began = Instant::now();
        if !turn.is_due(began, parts.scan.interval, &current) {
            continue;
        }
        let circumstances = judge::Circumstances {
            namespaces: Some(namespaces.clone()),
            now,
            most_faults: Some(MOST_FAULTS),
            metrics: metrics.clone(),
        };
        let bench = Bench::new(&plugins, &engine, &parts.config, circumstances);
        drop(plugins);
        let share = Share::new(parts.members.own(), replicas);
        parts.board.begins(now);
        let scanning = scan(parts, &client, &bench, share, &mut kept);
        match AssertUnwindSafe(scanning).catch_unwind().await {
            Ok(Ok((mut scanned, missing))) => {
                scanned.duration = began.elapsed();
                parts.metrics.scan.scanned(&scanned);
                parts.board.ended(scanned, &missing);
            }
            Ok(Err(error)) => {
                let reason = format!("{error:#}");
                tracing::warn!(reason, "cannot scan the cluster; retrying at the next scan");
                parts.metrics.scan.failed();
                parts.board.failed(began.elapsed());
            }
            Err(_) => {
                tracing::error!(
                    "the background scan panicked; this is a defect of Tollgate, please report it"
                );
                parts.metrics.scan.failed();
                parts.board.failed(began.elapsed());
                kept = Kept::new(&parts.scan);
            }
        }
        turn.took(began, began.elapsed(), current);
    }
}

/// Sets up an own connection to kube-apiserver. A request of the server never waits for one of the scan.
async fn client() -> Client {
    loop {
        match connect().await {
            Ok(client) => return client,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    "cannot set up the client of the background scan; retrying"
                );
                sleep(RETRY).await;
            }
        }
    }
}

/// Scans this replica's part of the cluster once. Returns what it came to, and what could not be read.
async fn scan(
    parts: &Parts,
    client: &Client,
    bench: &Bench,
    mut share: Share,
    kept: &mut Kept,
) -> anyhow::Result<(Scanned, Vec<String>)> {
    let (resources, mut missing) = resources(client, bench, &parts.scan).await?;
    let objects = Cluster {
        client: client.clone(),
        max_page_bytes: parts.scan.max_page_bytes,
    };
    let are_all = missing.is_empty();
    let mut round = Round {
        objects: &objects,
        judges: bench,
        memory: &mut kept.memory,
        share: &mut share,
        pace: &mut Pace::new(parts.scan.max_rate),
        page_size: parts.scan.page_size,
        tally: Tally::default(),
    };
    round.run(&resources, are_all).await;
    let tally = round.tally;
    for (resource, reason) in &tally.unread {
        tracing::warn!(
            resource,
            reason,
            "cannot scan a resource; its results stay as they were"
        );
        missing.push(resource.clone());
    }
    let is_read = missing.is_empty();
    let layout = Layout {
        format: parts.scan.format,
        name: parts.scan.name.clone(),
        max_bytes: usize::try_from(parts.scan.max_report_bytes).unwrap_or(usize::MAX),
        lists_passes: false,
        missing: missing.clone(),
    };
    let reports = ClusterReports::new(client.clone(), &parts.scan.name);
    let published = Published {
        memory: &kept.memory,
        tally: &tally,
        findings: |seen: &Seen| bench.findings(seen),
    };
    let written = published.write(&mut kept.writer, &layout, &mut share, &reports);
    let (written, numbers) = written.await;
    let exceptions = Exceptions {
        rows: numbers.uses.rows(bench.configs(), SystemTime::now()),
        is_whole: is_read && tally.counted.is_empty(),
    };
    let replicas = share.replicas().clone();
    parts
        .board
        .counted(parts.members.own(), replicas, numbers.counts, exceptions);
    let outcome = written?;
    for reason in &outcome.failed {
        tracing::warn!(
            reason,
            "cannot write a policy report; retrying at the next scan"
        );
    }
    tracing::info!(
        objects = tally.objects,
        read = tally.read,
        calls = tally.calls,
        reports = outcome.written,
        "scanned this replica's part of the cluster"
    );
    let results = Verdict::ALL.map(|verdict| (verdict.as_str(), outcome.summary.count(verdict)));
    let scanned = Scanned {
        is_complete: is_read && outcome.failed.is_empty(),
        duration: Duration::ZERO,
        objects: tally.objects,
        memory_bytes: kept.memory.bytes(),
        omitted: outcome.omitted,
        results: results.to_vec(),
        calls: tally.calls,
        reports: outcome.written,
    };
    Ok((scanned, missing))
}

/// Returns the resources to scan, and the facts about them that are not known.
async fn resources(
    client: &Client,
    bench: &Bench,
    scan: &Scan,
) -> anyhow::Result<(Vec<Served>, Vec<String>)> {
    let rules = rules(bench.judges());
    let mut missing = without_rules(bench.judges());
    let mut unread = Vec::new();
    let wants = |group: &str, version: &str| wants(&rules, group, version);
    let served = timeout(DISCOVERY_LIMIT, discover(client, wants, &mut unread)).await;
    let served = served.context("kube-apiserver does not list its resources")??;
    for reason in unread {
        tracing::warn!(reason, "cannot scan some resources");
        // The rest of the text may differ from scan to scan.
        let what = reason.split(": ").next().unwrap_or_default();
        missing.push(what.to_owned());
    }
    let chosen = choose(&rules, &served).into_iter();
    let chosen = chosen.filter(|one| scan.includes(&one.group, &one.plural));
    Ok((chosen.collect(), missing))
}

// === impl Kept ===

impl Kept {
    fn new(scan: &Scan) -> Self {
        Self {
            memory: Memory::new(scan.max_memory_bytes),
            writer: Writer::default(),
        }
    }
}

// === impl Elsewhere ===

impl Namespaces for Elsewhere {
    fn known(&self, name: &str) -> Option<Lookup> {
        self.namespaces.known(name)
    }

    fn look_up<'a>(&'a self, name: &'a str) -> Pending<'a> {
        if let Some(known) = self.namespaces.known(name) {
            return Box::pin(std::future::ready(known));
        }
        let (namespaces, name) = (self.namespaces.clone(), name.to_owned());
        let asking = self
            .runtime
            .spawn(async move { namespaces.look_up(&name).await });
        Box::pin(async move {
            asking.await.unwrap_or_else(|_| Lookup::Unavailable {
                reason: Arc::from("the server is stopping"),
            })
        })
    }
}
