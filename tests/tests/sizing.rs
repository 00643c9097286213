//! A pod of the size in `docs/guides/sizing.md` has more memory than a server uses under the worst load that it accepts.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::floods::{ATTACKER, Flood, hold};
use tollgate_tests::reviews::{Review, as_sent, config_map};
use tollgate_tests::server::Server;
use tollgate_tests::wat;

const MIB: u64 = 1 << 20;

/// The limits on memory, smaller than the defaults so that a test can reach them.
struct Sizes {
    in_flight: u64,
    decoded: u64,
    calls_memory: u64,
    connections: u64,
    concurrent_calls: u64,
    concurrency: u64,
    output: u64,
    memory: u64,
}

const SIZES: Sizes = Sizes {
    in_flight: 48 * MIB,
    decoded: 96 * MIB,
    calls_memory: 128 * MIB,
    connections: 200,
    concurrent_calls: 16,
    concurrency: 8,
    output: 2 * MIB,
    memory: 24 * MIB,
};

/// A plugin that takes all memory that it may have, writes to every page, and computes for a while.
const HUNGRY: &str = r#"
(memory (export "memory") 2 368)
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (local $round i32)
    (drop (memory.grow (i32.const 366)))
    (memory.fill (i32.const 65536) (i32.const 1) (i32.const 23000000))
    (local.set $round (i32.const 20000000))
    (loop $again
        (br_if $again (local.tee $round (i32.sub (local.get $round) (i32.const 1)))))
    (i32.const 256))"#;

// === impl Sizes ===

impl Sizes {
    /// The formula of `docs/guides/sizing.md`, for plugins that are already compiled.
    fn formula(&self, plugins: u64) -> u64 {
        const WASM_STACK: u64 = MIB / 2;
        128 * MIB
            + plugins * (8 * MIB + self.concurrency * MIB)
            + self.connections * 128 * 1024
            + (self.in_flight + self.decoded) * 5 / 4
            + self.calls_memory
            + self.concurrent_calls * (WASM_STACK + MIB + self.output)
    }

    fn server(&self) -> Server {
        let mut configuration = Configuration::new()
            .with("engine.answerCache", 0)
            .with(
                "requests",
                json!({
                    "maxInFlight": self.in_flight,
                    "maxDecoded": self.decoded,
                    "maxConnections": self.connections,
                }),
            )
            .with("engine.maxConcurrentCalls", self.concurrent_calls)
            .with("engine.maxMemory", self.calls_memory);
        let limits = json!({
            "memory": self.memory,
            "output": self.output,
            "concurrency": self.concurrency,
            "fuel": "1G",
            "timeout": "5s",
            "cpuTime": "5s",
        });
        let plugin = json!({"failurePolicy": "Ignore", "limits": limits});
        configuration.plugin_of("hungry", &wat::plugin("validator", HUNGRY), plugin.clone());
        configuration.plugin_of("bomber", &bomber(self.output), plugin);
        Server::start(configuration)
    }
}

/// A plugin whose answer is an object of the maximum size, which is many times larger when it is decoded.
fn bomber(output: u64) -> Vec<u8> {
    let list = vec![r#"{"":0}"#; usize::try_from(output / 7 - 1_000).expect("it is small")];
    let object = format!(r#"{{"list":[{}]}}"#, list.join(","));
    let length = object.len();
    let pages = length / 65536 + 3;
    let text = format!(
        r#"
(memory (export "memory") {pages})
(data (i32.const 1024) "\03\00\00\00" "\00\00\01\00" "{length}")
(data (i32.const 65536) "{object}")
(func (export "tollgate:admission/mutating@0.1.0#mutate") (result i32) (i32.const 1024))"#,
        length = little_endian(length),
        object = object.replace('"', "\\22"),
    );
    wat::plugin("mutator", &text)
}

fn little_endian(number: usize) -> String {
    let bytes = u32::try_from(number).expect("it is small").to_le_bytes();
    bytes.iter().map(|byte| format!("\\{byte:02x}")).collect()
}

/// Sends a review again and again, `at_once` times in parallel.
fn send(tasks: &mut JoinSet<()>, server: &Server, path: &str, review: &Value, at_once: usize) {
    let client = server.client(|builder| builder.http1_only());
    for _ in 0..at_once {
        let request = client
            .post(server.url(path))
            .header("content-type", "application/json")
            .body(as_sent(review));
        tasks.spawn(async move {
            loop {
                // Most requests are refused. The test is about the memory that the server holds meanwhile.
                if let Ok(answer) = request
                    .try_clone()
                    .expect("it can be sent again")
                    .send()
                    .await
                {
                    drop(answer.bytes().await);
                }
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peak_memory_stays_below_sizing_formula() {
    let server = SIZES.server();
    server.assert_all_loaded().await;
    let idle = server.peak_kib();
    let data = json!({"key": "value"});
    let object = config_map("web", data.as_object().expect("it is an object").clone());
    let small = Review::create(object).build();
    let mut load = JoinSet::new();
    send(&mut load, &server, "/validate/hungry", &small, 12);
    send(&mut load, &server, "/mutate/bomber", &small, 8);
    let floods = [
        Flood::DecodedBombs,
        Flood::SlowBodies,
        Flood::AnnouncedLengths,
        Flood::HeaderOnlyStreams,
    ];
    let held: Vec<JoinSet<()>> = floods
        .into_iter()
        .map(|flood| hold(flood, &server, ATTACKER))
        .collect();
    let mut fullest = [0_f64; 3];
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let page = server.metrics().await;
        let names = ["in_flight_bytes", "decoded_bytes", "call_memory_bytes"];
        for (fullest, name) in fullest.iter_mut().zip(names) {
            let value = tollgate_tests::server::metric(&page, &format!("tollgate_{name}"), &[]);
            *fullest = fullest.max(value);
        }
    }
    let peak = server.peak_kib() * 1024;
    drop((load, held));
    let formula = SIZES.formula(2);
    println!(
        "idle {} MiB, peak {} MiB, formula {} MiB; in flight {:.0}, decoded {:.0}, calls {:.0} MiB",
        idle / 1024,
        peak / MIB,
        formula / MIB,
        fullest[0] / MIB as f64,
        fullest[1] / MIB as f64,
        fullest[2] / MIB as f64,
    );
    assert!(peak <= formula, "{} MiB of {}", peak / MIB, formula / MIB);
    // The load must reach these limits.
    for (name, fullest, limit) in [
        ("decoded documents", fullest[1], SIZES.decoded),
        ("memories of calls", fullest[2], SIZES.calls_memory),
    ] {
        assert!(
            fullest >= limit as f64 / 3.0,
            "{name}: {fullest} of {limit}"
        );
    }
}
