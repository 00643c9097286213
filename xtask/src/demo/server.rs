//! Runs the host as a child process, and starts and stops it as an operator would.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Time limit for the start. Compiling the plugins takes a second or two, or longer on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(180);
/// Interval at which the demo asks whether the plugins are loaded.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for the stop. No request is in flight when the demo ends.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A running host.
pub(super) struct Server {
    child: Child,
    address: String,
    admin: String,
    probes: String,
    ca: PathBuf,
    log: PathBuf,
}

// === impl Server ===

impl Server {
    /// Starts the host, and waits until it listens and has loaded all plugins. Reviews are answered earlier: a plugin
    /// in mode `warn` delays no start.
    pub(super) fn start(
        executable: &Path,
        configuration: &Path,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let log = configuration.with_file_name("tollgate.log");
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut child = Command::new(executable)
            .args(["serve", "--config"])
            .arg(configuration)
            .current_dir(folder)
            .env_remove("TOLLGATE_LOG")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", executable.display()))?;
        let stderr = child
            .stderr
            .take()
            .context("the standard error of the host is a pipe")?;
        let (send, receive) = channel();
        std::thread::spawn(move || copy(stderr, file, &send));
        let mut server = Self {
            child,
            address: String::new(),
            admin: String::new(),
            probes: String::new(),
            ca: PathBuf::new(),
            log,
        };
        let deadline = Instant::now() + START_TIMEOUT;
        // The channel closes with the pipe, so this loop ends when the host ends.
        while let Ok(line) =
            receive.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            if server.reads(&line) {
                return server.loaded(deadline);
            }
        }
        let status = server.child.try_wait().ok().flatten();
        let what = status.map_or_else(
            || format!("it did not listen within {} s", START_TIMEOUT.as_secs()),
            |status| format!("it ended ({status})"),
        );
        let log = std::fs::read_to_string(&server.log).unwrap_or_default();
        anyhow::bail!("the host did not start: {what}. Its log:\n{log}")
    }

    /// Waits until all plugins are loaded.
    fn loaded(self, deadline: Instant) -> anyhow::Result<Self> {
        let url = format!("{}/plugins", self.admin_url());
        loop {
            let page = ureq::get(&url).call()?.body_mut().read_to_string()?;
            let page: Value = serde_json::from_str(&page)?;
            let plugins = page["plugins"].as_array().map_or(&[][..], Vec::as_slice);
            if plugins.iter().all(|plugin| plugin["state"] == "loaded") {
                return Ok(self);
            }
            anyhow::ensure!(
                Instant::now() < deadline,
                "the host did not load all plugins within {} s: {page:#}",
                START_TIMEOUT.as_secs()
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Reads a line of the log. Returns true if it gives the host's addresses.
    fn reads(&mut self, line: &str) -> bool {
        let entry: Value = serde_json::from_str(line).unwrap_or_default();
        let text = |key: &str| entry[key].as_str().map(str::to_owned);
        if entry["message"] != "listening" {
            return false;
        }
        let (Some(address), Some(admin), Some(probes), Some(ca)) = (
            text("address"),
            text("admin"),
            text("probes"),
            text("ca_bundle"),
        ) else {
            return false;
        };
        (self.address, self.admin, self.probes) = (address, admin, probes);
        self.ca = ca.into();
        true
    }

    /// The URL for reviews.
    pub(super) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The URL for plugins and decisions.
    pub(super) fn admin_url(&self) -> String {
        format!("http://{}", self.admin)
    }

    /// The URL for probes and metrics.
    pub(super) fn probes_url(&self) -> String {
        format!("http://{}", self.probes)
    }

    /// The CA certificate.
    pub(super) fn ca(&self) -> &Path {
        &self.ca
    }

    /// The log file.
    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// Asks the host to end, and waits until it does.
    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::INT)
            .context("cannot send a signal to the host")?;
        let began = Instant::now();
        while began.elapsed() < STOP_TIMEOUT {
            if let Some(status) = self.child.try_wait()? {
                anyhow::ensure!(
                    status.success(),
                    "the host failed ({status}); its log: {}",
                    self.log.display()
                );
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        anyhow::bail!(
            "the host did not end within {} s of SIGINT",
            STOP_TIMEOUT.as_secs()
        )
    }

    /// Waits until the host ends, most likely through Ctrl-C, which also reaches this process.
    pub(super) fn wait(mut self) -> anyhow::Result<()> {
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // An error means that the host cannot be killed, and nothing more can be done.
            let _: std::io::Result<()> = self.child.kill();
            let _: std::io::Result<_> = self.child.wait();
        }
    }
}

fn copy(stderr: impl Read, mut file: File, lines: &Sender<String>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        // Errors are ignored: the log is for later reading, and the demo works without it.
        let _: std::io::Result<()> = writeln!(file, "{line}");
        let _: Result<(), _> = lines.send(line);
    }
}
