//! Replicas that start without a plugin: they do not replace replicas that have it, but serve if no replica has it.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tollgate_tests::checker::{Checked, Endpoint};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::port;
use tollgate_tests::reviews::{Review, config_map, pod};
use tollgate_tests::server::{Answer, Server, until};
use tollgate_tests::wat::marker;

/// Time limit for an expected state.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns a rule for one resource of the core group.
fn of(resource: &str) -> Value {
    json!({"rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}]})
}

/// Returns an address that nobody listens on.
fn nowhere() -> String {
    format!("127.0.0.1:{}", port::free())
}

/// Configures a replica that answers probes at one of these ports and asks all of them.
fn replica(ports: &[u16], own: usize, grace: &str) -> Configuration {
    let peers: Vec<String> = ports
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    Configuration::new()
        .with("probes.listen", format!("127.0.0.1:{}", ports[own]))
        .with("startupPeers", peers)
        .with("startupGrace", grace)
}

async fn readiness(server: &Server) -> (u16, String) {
    let answer: Answer = server.get_admin("/readyz?verbose").await;
    (answer.status, answer.text())
}

async fn mutated(server: &Server, object: Value) -> Checked {
    let review = Review::create(object).build();
    let answer = server.mutate(&review).await;
    answer.checked(Endpoint::Mutate, &review)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_become_ready_when_all_lack_a_plugin() {
    let registry = nowhere();
    let ports = [port::free(), port::free(), port::free()];
    let start = |own| {
        let mut configuration = replica(&ports, own, "6s");
        for number in 1..20 {
            let label = format!("label-{number}");
            let entry = json!({"match": of("pods")});
            configuration.plugin_of(&label, &marker(&label, "yes"), entry);
        }
        let source = format!("oci://{registry}/policies/away:1");
        let away = json!({"source": source, "match": of("configmaps")});
        configuration.plugin("away", Path::new("/nowhere"), away);
        Server::start(configuration)
    };
    let began = Instant::now();
    let replicas: Vec<Server> = std::thread::scope(|scope| {
        let starting: Vec<_> = (0..3).map(|own| scope.spawn(move || start(own))).collect();
        let started = starting.into_iter().map(|replica| replica.join());
        started.map(|replica| replica.expect("it starts")).collect()
    });
    println!("three replicas have started after {:?}", began.elapsed());
    for replica in &replicas {
        until("ready", async || readiness(replica).await.0 == 200).await;
    }
    println!("all are ready after {:?}", began.elapsed());
    for replica in &replicas {
        let mut object = pod("web");
        object["metadata"]["labels"] = json!({});
        let checked = mutated(replica, object).await;
        assert!(checked.allowed, "{:?}", checked.status);
        let object = checked.patched_object.expect("labels were set");
        let labels = object["metadata"]["labels"].as_object();
        assert_eq!(labels.map(Map::len), Some(19), "{object}");
        let denied = mutated(replica, config_map("settings", Map::new())).await;
        assert!(!denied.allowed, "the request must be denied");
        let page = replica.get_admin("/readyz?verbose").await.text();
        assert!(page.contains("plugin away is not loaded: "), "{page}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollout_stops_at_replica_that_lacks_a_plugin() {
    const GRACE: Duration = Duration::from_secs(3);
    let ports = [port::free(), port::free(), port::free()];
    let configuration = |own| {
        let mut configuration = replica(&ports, own, "3s");
        configuration.plugin_of(
            "colour",
            &marker("colour", "red"),
            json!({"match": of("pods")}),
        );
        configuration
    };
    let healthy = [
        Server::start(configuration(0)),
        Server::start(configuration(1)),
    ];
    for replica in &healthy {
        assert_eq!(readiness(replica).await.0, 200);
    }
    let new = configuration(2);
    let file = new.folder().join("colour.wasm");
    std::fs::remove_file(&file).expect("it was there");
    let began = Instant::now();
    let new = Server::start(new);
    while began.elapsed() < 3 * GRACE {
        let (status, text) = readiness(&new).await;
        assert_eq!(status, 503, "after {:?}: {text}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (_, text) = readiness(&new).await;
    println!("after {:?}, {GRACE:?} of grace:\n{text}", began.elapsed());
    for words in [
        "have not been read: colour; ",
        "startupGrace (3s) is over",
        "is ready with all of its plugins (startupPeers), and must not be replaced",
    ] {
        assert!(text.contains(words), "{text}");
    }
    // One healthy replica is enough to keep the new one unready.
    let [first, second] = healthy;
    assert!(first.stop().status.success());
    let again = Instant::now();
    while again.elapsed() < 2 * GRACE {
        assert_eq!(readiness(&new).await.0, 503);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Without any healthy replica, the new one becomes ready.
    assert!(second.stop().status.success());
    let alone = Instant::now();
    until("ready", async || readiness(&new).await.0 == 200).await;
    println!(
        "ready {:?} after the last of the others has stopped",
        alone.elapsed()
    );
    let over = |line: &String| line.contains("startupGrace is over: ready without these");
    assert!(new.logs().iter().any(over));
    let denied = mutated(&new, pod("web")).await;
    assert!(!denied.allowed, "the request must be denied");
    std::fs::write(&file, marker("colour", "red")).expect("a file can be written");
    let began = Instant::now();
    while !mutated(&new, pod("web")).await.allowed {
        assert!(began.elapsed() < PATIENCE, "{}", readiness(&new).await.1);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_without_peers_waits_for_all_plugins() {
    let mut configuration = Configuration::new();
    configuration.plugin_of("colour", &marker("colour", "red"), json!({}));
    let file = configuration.folder().join("colour.wasm");
    std::fs::remove_file(&file).expect("it was there");
    let server = Server::start(configuration);
    let (status, text) = readiness(&server).await;
    println!("{text}");
    assert_eq!(status, 503);
    assert!(
        text.contains("(startupGrace: never, which is the default without startupPeers)"),
        "{text}"
    );
    let headers = reqwest::get(format!("http://{}/readyz", server.probes_address()));
    let headers = headers.await.expect("an answer").headers().clone();
    assert_eq!(headers["tollgate-complete"], "false");
    std::fs::write(&file, marker("colour", "red")).expect("a file can be written");
    until("ready", async || readiness(&server).await.0 == 200).await;
    let headers = reqwest::get(format!("http://{}/readyz", server.probes_address()));
    let headers = headers.await.expect("an answer").headers().clone();
    assert_eq!(headers["tollgate-complete"], "true");
}
