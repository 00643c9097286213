//! Starts a `tollgate serve` for one test, with a client that trusts it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use reqwest::{Certificate, Client, Version};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionread};
use serde_json::Value;

use crate::binary;
use crate::checker::{Checked, Endpoint, check};
use crate::configuration::Configuration;
use crate::reviews::as_sent;

/// Time limit for a server to load its plugins and listen. Some modules are slow to compile.
const START_LIMIT: Duration = Duration::from_secs(300);
/// Time limit for a server to stop. It exceeds the server's grace period.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// Time limit for an answer, whatever the plugins do.
const ANSWER_LIMIT: Duration = Duration::from_secs(40);

/// A server that runs until it is stopped or dropped.
pub struct Server {
    child: Child,
    logs: Arc<Logs>,
    reader: Option<JoinHandle<()>>,
    client: Client,
    address: SocketAddr,
    admin: SocketAddr,
    probes: SocketAddr,
    ca_bundle: PathBuf,
    configuration: Configuration,
}

/// Settings for the start of a server.
#[derive(Default)]
pub struct Start {
    program: Option<PathBuf>,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
    trusted: Option<PathBuf>,
    at_once: bool,
    as_it_is: bool,
    plugins: Option<PathBuf>,
}

/// An HTTP answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The HTTP version.
    pub version: Version,
    /// The Content-Type. Empty if there is none.
    pub content_type: String,
    /// The body.
    pub body: Vec<u8>,
    /// Time from the first byte sent to the last byte received.
    pub took: Duration,
}

/// The end of a server.
#[derive(Debug)]
pub struct Stopped {
    /// The exit status.
    pub status: ExitStatus,
    /// All lines that the server logged.
    pub logs: Vec<String>,
}

/// The lines that a server has logged so far.
struct Logs {
    stderr: ChildStderr,
    state: Mutex<LogState>,
    changed: Condvar,
}

#[derive(Default)]
struct LogState {
    lines: Vec<String>,
    /// The beginning of the next line.
    rest: Vec<u8>,
    ended: bool,
}

// === impl Start ===

impl Start {
    /// Runs another program in place of the `tollgate` binary. It must take the same command line and log the addresses
    /// that it listens on.
    #[must_use]
    pub fn program(mut self, program: PathBuf) -> Self {
        self.program = Some(program);
        self
    }

    /// Sets an environment variable of the server.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds an argument to `tollgate serve`.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Sets the CA to trust if the server does not create its own certificate.
    #[must_use]
    pub fn trusting(mut self, ca_bundle: PathBuf) -> Self {
        self.trusted = Some(ca_bundle);
        self
    }

    /// Does not wait for the plugins.
    #[must_use]
    pub fn at_once(mut self) -> Self {
        self.at_once = true;
        self
    }

    /// Does not write the configuration file, so that it stays as it is or missing.
    #[must_use]
    pub fn as_it_is(mut self) -> Self {
        self.as_it_is = true;
        self
    }

    /// Serves a folder of plugins instead of a configuration file.
    #[must_use]
    pub fn plugins(mut self, folder: &Path) -> Self {
        self.plugins = Some(folder.to_owned());
        self
    }

