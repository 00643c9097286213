//! Trusted roots from a TUF repository on loopback: at the start, when they change, and without the repository.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tollgate_tests::checker::Endpoint;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::reviews::Review;
use tollgate_tests::server::{Server, metric, until};
use tollgate_tests::wat::marker;
use tollgate_tests::{binary, cli, guests};

/// The files of a repository, by their paths. None while it is away.
type Files = Option<BTreeMap<String, String>>;

/// A recorded TUF repository. It ends with the process.
struct Repository {
    url: String,
    states: Value,
    files: Arc<Mutex<Files>>,
    requests: Arc<AtomicU64>,
}

// === impl Repository ===

impl Repository {
    /// One that python-tuf has written.
    fn start() -> Self {
        Self::of("python-tuf.json")
    }

    fn of(recorded: &str) -> Self {
        let path = binary::workspace()
            .join("host/oci/src/tuf/tests")
            .join(recorded);
        let text = std::fs::read_to_string(path).expect("the repository is there");
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("it has an address");
        let repository = Self {
            url: format!("http://{address}/"),
            states: serde_json::from_str(&text).expect("it is JSON"),
            files: Arc::default(),
            requests: Arc::default(),
        };
        let (files, requests) = (repository.files.clone(), repository.requests.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                requests.fetch_add(1, Ordering::Relaxed);
                let files = files.lock().expect("nobody panics with the lock").clone();
                // A client that has gone needs no answer.
                drop(answer(&stream, &files));
            }
        });
        repository
    }

    /// Publishes the next state.
    fn publish(&self, state: &str) {
        let mut files = self.files.lock().expect("nobody panics with the lock");
        let all = files.get_or_insert_default();
        for (path, text) in self.states[state]
            .as_object()
            .expect("there is such a state")
        {
            let text = text.as_str().expect("a file is text");
            all.insert(path.clone(), text.to_owned());
        }
    }

    fn leave(&self) {
        *self.files.lock().expect("nobody panics with the lock") = None;
    }

    /// Takes the files of a state away.
    fn withdraw(&self, state: &str) {
        let mut files = self.files.lock().expect("nobody panics with the lock");
        let all = files.get_or_insert_default();
        let withdrawn = self.states[state].as_object();
        for path in withdrawn.expect("there is such a state").keys() {
            all.remove(path);
        }
    }

    /// Host and port.
    fn host(&self) -> &str {
        self.url.trim_start_matches("http://").trim_end_matches('/')
    }

    /// A configuration that pins the first root.
    fn pinned(&self, registries: &Value) -> Configuration {
        let configuration = Configuration::new();
        let folder = configuration.folder().to_owned();
        let root = self.states["first"]["1.root.json"].as_str();
        let pinned = folder.join("root.json");
        std::fs::write(&pinned, root.expect("it is text")).expect("a file can be written");
        let mut of_registries = json!({"cacheDirectory": folder.join("cache")});
        for (key, value) in registries.as_object().into_iter().flatten() {
            of_registries[key] = value.clone();
        }
        let tuf = json!({"tuf": {"url": self.url, "root": pinned}});
        configuration
            .with("registries", of_registries)
            .with("signatures", tuf)
    }

    /// A configuration with a plugin that needs the trusted root before it can be loaded.
    fn configuration(&self) -> Configuration {
        let mut configuration = self.pinned(&json!({}));
        let signer = json!({"issuer": "https://issuer.example.com", "subject": "**"});
        let images = json!({
            "registries": ["registry.example.com"],
            "policies": [{"name": "ci", "signers": [signer]}],
        });
        let match_pods = json!({"rules": [{
            "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
        }]});
        let more = json!({"images": images, "match": match_pods});
        configuration.plugin_of("marker", &marker("colour", "red"), more);
        configuration
    }
}

