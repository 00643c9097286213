//! A whole review, from the bytes that came to the bytes that go, with 1, 5 and 20 distinct plugins, beside the same
//! checks written natively.
//!
//! Both sides read and write with the same code and merge the same reports. Each validator demands labels of its own;
//! of the mutators the first four rewrite an image each and the others find nothing to do, as most do most of the
//! time. What the sandbox costs for one more plugin is the difference of two figures, divided.

mod native {
    pub(crate) mod image_rewrite;
    pub(crate) mod required_labels;
}
mod setup;

use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use tollgate::config::{FailurePolicy, Mode, PluginName};
use tollgate::document::Json;
use tollgate::metrics::Metrics;
use tollgate::patch::{ApplyLimits, Operation, apply, diff};
use tollgate::pipeline::Pipeline;
use tollgate::pipeline::merge::merge;
use tollgate::pipeline::outcome::{Ended, Report};
use tollgate::review::decode::decode;
use tollgate::review::respond::respond;
use tollgate::server::{Body, Call, Endpoint, Gate, Reply};

use native::image_rewrite::ImageRewrite;
use native::required_labels::RequiredLabels;
use setup::Setup;

const POD_BYTES: usize = 5_000;
const COUNTS: [usize; 3] = [1, 5, 20];
const MAX_DEPTH: u32 = 64;
const TIMEOUT: Duration = Duration::from_secs(1);
const NO_LIMITS: ApplyLimits = ApplyLimits {
    max_depth: MAX_DEPTH,
    max_added_nodes: usize::MAX,
    max_added_bytes: usize::MAX,
    max_steps: usize::MAX,
};

/// What a webhook without plugins does, with the checks compiled in.
struct Native {
    labels: Vec<(PluginName, RequiredLabels)>,
    images: Vec<(PluginName, ImageRewrite)>,
}

fn review(criterion: &mut Criterion) {
    let metrics = Metrics::new();
    let setup = Setup::new(metrics.clone());
    let body = Bytes::from(setup::review(&setup::pod(POD_BYTES)));
    for count in COUNTS {
        let labels: Vec<Value> = (0..count).map(labels_settings).collect();
        let images: Vec<Value> = (0..count).map(images_settings).collect();
        let native = Native {
            labels: named("labels", &labels, RequiredLabels::new),
            images: named("images", &images, ImageRewrite::new),
        };
        for (endpoint, package, prefix, settings) in [
            (Endpoint::Validate, "required-labels", "labels", &labels),
            (Endpoint::Mutate, "image-rewrite", "images", &images),
        ] {
            let entries: Vec<Value> = settings
                .iter()
                .enumerate()
                .map(|(index, settings)| {
                    setup::entry(&format!("{prefix}-{index}"), package, settings)
                })
                .collect();
            let set = setup.load(&entries);
            let pipeline = Pipeline::new(setup.engine.clone(), set, metrics.clone(), MAX_DEPTH, 1);
            let ask = async || {
                let received = Instant::now();
                let call = Call {
                    endpoint,
                    plugin: None,
                    received,
                    deadline: received + TIMEOUT,
                    body: Body::Whole(body.clone()),
                };
                match pipeline.review(call).await {
                    Reply::Review(answer) => answer,
                    other => panic!("the review was not answered: {other:?}"),
                }
            };
            let answer = setup.runtime.block_on(ask());
            assert_same(&answer, &native.review(endpoint, &body));

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
                bencher.iter(|| native.review(endpoint, std::hint::black_box(&body)));
            });
            group.finish();
        }
    }
}

fn labels_settings(index: usize) -> Value {
    let pattern = format!("[a-z]{{1,{}}}", 10 + index);
    json!({ "labels": { "app.kubernetes.io/name": null, "team": pattern } })
}

fn images_settings(index: usize) -> Value {
    let rule =
        json!({ "from": format!("registry-{index}.example.com"), "to": "mirror.example.com" });
    json!({ "rewrite": [rule], "annotateOriginal": false })
}

fn named<C>(prefix: &str, settings: &[Value], check: impl Fn(&Value) -> C) -> Vec<(PluginName, C)> {
    let numbered = settings.iter().enumerate();
    numbered
        .map(|(index, settings)| {
            let name = PluginName::parse(&format!("{prefix}-{index}"));
            (name.expect("the prefix is a valid name"), check(settings))
        })
        .collect()
}

/// Both have to say the same of the object, or one of them is fast because it does something else.
fn assert_same(answer: &[u8], native: &[u8]) {
    let verdict = |answer: &[u8]| {
        let answer: Value = serde_json::from_slice(answer).expect("an answer is JSON");
        let response = &answer["response"];
        (response["allowed"].clone(), response["patch"].clone())
    };
    assert_eq!(verdict(answer), verdict(native));
}

// === impl Native ===

impl Native {
    fn review(&self, endpoint: Endpoint, body: &[u8]) -> Vec<u8> {
        let review = decode(body, MAX_DEPTH + 2).expect("the review can be read");
        let request = review.request;
        let object = request
            .object
            .as_ref()
            .expect("a CREATE comes with an object");
        let (reports, patch) = match endpoint {
            Endpoint::Validate => {
                let judge = |(name, check): &(PluginName, RequiredLabels)| {
                    let ended = match check.validate(&request, object) {
                        Ok(()) => Ended::Allowed,
                        Err(denial) => Ended::Denied(denial),
                    };
                    report(name, ended, &[])
                };
                (self.labels.iter().map(judge).collect(), Vec::new())
            }
            Endpoint::Mutate => self.mutate(object),
        };
        let outcome = merge(&reports, patch, &request);
        respond(review.version, &request.uid, &outcome, endpoint)
    }

    fn mutate(&self, object: &Json) -> (Vec<Report>, Vec<Operation>) {
        let mut current = object.clone();
        let mut reports = Vec::new();
        for (name, check) in &self.images {
            let operations = check.mutate(&current);
            if operations.is_empty() {
                reports.push(report(name, Ended::Unchanged, &[]));
                continue;
            }
            current = apply(&current, &operations, &NO_LIMITS).expect("the operations apply");
            reports.push(report(name, Ended::Patched, &operations));
        }
        let patch = diff(object, &current);
        (reports, patch)
    }
}

fn report(name: &PluginName, ended: Ended, operations: &[Operation]) -> Report {
    Report {
        plugin: name.clone(),
        mode: Mode::Enforce,
        failure_policy: FailurePolicy::Fail,
        ended,
        warnings: Vec::new(),
        annotations: Vec::new(),
        changed: operations
            .iter()
            .map(|operation| operation.path().to_string())
            .collect(),
        conflicts: Vec::new(),
        existing: None,
        reinvoked: None,
        unsettled: Vec::new(),
        digest: "".into(),
    }
}

criterion_group!(benches, review);
criterion_main!(benches);