    /// Starts the server. Waits until it listens and no plugin is loading any more.
    ///
    /// # Panics
    /// Panics if the server does not start. The message has its logs.
    #[must_use]
    pub fn start(self, configuration: Configuration) -> Server {
        let mut command = Command::new(self.program.unwrap_or_else(binary::tollgate));
        command.arg("serve").args(&self.arguments);
        match &self.plugins {
            // The server's certificate is in the working directory.
            Some(folder) => command
                .arg("--plugins")
                .arg(folder)
                .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
                .args(["--probes-listen", "127.0.0.1:0"])
                .current_dir(configuration.folder()),
            None if self.as_it_is => command.arg("--config").arg(configuration.path()),
            None => command.arg("--config").arg(configuration.write()),
        };
        command
            .envs(self.environment)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("tollgate cannot be started: {error}"));
        let stderr = child.stderr.take().expect("standard error was asked for");
        let logs = Arc::new(Logs::new(stderr));
        let reader = std::thread::spawn({
            let logs = logs.clone();
            move || logs.read()
        });
        let message = if self.at_once {
            "loading the plugins"
        } else {
            "listening"
        };
        let line = match logs.wait_for_message(message, START_LIMIT) {
            Ok(line) => line,
            Err(why) => {
                let _: std::io::Result<()> = child.kill();
                let _: std::io::Result<ExitStatus> = child.wait();
                panic!(
                    "tollgate did not come up ({why}); it logged:\n{}",
                    logs.lock().lines.join("\n")
                );
            }
        };
        let text = |name: &str| match line[name].as_str() {
            Some(text) => text.to_owned(),
            None => panic!("the log line `{message}` has no `{name}`: {line}"),
        };
        let socket = |name: &str| {
            text(name)
                .parse()
                .unwrap_or_else(|error| panic!("`{name}` is no address: {error}"))
        };
        let address: SocketAddr = socket("address");
        // Other programs that serve reviews use one listener for both.
        let admin = socket("admin");
        let probes = if line["probes"].is_null() {
            admin
        } else {
            socket("probes")
        };
        if !self.at_once {
            wait_for_plugins(admin);
        }
        let trusted = self.trusted;
        let ca_bundle = trusted.unwrap_or_else(|| PathBuf::from(text("ca_bundle")));
        let ca_bundle = configuration.folder().join(ca_bundle);
        let client = client(&ca_bundle, |builder| builder.http1_only());
        Server {
            child,
            logs,
            reader: Some(reader),
            client,
            address,
            admin,
            probes,
            ca_bundle,
            configuration,
        }
    }
}

