//! What plugins that spin cost their neighbours.
//!
//! Two plugins that never end, one stopped by the clock and one by its CPU time, each called over and over by a
//! connection of its own; beside them four connections that call a good plugin. The host is the `tollgate` binary
//! as it ships, in a process of its own. The figures to look at: what the good calls take with and without the
//! spinners, and how far past their limits the spinners get.
//!
//! `cargo build --release -p tollgate && cargo bench -p tollgate-tests --bench fairness`

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use reqwest::Client;
use serde_json::{Value, json};
use tollgate_tests::binary::workspace;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::guests;
use tollgate_tests::reviews::{Review, pod};
use tollgate_tests::server::{Server, metric};
use tollgate_tests::wat;

/// For how long each of the two parts runs.
const DURATION: Duration = Duration::from_secs(10);
/// Before a part's first call that counts: connections are made and code pages are mapped in.
const WARM_UP: Duration = Duration::from_millis(500);
const GOOD_CONNECTIONS: usize = 4;
const GOOD: &str = "good";
const SPINNERS: [(&str, &str); 2] = [
    ("spins-to-timeout", "limits.timeout"),
    ("spins-to-cpu-time", "limits.cpuTime"),
];
/// The limit that stops each spinner.
const LIMIT: &str = "100ms";
/// Every other limit of theirs: too much to be reached.
const NEVER: &str = "10s";
const ENDLESS_FUEL: u64 = 1_000_000_000_000;

/// How long the calls of one plugin took, in ascending order.
struct Latencies(Vec<Duration>);

/// What the host says of a plugin, in all calls so far.
#[derive(Clone, Copy, Default)]
struct Counted {
    calls: f64,
    wall_seconds: f64,
    cpu_seconds: f64,
}

fn main() {
    let server = Server::start(configuration());
    let runtime = runtime();
    let review = Review::create(pod("shop")).build().to_string();

    let (alone, _) = measure(&server, &review, &[]);
    let before = SPINNERS.map(|(name, _)| runtime.block_on(Counted::read(&server, name)));
    let paths = SPINNERS.map(|(name, _)| format!("/validate/{name}"));
    let (beside, spinners) = measure(&server, &review, &paths);
    let after = SPINNERS.map(|(name, _)| runtime.block_on(Counted::read(&server, name)));

    println!("A good plugin, {GOOD_CONNECTIONS} connections, {DURATION:?}; milliseconds");
    println!("                        calls/s      p50      p90      p99      max");
    good_line("alone", &alone);
    good_line("beside two spinners", &beside);
    println!("wanted beside spinners:       p50 ≤ 5          p99 ≤ 20\n");
    println!("The spinners, one connection each; milliseconds");
    println!(
        "                          calls      min   median      max   wall*    CPU*  (* host's mean)"
    );
    let counted = before.into_iter().zip(after);
    for (((_, limit), latencies), (before, after)) in SPINNERS.iter().zip(&spinners).zip(counted) {
        spinner_line(limit, latencies, after.since(before));
    }
    println!("wanted: stopped within 20% of {LIMIT}, by the clock or in CPU time");

    let stopped = server.stop();
    assert!(
        stopped.status.success(),
        "tollgate did not end well: {}",
        stopped.status
    );
}

fn configuration() -> Configuration {
    let rules = json!([{
        "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"],
    }]);
    let mut configuration = Configuration::new();
    let labels = guests::build("required-labels");
    let settings = json!({ "labels": { "app": "[a-z]+" } });
    configuration.plugin(
        GOOD,
        &labels,
        json!({ "match": { "rules": rules }, "settings": settings }),
    );
    let endless = wat::fixture(&workspace().join("tests/hostile/validate-loop.wat"));
    for ((name, limit), others) in SPINNERS.iter().zip(["cpuTime", "timeout"]) {
        let limit = limit.trim_start_matches("limits.");
        let mut limits = json!({ "fuel": ENDLESS_FUEL });
        limits[limit] = LIMIT.into();
        limits[others] = NEVER.into();
        let more =
            json!({ "match": { "rules": rules }, "failurePolicy": "Ignore", "limits": limits });
        configuration.plugin_of(name, &endless, more);
    }
    configuration
}

