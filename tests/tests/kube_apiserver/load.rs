//! Changes under load from kube-apiserver. No request may fail, by kube-apiserver's own count.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::kubernetes::authority::{Authority, Issued};
use tollgate_tests::kubernetes::service::Service;
use tollgate_tests::kubernetes::{Cluster, Registration, Start};
use tollgate_tests::server::{Server, Start as ServerStart, metric};

use crate::fixtures::{act, config_map, configuration, path_of, rules};

/// Namespace of the objects.
const NAMESPACE: &str = "load";
/// Namespace of the host's Service. Objects in it are exempt.
const SYSTEM: &str = "load-system";
const CLIENTS: usize = 8;

/// Delay until a node learns that a replica is no longer ready.
const SERVICE_LAG: Duration = Duration::from_secs(1);

/// Time within which the host finds a new certificate. It checks every five seconds.
const CERTIFICATE_PERIOD: Duration = Duration::from_secs(6);

/// Time under load before the next change.
const HOLD: Duration = Duration::from_secs(2);

/// Clients that create objects with a dry run until they are told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: JoinSet<Vec<String>>,
}

// === impl Load ===

impl Load {
    fn start(cluster: &Arc<Cluster>) -> Self {
        let (stop, answered) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let (cluster, stop, answered) = (cluster.clone(), stop.clone(), answered.clone());
            clients.spawn(async move {
                let mut refused = Vec::new();
                let map = config_map(NAMESPACE, &format!("of-client-{client}"), "a");
                let path = format!("{}?dryRun=All", path_of(&map));
                while !stop.load(Ordering::Relaxed) {
                    let (status, answer) = cluster.request(Method::POST, &path, Some(&map)).await;
                    if status != 201 || answer["metadata"]["labels"]["team"] != "shop" {
                        refused.push(format!("HTTP {status}: {answer}"));
                    }
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                refused
            });
        }
        Self {
            stop,
            answered,
            clients,
        }
    }