/// Waits until every plugin has been loaded or has failed to load. A server answers before that.
fn wait_for_plugins(admin: SocketAddr) {
    let deadline = Instant::now() + START_LIMIT;
    // Other programs that serve reviews have no such page.
    while let Some(page) = plugins_page(admin) {
        let plugins = page["plugins"].as_array();
        let mut plugins = plugins.into_iter().flatten();
        if plugins.all(|plugin| plugin["state"] != "loading") {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "plugins are still being loaded: {page:#}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn plugins_page(admin: SocketAddr) -> Option<Value> {
    let mut stream = TcpStream::connect(admin).ok()?;
    stream.set_read_timeout(Some(ANSWER_LIMIT)).ok()?;
    let request = format!("GET /plugins HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    serde_json::from_str(body).ok()
}

/// Creates a client that trusts one CA only.
fn client(
    ca_bundle: &PathBuf,
    more: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
) -> Client {
    let pem =
        std::fs::read(ca_bundle).unwrap_or_else(|error| panic!("{}: {error}", ca_bundle.display()));
    let ca = Certificate::from_pem(&pem)
        .unwrap_or_else(|error| panic!("{}: {error}", ca_bundle.display()));
    let builder = Client::builder()
        .tls_built_in_root_certs(false)
        .add_root_certificate(ca)
        .timeout(ANSWER_LIMIT)
        .no_proxy();
    more(builder)
        .build()
        .expect("the client's settings do not depend on anything outside")
}

// === impl Server ===

impl Server {
    /// Starts a server with default settings.
    ///
    /// # Panics
    /// Panics if it does not start.
    #[must_use]
    pub fn start(configuration: Configuration) -> Self {
        Start::default().start(configuration)
    }

    /// Sends a review to `/mutate`.
    ///
    /// # Panics
    /// Panics if there is no answer.
    pub async fn mutate(&self, review: &Value) -> Answer {
        self.post("/mutate", review).await
    }

    /// Sends a review to `/validate`.
    ///
    /// # Panics
    /// Panics if there is no answer.
    pub async fn validate(&self, review: &Value) -> Answer {
        self.post("/validate", review).await
    }

    /// Sends a review to a path, written as kube-apiserver does.
    ///
    /// # Panics
    /// Panics if there is no answer.
    pub async fn post(&self, path: &str, review: &Value) -> Answer {
        self.post_bytes(&self.client, path, as_sent(review)).await
    }

    /// Sends a body to a path with a given client.
    ///
    /// # Panics
    /// Panics if there is no answer.
    pub async fn post_bytes(&self, client: &Client, path: &str, body: Vec<u8>) -> Answer {
        match self.try_post(client, path, body).await {
            Ok(answer) => answer,
            Err(error) => panic!(
                "POST {path} was not answered: {error:?}\nthe last that was logged:\n{}",
                self.last_logs()
            ),
        }
    }

    /// Sends a body to a path with a given client, for tests in which an answer is not certain.
    ///
    /// # Errors
    /// Fails if there is no answer.
    pub async fn try_post(
        &self,
        client: &Client,
        path: &str,
        body: Vec<u8>,
    ) -> reqwest::Result<Answer> {
        let started = Instant::now();
        let request = client
            .post(self.url(path))
            .header("content-type", "application/json")
            .body(body);
        Answer::read(request.send().await?, started).await
    }

    /// Reads a page of the admin or the probes listener, whichever has it.
    ///
    /// # Panics
    /// Panics if there is no answer.
    pub async fn get_admin(&self, path: &str) -> Answer {
        let page = path.split('?').next().unwrap_or(path);
        let is_probe = matches!(page, "/livez" | "/readyz" | "/metrics");
        let address = if is_probe { self.probes } else { self.admin };
        let url = format!("http://{address}{path}");
        self.send_plain("GET", path, self.client.get(url)).await
    }

    /// Makes the server reload, and waits for its answer.
    ///
    /// # Panics
    /// Panics if there is no answer.
    pub async fn reload(&self) -> Answer {
        let url = format!("http://{}/reload", self.admin);
        let request = self.client.post(url).header("tollgate-admin", "1");
        self.send_plain("POST", "/reload", request).await
    }

    async fn send_plain(
        &self,
        method: &str,
        path: &str,
        request: reqwest::RequestBuilder,
    ) -> Answer {
        let started = Instant::now();
        let response = match request.send().await {
            Ok(response) => Answer::read(response, started).await,
            Err(error) => Err(error),
        };
        response.unwrap_or_else(|error| panic!("{method} {path} was not answered: {error:?}"))
    }

    /// Returns the entry of a plugin in `/plugins`.
    ///
    /// # Panics
    /// Panics if the plugin has no entry.
    pub async fn plugin_status(&self, name: &str) -> Value {
        let page = self.get_admin("/plugins").await.json();
        let plugins = page["plugins"]
            .as_array()
            .unwrap_or_else(|| panic!("/plugins has no list of plugins: {page}"));
        let found = plugins.iter().find(|plugin| plugin["name"] == name);
        found
            .unwrap_or_else(|| panic!("/plugins does not know {name}: {page}"))
            .clone()
    }

    /// Checks that every plugin is loaded. A plugin that is not loaded looks like one that allows everything.
    ///
    /// # Panics
    /// Panics if a plugin is not loaded.
    pub async fn assert_all_loaded(&self) {
        let page = self.get_admin("/plugins").await.json();
        for plugin in page["plugins"].as_array().into_iter().flatten() {
            assert_eq!(
                plugin["state"], "loaded",
                "{} is not loaded: {}",
                plugin["name"], plugin["reason"]
            );
        }
    }

    /// Returns the metrics page.
    ///
    /// # Panics
    /// Panics if there is no answer.
    pub async fn metrics(&self) -> String {
        self.get_admin("/metrics").await.text()
    }

    /// Creates another client of the same server with its own settings.
    pub fn client(
        &self,
        more: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
    ) -> Client {
        client(&self.ca_bundle, more)
    }

    /// The client that the methods without a client use: HTTP/1.1 with keep-alive, like kube-apiserver's.
    #[must_use]
    pub fn default_client(&self) -> &Client {
        &self.client
    }

    /// Returns the URL of a path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// Address of the HTTPS listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Address of the admin listener.
    #[must_use]
    pub fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// Address of the probes listener.
    #[must_use]
    pub fn probes_address(&self) -> SocketAddr {
        self.probes
    }

    /// Returns the lines logged so far.
    #[must_use]
    pub fn logs(&self) -> Vec<String> {
        self.logs.complete().lines.clone()
    }

    /// The certificate of the CA that clients must trust.
    #[must_use]
    pub fn ca_bundle(&self) -> &Path {
        &self.ca_bundle
    }

    /// The id of the server's process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// The configuration, with the folder of its files.
    #[must_use]
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Sizes of the mappings of plugins' compiled code that can run, in bytes.
    ///
    /// # Panics
    /// Panics if the process has ended.
    #[must_use]
    pub fn mapped_code(&self) -> Vec<u64> {
        /// A part without functions, such as the module of a memory, has one page.
        const WITHOUT_FUNCTIONS: u64 = 4096;
        let path = format!("/proc/{}/maps", self.child.id());
        let maps = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{path}: {error}: is the server gone?"));
        let sizes = maps.lines().filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (from, to) = fields.next()?.split_once('-')?;
            let is_code = fields.next() == Some("r-xp") && line.contains("/code/.new-");
            let parse = |text| u64::from_str_radix(text, 16).ok();
            is_code.then_some(parse(to)? - parse(from)?)
        });
        sizes.filter(|bytes| *bytes > WITHOUT_FUNCTIONS).collect()
    }

    /// Resident memory in KiB.
    ///
    /// # Panics
    /// Panics if the process has ended.
    #[must_use]
    pub fn resident_kib(&self) -> u64 {
        self.memory_kib("VmRSS:")
    }

    /// Lets [`Self::peak_kib`] count from now on.
    pub fn forget_peak(&self) {
        let path = format!("/proc/{}/clear_refs", self.child.id());
        std::fs::write(&path, "5").unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// Peak resident memory in KiB.
    ///
    /// # Panics
    /// Panics if the process has ended.
    #[must_use]
    pub fn peak_kib(&self) -> u64 {
        self.memory_kib("VmHWM:")
    }

    fn memory_kib(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{path}: {error}: is the server gone?"));
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line
            .and_then(|line| line.trim().strip_suffix(" kB"))
            .and_then(|number| number.trim().parse().ok());
        number.unwrap_or_else(|| panic!("{path} has no {name} in kB"))
    }

    /// CPU time so far: of the server itself, and of the children that it has waited for.
    ///
    /// # Panics
    /// Panics if the process has ended.
    #[must_use]
    pub fn cpu_time(&self) -> (Duration, Duration) {
        /// The kernel's clock tick: `USER_HZ` is 100 on every architecture that Linux still builds for.
        const TICK: Duration = Duration::from_millis(10);
        let path = format!("/proc/{}/stat", self.child.id());
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{path}: {error}: is the server gone?"));
        // Skip the name, which may hold anything. utime, stime, cutime and cstime are fields 14 to 17 of the line.
        let behind_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: Vec<u32> = behind_name
            .split_whitespace()
            .skip(11)
            .take(4)
            .filter_map(|field| field.parse().ok())
            .collect();
        match ticks[..] {
            [user, system, children_user, children_system] => (
                TICK * (user + system),
                TICK * (children_user + children_system),
            ),
            _ => panic!("{path} is not as proc(5) describes it: {text}"),
        }
    }

    /// Sends SIGTERM without waiting for the end.
    ///
    /// # Panics
    /// Panics if the process has ended.
    pub fn terminate(&self) {
        let id = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        let id = id.expect("a process has an id above zero");
        rustix::process::kill_process(id, rustix::process::Signal::TERM)
            .expect("the server is still there to be stopped");
    }

    /// Stops the server with SIGTERM and waits for its end.
    ///
    /// # Panics
    /// Panics if it does not end.
    #[must_use]
    pub fn stop(mut self) -> Stopped {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.terminate();
        }
        self.wait()
    }

    /// Kills the server with SIGKILL, and returns its configuration.
    #[must_use]
    pub fn kill(mut self) -> Configuration {
        // Errors mean that the process has already ended.
        let _: std::io::Result<()> = self.child.kill();
        let _: std::io::Result<ExitStatus> = self.child.wait();
        std::mem::take(&mut self.configuration)
    }

    /// Waits for the end of a server that was told to stop.
    ///
    /// # Panics
    /// Panics if it does not end.
    #[must_use]
    pub fn wait_for_end(mut self) -> Stopped {
        self.wait()
    }

    fn wait(&mut self) -> Stopped {
        let deadline = Instant::now() + STOP_LIMIT;
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10))
                }
                Ok(None) => panic!(
                    "tollgate did not stop; the last that it logged:\n{}",
                    self.last_logs()
                ),
                Err(error) => panic!("the end of tollgate cannot be waited for: {error}"),
            }
        };
        if let Some(reader) = self.reader.take() {
            reader
                .join()
                .expect("the thread that reads the logs does not panic");
        }
        Stopped {
            status,
            logs: self.logs(),
        }
    }

    fn last_logs(&self) -> String {
        let logs = self.logs.lock();
        let from = logs.lines.len().saturating_sub(20);
        logs.lines[from..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Errors mean that the process has already ended.
        let _: std::io::Result<()> = self.child.kill();
        let _: std::io::Result<ExitStatus> = self.child.wait();
        if let Some(reader) = self.reader.take() {
            drop(reader.join());
        }
    }
}

