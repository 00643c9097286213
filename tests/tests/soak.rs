//! A server's memory does not grow with the number of answers.

#[path = "soak/faults.rs"]
mod faults;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_tests::checker::{Endpoint, check};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::reviews::{Review, as_sent, pod};
use tollgate_tests::server::{Server, until};
use tollgate_tests::{guests, hostile};

const REQUESTS: usize = 100_000;
const WARM_UP: usize = 1_000;
const AT_ONCE: usize = 16;
/// What the large reviews must take, so that the test can see that it is given back.
const TAKEN_AT_LEAST_KIB: u64 = 16 * 1024;
/// What large reviews may take at most while mutators make small changes. Each has a megabyte, and [`AT_ONCE`] are under way.
const TAKEN_AT_MOST_KIB: u64 = 32 * 1024;
/// Allowed growth, in percent.
const GROWTH_PERCENT: u64 = 10;
/// Time limit for the whole test, in minutes.
const MINUTES: u64 = 30;

/// Plugins that a server of many tenants may run: three policies several times, and modules with different faults.
const FAULTING: [(&str, Endpoint); 8] = [
    ("validate-loop", Endpoint::Validate),
    ("memory-bomb", Endpoint::Validate),
    ("unreachable", Endpoint::Validate),
    ("abort", Endpoint::Validate),
    ("malformed-variant", Endpoint::Validate),
    ("huge-message", Endpoint::Validate),
    ("patch-missing-parent", Endpoint::Mutate),
    ("many-annotations", Endpoint::Validate),
];

fn server() -> (Server, Vec<(String, Endpoint)>) {
    let modules = hostile::all();
    let mut configuration = Configuration::new();
    let mut paths = Vec::new();
    for copy in 1..=4 {
        let name = format!("always-pull-images-{copy}");
        configuration.plugin(&name, &guests::build("always-pull-images"), json!({}));
        paths.push((format!("/mutate/{name}"), Endpoint::Mutate));
        let name = format!("image-rewrite-{copy}");
        let rewrite = json!({"rewrite": [{"from": "registry.example.com/", "to": format!("mirror-{copy}.example.com/")}]});
        configuration.plugin(
            &name,
            &guests::build("image-rewrite"),
            json!({"settings": rewrite}),
        );
        paths.push((format!("/mutate/{name}"), Endpoint::Mutate));
        let name = format!("required-labels-{copy}");
        let labels = json!({"labels": {format!("team-{copy}"): "[a-z]+"}});
        configuration.plugin(
            &name,
            &guests::build("required-labels"),
            json!({"settings": labels}),
        );
        paths.push((format!("/validate/{name}"), Endpoint::Validate));
    }
    for (index, (fixture, endpoint)) in FAULTING.into_iter().enumerate() {
        let failure_policy = if index % 2 == 0 { "Fail" } else { "Ignore" };
        let limits = json!({"fuel": "1M", "timeout": "5s", "cpuTime": "5s"});
        configuration.plugin_of(
            fixture,
            &modules[fixture],
            json!({"failurePolicy": failure_policy, "limits": limits}),
        );
        let path = if endpoint == Endpoint::Mutate {
            "/mutate"
        } else {
            "/validate"
        };
        paths.push((format!("{path}/{fixture}"), endpoint));
    }
    (Server::start(configuration), paths)
}

/// Creates a review of a Pod of a few kilobytes. No two are alike.
fn review(number: usize) -> Value {
    let mut object = pod(&format!("web-{number}"));
    let annotations =
        (0..number % 20).map(|index| (format!("example.com/{index}"), json!("x".repeat(100))));
    object["metadata"]["annotations"] = annotations.collect();
    Review::create(object)
        .uid(&format!("00000000-0000-4000-8000-{number:012}"))
        .build()
}

/// Creates a review of a Pod of two megabytes. The host builds its annotations at once, because there are so many.
fn large_review(number: usize) -> Value {
    let mut object = pod(&format!("web-{number}"));
    let annotations = (0..150_000).map(|index| (format!("a{index}"), json!("")));
    object["metadata"]["annotations"] = annotations.collect();
    Review::create(object).build()
}

