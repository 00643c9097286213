//! The registration and the configuration change at different moments. No request fails meanwhile, and reviews that no
//! configured plugin is for are reported.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tollgate_tests::checker::{Endpoint, check};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::hostile;
use tollgate_tests::reviews::{Review, as_sent, pod};
use tollgate_tests::server::{Server, metric};

/// Number of requests under load.
const REQUESTS: usize = 3_000;
const CLIENTS: usize = 6;
/// kube-apiserver's timeout for a webhook.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for a change to take effect on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn rules(resources: &[&str]) -> Value {
    json!({"match": {"rules": [{
        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": resources,
    }]}})
}

fn configuration(names: &[&str]) -> Configuration {
    let mut configuration = Configuration::new();
    for name in names {
        configuration.plugin_of(name, &hostile::harmless(), rules(&["pods"]));
    }
    configuration
}

fn configuration_file(server: &Server) -> PathBuf {
    server.configuration().folder().join("tollgate.yaml")
}

/// Changes the configuration file in one step.
fn edit(server: &Server, change: impl FnOnce(&mut Vec<Value>)) {
    let path = configuration_file(server);
    let text = std::fs::read(&path).expect("the configuration is there");
    let mut root: Value = serde_json::from_slice(&text).expect("the suites write it as JSON");
    change(root["plugins"].as_array_mut().expect("a list"));
    let new = path.with_extension("new");
    std::fs::write(&new, root.to_string()).expect("written");
    std::fs::rename(&new, &path).expect("renamed");
}

