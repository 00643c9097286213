//! Starts etcd and kube-apiserver, and sends requests to kube-apiserver.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use reqwest::{Certificate, Client, Method};
use serde_json::Value;
use tollgate_kube_apiserver::{Binaries, Missing};

use super::authority::{Authority, key_pair};
use super::guard::Guard;
use super::kubectl::{self, Kubectl};
use crate::{left_out, port};

/// The bearer token of a cluster administrator.
pub const ADMIN_TOKEN: &str = "administrator";

/// Addresses of services. All of 127.0.0.0/8 reaches only this machine, so a test can listen on a cluster IP without
/// its own network.
const SERVICE_ADDRESSES: &str = "127.96.0.0/16";

/// Time limit until kube-apiserver is ready. It takes three seconds if the processors are free.
const START_LIMIT: Duration = Duration::from_secs(120);
/// Time limit until the port of a killed kube-apiserver is free.
const END_LIMIT: Duration = Duration::from_secs(30);
/// Time limit for a request.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// Every change is in the audit log, with the annotations of webhooks. From level Request on, these include patches.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    nonResourceURLs: [\"/*\"]
  - level: None
    verbs: [get, list, watch]
  - level: Request
";

/// The log of kube-apiserver.
const API_SERVER_LOG: &str = "kube-apiserver.log";

/// A running etcd and kube-apiserver. They end when this is dropped or the test binary ends.
pub struct Cluster {
    binaries: Binaries,
    folder: PathBuf,
    url: String,
    client: Client,
    /// The arguments of kube-apiserver.
    arguments: Vec<String>,
    etcd: String,
    guards: Mutex<Vec<Guard>>,
}

/// An answer of kube-apiserver.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The texts of the headers `Warning`.
    pub warnings: Vec<String>,
    /// JSON, or text if it is not valid JSON.
    pub body: Value,
}

/// Settings for the start of a cluster.
#[derive(Default)]
pub struct Start {
    files: Vec<(String, String)>,
    arguments: Vec<String>,
}

// === impl Start ===

impl Start {
    /// Puts a file into the cluster's folder, which is kube-apiserver's working directory. `{folder}` in the content
    /// becomes the absolute path of that folder.
    #[must_use]
    pub fn file(mut self, name: &str, content: &str) -> Self {
        self.files.push((name.to_owned(), content.to_owned()));
        self
    }