// === impl Answer ===

impl Answer {
    async fn read(response: reqwest::Response, started: Instant) -> reqwest::Result<Self> {
        let (status, version) = (response.status().as_u16(), response.version());
        let content_type = response
            .headers()
            .get("content-type")
            .and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_owned();
        let body = response.bytes().await?.to_vec();
        Ok(Self {
            status,
            version,
            content_type,
            body,
            took: started.elapsed(),
        })
    }

    /// Returns the body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON.
    ///
    /// # Panics
    /// Panics if it is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("HTTP {}, not JSON ({error}): {}", self.status, self.text())
        })
    }

    /// Returns the answer, checked by kube-apiserver's rules.
    ///
    /// # Panics
    /// Panics if kube-apiserver would reject or change the answer.
    #[must_use]
    pub fn checked(&self, endpoint: Endpoint, review: &Value) -> Checked {
        match check(
            endpoint,
            review,
            self.status,
            &self.content_type,
            &self.body,
        ) {
            Ok(checked) => without_uid(checked, review),
            Err(violations) => panic!(
                "{}\nin HTTP {}: {}",
                violations.join("\n"),
                self.status,
                shortened(&self.text())
            ),
        }
    }
}

/// Removes the review's uid, which must be where operators look for it: at the end of the text that the user reads, and
/// in an annotation. The tests compare the rest.
fn without_uid(mut checked: Checked, review: &Value) -> Checked {
    let uid = review["request"]["uid"].as_str().unwrap_or_default();
    let recorded = checked.audit_annotations.remove("review");
    if recorded.is_some() || !checked.audit_annotations.is_empty() {
        assert_eq!(recorded.as_deref(), Some(uid), "the annotation `review`");
    }
    let Some(status) = &mut checked.status else {
        return checked;
    };
    let is_invalid = status["reason"] == "Invalid";
    let shown = if uid.len() == 36 { &uid[..8] } else { uid };
    let suffix = format!(" (review {shown})");
    let strip = |text: &mut Value| {
        let stripped = text.as_str().and_then(|text| text.strip_suffix(&suffix));
        let stripped = stripped.unwrap_or_else(|| panic!("{text} does not end with{suffix}"));
        *text = Value::from(stripped);
    };
    strip(&mut status["message"]);
    let causes = status["details"]["causes"].as_array_mut();
    if let Some(last) = causes
        .and_then(|causes| causes.last_mut())
        .filter(|_| is_invalid)
    {
        strip(&mut last["message"]);
    }
    checked
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(4000)]
}

