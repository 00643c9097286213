//! The figures of recording and replay, for `cargo xtask recordings`.

#[path = "figures/cost.rs"]
mod cost;
#[path = "figures/objects.rs"]
mod objects;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::guests;
use tollgate_tests::process::time_of_children;
use tollgate_tests::reviews::{Review, as_sent, pod};
use tollgate_tests::server::{Server, metric, until};

use super::{MARKER, decompressed, marked_secret, path, replay, tollgate, uids};

/// The number of plugins.
const PLUGINS: usize = 10;
/// The number of reviews that the change denies.
const KNOWN: usize = 37;

/// The reviews: their number, and the indices of those that the change denies.
struct Traffic {
    count: usize,
    known: BTreeSet<usize>,
}

// === impl Traffic ===

impl Traffic {
    /// Reads the number from the environment. The reviews that the change denies are spread over all of them.
    fn from_environment() -> Self {
        let given = std::env::var("TOLLGATE_RECORDED_REVIEWS").ok();
        let count = given.and_then(|text| text.parse().ok()).unwrap_or(100_000);
        assert!(count >= KNOWN, "at least {KNOWN} reviews");
        let known = (0..KNOWN).map(|index| index * (count / KNOWN)).collect();
        Self { count, known }
    }

    fn review(&self, index: usize) -> Value {
        let is_known = self.known.contains(&index);
        objects::review(index, if is_known { "known" } else { "front" })
    }

    fn known_uids(&self) -> BTreeSet<String> {
        let known = self.known.iter();
        known.map(|index| objects::uid(*index)).collect()
    }
}

/// Ten policies. The change makes the last one deny pods of the tier `known`.
fn policies(is_changed: bool) -> Configuration {
    let mut configuration = Configuration::new();
    let pods = json!({"rules": [{
        "operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods", "secrets"],
    }]});
    for index in 0..PLUGINS {
        let tier = match is_changed && index == PLUGINS - 1 {
            true => "known".to_owned(),
            false => format!("never-{index}"),
        };
        let settings = json!({"forbid": {"/metadata/labels/tier": tier}});
        let more = json!({"settings": settings, "match": pods});
        configuration.plugin(&format!("policy-{index}"), &guests::build("actor"), more);
    }
    configuration
}

async fn count(server: &Server, name: &str) -> f64 {
    metric(&server.metrics().await, name, &[])
}

/// Records the reviews, and prints what that costs.
async fn record(traffic: &Traffic) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let settings = json!({"directory": folder.path(), "maxBytes": "4Gi"});
    let recording = Server::start(policies(false).with("record", settings));
    let plain = Server::start(policies(false));
    // The first calls set up connections and memories. The recording has none of these Pods.
    let warming = Review::create(pod("warming")).uid("warming").build();
    for server in [&recording, &plain] {
        for _ in 0..2 * cost::CLIENTS {
            assert_eq!(server.validate(&warming).await.status, 200);
        }
    }
    let sent = as_sent(&traffic.review(0)).len();
    println!(
        "reviews: {} of {sent} bytes, plugins: {PLUGINS}, clients: {}",
        traffic.count,
        cost::CLIENTS
    );
    cost::compare(&recording, &plain, traffic).await;
    let secret = Review::create(marked_secret("figures")).build();
    assert_eq!(recording.validate(&secret).await.status, 200);
    let all = (traffic.count + 2 * cost::CLIENTS + 1) as f64;
    until("all reviews are recorded or dropped", async || {
        let recorded = count(&recording, "tollgate_recorded_reviews_total").await;
        recorded + count(&recording, "tollgate_recording_dropped_total").await >= all
    })
    .await;
    let dropped = count(&recording, "tollgate_recording_dropped_total").await;
    let bytes = count(&recording, "tollgate_recording_written_bytes_total").await;
    let per_review = bytes / all;
    println!(
        "recording: {bytes} bytes, {per_review:.0} per review, 1/{:.1} of what was sent; dropped: {dropped}",
        sent as f64 / per_review
    );
    assert_eq!(dropped, 0.0);
    assert!(recording.stop().status.success());
    folder
}

/// Checks that a text of a Secret is nowhere: not in the files, and not in the lines in them, in the clear or in Base64.
fn assert_without_marker(recording: &Path) {
    let text = decompressed(recording);
    // Where a text begins within the group of three bytes decides how Base64 writes it.
    let mut forms = vec![MARKER.to_owned()];
    forms.extend((0..3).map(|before| {
        let encoded = STANDARD.encode(format!("{}{MARKER}", "-".repeat(before)));
        encoded[4..encoded.len() - 4].to_owned()
    }));
    for form in &forms {
        assert!(!text.contains(form.as_str()), "{form} is in the recording");
    }
    let mut files = 0;
    for entry in std::fs::read_dir(recording).expect("the recording is there") {
        let bytes = std::fs::read(entry.expect("an entry").path()).expect("a segment");
        let mut windows = bytes.windows(MARKER.len());
        assert!(!windows.any(|window| window == MARKER.as_bytes()));
        files += 1;
    }
    println!(
        "content of a Secret: in none of {files} files and {} bytes of lines, looked for in {} forms",
        text.len(),
        forms.len()
    );
}