fn answer(mut stream: &TcpStream, files: &Files) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    while lines
        .next()
        .transpose()?
        .is_some_and(|line| !line.is_empty())
    {}
    let Some(files) = files else {
        return Ok(());
    };
    let path = request.split(' ').nth(1).unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    let (status, body) = match files.get(path.trim_start_matches('/')) {
        Some(body) => ("200 OK", body.as_str()),
        None => ("404 Not Found", ""),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

async fn is_marked(server: &Server) -> bool {
    let review = Review::create(tollgate_tests::reviews::pod("web")).build();
    let answer = server.mutate(&review).await;
    let checked = answer.checked(Endpoint::Mutate, &review);
    let changed = checked.patched_object.unwrap_or_default();
    changed["metadata"]["labels"]["colour"] == "red"
}

async fn refreshes(server: &Server, result: &str) -> f64 {
    let page = server.metrics().await;
    let labels = [("result", result)];
    metric(&page, "tollgate_trusted_root_refreshes_total", &labels)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_review_waits_for_the_repository_or_fails_when_the_root_changes() {
    let repository = Repository::start();
    repository.publish("first");
    let server = Server::start(repository.configuration());
    assert!(is_marked(&server).await);
    until("a refresh", async || {
        // The load or the schedule asks first.
        refreshes(&server, "changed").await + refreshes(&server, "unchanged").await >= 1.0
    })
    .await;
    let page = server.metrics().await;
    // The metadata expires in 2100.
    let expiry = metric(&page, "tollgate_trusted_root_expiry_timestamp_seconds", &[]);
    assert!(expiry > 4_000_000_000.0, "{expiry}");
    assert_eq!(metric(&page, "tollgate_trusted_root_degraded", &[]), 0.0);

    // A start uses what is kept, and follows the rotated root in the background. No review fails meanwhile.
    let configuration = server.kill();
    repository.publish("second");
    let server = Server::start(configuration);
    let mut reviews = 0;
    until("a new root", async || {
        assert!(is_marked(&server).await, "after {reviews} reviews");
        reviews += 1;
        refreshes(&server, "changed").await == 1.0
    })
    .await;
    assert!(is_marked(&server).await);
    println!("{reviews} reviews during the change, none failed");
    let before = repository.requests.load(Ordering::Relaxed);
    for _ in 0..50 {
        assert!(is_marked(&server).await);
    }
    assert_eq!(
        repository.requests.load(Ordering::Relaxed),
        before,
        "no review asks the repository"
    );

    // Without the repository, the kept root serves, and says so.
    let configuration = server.kill();
    repository.leave();
    let server = Server::start(configuration);
    assert!(is_marked(&server).await);
    until("a failed refresh", async || {
        refreshes(&server, "failed").await >= 1.0
    })
    .await;
    let page = server.metrics().await;
    assert_eq!(metric(&page, "tollgate_trusted_root_degraded", &[]), 1.0);
    let logs = server.logs().join("\n");
    assert!(
        logs.contains("failed to refresh the trusted root; keeping the previous one"),
        "{logs}"
    );
}

/// The image that the recorded signature is about.
const SIGNED: &str = "sha256:6709a7cac516f66eaafca9072c7eea2de1217ef62cb4f2043080c803b464ffa8";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn image_is_denied_when_the_new_root_lacks_its_authority() {
    let repository = Repository::of("rotation.json");
    repository.publish("first");
    repository.publish("registry");
    let host = repository.host();
    let hosts = json!({"hosts": [{"host": host, "plainHTTP": true}]});
    let mut configuration = repository.pinned(&hosts);
    let signer = json!({"issuer": "https://token.actions.githubusercontent.com", "subject": "**"});
    let entry = json!({
        "images": {"registries": [host], "policies": [{"name": "release", "signers": [signer]}]},
        "settings": {"rules": [{"images": [host], "policy": "release"}]},
        "limits": {"timeout": "10s"},
    });
    configuration.plugin("verify-images", &guests::build("verify-images"), entry);
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    let mut pod = tollgate_tests::reviews::pod("web");
    pod["spec"]["containers"] =
        json!([{"name": "app", "image": format!("{host}/apps/app@{SIGNED}")}]);
    pod["spec"]["initContainers"] = json!([]);
    let review = Review::create(pod).build();
    let validated = async |server: &Server| {
        let answer = server.validate(&review).await;
        answer.checked(Endpoint::Validate, &review)
    };
    assert!(validated(&server).await.allowed);

    // The first refresh of the next start fails, so that the second one is due soon.
    let configuration = server.kill();
    repository.withdraw("first");
    let server = Server::start(configuration);
    until("a failed refresh", async || {
        refreshes(&server, "failed").await >= 1.0
    })
    .await;
    assert!(validated(&server).await.allowed, "by the kept root");
    repository.publish("second");
    until("a refresh", async || {
        refreshes(&server, "changed").await == 1.0
    })
    .await;
    // An answer of the old root does not count any more, although it would count for an hour.
    let denied = validated(&server).await;
    assert!(!denied.allowed);
    let status = denied.status.expect("a denial has a status");
    let message = status["message"].as_str().unwrap_or_default();
    println!("{message}");
    assert!(
        message.contains("is not signed as the policy release requires"),
        "{message}"
    );
}

#[test]
fn check_shows_the_root_or_why_there_is_none() {
    let repository = Repository::start();
    let configuration = repository.configuration();
    let cache = configuration.folder().join("cache");
    let check = || {
        let file = configuration.write();
        cli::run(cli::command(&["check", "--config"]).arg(file))
    };
    let none = check();
    assert_eq!(none.code, Some(1));
    let said = none.said();
    for part in [
        "signatures.tuf: NO TRUSTED ROOT: the trusted root of http://127.0.0.1:",
        "nothing is kept of it",
    ] {
        assert!(said.contains(part), "{said}");
    }
    std::fs::create_dir(&cache).expect("a folder can be made");
    repository.publish("first");
    repository.publish("second");
    let found = check();
    assert_eq!(found.code, Some(0), "{}", found.said());
    let root = "root 3, timestamp 2, snapshot 2, targets 2, expires 2100-01-01T00:00:00Z";
    assert!(found.said().contains(root), "{}", found.said());
    repository.leave();
    let kept = check();
    assert_eq!(kept.code, Some(0), "{}", kept.said());
    assert!(
        kept.said()
            .contains("; the refresh failed, and this one counts until 2100-01-08"),
        "{}",
        kept.said()
    );
}