/// Sends the requests with these numbers, some in parallel, to each plugin in turn.
async fn send(
    server: &Server,
    paths: &[(String, Endpoint)],
    numbers: std::ops::Range<usize>,
    review: fn(usize) -> Value,
) {
    let mut running = tokio::task::JoinSet::new();
    for number in numbers {
        if running.len() >= AT_ONCE {
            running
                .join_next()
                .await
                .expect("some are running")
                .expect("a request does not panic");
        }
        let (path, endpoint) = &paths[number % paths.len()];
        let review = review(number);
        let request = server
            .default_client()
            .post(server.url(path))
            .header("content-type", "application/json");
        let (request, endpoint) = (request.body(as_sent(&review)), *endpoint);
        running.spawn(async move {
            let response = request
                .send()
                .await
                .unwrap_or_else(|error| panic!("request {number} was not answered: {error:?}"));
            let status = response.status().as_u16();
            let body = response
                .bytes()
                .await
                .unwrap_or_else(|error| panic!("request {number}: {error:?}"));
            if let Err(violations) = check(endpoint, &review, status, "application/json", &body) {
                panic!("request {number}: {violations:?}");
            }
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("a request does not panic");
    }
}

/// Sends large reviews to mutators. Returns the server's resident memory before them, and the most with them, in KiB.
async fn memory_with(server: &Server, large: fn(usize) -> Value) -> (u64, u64) {
    let paths = [("/mutate".to_owned(), Endpoint::Mutate)];
    send(server, &paths, 0..AT_ONCE, review).await;
    let before = server.resident_kib();
    server.forget_peak();
    send(server, &paths, 0..5 * AT_ONCE, large).await;
    let most = server.peak_kib();
    println!("{before} KiB resident, and {most} with large reviews");
    (before, most)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a hundred thousand requests take half a minute and a machine with nothing else to do"]
async fn memory_does_not_grow_over_hundred_thousand_requests() {
    let (server, paths) = server();
    server.assert_all_loaded().await;
    assert_eq!(paths.len(), 20, "twenty distinct plugins");
    let started = Instant::now();
    println!("requests | resident KiB | seconds");
    println!("0 | {} | 0", server.resident_kib());
    send(&server, &paths, 0..WARM_UP, review).await;
    let before = server.resident_kib();
    println!("{WARM_UP} | {before} | {}", started.elapsed().as_secs());
    let step = REQUESTS / 10;
    let mut from = WARM_UP;
    while from < REQUESTS {
        let to = (from + step).min(REQUESTS) / step * step;
        send(&server, &paths, from..to, review).await;
        println!(
            "{to} | {} | {}",
            server.resident_kib(),
            started.elapsed().as_secs()
        );
        assert!(
            started.elapsed().as_secs() < MINUTES * 60,
            "{to} requests took {MINUTES} minutes, which is too slow for this test"
        );
        from = to;
    }
    let after = server.resident_kib();
    let stopped = server.stop();
    assert!(
        stopped.status.success(),
        "tollgate ended with {}",
        stopped.status
    );
    let most = before + before * GROWTH_PERCENT / 100;
    assert!(
        after <= most,
        "{after} KiB after {REQUESTS} requests, {before} KiB after {WARM_UP}: more than {GROWTH_PERCENT}% more"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_of_large_reviews_is_released() {
    let mut configuration = Configuration::new();
    let rewrite =
        json!({"rewrite": [{"from": "registry.example.com/", "to": "mirror.example.com/"}]});
    configuration.sample("image-rewrite", &rewrite);
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    let (before, most) = memory_with(&server, large_review).await;
    assert!(
        most > before + TAKEN_AT_LEAST_KIB,
        "large reviews took {} KiB; the test needs {TAKEN_AT_LEAST_KIB} to see them released",
        most.saturating_sub(before)
    );
    let took = until("the memory is released", async || {
        server.resident_kib() < most - (most - before) / 2
    })
    .await;
    println!("{} KiB after {took:?}", server.resident_kib());
    assert!(took < Duration::from_secs(40), "{took:?}");
}

/// The host does not build what nobody changes, and no other thread keeps memory of its own for a small change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_changes_of_large_objects_take_little_memory() {
    const CONTAINERS: usize = 5;
    let mut configuration = Configuration::new();
    let module = guests::build("image-rewrite");
    for index in 0..CONTAINERS {
        let from = format!("registry-{index}.example.com");
        let settings = json!({"rewrite": [{"from": from, "to": "mirror.example.com"}]});
        let name = format!("image-rewrite-{index}");
        configuration.plugin(&name, &module, json!({"settings": settings}));
    }
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    let large = |number: usize| {
        let mut object = pod(&format!("web-{number}"));
        let variable = |index: usize| json!({"name": format!("SETTING_{index}"), "value": format!("the value of setting {index}")});
        let environment: Value = (0..3_000).map(variable).collect();
        let container = |index: usize| {
            json!({
                "name": format!("c{index}"), "image": format!("registry-{index}.example.com/app:1"), "env": environment,
            })
        };
        object["spec"]["containers"] = (0..CONTAINERS).map(container).collect();
        Review::create(object).build()
    };
    let (before, most) = memory_with(&server, large).await;
    assert!(
        most < before + TAKEN_AT_MOST_KIB,
        "large reviews took {} KiB, more than {TAKEN_AT_MOST_KIB}",
        most - before
    );
}
