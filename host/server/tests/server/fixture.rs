//! A server on free ports with a fake gate, and clients for it.

use std::{
    future::pending,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use reqwest::{Client, ClientBuilder, RequestBuilder, Response};
use tokio::{
    net::TcpStream,
    sync::{Semaphore, oneshot},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_rustls::client::TlsStream;
use tollgate_admission::scan::ScanSearch;
use tollgate_admission::tokens::TokenReviewer;
use tollgate_admission::{Body, Call, Gate, Instance, Readiness, Reloaded, Reply};
use tollgate_config::{Admin, Authentication, Margin, Requests, SelfSigned, Tls};
use tollgate_server::{BindError, Drained, Listen, Server, Stop};
use tollgate_telemetry::metrics::Metrics;

#[path = "raw.rs"]
pub(crate) mod raw;

/// Longer than anything here takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const ANY_PORT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// Does as the plugin's name in the path says; without one it echoes.
pub(crate) struct FakeGate {
    held: AtomicUsize,
    release: Semaphore,
    ready: AtomicBool,
    blocked: AtomicUsize,
    unblocked: AtomicBool,
    reloads: AtomicUsize,
}

pub(crate) struct Settings {
    pub(crate) max_body_bytes: u64,
    pub(crate) max_bytes_in_flight: u64,
    pub(crate) max_connections: u32,
    pub(crate) deadline_margin: Margin,
    pub(crate) idle_timeout: Duration,
    pub(crate) shutdown_grace_period: Duration,
    pub(crate) gate: Arc<FakeGate>,
    pub(crate) authentication: Authentication,
    pub(crate) admin: Admin,
    pub(crate) token_reviewer: Option<Arc<dyn TokenReviewer>>,
    pub(crate) traces: bool,
}

pub(crate) struct Fixture {
    pub(crate) gate: Arc<FakeGate>,
    metrics: Arc<Metrics>,
    address: SocketAddr,
    admin_address: SocketAddr,
    probes_address: SocketAddr,
    ca_pem: String,
    stop: Option<oneshot::Sender<Stop>>,
    running: Option<JoinHandle<Drained>>,
    _directory: Option<tempfile::TempDir>,
}

// === impl FakeGate ===

impl Default for FakeGate {
    fn default() -> Self {
        Self {
            held: AtomicUsize::new(0),
            release: Semaphore::new(0),
            ready: AtomicBool::new(true),
            blocked: AtomicUsize::new(0),
            unblocked: AtomicBool::new(false),
            reloads: AtomicUsize::new(0),
        }
    }
}

impl FakeGate {
    pub(crate) async fn until_held(&self, count: usize) {
        eventually(|| self.held.load(SeqCst) >= count).await;
    }

    pub(crate) fn release(&self) {
        self.release.add_permits(1_000);
    }

    pub(crate) fn blocked(&self) -> usize {
        self.blocked.load(SeqCst)
    }

    pub(crate) fn unblock(&self) {
        self.unblocked.store(true, SeqCst);
    }

    pub(crate) fn reloads(&self) -> usize {
        self.reloads.load(SeqCst)
    }

    pub(crate) fn set_ready(&self, ready: bool) {
        self.ready.store(ready, SeqCst);
    }
}

impl Gate for FakeGate {
    async fn review(&self, call: Call) -> Reply {
        let body = match call.body {
            Body::Whole(bytes) => bytes,
            Body::TooLarge { head, limit_bytes } => {
                let text = format!("{} of the first bytes, limit {limit_bytes}", head.len());
                return Reply::TooLarge(text);
            }
        };
        match call.plugin.as_deref() {
            Some("hold") => {
                self.held.fetch_add(1, SeqCst);
                self.release.acquire().await.expect("never closed").forget();
                Reply::Review(body)
            }
            Some("hang") => pending().await,
            // A thread that is kept busy, as by work that does not yield.
            Some("block") => {
                self.blocked.fetch_add(1, SeqCst);
                while !self.unblocked.load(SeqCst) {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Reply::Review(body)
            }
            Some("panic") => panic!("as asked"),
            Some("overloaded") => Reply::Overloaded,
            Some("unknown") => Reply::NoSuchPlugin("no plugin of that name".to_owned()),
            Some("trace") => Reply::Review(match call.trace {
                Some(parent) => Bytes::from(format!("{:x?}", parent.span_id)),
                None => Bytes::from_static(b"none"),
            }),
            Some("left") => {
                let left = call.deadline - call.received;
                Reply::Review(Bytes::from(left.as_millis().to_string()))
            }
            _ => Reply::Review(body),
        }
    }

    fn plugins(&self) -> serde_json::Value {
        serde_json::json!([{ "name": "echo" }])
    }

    /// Says what was asked for.
    fn scan(&self, search: &ScanSearch) -> serde_json::Value {
        let by = format!("{:?}", search.by);
        serde_json::json!({
            "enabled": true, "search": search.search, "result": search.result, "by": by, "after": search.after,
            "limit": search.limit, "results": [],
        })
    }

    async fn reload(&self) -> Option<Reloaded> {
        self.reloads.fetch_add(1, SeqCst);
        Some(Reloaded {
            complete: true,
            report: serde_json::json!({ "result": "unchanged" }),
        })
    }

    fn readiness(&self) -> Readiness {
        Readiness {
            ready: self.ready.load(SeqCst),
            complete: true,
            detail: vec!["plugin echo: ready".to_owned()],
        }
    }
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_body_bytes: 1_000_000,
            max_bytes_in_flight: 100_000_000,
            max_connections: 1_000,
            deadline_margin: Margin {
                percent: 10,
                at_least: Duration::from_millis(50),
            },
            idle_timeout: Duration::from_secs(120),
            shutdown_grace_period: Duration::from_secs(4),
            gate: Arc::new(FakeGate::default()),
            authentication: Authentication::default(),
            admin: Admin {
                listen: ANY_PORT,
                authentication: None,
                hosts: Vec::new(),
            },
            token_reviewer: None,
            traces: false,
        }
    }
}

// === impl Fixture ===

impl Fixture {
    pub(crate) async fn start(settings: Settings) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut fixture = Self::start_in(settings, directory.path()).await;
        fixture._directory = Some(directory);
        fixture
    }

    pub(crate) async fn start_in(settings: Settings, directory: &Path) -> Self {
        let started = Self::try_start_in(settings, directory).await;
        started.expect("the server binds")
    }

    /// One that may be refused.
    pub(crate) async fn try_start(settings: Settings) -> Result<Self, BindError> {
        let directory = tempfile::tempdir().expect("a directory");
        Self::try_start_in(settings, directory.path()).await
    }

    async fn try_start_in(settings: Settings, directory: &Path) -> Result<Self, BindError> {
        let listen = Listen {
            address: ANY_PORT,
            admin: settings.admin,
            probes_address: ANY_PORT,
            tls: Tls::SelfSigned(SelfSigned {
                directory: directory.join("tls"),
                names: Vec::new(),
                service: None,
            }),
            authentication: settings.authentication,
            token_reviewer: settings.token_reviewer,
            traces: settings.traces,
            registered_authorities: None,
            instance: Instance::new(),
        };
        let requests = Requests {
            max_body_bytes: settings.max_body_bytes,
            max_bytes_in_flight: settings.max_bytes_in_flight,
            max_decoded_bytes: 100_000_000,
            max_connections: settings.max_connections,
            deadline_margin: settings.deadline_margin,
            default_timeout: Duration::from_secs(10),
            idle_timeout: settings.idle_timeout,
            shutdown_grace_period: settings.shutdown_grace_period,
            max_depth: 120,
        };
        let metrics = Metrics::new();
        let gate = settings.gate;
        let server =
            Server::bind(&listen, requests, Arc::clone(&gate), Arc::clone(&metrics)).await?;
        let bundle = server.ca_bundle().expect("self-signed");
        let (stop, stopped) = oneshot::channel();
        Ok(Self {
            gate,
            metrics,
            address: server.local_address(),
            admin_address: server.admin_address(),
            probes_address: server.probes_address(),
            ca_pem: std::fs::read_to_string(bundle).expect("the bundle"),
            stop: Some(stop),
            running: Some(tokio::spawn(server.run(async move {
                match stopped.await {
                    Ok(stop) => stop,
                    Err(_) => pending().await,
                }
            }))),
            _directory: None,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn ca_pem(&self) -> String {
        self.ca_pem.clone()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    pub(crate) fn client(&self) -> ClientBuilder {
        client(&self.ca_pem)
    }

    pub(crate) fn request(
        &self,
        client: &Client,
        path: &str,
        body: impl Into<reqwest::Body>,
    ) -> RequestBuilder {
        client
            .post(self.url(path))
            .header("content-type", "application/json")
            .body(body)
    }

    pub(crate) async fn post(
        &self,
        client: &Client,
        path: &str,
        body: impl Into<reqwest::Body>,
    ) -> Response {
        let request = self.request(client, path, body);
        request.send().await.expect("an answer")
    }

    pub(crate) async fn connect(&self) -> TlsStream<TcpStream> {
        let connector = raw::connector(&self.ca_pem, &rustls::version::TLS13);
        raw::connect(&connector, self.address).await
    }

    pub(crate) fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    pub(crate) fn probes_address(&self) -> SocketAddr {
        self.probes_address
    }

    /// A page of the admin listener.
    pub(crate) async fn admin(&self, path: &str) -> (u16, String) {
        Self::get(self.admin_address, path).await
    }

    /// A page of the probes listener.
    pub(crate) async fn probe(&self, path: &str) -> (u16, String) {
        Self::get(self.probes_address, path).await
    }

    async fn get(address: SocketAddr, path: &str) -> (u16, String) {
        let client = Client::builder().no_proxy().timeout(PATIENCE).build();
        let request = client
            .expect("a client")
            .get(format!("http://{address}{path}"));
        let response = request.send().await.expect("an answer");
        let status = response.status().as_u16();
        (status, response.text().await.expect("a body"))
    }

    pub(crate) async fn until_not_ready(&self) {
        let red = async {
            while self.probe("/readyz").await.0 != 503 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, red).await.expect("readiness goes red");
    }

    /// The value of a series, `0` when there is none yet.
    pub(crate) fn metric(&self, series: &str) -> String {
        let text = self.metrics.encode();
        text.lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
            .unwrap_or("0")
            .to_owned()
    }

    pub(crate) async fn expect_metric(&self, series: &str, value: &str) {
        eventually(|| self.metric(series) == value).await;
    }

    pub(crate) fn stop(&mut self, stop: Stop) {
        let sender = self.stop.take().expect("stopped once");
        sender.send(stop).expect("the server runs");
    }

    pub(crate) async fn drained(&mut self) -> Drained {
        let running = self.running.take().expect("awaited once");
        timeout(PATIENCE, running)
            .await
            .expect("the drain ends")
            .expect("the server does not panic")
    }
}

pub(crate) fn client(ca_pem: &str) -> ClientBuilder {
    let ca = reqwest::Certificate::from_pem(ca_pem.as_bytes()).expect("a certificate");
    Client::builder()
        .use_rustls_tls()
        .add_root_certificate(ca)
        .no_proxy()
        .timeout(PATIENCE)
}

async fn eventually(condition: impl Fn() -> bool) {
    let met = async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, met)
        .await
        .expect("the condition is met in time");
}
