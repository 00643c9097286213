//! Runs one piece of the host a number of times, so that callgrind can count instructions: see `cargo xtask bench
//! --instructions`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::{Parser, ValueEnum};
use serde_json::{Value, json};
use tollgate_admission::review::decode::{Review, ReviewVersion, decode_within};
use tollgate_admission::{Body, Call, Endpoint, Gate, Reply};
use tollgate_bench::documents::{self, UID};
use tollgate_bench::plugins::Work;
use tollgate_config::{PluginConfig, PluginName, Source};
use tollgate_gate::pipeline::Pipeline;
use tollgate_gate::pipeline::merge::merge;
use tollgate_gate::pipeline::outcome::{Ended, Outcome, Report};
use tollgate_gate::pipeline::respond::respond;
use tollgate_json::document::{Account, Json, Pointer};
use tollgate_json::patch::{ApplyLimits, Operation, apply, diff};
use tollgate_native::setup::{self, Room, Setup};
use tollgate_telemetry::metrics::Metrics;

/// Run one piece of the host a number of times.
#[derive(Debug, Parser)]
#[command(name = "instructions", about)]
struct Cli {
    piece: Piece,
    times: u64,
}

/// A piece of the host that can run on its own.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Piece {
    /// Decode a review of 5 kB to the request in it.
    #[value(name = "decode-5kB")]
    DecodeMedium,
    /// Decode a review of 100 kB.
    #[value(name = "decode-100kB")]
    DecodeLarge,
    /// Encode an outcome with five operations as the bytes of the answer.
    Respond,
    /// Merge twenty reports into one outcome.
    Merge,
    /// Compute the patch between two versions of an object of 100 kB with five differences.
    #[value(name = "diff-100kB")]
    Diff,
    /// Review from bytes to bytes with one plugin that reads fields.
    #[value(name = "review-1-plugin")]
    OnePlugin,
    /// Review from bytes to bytes with six such plugins.
    #[value(name = "review-6-plugins")]
    SixPlugins,
}

const MEDIUM: usize = 5_000;
const LARGE: usize = 100_000;
const MAX_DEPTH: u32 = 120;
/// Time limit for a review. Counting makes a program fifty times slower.
const TIMEOUT: Duration = Duration::from_secs(60);
const PLUGINS: usize = 20;
const LIMITS: ApplyLimits = ApplyLimits {
    max_depth: MAX_DEPTH,
    max_added_nodes: usize::MAX,
    max_added_bytes: usize::MAX,
    max_steps: usize::MAX,
};

fn main() -> ExitCode {
    let Cli { piece, times } = Cli::parse();
    match piece {
        Piece::DecodeMedium => run_decode(MEDIUM, times),
        Piece::DecodeLarge => run_decode(LARGE, times),
        Piece::Respond => run_respond(times),
        Piece::Merge => run_merge(times),
        Piece::Diff => run_diff(times),
        Piece::OnePlugin => run_review(1, times),
        Piece::SixPlugins => run_review(6, times),
    }
    ExitCode::SUCCESS
}

fn run_decode(bytes: usize, times: u64) {
    let body = Bytes::from(documents::review(&documents::pod(bytes)));
    for _ in 0..times {
        std::hint::black_box(read(std::hint::black_box(&body)));
    }
}

fn run_respond(times: u64) {
    let outcome = Outcome {
        allowed: true,
        patch: operations(),
        ..Outcome::default()
    };
    for _ in 0..times {
        let outcome = std::hint::black_box(&outcome);
        let answer = respond(ReviewVersion::V1, UID, outcome, Endpoint::Mutate);
        std::hint::black_box(answer);
    }
}

fn run_merge(times: u64) {
    let request = read(&documents::review(&documents::pod(MEDIUM)).into()).request;
    let reports: Vec<Report> = (0..PLUGINS).map(report).collect();
    for _ in 0..times {
        std::hint::black_box(merge(std::hint::black_box(&reports), Vec::new(), &request));
    }
}

fn run_diff(times: u64) {
    let before = Json::from(documents::pod(LARGE));
    let after = apply(&before, &operations(), &LIMITS).expect("the operations apply");
    for _ in 0..times {
        let patch = diff(std::hint::black_box(&before), std::hint::black_box(&after));
        assert_eq!(patch.len(), documents::CONTAINERS);
    }
}

fn run_review(plugins: usize, times: u64) {
    let metrics = Metrics::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a current-thread runtime can be created");
    let setup = Setup::new(metrics.clone(), runtime, Room::OneCall);
    let work = Work::ReadsFields;
    // All plugins have the same settings, so only one module is compiled. callgrind shows this program a simpler
    // processor than the preparing child sees, so the child's compiled code cannot be used here.
    let settings = work.settings(0);
    let entry = |index| {
        let name = format!("plugin-{index}");
        let mut entry = setup::entry(&name, work.package(), &settings);
        entry["limits"] = json!({ "cpuTime": "30s", "timeout": "30s" });
        entry
    };
    let entries: Vec<Value> = (0..plugins).map(entry).collect();
    let pipeline = Pipeline::new(
        setup.engine.clone(),
        setup.load(&entries),
        metrics,
        MAX_DEPTH,
        1,
    );
    let body = Bytes::from(documents::review(&documents::pod(MEDIUM)));
    for _ in 0..times {
        let received = Instant::now();
        let call = Call {
            endpoint: Endpoint::Validate,
            plugin: None,
            received,
            deadline: received + TIMEOUT,
            body: Body::Whole(body.clone()),
            trace: None,
        };
        match setup.runtime.block_on(pipeline.review(call)) {
            Reply::Review(answer) => assert_allowed(&answer),
            other => panic!("the review was not answered: {other:?}"),
        }
    }
}

fn read(body: &Bytes) -> Review {
    decode_within(body, MAX_DEPTH + 2, &Account::unlimited()).expect("the review can be read")
}

/// Returns one operation for each container.
fn operations() -> Vec<Operation> {
    let replace = |index: usize| Operation::Replace {
        path: Pointer::from_tokens(["spec", "containers", &index.to_string(), "image"]),
        value: Json::text("mirror.example.com/shop/front-end:1.4"),
    };
    (0..documents::CONTAINERS).map(replace).collect()
}

fn report(index: usize) -> Report {
    let name = PluginName::parse(&format!("plugin-{index}")).expect("a valid name");
    let digest = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let config = PluginConfig::new(name, Source::File("plugin.wasm".into()));
    Report::new(&config, Some(Arc::from(digest)), Ended::Allowed)
}

/// Checks the verdict in the text. Nothing else in these answers contains the same words.
fn assert_allowed(answer: &[u8]) {
    let text = std::str::from_utf8(answer).unwrap_or_default();
    assert!(
        text.contains("\"allowed\":true"),
        "the review was not allowed: {text}"
    );
}
