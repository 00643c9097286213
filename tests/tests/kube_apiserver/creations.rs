//! Creations under which something changes. Every one must succeed, for the clients and by kube-apiserver's own count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tollgate_tests::kubernetes::Cluster;
use tollgate_tests::server::metric;

use crate::fixtures::{config_map, path_of};

/// The variable with the number of creations under each change.
const VARIABLE: &str = "TOLLGATE_CREATIONS";
/// The number without it. CONTRIBUTING.md names both.
const CREATIONS: usize = 300;
const CLIENTS: usize = 8;
/// Time limit for the creations under one change, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// Clients that create ConfigMaps and Secrets with a dry run until they are told to stop.
pub(crate) struct Creations {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: JoinSet<Vec<String>>,
}

/// Returns how many creations there are under each change.
pub(crate) fn creations() -> usize {
    let text = std::env::var(VARIABLE).unwrap_or_default();
    if text.is_empty() {
        return CREATIONS;
    }
    text.parse()
        .unwrap_or_else(|_| panic!("{VARIABLE} is not a number: {text}"))
}

/// Creates a Secret without content.
pub(crate) fn secret(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
    })
}

/// Creates an object with a dry run. Returns the status and the answer.
pub(crate) async fn create(cluster: &Cluster, object: &Value) -> (u16, Value) {
    let path = format!("{}?dryRun=All", path_of(object));
    cluster.request(Method::POST, &path, Some(object)).await
}

// === impl Creations ===

impl Creations {
    pub(crate) fn start(cluster: &Arc<Cluster>, namespace: &'static str) -> Self {
        let (stop, answered) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let (cluster, stop, answered) = (cluster.clone(), stop.clone(), answered.clone());
            clients.spawn(async move {
                let name = format!("of-client-{client}");
                let objects = [config_map(namespace, &name, "a"), secret(namespace, &name)];
                let mut failed = Vec::new();
                for object in objects.iter().cycle() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let (status, answer) = create(&cluster, object).await;
                    if status != 201 {
                        failed.push(format!("HTTP {status}: {answer}"));
                    }
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                failed
            });
        }
        Self {
            stop,
            answered,
            clients,
        }
    }

    pub(crate) fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits until there were this many creations since `before`.
    pub(crate) async fn until(&self, before: usize, count: usize) {
        let began = Instant::now();
        while self.answered() < before + count {
            let answered = self.answered() - before;
            assert!(
                began.elapsed() < PATIENCE,
                "{answered} of {count} creations"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends the creations, and checks that neither the clients nor kube-apiserver saw a failure.
    pub(crate) async fn assert_unfelt(mut self, cluster: &Cluster) {
        self.stop.store(true, Ordering::Relaxed);
        let mut failed = Vec::new();
        while let Some(of_client) = self.clients.join_next().await {
            failed.extend(of_client.expect("a client does not panic"));
        }
        let page = cluster.metrics().await;
        let count = |name: &str, labels: &[(&str, &str)]| {
            let name = format!("apiserver_admission_webhook_{name}");
            metric(&page, &name, labels)
        };
        let calls = count("request_total", &[]);
        let answered = count("request_total", &[("code", "200")]);
        println!(
            "{} creations, {} failed; {calls} calls of webhooks, {} failed",
            self.answered(),
            failed.len(),
            calls - answered
        );
        assert!(
            failed.is_empty(),
            "{} failed, such as {}",
            failed.len(),
            failed[0]
        );
        assert_eq!(calls, answered, "calls that were not answered");
        assert_eq!(count("rejection_count", &[]), 0.0);
        assert_eq!(count("fail_open_count", &[]), 0.0);
        assert!(calls > 0.0, "no webhook was called");
    }
}
