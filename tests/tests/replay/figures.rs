//! The figures of recording and replay, for `cargo xtask recordings`.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::guests;
use tollgate_tests::reviews::{Review, pod};
use tollgate_tests::server::{Server, metric, until};

use super::{MARKER, decompressed, marked_secret, path, replay, tollgate, uids};

/// The number of plugins.
const PLUGINS: usize = 10;
/// The number of reviews that the change denies.
const KNOWN: usize = 37;
/// Reviews that are sent to one server before it is the other one's turn.
const BATCH: usize = 1_000;
const CLIENTS: usize = 8;

fn reviews_from_environment() -> usize {
    let given = std::env::var("TOLLGATE_RECORDED_REVIEWS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(100_000)
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

fn uid(index: usize) -> String {
    format!("uid-{index:06}")
}

/// The indices of the reviews that the change denies, spread over all of them.
fn known(count: usize) -> BTreeSet<usize> {
    (0..KNOWN).map(|index| index * (count / KNOWN)).collect()
}

fn review(index: usize, known: &BTreeSet<usize>) -> Value {
    let mut object = pod(&format!("web-{index}"));
    let tier = if known.contains(&index) {
        "known"
    } else {
        "front"
    };
    object["metadata"]["labels"]["tier"] = json!(tier);
    Review::create(object).uid(&uid(index)).build()
}

/// Sends the reviews by several clients.
async fn send(server: &Server, indices: std::ops::Range<usize>, known: &BTreeSet<usize>) {
    stream::iter(indices)
        .for_each_concurrent(CLIENTS, |index| async move {
            let answer = server.validate(&review(index, known)).await;
            assert_eq!(answer.status, 200);
        })
        .await;
}

fn cpu(server: &Server) -> Duration {
    let (own, _children) = server.cpu_time();
    own
}

/// Records the reviews, and prints what that costs.
async fn record(count: usize, known: &BTreeSet<usize>) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let settings = json!({"directory": folder.path(), "maxBytes": "4Gi", "maxQueue": "256Mi"});
    let recording = Server::start(policies(false).with("record", settings));
    let plain = Server::start(policies(false));
    // The first calls set up connections and memories.
    for server in [&recording, &plain] {
        send(server, 0..1, known).await;
    }
    let begin = (cpu(&recording), cpu(&plain));
    let mut took = [Duration::ZERO; 2];
    for from in (1..count).step_by(BATCH) {
        let indices = from..(from + BATCH).min(count);
        for (server, took) in [&recording, &plain].into_iter().zip(&mut took) {
            let began = Instant::now();
            send(server, indices.clone(), known).await;
            *took += began.elapsed();
        }
    }
    let secret = Review::create(marked_secret("figures")).build();
    assert_eq!(recording.validate(&secret).await.status, 200);
    until("all reviews are in the recording", async || {
        let page = recording.metrics().await;
        metric(&page, "tollgate_recorded_reviews_total", &[]) > count as f64
    })
    .await;
    let spent = (cpu(&recording) - begin.0, cpu(&plain) - begin.1);
    let page = recording.metrics().await;
    let dropped = metric(&page, "tollgate_recording_dropped_total", &[]);
    let bytes = metric(&page, "tollgate_recording_written_bytes_total", &[]);
    println!("reviews {count}, plugins {PLUGINS}");
    println!(
        "bytes per review: {:.0}, dropped: {dropped}",
        bytes / count as f64
    );
    println!(
        "processor time: {:.1} s with recording, {:.1} s without, ratio {:.3} (the recorder's thread included)",
        spent.0.as_secs_f64(),
        spent.1.as_secs_f64(),
        spent.0.as_secs_f64() / spent.1.as_secs_f64()
    );
    println!(
        "elapsed: {:.1} s with recording, {:.1} s without, ratio {:.3}",
        took[0].as_secs_f64(),
        took[1].as_secs_f64(),
        took[0].as_secs_f64() / took[1].as_secs_f64()
    );
    assert_eq!(dropped, 0.0);
    assert!(recording.stop().status.success());
    folder
}

/// Sends large reviews to a server whose queue is too small, and prints how many it drops.
async fn overload() {
    const REVIEWS: usize = 400;
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let settings = json!({"directory": folder.path(), "maxQueue": "1Mi"});
    let server = Server::start(policies(false).with("record", settings));
    let asked = &server;
    stream::iter(0..REVIEWS)
        .for_each_concurrent(CLIENTS, |index| async move {
            let mut object = pod(&format!("large-{index}"));
            object["metadata"]["annotations"] = json!({"large": "x".repeat(200_000)});
            let review = Review::create(object).uid(&uid(index)).build();
            assert_eq!(asked.validate(&review).await.status, 200);
        })
        .await;
    let count = async |name: &str| metric(&asked.metrics().await, name, &[]);
    until("all reviews are recorded or dropped", async || {
        let recorded = count("tollgate_recorded_reviews_total").await;
        recorded + count("tollgate_recording_dropped_total").await >= REVIEWS as f64
    })
    .await;
    let dropped = count("tollgate_recording_dropped_total").await;
    println!("overload: {REVIEWS} reviews answered, {dropped} of them dropped from the recording");
}

/// Replays by one worker. Returns the output and the time.
fn timed(recording: &TempDir, config: &Path) -> (String, Duration) {
    let arguments = [
        "replay",
        path(recording.path()),
        "--config",
        path(config),
        "--json",
        "--jobs",
        "1",
    ];
    let began = Instant::now();
    (tollgate(&arguments).stdout, began.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures for minutes; run it by `cargo xtask recordings`"]
async fn prints_figures_of_recording_and_replay() {
    let count = reviews_from_environment();
    assert!(count >= KNOWN, "at least {KNOWN} reviews");
    let known = known(count);
    let recording = record(count, &known).await;
    let text = decompressed(recording.path());
    assert!(
        !text.contains(MARKER),
        "content of the Secret is in the recording"
    );
    drop(text);
    overload().await;

    let same = policies(false);
    let config = same.write();
    let (first, took) = timed(&recording, &config);
    let results: Value = serde_json::from_str(&first).expect("JSON");
    assert_eq!(results["differences"], json!([]));
    let (second, _) = timed(&recording, &config);
    assert_eq!(first, second, "the second replay prints other bytes");
    println!(
        "replay: {:.0} reviews per second on one processor",
        count as f64 / took.as_secs_f64()
    );
    let changed = policies(true);
    let (code, results) = replay(&recording, &changed.write(), &[]);
    assert_eq!(code, Some(1));
    let denied: BTreeSet<String> = known.iter().map(|index| uid(*index)).collect();
    assert_eq!(uids(&results, "denied"), denied);
    println!(
        "replay of a change: exactly {} reviews are newly denied",
        denied.len()
    );
}
