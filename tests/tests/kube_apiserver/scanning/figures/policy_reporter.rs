//! Policy Reporter, which shows the policy reports of a cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use reqwest::Client;
use serde_json::Value;
use tollgate_tests::kubernetes::Cluster;
use tollgate_tests::port;

/// Variable with the path of the program.
const PROGRAM: &str = "TOLLGATE_POLICY_REPORTER";
/// Variable with the folder of openreports.io's own CustomResourceDefinitions.
const DEFINITIONS: &str = "TOLLGATE_OPENREPORTS_DEFINITIONS";
/// Time limit for Policy Reporter to read all reports.
const LIMIT: Duration = Duration::from_secs(180);
/// The kinds of results, as both programs name them.
pub(super) const KINDS: [&str; 5] = ["pass", "fail", "warn", "error", "skip"];

/// The number of results of each kind.
pub(super) type Counts = BTreeMap<String, u64>;

/// The running program. It ends when this is dropped.
pub(super) struct PolicyReporter {
    child: Child,
    client: Client,
    url: String,
    log: PathBuf,
}

// === impl PolicyReporter ===

impl PolicyReporter {
    /// Starts the program. Returns none if no variable names it.
    pub(super) fn start(cluster: &Cluster, namespace: &str) -> Option<Self> {
        let program = std::env::var_os(PROGRAM)?;
        let port = port::free();
        let log = cluster.folder().join("policy-reporter.log");
        let file = std::fs::File::create(&log).expect("the log can be created");
        let child = Command::new(&program)
            .args(["run", "--rest-enabled", "--kubeconfig"])
            .arg(cluster.folder().join("kubeconfig"))
            .arg("--dbfile")
            .arg(cluster.folder().join("policy-reporter.db"))
            .args(["--port", &port.to_string()])
            .env("POD_NAMESPACE", namespace)
            .current_dir(cluster.folder())
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("the log can be opened twice"))
            .stderr(file)
            .spawn();
        let child = child.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let client = Client::builder().no_proxy().build();
        Some(Self {
            child,
            client: client.expect("the client's settings do not depend on anything outside"),
            url: format!("http://127.0.0.1:{port}"),
            log,
        })
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let answer = self.client.get(format!("{}{path}", self.url)).send().await;
        let text = answer.ok()?.error_for_status().ok()?.text().await.ok()?;
        serde_json::from_str(&text).ok()
    }

    /// The sums of the summaries of all reports of namespaces.
    async fn summaries(&self) -> Option<Counts> {
        let page = self.get("/v1/policy-reports").await?;
        let mut counts = none();
        for report in page["items"].as_array()? {
            add(&mut counts, report);
        }
        Some(counts)
    }

    /// The results of all namespaces that it counts itself, by their source.
    async fn counted(&self) -> Option<Counts> {
        let path = "/v2/namespace-scoped/tollgate/status-counts";
        let page = self.get(path).await?;
        let mut counts = none();
        for of_namespace in page.as_object()?.values() {
            add(&mut counts, of_namespace);
        }
        Some(counts)
    }

    /// Waits until the counts are what is expected. `summaries` and `listed` are of the reports: with the results that
    /// pass, and without.
    ///
    /// # Panics
    /// Panics with the last counts if they stay different.
    pub(super) async fn wait_for(&self, summaries: &Counts, listed: &Counts) {
        let began = Instant::now();
        loop {
            let shown = (self.summaries().await, self.counted().await);
            if shown.0.as_ref() == Some(summaries) && shown.1.as_ref() == Some(listed) {
                return;
            }
            assert!(
                began.elapsed() < LIMIT,
                "Policy Reporter shows {shown:?} instead of {summaries:?} and {listed:?}: {}",
                std::fs::read_to_string(&self.log).unwrap_or_default()
            );
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

impl Drop for PolicyReporter {
    fn drop(&mut self) {
        // Errors mean that the process has already ended.
        let _: std::io::Result<()> = self.child.kill();
        let _: std::io::Result<ExitStatus> = self.child.wait();
    }
}

/// Counts of zero.
pub(super) fn none() -> Counts {
    let zeros = KINDS.iter().map(|kind| ((*kind).to_owned(), 0));
    zeros.collect()
}

/// Adds the counts of an object with a member for each kind.
pub(super) fn add(counts: &mut Counts, more: &Value) {
    for (kind, count) in counts {
        *count += more[kind].as_u64().unwrap_or_default();
    }
}

/// Installs openreports.io's own definitions. Returns false if no variable names their folder.
pub(super) fn define_published(cluster: &Cluster) -> bool {
    let Some(folder) = std::env::var_os(DEFINITIONS) else {
        return false;
    };
    let folder = Path::new(&folder).display().to_string();
    let apply = ["apply", "--server-side", "-f", &folder];
    cluster.kubectl(&apply).succeed();
    let wait = [
        "wait",
        "--for=condition=Established",
        "crd/reports.openreports.io",
        "crd/clusterreports.openreports.io",
    ];
    cluster.kubectl(&wait).succeed();
    true
}
