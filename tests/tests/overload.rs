//! A review that ends with 429 because a plugin finds no room.

use std::time::Duration;

use serde_json::json;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::reviews::{Review, pod};
use tollgate_tests::server::{Server, metric};
use tollgate_tests::wat;

/// Two of these do not fit into the memory for calls together.
const LARGE_MEMORY: &str = r#"(memory (export "memory") 640)"#;
const LARGE_MEMORY_BYTES: f64 = 640.0 * 65536.0;
/// Room for one large memory and for small ones.
const ALL_MEMORY_BYTES: u64 = 64 << 20;

fn validator(fields: &str, body: &str) -> Vec<u8> {
    let text = format!(
        r#"{fields}
        (func (export "tollgate:admission/validating@0.1.0#validate") (result i32) {body})"#
    );
    wat::plugin("validator", &text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_before_the_one_without_room_are_counted() {
    let limits = json!({
        "memory": "48Mi", "fuel": "1000G", "cpuTime": "20s", "timeout": "20s", "concurrency": 2,
    });
    let mut configuration = Configuration::new()
        .with("engine.maxMemory", ALL_MEMORY_BYTES)
        .with("engine.answerCache", 0)
        .with("engine.maxConcurrentCalls", 4);
    let options = json!({ "limits": limits });
    let small = validator("", "unreachable");
    configuration.plugin_of("failing", &small, options.clone());
    let large = validator(LARGE_MEMORY, "(i32.const 256)");
    configuration.plugin_of("large", &large, options.clone());
    let endless = validator(LARGE_MEMORY, "(loop $again (br $again)) unreachable");
    configuration.plugin_of("endless", &endless, options);
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    let review = Review::create(pod("web")).build();
    let run = async {
        while metric(&server.metrics().await, "tollgate_call_memory_bytes", &[])
            < LARGE_MEMORY_BYTES
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        server.post("/validate", &review).await
    };
    // The endless call holds its memory until the test is over.
    let answer = tokio::select! {
        answer = run => answer,
        answer = server.post("/validate/endless", &review) => panic!("it ended first: {answer:?}"),
    };
    assert_eq!(answer.status, 429);
    let page = server.metrics().await;
    let count = |name, plugin| metric(&page, name, &[("plugin", plugin)]);
    assert_eq!(count("tollgate_plugin_calls_total", "failing"), 1.0);
    assert_eq!(count("tollgate_plugin_faults_total", "failing"), 1.0);
    assert_eq!(count("tollgate_plugin_calls_total", "large"), 0.0);
}
