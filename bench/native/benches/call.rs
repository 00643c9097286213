//! Measures one call of a plugin in a fresh instance, beside the same check in native Rust.
//!
//! The plugin and the native check read the same parsed document. The plugin's figure is therefore the cost of the
//! sandbox: the permits, a store with its limits, an instance, the fiber, five calls to the host and the answer.
//! Neither cost should depend on the size of the object.
//!
//! `cargo build --release --workspace --bin tollgate && cargo bench -p tollgate-native --bench call`

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use tokio::runtime::Runtime;
use tollgate_admission::Phase;
use tollgate_admission::review::decode::decode;
use tollgate_bench::documents;
use tollgate_bench::plugins::Work;
use tollgate_engine::{Answer, Subject};
use tollgate_gate::plugin::PluginState;
use tollgate_native::RequiredLabels;
use tollgate_native::setup::{self, Room, Setup};
use tollgate_telemetry::metrics::Metrics;

const SIZES: [(&str, usize); 2] = [("250 B", 250), ("100 kB", 100_000)];
const TIMEOUT: Duration = Duration::from_secs(1);

fn call(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("the worker threads can be started");
    let setup = Setup::new(Metrics::new(), runtime, Room::Default);
    let package = Work::ReadsFields.package();
    let settings = Work::ReadsFields.settings(0);
    let set = setup.load(&[setup::entry(package, package, &settings)]);
    let plugin = set
        .get(package)
        .expect("the plugin was loaded under this name");
    let PluginState::Loaded(loaded) = &plugin.state else {
        unreachable!("a plugin that is not loaded ends the setup")
    };
    let native = RequiredLabels::new(&settings);

    for (size, bytes) in SIZES {
        let body = documents::review(&documents::pod(bytes));
        let review = decode(&body, 64).expect("the review can be read");
        let request = Arc::new(review.request);
        let object = request
            .object
            .clone()
            .expect("a CREATE comes with an object");
        let subject = Subject {
            request: request.clone(),
            object: Some(object.clone()),
        };

        let guest = loaded
            .guest
            .as_ref()
            .expect("a plugin that is no group has a guest");

        let mut group = criterion.benchmark_group(format!("call/{size}"));
        group.bench_function("plugin", |bencher| {
            bencher.iter_custom(|iterations| {
                setup.runtime.block_on(async {
                    let began = Instant::now();
                    for _ in 0..iterations {
                        let deadline = Instant::now() + TIMEOUT;
                        let subject = black_box(subject.clone());
                        let report = guest
                            .call(&setup.engine, Phase::Validate, &subject, deadline)
                            .await;
                        assert!(matches!(report.result, Ok(Answer::Allow)));
                    }
                    began.elapsed()
                })
            });
        });
        group.bench_function("native", |bencher| {
            bencher.iter(|| {
                let allowed = native.validate(black_box(&request), black_box(&object));
                assert!(allowed.is_ok());
            });
        });
        group.finish();
    }
}

criterion_group!(benches, call);
criterion_main!(benches);
