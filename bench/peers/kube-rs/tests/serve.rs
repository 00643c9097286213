//! The load generator drives the peer as it drives Tollgate, and notices a wrong answer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tollgate_bench::documents::{UID, pod, review};
use tollgate_bench::load::{Expected, Measured, Order, Pace};
use tollgate_bench::peers::Certificates;
use tollgate_bench::plugins::Work;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::server::{Server, Start};

fn start(certificates: &Certificates, labels: serde_json::Value, floor: bool) -> Server {
    let mut configuration = Configuration::new();
    let settings = json!({ "settings": { "labels": labels } });
    // The peer reads the settings alone.
    configuration.plugin("plugin-0", Path::new("/no/plugin.wasm"), settings);
    let program = PathBuf::from(env!("CARGO_BIN_EXE_peer-kube-rs"));
    let mut start = certificates.give(Start::default().program(program));
    if floor {
        start = start.argument("--floor").argument(UID);
    }
    start.start(configuration)
}

fn saturate(server: &Server) -> anyhow::Result<Measured> {
    let body = server.configuration().folder().join("review.json");
    std::fs::write(&body, review(&pod(5_000)))?;
    let order = Order {
        address: server.address(),
        ca: server.ca_bundle().to_owned(),
        path: Work::ReadsFields.path().to_owned(),
        body,
        connections: 2,
        pace: Pace::Saturating,
        warm_up: Duration::from_millis(50),
        duration: Duration::from_millis(300),
        max_requests: 1_000,
        process: server.process(),
        differ: false,
        expected: Expected {
            allowed: true,
            operations: 0,
        },
    };
    order.run()
}

#[test]
fn peer_and_floor_answer_like_the_host() {
    let certificates = Certificates::new().expect("certificates can be created");
    let settings = Work::ReadsFields.settings(0);
    for floor in [false, true] {
        let server = start(&certificates, settings["labels"].clone(), floor);
        let measured = saturate(&server).expect("the answers are as expected");
        assert!(measured.requests > 0 && measured.patch.is_empty());
    }
}

#[test]
fn load_generator_notices_denial() {
    let certificates = Certificates::new().expect("certificates can be created");
    let server = start(&certificates, json!({ "missing": null }), false);
    let error = saturate(&server).expect_err("the Pod has no such label");
    assert!(
        error.to_string().contains("label missing is required"),
        "{error:#}"
    );
}