/// Waits until exactly these plugins serve.
async fn until_served(server: &Server, names: &[&str]) {
    let began = Instant::now();
    loop {
        let page = server.get_admin("/plugins").await.json();
        let plugins = page["plugins"].as_array().cloned().unwrap_or_default();
        let served: Vec<&str> = plugins
            .iter()
            .filter(|plugin| plugin["state"] == "loaded")
            .filter_map(|plugin| plugin["name"].as_str())
            .collect();
        if served == names {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{names:?}: {page:#}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Sends a review like kube-apiserver: an answer with Retry-After is retried within the timeout.
async fn answered(server: &Server, path: &str, review: &Value) -> Result<bool, String> {
    let began = Instant::now();
    loop {
        let answer = server.post(path, review).await;
        match answer.status {
            200 => {
                let endpoint = if path.starts_with("/mutate") {
                    Endpoint::Mutate
                } else {
                    Endpoint::Validate
                };
                let content_type = &answer.content_type;
                let checked = check(endpoint, review, 200, content_type, &answer.body);
                return checked
                    .map(|checked| checked.allowed)
                    .map_err(|error| format!("{path}: {error:?}"));
            }
            429 | 503 if began.elapsed() + Duration::from_secs(1) < TIMEOUT => {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            status => return Err(format!("{path}: HTTP {status}: {}", answer.text())),
        }
    }
}

async fn unserved(server: &Server, endpoint: &str, reason: &str) -> f64 {
    let labels = [("endpoint", endpoint), ("reason", reason)];
    metric(
        &server.metrics().await,
        "tollgate_unserved_reviews_total",
        &labels,
    )
}

fn warnings(server: &Server, words: &str) -> Vec<Value> {
    let logs = server.logs();
    let lines = logs.iter().filter(|line| line.contains(words));
    lines
        .map(|line| serde_json::from_str(line).expect("the log is JSON"))
        .collect()
}

/// Every kind of change, with the registration before and after the configuration. The clients stand for
/// kube-apiserver, which asks for what is registered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_in_either_order_fail_no_request() {
    let server = Arc::new(Server::start(configuration(&["first", "second"])));
    let plugin = |name: &str| {
        let wasm = server.configuration().folder().join("first.wasm");
        let mut entry = rules(&["pods"]);
        entry["name"] = json!(name);
        entry["source"] = json!(format!("file:{}", wasm.display()));
        entry
    };
    // One webhook for all plugins, and one for each, is what the first and the last phase register.
    let paths = |names: &[&str]| -> Vec<String> {
        let of = |endpoint: &str| {
            names
                .iter()
                .map(|name| format!("/{endpoint}/{name}"))
                .collect()
        };
        let (mutate, validate): (Vec<String>, Vec<String>) = (of("mutate"), of("validate"));
        [mutate, validate].concat()
    };
    let shared = vec!["/mutate".to_owned(), "/validate".to_owned()];
    let registered = Arc::new(std::sync::Mutex::new(shared.clone()));
    let register = |paths: Vec<String>| {
        *registered.lock().expect("not poisoned") = paths;
    };
    let (stop, sent) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (server, registered) = (server.clone(), registered.clone());
        let (stop, sent) = (stop.clone(), sent.clone());
        clients.spawn(async move {
            let review = Review::create(pod(&format!("of-{client}"))).build();
            let mut failed = Vec::new();
            while !stop.load(Ordering::Relaxed) || sent.load(Ordering::Relaxed) < REQUESTS {
                let paths = registered.lock().expect("not poisoned").clone();
                for path in paths {
                    match answered(&server, &path, &review).await {
                        Ok(true) => {}
                        Ok(false) => failed.push(format!("{path}: denied")),
                        Err(why) => failed.push(why),
                    }
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            }
            failed
        });
    }
    let hold = || tokio::time::sleep(Duration::from_millis(400));
    hold().await;

    // One webhook becomes one for each plugin, and a plugin goes: the configuration changes first.
    register(paths(&["first", "second"]));
    hold().await;
    edit(&server, |plugins| {
        plugins.remove(1);
    });
    until_served(&server, &["first"]).await;
    hold().await;
    register(paths(&["first"]));
    hold().await;

    // A plugin comes: the registration changes first.
    register(paths(&["first", "third"]));
    hold().await;
    let third = plugin("third");
    edit(&server, |plugins| plugins.push(third));
    until_served(&server, &["first", "third"]).await;
    hold().await;

    // A plugin is replaced by one of another name: the configuration changes first.
    let fourth = plugin("fourth");
    edit(&server, |plugins| plugins[1] = fourth);
    until_served(&server, &["first", "fourth"]).await;
    hold().await;
    register(paths(&["first", "fourth"]));
    hold().await;

    // One for each becomes one webhook, and all plugins but one go: the registration changes first.
    register(shared);
    hold().await;
    edit(&server, |plugins| plugins.truncate(1));
    until_served(&server, &["first"]).await;
    hold().await;

    stop.store(true, Ordering::Relaxed);
    let mut failed = Vec::new();
    while let Some(client) = clients.join_next().await {
        failed.extend(client.expect("a client does not panic"));
    }
    let sent = sent.load(Ordering::Relaxed);
    println!("{sent} requests, {} failed", failed.len());
    assert!(
        failed.is_empty(),
        "{} failed, such as {}",
        failed.len(),
        failed[0]
    );
    assert!(sent >= REQUESTS, "{sent}");
    assert!(unserved(&server, "validate", "removed").await > 0.0);
    assert!(unserved(&server, "mutate", "removed").await > 0.0);
    // A client that waits for one endpoint does not reach the other one.
    let unknown = unserved(&server, "mutate", "unknown").await;
    assert!(unknown + unserved(&server, "validate", "unknown").await > 0.0);
    for name in ["second", "third"] {
        let removed = warnings(&server, "removed from the configuration");
        let count = removed
            .iter()
            .filter(|line| line["fields"]["plugin"] == name || line["plugin"] == name)
            .count();
        assert_eq!(count, 2, "one warning for each endpoint: {removed:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugin_that_was_added_again_and_is_not_loaded_allows_nothing() {
    let server = Server::start(configuration(&["labels", "other"]));
    let review = Review::create(pod("web")).build();
    let mut removed = Value::Null;
    edit(&server, |plugins| removed = plugins.remove(0));
    until_served(&server, &["other"]).await;
    assert_eq!(
        answered(&server, "/validate/labels", &review).await,
        Ok(true)
    );
    removed["source"] = json!("file:/nowhere/labels.wasm");
    edit(&server, |plugins| plugins.push(removed));
    let began = Instant::now();
    loop {
        let answer = server.post("/validate/labels", &review).await;
        if answer.status == 503 {
            assert_eq!(answer.text(), "the plugin `labels` is not loaded yet");
            break;
        }
        assert_eq!(answer.status, 200);
        assert!(began.elapsed() < PATIENCE, "{}", server.logs().join("\n"));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(unserved(&server, "validate", "pending").await >= 1.0);
    assert_eq!(
        warnings(&server, "of the configuration that is not loaded").len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_plugin_that_never_was() {
    let server = Server::start(configuration(&["labels"]));
    let review = Review::create(pod("web")).build();
    let client = server.default_client();
    for _ in 0..3 {
        let request = client
            .post(server.url("/validate/label"))
            .header("content-type", "application/json")
            .body(as_sent(&review));
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.headers()["retry-after"], "1");
        let text = answer.text().await.expect("a body");
        assert_eq!(text, "no plugin named `label` is configured");
    }
    assert_eq!(unserved(&server, "validate", "unknown").await, 3.0);
    assert_eq!(warnings(&server, "never had").len(), 1);
    assert_eq!(unserved(&server, "validate", "removed").await, 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_rules_that_are_wider_than_configured() {
    let server = Server::start(configuration(&["labels"]));
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}});
    let other = Review::create(object).build();
    let known = Review::create(pod("web")).build();
    for path in ["/validate", "/validate/labels", "/mutate"] {
        for _ in 0..2 {
            assert_eq!(answered(&server, path, &other).await, Ok(true), "{path}");
            assert_eq!(answered(&server, path, &known).await, Ok(true), "{path}");
        }
    }
    assert_eq!(unserved(&server, "validate", "unmatched").await, 4.0);
    assert_eq!(unserved(&server, "mutate", "unmatched").await, 2.0);
    let warnings = warnings(&server, "wider than the configuration");
    assert_eq!(warnings.len(), 3, "one for each path: {warnings:#?}");
    assert!(warnings[0].to_string().contains("configmaps"));
}