/// Sends large reviews to a server whose queue is too small, and prints how many it drops.
async fn overload() {
    const REVIEWS: usize = 400;
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let settings = json!({"directory": folder.path(), "maxQueue": "1Mi"});
    let server = Server::start(policies(false).with("record", settings));
    let asked = &server;
    let answers = stream::iter(0..REVIEWS).map(|index| async move {
        let mut object = pod(&format!("large-{index}"));
        object["metadata"]["annotations"] = json!({"large": "x".repeat(200_000)});
        let review = Review::create(object).uid(&objects::uid(index)).build();
        asked.validate(&review).await.status
    });
    let answers: Vec<u16> = answers.buffer_unordered(cost::CLIENTS).collect().await;
    assert!(answers.iter().all(|status| *status == 200));
    until("all reviews are recorded or dropped", async || {
        let recorded = count(asked, "tollgate_recorded_reviews_total").await;
        recorded + count(asked, "tollgate_recording_dropped_total").await >= REVIEWS as f64
    })
    .await;
    let dropped = count(asked, "tollgate_recording_dropped_total").await;
    println!(
        "overload: {REVIEWS} reviews of 200 kB at a queue of 1 MiB: all answered, {dropped} dropped from the recording and counted"
    );
}

/// Replays by one worker. Returns the output, the elapsed time and the processor time.
fn timed(recording: &TempDir, config: &Path) -> (String, Duration, Duration) {
    let arguments = [
        "replay",
        path(recording.path()),
        "--config",
        path(config),
        "--json",
        "--jobs",
        "1",
    ];
    let (began, before) = (Instant::now(), time_of_children());
    let output = tollgate(&arguments).stdout;
    (output, began.elapsed(), time_of_children() - before)
}

/// Replays what was recorded with the same plugins, twice.
fn replay_the_same(recording: &TempDir, config: &Path) {
    // The first replay compiles the plugins.
    let (first, _, _) = timed(recording, config);
    let results: Value = serde_json::from_str(&first).expect("JSON");
    assert_eq!(results["differences"], json!([]));
    let reviews = results["reviews"].as_f64().unwrap_or_default();
    let (second, elapsed, spent) = timed(recording, config);
    assert_eq!(first, second, "the second replay prints other bytes");
    println!(
        "replay with the running version: {reviews} reviews, no difference; twice: the same {} bytes",
        first.len()
    );
    println!(
        "replay: {:.0} reviews per second of processor time, {:.0} per second elapsed with one worker",
        reviews / spent.as_secs_f64(),
        reviews / elapsed.as_secs_f64()
    );
}

/// Replays a change, and writes what it finds as a suite. The suite fails with the change and passes without it.
fn replay_the_change(recording: &TempDir, traffic: &Traffic) {
    let changed = policies(true);
    let config = changed.write();
    let suite = changed.folder().join("found.test.yaml");
    let cases = ["--write-suite", path(&suite), "--cases", "denied"];
    let (code, results) = replay(recording, &config, &cases);
    assert_eq!(code, Some(1));
    assert_eq!(uids(&results, "denied"), traffic.known_uids());
    let differences = results["differences"].as_array().map(Vec::len);
    assert_eq!(differences, Some(KNOWN));
    println!("replay of a change: {KNOWN} reviews are newly denied, exactly the known ones");
    let before = tollgate(&["test", path(&suite)]);
    assert_eq!(before.code, Some(1), "{}", before.stdout);
    std::fs::copy(policies(false).write(), &config).expect("the fix can be written");
    let after = tollgate(&["test", path(&suite)]);
    assert_eq!(after.code, Some(0), "{}", after.stdout);
    for (name, ran) in [("before the fix", before), ("after the fix", after)] {
        let last = ran.stdout.trim_end().lines().last().unwrap_or_default();
        println!("suite of the differences, {name}: {last}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures for minutes; run it by `cargo xtask recordings`"]
async fn prints_figures_of_recording_and_replay() {
    let traffic = Traffic::from_environment();
    let recording = record(&traffic).await;
    assert_without_marker(recording.path());
    overload().await;
    let same = policies(false);
    replay_the_same(&recording, &same.write());
    replay_the_change(&recording, &traffic);
}
