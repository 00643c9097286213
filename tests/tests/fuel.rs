//! A plugin uses the same fuel on the same object in every run, with any number of threads.

use serde_json::{Value, json};
use tollgate_tests::checker::Endpoint;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::reviews::{Review, pod};
use tollgate_tests::server::{Server, Start, metric};

const PLUGINS: [(&str, &str); 4] = [
    ("always-pull-images", "mutate"),
    ("always-pull-images", "validate"),
    ("image-rewrite", "mutate"),
    ("required-labels", "validate"),
];
/// Number of calls of each plugin. Some run in parallel, so that threads could make a difference.
const CALLS: usize = 20;

async fn start(threads: &str) -> Server {
    // Every call runs.
    let mut configuration = Configuration::new().with("engine.answerCache", 0);
    configuration.sample("always-pull-images", &json!({}));
    let rewrite =
        json!({"rewrite": [{"from": "registry.example.com/", "to": "mirror.example.com/"}]});
    configuration.sample("image-rewrite", &rewrite);
    let labels = json!({"labels": {"app": null, "owner": "team-[a-z]+"}});
    configuration.sample("required-labels", &labels);
    let server = Start::default()
        .environment("TOKIO_WORKER_THREADS", threads)
        .start(configuration);
    server.assert_all_loaded().await;
    server
}

fn review() -> Value {
    let mut object = pod("web");
    let container = |index: usize| json!({"name": format!("c{index}"), "image": format!("registry.example.com/app:{index}")});
    object["spec"]["containers"] = (0..20).map(container).collect();
    Review::create(object).build()
}

/// Returns the fuel per call of a plugin, which must be the same in all calls.
async fn fuel(server: &Server, plugin: &str, phase: &str, review: &Value) -> f64 {
    let (endpoint, path) = match phase {
        "mutate" => (Endpoint::Mutate, format!("/mutate/{plugin}")),
        _ => (Endpoint::Validate, format!("/validate/{plugin}")),
    };
    let labels = [("plugin", plugin), ("phase", phase)];
    let counted = async || {
        metric(
            &server.metrics().await,
            "tollgate_plugin_fuel_total",
            &labels,
        )
    };
    let before = counted().await;
    let first = server.post(&path, review).await;
    let _ = first.checked(endpoint, review);
    let single = counted().await - before;
    let others = (1..CALLS).map(|_| server.post(&path, review));
    let mut running = Vec::new();
    for other in others {
        running.push(other);
    }
    for answer in join_all(running).await {
        let _ = answer.checked(endpoint, review);
    }
    let all = counted().await - before;
    assert_eq!(
        all,
        single * CALLS as f64,
        "{plugin}, {phase}: {CALLS} concurrent calls do not use {CALLS} times the fuel of one call"
    );
    single
}

async fn join_all<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut pinned: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut results: Vec<Option<T>> = pinned.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut pending = false;
        for (future, result) in pinned.iter_mut().zip(&mut results) {
            if result.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *result = Some(value),
                    std::task::Poll::Pending => pending = true,
                }
            }
        }
        if pending {
            std::task::Poll::Pending
        } else {
            std::task::Poll::Ready(())
        }
    })
    .await;
    results.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn same_call_uses_same_fuel_in_every_run() {
    let review = review();
    let mut known: Vec<Option<f64>> = vec![None; PLUGINS.len()];
    println!("plugin | export | threads | run | fuel");
    for threads in ["1", "2"] {
        for run in 1..=3 {
            let server = start(threads).await;
            for ((plugin, phase), known) in PLUGINS.iter().zip(&mut known) {
                let fuel = fuel(&server, plugin, phase, &review).await;
                println!("{plugin} | {phase} | {threads} | {run} | {fuel}");
                assert!(fuel > 0.0, "{plugin}, {phase}: no fuel was counted");
                let known = *known.get_or_insert(fuel);
                assert_eq!(
                    known, fuel,
                    "{plugin}, {phase}: different fuel in run {run} on {threads} threads"
                );
            }
        }
    }
}

#[tokio::test]
async fn different_object_uses_different_fuel() {
    let server = start("2").await;
    let small = Review::create(pod("web")).build();
    let of_small = fuel(&server, "required-labels", "validate", &small).await;
    let of_large = fuel(&server, "always-pull-images", "validate", &review()).await;
    let of_one = fuel(&server, "always-pull-images", "validate", &small).await;
    assert!(of_small > 0.0);
    assert!(
        of_large > of_one * 5.0,
        "20 containers use {of_large}, one uses {of_one}"
    );
}
