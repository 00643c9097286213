//! The control has the same results as the plugins, and the load generator notices a wrong answer.

use std::path::PathBuf;
use std::time::Duration;

use tollgate_bench::documents::{pod, review};
use tollgate_bench::load::{Expected, Measured, Order, Pace};
use tollgate_bench::plugins::{RUST, Work};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::server::{Server, Start};

const POD_BYTES: usize = 5_000;
const PLUGINS: usize = 5;

fn start(program: Option<&str>, work: Work) -> Server {
    let mut configuration = Configuration::new();
    work.configure(&RUST, PLUGINS, &mut configuration);
    let start = match program {
        Some(program) => Start::default().program(PathBuf::from(program)),
        None => Start::default(),
    };
    start.start(configuration)
}

fn control(work: Work) -> Server {
    start(Some(env!("CARGO_BIN_EXE_native-control")), work)
}

fn order(server: &Server, work: Work, pace: Pace) -> Order {
    let body = server.configuration().folder().join("review.json");
    std::fs::write(&body, review(&pod(POD_BYTES))).expect("the folder can be written to");
    Order {
        address: server.address(),
        ca: server.ca_bundle().to_owned(),
        path: work.path().to_owned(),
        body,
        connections: 2,
        pace,
        warm_up: Duration::from_millis(50),
        duration: Duration::from_millis(300),
        max_requests: 1_000_000,
        process: server.process(),
        differ: false,
        expected: Expected {
            allowed: true,
            operations: work.operations(PLUGINS),
        },
    }
}

fn saturate(server: &Server, work: Work) -> Measured {
    let measured = order(server, work, Pace::Saturating).run();
    measured.unwrap_or_else(|error| panic!("{}: {error:#}", work.name()))
}

#[test]
fn control_answers_like_plugins() {
    let all = [
        Work::ReadsFields,
        Work::ParsesEverything,
        Work::Mutates,
        Work::Images,
    ];
    for work in all {
        let host = saturate(&start(None, work), work);
        let native = saturate(&control(work), work);
        assert_eq!(host.patch, native.patch, "{}", work.name());
        assert!(native.requests > 0 && native.server_cpu_seconds > 0.0);
        let counted: u64 = native.latencies.iter().map(|(_, count)| count).sum();
        assert_eq!(counted, native.requests);
    }
}

#[test]
fn keeps_fixed_rate() {
    let server = control(Work::ReadsFields);
    let pace = Pace::PerSecond(200.0);
    let measured = order(&server, Work::ReadsFields, pace).run();
    let requests = measured.expect("the control answers").requests;
    // 60 requests are due within 300 ms.
    assert!((30..=61).contains(&requests), "{requests}");
}

#[test]
fn stops_after_requested_number_of_requests() {
    let server = control(Work::ReadsFields);
    let mut order = order(&server, Work::ReadsFields, Pace::Saturating);
    order.max_requests = 10;
    order.duration = Duration::from_secs(60);
    let requests = order.run().expect("the control answers").requests;
    assert!((10..20).contains(&requests), "{requests}");
}

#[test]
fn stops_at_wrong_answer() {
    let server = control(Work::Mutates);
    let mut order = order(&server, Work::Mutates, Pace::Saturating);
    order.expected.operations += 1;
    let error = order.run().expect_err("the patch has another length");
    assert!(error.to_string().contains("6 operations"), "{error:#}");
}

#[test]
fn error_names_plugin_without_native_twin() {
    let mut configuration = Configuration::new();
    let path = PathBuf::from("/plugins/always_pull_images.wasm");
    configuration.plugin("pull", &path, serde_json::json!({}));
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_native-control"))
        .args(["serve", "--config"])
        .arg(configuration.write())
        .output()
        .expect("the control can be run");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(
        text.contains("/plugins/always_pull_images.wasm: this plugin has no native twin"),
        "{text}"
    );
}
