//! Measures the effect of spinning plugins on other plugins.
//!
//! Two plugins never end. One is stopped by its wall-clock limit, the other by its CPU time. Each is called repeatedly
//! on its own connection. Four more connections call a good plugin. The host is the `tollgate` binary as it ships, in
//! its own process.
//!
//! Two figures matter: the latency of good calls with and without the spinners, and how far the spinners exceed their
//! limits.

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

/// Time before the first call that counts, in which connections open and code pages are mapped.
const WARM_UP: Duration = Duration::from_millis(500);
/// Number of connections that call the good plugin.
pub const GOOD_CONNECTIONS: usize = 4;
const GOOD: &str = "good";
const SPINNERS: [(&str, &str); 2] = [
    ("spins-to-timeout", "limits.timeout"),
    ("spins-to-cpu-time", "limits.cpuTime"),
];
/// The limit that stops each spinner.
pub const LIMIT: &str = "100ms";
/// The other limits of the spinners, too high to be reached.
const NEVER: &str = "10s";
const ENDLESS_FUEL: u64 = 1_000_000_000_000;

/// The results of the measurement.
pub struct Fairness {
    /// Calls of the good plugin alone.
    pub alone: Latencies,
    /// Calls of the good plugin beside two spinners.
    pub beside_spinners: Latencies,
    /// The two spinners.
    pub spinners: Vec<Spinner>,
}

/// A plugin that never ends on its own.
pub struct Spinner {
    /// The limit that stops it, such as `limits.cpuTime`.
    pub limit: &'static str,
    /// Latencies of its calls.
    pub latencies: Latencies,
    /// Mean wall time of a call, as the host measures it.
    pub wall_milliseconds: f64,
    /// Mean CPU time of a call, as the host measures it.
    pub cpu_milliseconds: f64,
}

/// Latencies of the calls of one plugin, in ascending order.
pub struct Latencies(Vec<Duration>);

/// The host's counters for a plugin, over all calls so far.
#[derive(Clone, Copy, Default)]
struct Counted {
    calls: f64,
    wall_seconds: f64,
    cpu_seconds: f64,
}

// === impl Fairness ===

impl Fairness {
    /// Measures both parts, each for `duration`.
    ///
    /// # Panics
    /// Panics if the server does not start or gives a wrong answer.
    #[must_use]
    pub fn measure(duration: Duration) -> Self {
        let server = Server::start(configuration());
        let runtime = runtime();
        let review = Review::create(pod("shop")).build().to_string();

        let (alone, _) = measure(&server, &review, &[], duration);
        let read = |(name, _): (&str, _)| runtime.block_on(Counted::read(&server, name));
        let before = SPINNERS.map(read);
        let paths = SPINNERS.map(|(name, _)| format!("/validate/{name}"));
        let (beside_spinners, spinning) = measure(&server, &review, &paths, duration);
        let after = SPINNERS.map(read);

        let counted = before.into_iter().zip(after);
        let spinners = SPINNERS.iter().zip(spinning).zip(counted);
        let spinners = spinners.map(|(((_, limit), latencies), (before, after))| {
            let counted = after.since(before);
            Spinner {
                limit,
                latencies,
                wall_milliseconds: counted.wall_seconds / counted.calls * 1_000.0,
                cpu_milliseconds: counted.cpu_seconds / counted.calls * 1_000.0,
            }
        });
        let spinners = spinners.collect();
        let stopped = server.stop();
        assert!(
            stopped.status.success(),
            "tollgate did not stop successfully: {}",
            stopped.status
        );
        Self {
            alone,
            beside_spinners,
            spinners,
        }
    }
}

fn configuration() -> Configuration {
    let rules = json!([{
        "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"],
    }]);
    let mut configuration = Configuration::new().with("engine.answerCache", 0);
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

/// Calls the good plugin on all its connections, and each of the other paths on one.
fn measure(
    server: &Server,
    review: &str,
    others: &[String],
    duration: Duration,
) -> (Latencies, Vec<Latencies>) {
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
        std::thread::sleep(WARM_UP + duration);
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

/// Calls a path on one connection, one call after another. Each connection has its own thread, so that the results show
/// the host's scheduling and not the client's.
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
        "{path} must be allowed, or its fault ignored: {content}"
    );
    answer.took
}

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a current-thread runtime can be created")
}

// === impl Latencies ===

impl Latencies {
    fn new(mut latencies: Vec<Duration>) -> Self {
        assert!(
            !latencies.is_empty(),
            "no call was answered during the measurement"
        );
        latencies.sort_unstable();
        Self(latencies)
    }

    /// Number of calls.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The latency in milliseconds that this share of the calls does not exceed.
    #[must_use]
    pub fn at(&self, share: f64) -> f64 {
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