    /// Adds an argument for kube-apiserver.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Starts the cluster and waits until it is ready. If its programs are missing, reports that and returns none.
    ///
    /// # Panics
    /// Panics if it does not become ready. The message has its logs.
    #[must_use]
    pub fn start(self) -> Option<Cluster> {
        let binaries = match Binaries::find() {
            Ok(binaries) => binaries,
            Err(missing) => {
                skip(&missing);
                return None;
            }
        };
        let folder = tempfile::Builder::new()
            .prefix("tollgate-kubernetes-")
            .tempdir();
        // The guard removes the folder.
        let folder = folder.expect("a temporary folder can be made").keep();
        let (etcd_port, port) = (port::free(), port::free());
        let authority = Authority::new("kube-apiserver");
        let serving = authority.server(&["localhost", "127.0.0.1"]);
        let (public_key, private_key) = key_pair();
        let url = format!("https://127.0.0.1:{port}");
        let own = [
            ("ca.crt", authority.certificate()),
            ("apiserver.crt", &serving.certificate),
            ("apiserver.key", &serving.key),
            ("service-account.pub", &public_key),
            ("service-account.key", &private_key),
            (
                "tokens.csv",
                &format!("{ADMIN_TOKEN},administrator,administrator,\"system:masters\"\n"),
            ),
            ("audit-policy.yaml", AUDIT_POLICY),
            ("kubeconfig", &kubectl::kubeconfig(&url)),
        ];
        let given = self.files.iter().map(|(name, text)| (&**name, &**text));
        for (name, text) in own.into_iter().chain(given) {
            let path = folder.join(name);
            let text = text.replace("{folder}", &folder.display().to_string());
            std::fs::write(&path, text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        let arguments = apiserver_arguments(etcd_port, port, &self.arguments);
        let api_server = binaries.kube_apiserver();
        let guard = Guard::start(
            &folder,
            &[
                ("etcd.log", &binaries.etcd(), &etcd_arguments(etcd_port)),
                (API_SERVER_LOG, &api_server, &arguments),
            ],
        );
        let ca = Certificate::from_pem(authority.certificate().as_bytes());
        let client = Client::builder()
            .tls_built_in_root_certs(false)
            .add_root_certificate(ca.expect("it was made just now"))
            .timeout(REQUEST_LIMIT)
            .no_proxy()
            // A connection belongs to the runtime in which it was opened, and each test has its own runtime.
            .http1_only()
            .pool_max_idle_per_host(0)
            .build();
        let cluster = Cluster {
            binaries,
            folder,
            url,
            client: client.expect("the client's settings do not depend on anything outside"),
            arguments,
            etcd: format!("http://127.0.0.1:{etcd_port}"),
            guards: Mutex::new(vec![guard]),
        };
        cluster.wait_until_ready();
        Some(cluster)
    }
}

fn etcd_arguments(port: u16) -> Vec<String> {
    vec![
        "--data-dir=etcd".to_owned(),
        format!("--listen-client-urls=http://127.0.0.1:{port}"),
        format!("--advertise-client-urls=http://127.0.0.1:{port}"),
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        // The data of a test need not survive a crash of the machine.
        "--unsafe-no-fsync".to_owned(),
    ]
}

fn apiserver_arguments(etcd_port: u16, port: u16, more: &[String]) -> Vec<String> {
    let own = [
        &format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        &format!("--secure-port={port}"),
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        // No kubelet or proxy needs this address, and it may not be a loopback address.
        "--endpoint-reconciler-type=none",
        &format!("--service-cluster-ip-range={SERVICE_ADDRESSES}"),
        "--tls-cert-file=apiserver.crt",
        "--tls-private-key-file=apiserver.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-account-key-file=service-account.pub",
        "--service-account-signing-key-file=service-account.key",
        "--token-auth-file=tokens.csv",
        "--authorization-mode=RBAC",
        // Nothing creates the service accounts that Pods would need.
        "--disable-admission-plugins=ServiceAccount",
        "--allow-privileged=true",
        "--audit-policy-file=audit-policy.yaml",
        "--audit-log-path=audit.log",
        "--audit-log-mode=blocking-strict",
        "--profiling=false",
    ];
    let own = own.into_iter().map(str::to_owned);
    own.chain(more.iter().cloned()).collect()
}

// === impl Cluster ===

impl Cluster {
    /// Returns the cluster that all tests of this binary share. Each test uses its own namespaces. If the programs are
    /// missing, reports that and returns none.
    ///
    /// # Panics
    /// Panics if the cluster does not become ready.
    #[must_use]
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
        let mut is_first = false;
        let shared = SHARED.get_or_init(|| {
            is_first = true;
            Start::default().start()
        });
        if shared.is_none() && !is_first {
            // Each skipped test reports that it was skipped.
            if let Err(missing) = Binaries::find() {
                skip(&missing);
            }
        }
        shared.as_ref()
    }

    /// Kills kube-apiserver, and waits until its port is free. etcd goes on.
    ///
    /// # Panics
    /// Panics if it does not run, or does not end.
    pub fn kill_api_server(&self) {
        let file = self.folder.join(format!("{API_SERVER_LOG}.pid"));
        let process = std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let status = Command::new("kill")
            .args(["-KILL", process.trim()])
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "kill {process}"
        );
        // The kernel closes the socket some time after the signal. Another kube-apiserver would not wait for this.
        let deadline = Instant::now() + END_LIMIT;
        while let Err(error) = TcpListener::bind(self.address()) {
            assert!(Instant::now() < deadline, "{}: {error}", self.address());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts kube-apiserver again after it was killed, and waits until it is ready.
    ///
    /// # Panics
    /// Panics if it does not become ready.
    pub fn start_api_server(&self) {
        self.run_api_server(&self.arguments);
    }

    /// Kills kube-apiserver and starts it with further arguments. Waits until it is ready.
    ///
    /// # Panics
    /// Panics if it does not run, or does not become ready.
    pub fn restart_api_server(&self, more: &[String]) {
        self.kill_api_server();
        let arguments = [self.arguments.as_slice(), more].concat();
        self.run_api_server(&arguments);
    }

    fn run_api_server(&self, arguments: &[String]) {
        let program = self.binaries.kube_apiserver();
        let programs: [(&str, &Path, &[String]); 1] = [(API_SERVER_LOG, &program, arguments)];
        let guard = Guard::start(&self.folder, &programs);
        let mut guards = self.guards.lock().unwrap_or_else(PoisonError::into_inner);
        guards.push(guard);
        drop(guards);
        self.wait_until_ready();
    }

    /// Sends a request to etcd's gateway, past kube-apiserver. Keys and values in it are in Base64.
    ///
    /// # Panics
    /// Panics if etcd does not answer with success.
    pub async fn etcd(&self, path: &str, body: &Value) -> Value {
        let url = format!("{}{path}", self.etcd);
        let answer = self.client.post(&url).json(body).send().await;
        let answer = answer.unwrap_or_else(|error| panic!("{url}: {error}"));
        let status = answer.status();
        let text = answer.text().await.unwrap_or_default();
        assert!(status.is_success(), "{url}: {status}: {text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// Creates a command for kubectl as the administrator.
    #[must_use]
    pub fn kubectl(&self, arguments: &[&str]) -> Kubectl {
        Kubectl::new(&self.binaries.kubectl(), &self.folder, arguments)
    }

    /// Returns the path of kubectl.
    #[must_use]
    pub fn kubectl_program(&self) -> PathBuf {
        self.binaries.kubectl()
    }

    /// Creates a namespace.
    ///
    /// # Panics
    /// Panics if a namespace of that name exists.
    pub fn namespace(&self, name: &str) {
        self.kubectl(&["create", "namespace", name]).succeed();
    }

    /// Sends a request as the administrator. `path` may have a query. The answer is JSON, or text if it is not valid
    /// JSON.
    ///
    /// # Panics
    /// Panics if there is no answer.
    pub async fn request(&self, method: Method, path: &str, body: Option<&Value>) -> (u16, Value) {
        self.request_as(None, method, path, body).await
    }

    /// Sends a request as another user, whom the administrator impersonates. None is the administrator.
    ///
    /// # Panics
    /// Panics if there is no answer.
    pub async fn request_as(
        &self,
        user: Option<&str>,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> (u16, Value) {
        let answer = self.answer(user, method, path, body).await;
        (answer.status, answer.body)
    }

    /// Sends a request like [`Cluster::request_as`], and returns the warnings with the answer.
    ///
    /// # Panics
    /// Panics if there is no answer.
    pub async fn answer(
        &self,
        user: Option<&str>,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Answer {
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        request = request.bearer_auth(ADMIN_TOKEN);
        if let Some(user) = user {
            request = request.header("Impersonate-User", user);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = async {
            let response = request.send().await?;
            let status = response.status().as_u16();
            let warnings = response.headers().get_all("Warning").iter();
            let warnings = warnings.filter_map(|header| warning(header.to_str().ok()?));
            let warnings = warnings.collect();
            let text = response.text().await?;
            let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
            reqwest::Result::Ok(Answer {
                status,
                warnings,
                body,
            })
        };
        answer.await.unwrap_or_else(|error| {
            panic!(
                "{path} was not answered: {error:?}\nkube-apiserver logged:\n{}",
                self.last_logs()
            )
        })
    }

    /// Returns kube-apiserver's metrics.
    ///
    /// # Panics
    /// Panics if there is no answer.
    pub async fn metrics(&self) -> String {
        match self.request(Method::GET, "/metrics", None).await {
            (200, Value::String(text)) => text,
            (status, answer) => panic!("/metrics: HTTP {status}: {answer}"),
        }
    }

    /// Returns the entries of the audit log that `wanted` selects, in order. Waits for the first one.
    ///
    /// # Panics
    /// Panics if none appears.
    pub fn audit(&self, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        let path = self.folder.join("audit.log");
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let entries = text
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let found: Vec<Value> = entries.filter(|entry| wanted(entry)).collect();
            if !found.is_empty() {
                return found;
            }
            assert!(
                Instant::now() < deadline,
                "the audit log has no such entry:\n{text}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The address of kube-apiserver.
    ///
    /// # Panics
    /// Never: the URL is made of an address.
    #[must_use]
    pub fn address(&self) -> std::net::SocketAddr {
        let address = self.url.trim_start_matches("https://").parse();
        address.expect("the URL is made of an address")
    }

    /// The folder of kube-apiserver's files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn wait_until_ready(&self) {
        let deadline = Instant::now() + START_LIMIT;
        while !self.is_ready() {
            assert!(
                Instant::now() < deadline,
                "kube-apiserver did not become ready; it logged:\n{}",
                self.last_logs()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn is_ready(&self) -> bool {
        let mut command: Command = self.kubectl(&["get", "--raw", "/readyz"]).into();
        let answer = command.output().expect("kubectl can be run");
        // kube-apiserver creates this namespace after it is ready.
        answer.status.success()
            && self
                .kubectl(&["get", "namespace", "default"])
                .run()
                .succeeded()
    }

    fn last_logs(&self) -> String {
        let last = |name: &str| {
            let text = std::fs::read_to_string(self.folder.join(name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(20)..].join("\n")
        };
        format!("{}\n{}", last("etcd.log"), last("kube-apiserver.log"))
    }
}

/// Reads the text of a header `Warning`, which is a code, an agent and the quoted text.
fn warning(header: &str) -> Option<String> {
    let (_, quoted) = header.split_once('"')?;
    let mut text = String::new();
    let mut characters = quoted.chars();
    loop {
        match characters.next()? {
            '"' => return Some(text),
            '\\' => text.push(characters.next()?),
            character => text.push(character),
        }
    }
}

fn skip(missing: &Missing) {
    assert!(
        missing.is_circumstance(),
        "kube-apiserver is not to be had: {missing}"
    );
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    left_out(&format!(
        "{test} was NOT run against kube-apiserver: {missing}"
    ));
}
