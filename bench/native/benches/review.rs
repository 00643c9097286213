//! Measures a whole review from request bytes to answer bytes, with 1, 5 and 20 distinct plugins, beside the same
//! checks in native Rust.
//!
//! Both sides read and write with the same code. Each validator requires its own labels. The first five mutators
//! rewrite one image each, and the others find nothing to do, which is the usual case. The sandbox's cost of one more
//! plugin is the difference of two figures, divided by the number of plugins between them.
//!
//! `cargo build --release --workspace --bin tollgate && cargo bench -p tollgate-native --bench review`

use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tollgate_admission::{Body, Call, Endpoint, Gate, Reply};
use tollgate_bench::documents;
use tollgate_bench::plugins::Work;
use tollgate_gate::pipeline::Pipeline;
use tollgate_native::Control;
use tollgate_native::setup::{self, Room, Setup};
use tollgate_telemetry::metrics::Metrics;

const POD_BYTES: usize = 5_000;
const COUNTS: [usize; 3] = [1, 5, 20];
const MAX_DEPTH: u32 = 64;
const TIMEOUT: Duration = Duration::from_secs(1);

fn review(criterion: &mut Criterion) {
    let metrics = Metrics::new();
    let runtime = Runtime::new().expect("the worker threads can be started");
    let setup = Setup::new(metrics.clone(), runtime, Room::Default);
    let body = Bytes::from(documents::review(&documents::pod(POD_BYTES)));
    for count in COUNTS {
        for (endpoint, work) in [
            (Endpoint::Validate, Work::ReadsFields),
            (Endpoint::Mutate, Work::Mutates),
        ] {
            let entry = |index: usize| {
                let name = format!("plugin-{index}");
                setup::entry(&name, work.package(), &work.settings(index))
            };
            let entries: Vec<Value> = (0..count).map(entry).collect();
            let native = Control::new(&setup::configuration(&json!(entries)).plugins, MAX_DEPTH);
            let native = native.expect("every plugin here has a native twin");
            let set = setup.load(&entries);
            let pipeline = Pipeline::new(setup.engine.clone(), set, metrics.clone(), MAX_DEPTH, 1);
            let ask = async || {
                let received = Instant::now();
                let call = Call {
                    endpoint,
                    plugin: None,
                    received,
                    deadline: received + TIMEOUT,
                    trace: None,
                    body: Body::Whole(body.clone()),
                };
                match pipeline.review(call).await {
                    Reply::Review(answer) => answer,
                    other => panic!("the review was not answered: {other:?}"),
                }
            };
            let answer = setup.runtime.block_on(ask());
            let natively = native.answer(endpoint, &body);
            assert_same(&answer, &natively.expect("the review can be read"));

            let mut group = criterion.benchmark_group(format!("{}/{count}", endpoint.name()));
            group.bench_function("plugins", |bencher| {
                bencher.iter_custom(|iterations| {
                    setup.runtime.block_on(async {
                        let began = Instant::now();
                        for _ in 0..iterations {
                            std::hint::black_box(ask().await);
                        }
                        began.elapsed()
                    })
                });
            });
            group.bench_function("native", |bencher| {
                bencher.iter(|| native.answer(endpoint, std::hint::black_box(&body)));
            });
            group.finish();
        }
    }
}

/// Checks that both answers have the same verdict and patch. A side that does something else would be faster.
fn assert_same(answer: &[u8], native: &[u8]) {
    let verdict = |answer: &[u8]| {
        let answer: Value = serde_json::from_slice(answer).expect("an answer is JSON");
        let response = &answer["response"];
        (response["allowed"].clone(), response["patch"].clone())
    };
    assert_eq!(verdict(answer), verdict(native));
}

criterion_group!(benches, review);
criterion_main!(benches);
