//! An urgent change of a plugin takes effect while every processor is busy, and requests hardly slow down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::guests;
use tollgate_tests::reviews::{Review, as_sent, pod};
use tollgate_tests::server::Server;

/// Number of clients that send one review after another.
const CLIENTS: usize = 16;
/// Replacements in one run, unless the variable is set.
const CHANGES: usize = 2;
const CHANGES_VARIABLE: &str = "TOLLGATE_CHANGES";
/// Time limit for a change. On an idle machine it is 3 seconds, but the test must pass on any machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Results of the clients.
#[derive(Default)]
struct Observed {
    latencies: Vec<Duration>,
    failed: usize,
}

impl Observed {
    fn line(mut self) -> String {
        self.latencies.sort();
        let count = self.latencies.len();
        let at = |share: usize| self.latencies[(count * share / 1000).min(count - 1)];
        format!(
            "{count} reviews, {} failed, p50 {:?}, p99 {:?}, p99.9 {:?}",
            self.failed,
            at(500),
            at(990),
            at(999)
        )
    }
}

async fn send(server: Arc<Server>, stop: Arc<AtomicBool>) -> Observed {
    let body = as_sent(&Review::create(pod("web")).build());
    let mut seen = Observed::default();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let request = server.default_client().post(server.url("/validate"));
        let request = request.header("content-type", "application/json");
        match request.body(body.clone()).send().await {
            Ok(answer) if answer.status() == 200 => {
                let _ = answer.bytes().await;
            }
            _ => seen.failed += 1,
        }
        seen.latencies.push(began.elapsed());
    }
    seen
}

/// Sends reviews from all clients until `something` is done.
async fn during(server: &Arc<Server>, something: impl Future<Output = ()>) -> Observed {
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| tokio::spawn(send(server.clone(), stop.clone())))
        .collect();
    something.await;
    stop.store(true, Ordering::Relaxed);
    let mut all = Observed::default();
    for client in clients {
        let seen = client.await.expect("a client does not panic");
        all.latencies.extend(seen.latencies);
        all.failed += seen.failed;
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_urgent_change_is_in_force_while_every_processor_is_busy() {
    let changes = std::env::var(CHANGES_VARIABLE).map_or(CHANGES, |text| {
        text.parse().expect("the number of changes is a number")
    });
    let wasm = std::fs::read(guests::build("required-labels")).expect("it was just built");
    let mut configuration = Configuration::new().with("engine.answerCache", 0);
    let settings = json!({"settings": {"labels": {"app": "[a-z]+"}}});
    configuration.plugin_of("urgent", &wasm, settings);
    let file = configuration.folder().join("urgent.wasm");
    let server = Arc::new(Server::start(configuration));
    server.assert_all_loaded().await;
    let digest = server.plugin_status("urgent").await["digest"].clone();
    assert!(file.is_file() && digest.is_string(), "{digest}");

    let stop = Arc::new(AtomicBool::new(false));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let spinners: Vec<_> = (0..processors.min(8))
        .map(|_| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let idle = during(&server, tokio::time::sleep(Duration::from_secs(2))).await;
    let mut times = Vec::new();
    let busy = during(&server, async {
        for change in 0..changes {
            let before = server.plugin_status("urgent").await["digest"].clone();
            let new = guests::with_section(&wasm, "change", format!("{change}").as_bytes());
            let beside = file.with_extension("new");
            std::fs::write(&beside, new).expect("the folder can be written to");
            std::fs::rename(&beside, &file).expect("a file can be renamed");
            let began = Instant::now();
            while server.plugin_status("urgent").await["digest"] == before {
                assert!(
                    began.elapsed() < LIMIT * 4,
                    "not in force after {:?}",
                    began.elapsed()
                );
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            times.push(began.elapsed());
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    for spinner in spinners {
        spinner.join().expect("a loop does not panic");
    }
    println!("without changes: {}", idle.line());
    let failed = busy.failed;
    println!("with changes:    {}", busy.line());
    println!("in force after:  {times:?}");
    assert_eq!(failed, 0, "reviews failed");
    for took in times {
        assert!(took < LIMIT, "in force only after {took:?}");
    }
}