    /// Waits for `HOLD` and for a number of further answers.
    async fn hold(&self) {
        let before = self.answered.load(Ordering::Relaxed);
        tokio::time::sleep(HOLD).await;
        while self.answered.load(Ordering::Relaxed) < before + 5 * CLIENTS {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends the load, and checks that neither the clients nor kube-apiserver saw an error.
    async fn assert_unfelt(mut self, cluster: &Cluster) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(refused) = self.clients.join_next().await {
            let refused = refused.expect("a client does not panic");
            assert!(
                refused.is_empty(),
                "{} refused, such as {}",
                refused.len(),
                refused[0]
            );
        }
        let page = cluster.metrics().await;
        let count = |name: &str, labels: &[(&str, &str)]| {
            metric(
                &page,
                &format!("apiserver_admission_webhook_{name}"),
                labels,
            )
        };
        let calls = count("request_total", &[]);
        assert_eq!(
            calls - count("request_total", &[("code", "200")]),
            0.0,
            "calls that were not answered"
        );
        assert_eq!(count("rejection_count", &[]), 0.0);
        assert_eq!(count("fail_open_count", &[]), 0.0);
        let answered = self.answered.load(Ordering::Relaxed);
        println!("{answered} requests, {calls} calls of webhooks, none failed");
        // Each request causes two calls: one to /mutate and one to /validate.
        assert!(
            calls >= 2.0 * answered as f64,
            "{calls} calls for {answered} requests"
        );
    }
}

fn with_plugin(mut configuration: Configuration) -> Configuration {
    let maps = rules(NAMESPACE, &[""], &["configmaps"]);
    act(
        &mut configuration,
        "team",
        maps,
        json!({"set": {"/metadata/labels/team": "shop"}}),
    );
    configuration
}

fn probe() -> Value {
    config_map(NAMESPACE, "probe", "")
}

/// Replaces a certificate and its key as kubelet does for a mounted Secret: it renames one symbolic link.
fn mount(folder: &Path, version: &str, issued: &Issued) {
    let files = folder.join(version);
    std::fs::create_dir_all(&files).expect("made");
    std::fs::write(files.join("tls.crt"), &issued.certificate).expect("written");
    std::fs::write(files.join("tls.key"), &issued.key).expect("written");
    let next = folder.join("..data_tmp");
    std::os::unix::fs::symlink(version, &next).expect("linked");
    std::fs::rename(&next, folder.join("..data")).expect("renamed");
}

#[tokio::test(flavor = "multi_thread")]
async fn replaces_certificate_and_ca_without_failed_requests() {
    let Some(cluster) = Start::default().start() else {
        return;
    };
    let cluster = Arc::new(cluster);
    cluster.namespace(NAMESPACE);
    cluster.namespace(SYSTEM);
    let (old, new) = (Authority::new("old CA"), Authority::new("new CA"));
    let name = format!("gate.{SYSTEM}.svc");
    // The name of the service for kube-apiserver, and the address for this test.
    let names = [name.as_str(), "127.0.0.1"];
    let configuration = configuration();
    let folder = configuration.folder().to_owned();
    mount(&folder, "first", &old.server(&names));
    let configuration = with_plugin(configuration.with(
        "tls",
        json!({"certificate": folder.join("..data/tls.crt"), "key": folder.join("..data/tls.key")}),
    ));
    let bundle = |content: String| {
        let path = folder.join("ca-bundle.pem");
        std::fs::write(&path, content).expect("written");
        path.display().to_string()
    };
    let first = bundle(old.certificate().to_owned());
    let server = ServerStart::default()
        .trusting(first.clone().into())
        .start(configuration);
    let service = Service::new(&cluster, SYSTEM, "gate").await;
    service.add(server.address());
    let address = format!("{SYSTEM}/gate:{}", service.port());
    let apply = |registration: &mut Registration, ca: &str| {
        registration.renew(&server, &["--service", &address, "--ca", ca]);
    };

    let mut registration = Registration::apply(
        &cluster,
        &server,
        "load",
        &["--service", &address, "--ca", &first],
    );
    let probe = probe();
    registration
        .wait_for_effect(&[&server], (&path_of(&probe), &probe))
        .await;
    let load = Load::start(&cluster);
    load.hold().await;

    // A new certificate of the same CA.
    mount(&folder, "second", &old.server(&names));
    tokio::time::sleep(CERTIFICATE_PERIOD).await;
    load.hold().await;

    // Another CA: first both are trusted, then the new one signs, then only the new one is trusted.
    apply(
        &mut registration,
        &bundle(format!("{}{}", old.certificate(), new.certificate())),
    );
    load.hold().await;
    mount(&folder, "third", &new.server(&names));
    tokio::time::sleep(CERTIFICATE_PERIOD).await;
    load.hold().await;
    apply(&mut registration, &bundle(new.certificate().to_owned()));
    load.hold().await;

    load.assert_unfelt(&cluster).await;
    let reloaded = server
        .logs()
        .iter()
        .filter(|line| line.contains("certificate"))
        .count();
    assert!(
        reloaded >= 2,
        "the host does not log the new certificates:\n{}",
        server.logs().join("\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_two_replicas_without_failed_requests() {
    let Some(cluster) = Start::default().start() else {
        return;
    };
    let cluster = Arc::new(cluster);
    cluster.namespace(NAMESPACE);
    cluster.namespace(SYSTEM);
    let shared = tempfile::tempdir().expect("a temporary folder can be made");
    let replica = || {
        let self_signed = json!({"directory": shared.path(), "service": format!("gate.{SYSTEM}")});
        Server::start(with_plugin(
            configuration().with("tls", json!({"selfSigned": self_signed})),
        ))
    };
    let mut replicas = vec![replica(), replica()];
    let service = Service::new(&cluster, SYSTEM, "gate").await;
    for replica in &replicas {
        service.add(replica.address());
    }
    let address = format!("{SYSTEM}/gate:{}", service.port());
    let registration =
        Registration::apply(&cluster, &replicas[0], "load", &["--service", &address]);
    let probe = probe();
    let servers: Vec<&Server> = replicas.iter().collect();
    registration
        .wait_for_effect(&servers, (&path_of(&probe), &probe))
        .await;
    let load = Load::start(&cluster);
    load.hold().await;

    for _ in 0..2 {
        let leaving = replicas.remove(0);
        // The replica gets the signal while nodes still learn that it is leaving.
        leaving.terminate();
        tokio::time::sleep(SERVICE_LAG).await;
        service.remove(leaving.address());
        let stopped = tokio::task::spawn_blocking(|| leaving.wait_for_end()).await;
        let stopped = stopped.expect("it ends");
        assert!(stopped.status.success(), "{}", stopped.status);
        load.hold().await;
        let coming = tokio::task::block_in_place(replica);
        service.add(coming.address());
        replicas.push(coming);
        load.hold().await;
    }

    load.assert_unfelt(&cluster).await;
    // The connections of the second replica moved to the first one and stay there.
    let page = replicas[0].metrics().await;
    let asked = metric(&page, "tollgate_requests_total", &[("endpoint", "mutate")]);
    assert!(asked > 0.0, "the replica that came back is not called");
}