/// Calls the good plugin from all its connections, and each of the other paths from one.
fn measure(server: &Server, review: &str, others: &[String]) -> (Latencies, Vec<Latencies>) {
    let done = AtomicBool::new(false);
    let good_path = format!("/validate/{GOOD}");
    std::thread::scope(|scope| {
        let call = |path: &String| {
            let done = &done;
            let path = path.clone();
            scope.spawn(move || call_until(server, &path, review, done))
        };
        let good: Vec<_> = (0..GOOD_CONNECTIONS).map(|_| call(&good_path)).collect();
        let others: Vec<_> = others.iter().map(call).collect();
        std::thread::sleep(WARM_UP + DURATION);
        done.store(true, Ordering::Relaxed);
        let joined = |thread: std::thread::ScopedJoinHandle<'_, Vec<Duration>>| match thread.join()
        {
            Ok(latencies) => latencies,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let good = good.into_iter().flat_map(joined).collect();
        let others = others.into_iter().map(joined).map(Latencies::new);
        (Latencies::new(good), others.collect())
    })
}

/// One connection: the next call goes out when the one before it is answered. A thread of its own, so that what is
/// measured is the host's scheduling and not the client's.
fn call_until(server: &Server, path: &str, review: &str, done: &AtomicBool) -> Vec<Duration> {
    let client = server.client(reqwest::ClientBuilder::http1_only);
    let began = Instant::now();
    runtime().block_on(async {
        let mut latencies = Vec::new();
        while !done.load(Ordering::Relaxed) {
            let took = call(server, &client, path, review).await;
            if began.elapsed() > WARM_UP {
                latencies.push(took);
            }
        }
        latencies
    })
}

async fn call(server: &Server, client: &Client, path: &str, review: &str) -> Duration {
    let answer = server
        .post_bytes(client, path, review.as_bytes().to_vec())
        .await;
    let content: Value = answer.json();
    assert_eq!(
        content["response"]["allowed"], true,
        "{path} is allowed or its fault ignored: {content}"
    );
    answer.took
}

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime on this thread needs nothing that could be missing")
}

fn good_line(what: &str, latencies: &Latencies) {
    let per_second = latencies.0.len() as f64 / DURATION.as_secs_f64();
    let [p50, p90, p99, max] = [0.5, 0.9, 0.99, 1.0].map(|share| latencies.at(share));
    println!("{what:<21} {per_second:>10.0} {p50:>8.2} {p90:>8.2} {p99:>8.2} {max:>8.2}");
}

fn spinner_line(limit: &str, latencies: &Latencies, counted: Counted) {
    let [min, median, max] = [0.0, 0.5, 1.0].map(|share| latencies.at(share));
    let calls = latencies.0.len();
    let wall = counted.wall_seconds / counted.calls * 1_000.0;
    let cpu = counted.cpu_seconds / counted.calls * 1_000.0;
    println!(
        "{limit:<15} {LIMIT} {calls:>9} {min:>8.1} {median:>8.1} {max:>8.1} {wall:>7.1} {cpu:>7.1}"
    );
}

// === impl Latencies ===

impl Latencies {
    fn new(mut latencies: Vec<Duration>) -> Self {
        assert!(
            !latencies.is_empty(),
            "no call was answered in {DURATION:?}"
        );
        latencies.sort_unstable();
        Self(latencies)
    }

    /// The latency that this share of the calls does not exceed, in milliseconds.
    fn at(&self, share: f64) -> f64 {
        let last = self.0.len() - 1;
        let index = (last as f64 * share).round() as usize;
        self.0[index.min(last)].as_secs_f64() * 1_000.0
    }
}

// === impl Counted ===

impl Counted {
    async fn read(server: &Server, plugin: &str) -> Self {
        let page = server.metrics().await;
        let value = |name: &str| metric(&page, name, &[("plugin", plugin), ("phase", "validate")]);
        Self {
            calls: value("tollgate_plugin_duration_seconds_count"),
            wall_seconds: value("tollgate_plugin_duration_seconds_sum"),
            cpu_seconds: value("tollgate_plugin_cpu_seconds_total"),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            calls: self.calls - before.calls,
            wall_seconds: self.wall_seconds - before.wall_seconds,
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
        }
    }
}
