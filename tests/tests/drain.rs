//! A server that is told to stop still answers the requests that it has accepted.

use std::time::{Duration, Instant};

use serde_json::json;
use tollgate_tests::checker::Endpoint;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::reviews::{Review, as_sent, pod};
use tollgate_tests::server::{Server, metric};
use tollgate_tests::{hostile, wat};

const IN_FLIGHT: usize = 200;
/// Duration of each call. It is long enough that all calls are running when the signal arrives.
const CALL_MILLISECONDS: u64 = 2000;

/// Starts a server with a slow plugin that uses no CPU: it waits in WASI until its deadline, and the request is allowed
/// without it.
fn server() -> Server {
    let modules = hostile::all();
    let mut configuration = Configuration::new()
        .with("engine.answerCache", 0)
        .with("engine.maxConcurrentCalls", 256);
    let limits = json!({"timeout": format!("{CALL_MILLISECONDS}ms"), "concurrency": 256});
    configuration.plugin_of(
        "slow",
        &modules["wasi-sleep"],
        json!({"failurePolicy": "Ignore", "limits": limits}),
    );
    configuration.plugin_of("quick", &wat::plugin("validator", ""), json!({}));
    Server::start(configuration)
}

async fn in_flight(server: &Server) -> f64 {
    metric(&server.metrics().await, "tollgate_requests_in_flight", &[])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_all_requests_in_flight_at_sigterm() {
    let server = server();
    let client = server.client(|builder| builder.http1_only().pool_max_idle_per_host(IN_FLIGHT));
    let url = server.url("/validate/slow");
    let started = Instant::now();
    let mut requests = tokio::task::JoinSet::new();
    for number in 0..IN_FLIGHT {
        let review = Review::create(pod("web"))
            .uid(&format!("00000000-0000-4000-8000-{number:012}"))
            .build();
        let request = client
            .post(&url)
            .header("content-type", "application/json")
            .body(as_sent(&review));
        requests.spawn(async move {
            let response = request
                .send()
                .await
                .map_err(|error| format!("{number}: {error:?}"))?;
            let (status, closes) = (
                response.status().as_u16(),
                response.headers().get("connection").cloned(),
            );
            let body = response
                .bytes()
                .await
                .map_err(|error| format!("{number}: {error:?}"))?;
            Ok::<_, String>((review, status, closes, body))
        });
    }
    // Wait until the server itself counts all of them as in flight.
    let deadline = Instant::now() + Duration::from_millis(CALL_MILLISECONDS * 3 / 4);
    let mut most = 0.0_f64;
    while Instant::now() < deadline && most < IN_FLIGHT as f64 {
        most = most.max(in_flight(&server).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("{most} requests in flight after {:?}", started.elapsed());
    assert!(
        requests.try_join_next().is_none(),
        "a request was answered before the signal: the plugin is too quick"
    );
    server.terminate();
    let signalled = Instant::now();

    let (mut answered, mut closing, mut lost) = (0, 0, Vec::new());
    while let Some(ended) = requests.join_next().await {
        match ended.expect("a request does not panic") {
            Ok((review, status, closes, body)) => {
                let checked = tollgate_tests::checker::check(
                    Endpoint::Validate,
                    &review,
                    status,
                    "application/json",
                    &body,
                );
                let checked = checked.unwrap_or_else(|violations| panic!("{violations:?}"));
                assert!(checked.allowed, "the plugin fails open");
                answered += 1;
                closing += usize::from(closes.is_some_and(|value| value == "close"));
            }
            Err(error) => lost.push(error),
        }
    }
    let stopped = server.wait_for_end();
    println!(
        "{answered} answered, {} lost, {closing} with `Connection: close`; ended {:?} after SIGTERM",
        lost.len(),
        signalled.elapsed()
    );
    assert!(
        lost.is_empty(),
        "{} of {IN_FLIGHT} were not answered: {:#?}",
        lost.len(),
        &lost[..lost.len().min(5)]
    );
    assert_eq!(answered, IN_FLIGHT);
    assert_eq!(
        most, IN_FLIGHT as f64,
        "not all were in flight at the signal"
    );
    assert_eq!(
        closing, IN_FLIGHT,
        "some answers did not announce that the connection closes"
    );
    assert!(
        stopped.status.success(),
        "tollgate ended with {}",
        stopped.status
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_server_is_alive_but_not_ready() {
    let server = server();
    assert_eq!(server.get_admin("/readyz").await.status, 200);
    assert_eq!(server.get_admin("/livez").await.status, 200);
    let review = Review::create(pod("web")).build();
    let (answer, probes) = tokio::join!(server.post("/validate/slow", &review), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.terminate();
        tokio::time::sleep(Duration::from_millis(300)).await;
        (
            server.get_admin("/readyz").await.status,
            server.get_admin("/livez").await.status,
        )
    });
    assert!(answer.checked(Endpoint::Validate, &review).allowed);
    assert_eq!(probes, (503, 200));
    assert!(server.wait_for_end().status.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_server_stops_at_once() {
    let server = server();
    let review = Review::create(pod("web")).build();
    // The drain does not wait for an idle kept-alive connection.
    assert!(
        server
            .post("/validate/quick", &review)
            .await
            .checked(Endpoint::Validate, &review)
            .allowed
    );
    let signalled = Instant::now();
    let stopped = server.stop();
    assert!(
        stopped.status.success(),
        "tollgate ended with {}",
        stopped.status
    );
    assert!(
        signalled.elapsed() < Duration::from_secs(5),
        "it took {:?}",
        signalled.elapsed()
    );
}