// === impl Logs ===

impl Logs {
    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new(stderr: ChildStderr) -> Self {
        Self {
            stderr,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Takes lines until the server ends. It takes them from the pipe while it holds the lock.
    fn read(&self) {
        let mut chunk = vec![0; 64 * 1024];
        loop {
            let mut readable = [PollFd::new(&self.stderr, PollFlags::IN)];
            match poll(&mut readable, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => panic!("the pipe of the logs cannot be polled: {error}"),
            }
            let mut state = self.lock();
            let bytes = rustix::io::read(&self.stderr, &mut chunk[..]).unwrap_or(0);
            state.rest.extend_from_slice(&chunk[..bytes]);
            state.ended = bytes == 0;
            state.take_lines();
            let ended = state.ended;
            drop(state);
            self.changed.notify_all();
            if ended {
                return;
            }
        }
    }

    /// The state with everything that the server has written so far.
    fn complete(&self) -> MutexGuard<'_, LogState> {
        loop {
            let state = self.lock();
            if state.ended || ioctl_fionread(&self.stderr).is_ok_and(|bytes| bytes == 0) {
                return state;
            }
            drop(state);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn wait_for_message(&self, message: &str, limit: Duration) -> Result<Value, &'static str> {
        let deadline = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            let mut parsed = state
                .lines
                .iter()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let is_it = |line: &Value| {
                let text = line["message"].as_str();
                text.is_some_and(|text| text.starts_with(message))
            };
            if let Some(line) = parsed.find(is_it) {
                return Ok(line);
            }
            if state.ended {
                return Err("it ended");
            }
            let left = deadline
                .checked_duration_since(Instant::now())
                .ok_or("it took too long")?;
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

// === impl LogState ===

impl LogState {
    /// Moves the complete lines. Nothing else follows the last line of a server that has ended.
    fn take_lines(&mut self) {
        let end = match self.rest.iter().rposition(|byte| *byte == b'\n') {
            _ if self.ended => self.rest.len(),
            Some(last) => last + 1,
            None => return,
        };
        let rest = self.rest.split_off(end);
        let lines = std::mem::replace(&mut self.rest, rest);
        let lines = String::from_utf8_lossy(&lines);
        self.lines
            .extend(lines.lines().map(|line| line.trim_end().to_owned()));
    }
}

/// Repeats a check until it succeeds, and returns the time that this took.
///
/// # Panics
/// Panics if it does not succeed within a minute.
pub async fn until(what: &str, mut is: impl AsyncFnMut() -> bool) -> Duration {
    const PATIENCE: Duration = Duration::from_secs(60);
    let began = Instant::now();
    while !is().await {
        assert!(began.elapsed() < PATIENCE, "it did not come to: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    began.elapsed()
}

/// Returns the value of a metric on a metrics page: the sum of all series that have these labels. A missing series
/// counts as zero.
///
/// # Panics
/// Panics if the value is not a number.
#[must_use]
pub fn metric(page: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let wanted = |series: &str| {
        let rest = series.strip_prefix(name);
        let labels_text = rest.and_then(|rest| {
            if rest.is_empty() {
                Some("")
            } else {
                rest.strip_prefix('{')?.strip_suffix('}')
            }
        });
        labels_text.is_some_and(|text| {
            labels
                .iter()
                .all(|(name, value)| text.contains(&format!("{name}=\"{value}\"")))
        })
    };
    let series = page
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(series, _)| wanted(series));
    series
        .map(|(series, value)| {
            value
                .parse::<f64>()
                .unwrap_or_else(|_| panic!("{series} is {value}, which is no number"))
        })
        .sum()
}
