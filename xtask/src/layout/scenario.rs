//! What the server does while its functions are recorded.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use super::Functions;
use super::record::{Recording, stopped};
use crate::cargo;
use crate::workspace::Workspace;

/// The plugins that are served, with their settings.
const PLUGINS: [(&str, &str); 3] = [
    (
        "required-labels",
        r#"{"labels": {"app.kubernetes.io/name": null, "team": "[a-z]{1,10}"}}"#,
    ),
    ("required-labels", r#"{"labels": {"team": null}}"#),
    (
        "image-rewrite",
        r#"{"rewrite": [{"from": "registry.example.com", "to": "mirror.example.com"}]}"#,
    ),
];
/// Number of containers of the Pods: a review of some 5 kB, and one of some 100 kB.
const CONTAINERS: [usize; 2] = [15, 300];
const WAITING: Duration = Duration::from_secs(2);
/// The server gives memory of large reviews back after a quarter of a minute.
const IDLE: Duration = Duration::from_secs(17);

/// Longest time for one run of the server.
const LONGEST: Duration = Duration::from_secs(300);

/// A folder with the server's configuration and its compiled code.
struct Scenario {
    folder: PathBuf,
    load: PathBuf,
}

/// Where the server listens.
struct Served {
    address: String,
    ca_bundle: String,
    probes: String,
}

/// Runs the server twice: the first run compiles the plugins in children, and the second one is recorded.
pub(super) fn run(
    workspace: &Workspace,
    binary: &Path,
    functions: &Functions,
) -> anyhow::Result<Vec<u64>> {
    cargo::run(workspace.cargo().args(["build", "--workspace", "--bins"]))?;
    let folder = std::env::temp_dir().join(format!("tollgate-layout-{}", std::process::id()));
    fs::create_dir_all(folder.join("code"))?;
    let scenario = Scenario {
        load: workspace.target().join("debug/load"),
        folder,
    };
    let called = scenario.run(workspace, binary, functions);
    drop(fs::remove_dir_all(&scenario.folder));
    called
}

// === impl Scenario ===

impl Scenario {
    fn run(
        &self,
        workspace: &Workspace,
        binary: &Path,
        functions: &Functions,
    ) -> anyhow::Result<Vec<u64>> {
        self.configure(workspace)?;
        for compile in [true, false] {
            let mut command = stopped(binary);
            command
                .args(["serve", "--config"])
                .arg(self.folder.join("tollgate.yaml"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped());
            // A child that is about to start a program would meet breakpoints without being recorded.
            let breakpoints = functions.keys().copied().filter(|_| !compile);
            let mut recording = Recording::start(&mut command, binary, breakpoints)?;
            let process = recording.process();
            let stderr = recording.stderr().context("the server has a log")?;
            let called = std::thread::scope(|scope| {
                let (done, ended) = std::sync::mpsc::channel::<()>();
                let end = move || {
                    // It may have ended already.
                    let _: nix::Result<()> = kill(process, Signal::SIGKILL);
                };
                let work = scope.spawn(move || {
                    let worked = self.work(stderr, compile);
                    end();
                    drop(done);
                    worked
                });
                // Without its server, the scenario ends, and so does the log.
                scope.spawn(move || {
                    if let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LONGEST) {
                        end();
                    }
                });
                let called = recording.finish();
                end();
                work.join().expect("the scenario does not panic")?;
                called
            })?;
            if !compile {
                return Ok(called);
            }
        }
        Ok(Vec::new())
    }

    fn configure(&self, workspace: &Workspace) -> anyhow::Result<()> {
        let mut plugins = Vec::new();
        for (number, (plugin, settings)) in PLUGINS.iter().enumerate() {
            let file = workspace.guest_file(plugin);
            ensure!(
                file.is_file(),
                "no plugin {}: `cargo xtask test` builds it",
                file.display()
            );
            let settings: Value = serde_json::from_str(settings)?;
            plugins.push(json!({
                "name": format!("plugin-{number}"), "source": format!("file:{}", file.display()),
                "settings": settings,
            }));
        }
        let configuration = json!({
            "listen": "127.0.0.1:0",
            "admin": {"listen": "127.0.0.1:0"},
            "probes": {"listen": "127.0.0.1:0"},
            "tls": {"selfSigned": {"directory": self.folder.join("tls")}},
            "engine": {"cacheDirectory": self.folder.join("code")},
            "plugins": plugins,
        });
        Ok(fs::write(
            self.folder.join("tollgate.yaml"),
            configuration.to_string(),
        )?)
    }

    /// Waits until the server is ready, and sends reviews.
    fn work(&self, log: ChildStderr, compile: bool) -> anyhow::Result<()> {
        let mut served = None;
        let mut lines = BufReader::new(log).lines();
        let mut optimised = 0;
        for line in &mut lines {
            let line: Value = serde_json::from_str(&line?).unwrap_or_default();
            match line["message"].as_str() {
                Some("listening") => {
                    let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
                    served = Some(Served {
                        address: text("address"),
                        ca_bundle: text("ca_bundle"),
                        probes: text("probes"),
                    });
                }
                Some("optimised code in use") => optimised += 1,
                _ => {}
            }
            if line["level"] == "ERROR" {
                anyhow::bail!("the server logged {line}");
            }
            if served.is_some() && (!compile || optimised == PLUGINS.len()) {
                break;
            }
        }
        let served = served.context("the server does not listen")?;
        ensure!(
            !compile || optimised == PLUGINS.len(),
            "the server optimised the code of {optimised} of {} plugins",
            PLUGINS.len()
        );
        // Read the rest of the log, so that the server does not wait.
        std::thread::spawn(move || lines.for_each(drop));
        if compile {
            return Ok(());
        }
        std::thread::sleep(WAITING);
        for containers in CONTAINERS {
            for path in ["/validate", "/mutate"] {
                for differ in [false, true] {
                    self.load(&served, path, containers, differ)?;
                }
            }
        }
        for path in ["/readyz", "/livez", "/metrics"] {
            get(&served.probes, path)?;
        }
        std::thread::sleep(IDLE);
        Ok(())
    }

    fn load(
        &self,
        served: &Served,
        path: &str,
        containers: usize,
        differ: bool,
    ) -> anyhow::Result<()> {
        let body = self.folder.join("review.json");
        fs::write(&body, review(containers).to_string())?;
        let operations = match path {
            // An image for each container, and the annotations with the original ones.
            "/mutate" => containers + 1,
            _ => 0,
        };
        let order = json!({
            "address": served.address, "ca": served.ca_bundle, "path": path, "body": body,
            "connections": 4, "pace": "saturating",
            "warm_up": {"secs": 0, "nanos": 0}, "duration": {"secs": 1, "nanos": 0},
            "max_requests": 10_000, "differ": differ,
            "process": std::process::id(),
            "expected": {"allowed": true, "operations": operations},
        });
        let mut load = Command::new(&self.load)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| self.load.display().to_string())?;
        if let Some(mut stdin) = load.stdin.take() {
            stdin.write_all(order.to_string().as_bytes())?;
        }
        ensure!(load.wait()?.success(), "reviews to {path} failed");
        Ok(())
    }
}

/// A review of a Pod.
fn review(containers: usize) -> Value {
    let container = |number: usize| {
        json!({
            "name": format!("container-{number}"),
            "image": format!("registry.example.com/shop/front-end:1.4.{number}"),
            "ports": [{"containerPort": 8080, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            "env": [{"name": "SETTING", "value": "the value of a setting of the front end"}],
        })
    };
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": kind, "requestKind": kind, "resource": resource, "requestResource": resource,
            "name": "shop", "namespace": "default", "operation": "CREATE",
            "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
            "object": {
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "shop", "namespace": "default",
                    "labels": {"app.kubernetes.io/name": "shop", "team": "blue"}},
                "spec": {"containers": (0..containers).map(container).collect::<Vec<_>>()},
            },
            "dryRun": false,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
        },
    })
}

fn get(address: &str, path: &str) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    Ok(())
}
