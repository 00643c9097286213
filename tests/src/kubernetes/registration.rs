//! Registers a server with kube-apiserver through the output of `tollgate manifests`.

use std::process::Command;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::Value;

use super::Cluster;
use crate::binary;
use crate::server::{Server, metric};

/// Time limit for a configuration to take effect. kube-apiserver needs a second, or much longer on a busy machine.
const EFFECT_LIMIT: Duration = Duration::from_secs(30);

/// The registration of a server. It ends when this is dropped.
pub struct Registration<'c> {
    cluster: &'c Cluster,
    name: String,
    printed: String,
}

// === impl Registration ===

impl<'c> Registration<'c> {
    /// Applies the output of `tollgate manifests` for a server under a name. Waits until kube-apiserver asks the server
    /// about `probe`, an object that all its webhooks match. `path` is the path at which such an object is created.
    ///
    /// # Panics
    /// Panics if the manifests are rejected, or if kube-apiserver does not ask the server.
    pub async fn new(
        cluster: &'c Cluster,
        server: &Server,
        name: &str,
        arguments: &[&str],
        probe: (&str, &Value),
    ) -> Self {
        let registration = Self::apply(cluster, server, name, arguments);
        registration.wait_for_effect(&[server], probe).await;
        registration
    }

    /// Applies the output of `tollgate manifests`. If `arguments` has neither `--service` nor `--url`, the server is
    /// registered by the URL that it listens on.
    ///
    /// # Panics
    /// Panics if the manifests are rejected.
    #[must_use]
    pub fn apply(cluster: &'c Cluster, server: &Server, name: &str, arguments: &[&str]) -> Self {
        let mut registration = Self {
            cluster,
            name: name.to_owned(),
            printed: String::new(),
        };
        registration.renew(server, arguments);
        registration
    }

    /// Applies the current output of `tollgate manifests` in place of the previous one.
    ///
    /// # Panics
    /// Panics if the manifests are rejected.
    pub fn renew(&mut self, server: &Server, arguments: &[&str]) {
        self.printed = manifests(server, &self.name, arguments);
        let apply = self.cluster.kubectl(&["apply", "-f", "-"]);
        apply.text(&self.printed).succeed();
    }

    /// Waits until kube-apiserver asks one of the servers about `probe` in each registered phase. The probe is not
    /// created.
    ///
    /// # Panics
    /// Panics if kube-apiserver does not ask any server.
    pub async fn wait_for_effect(&self, servers: &[&Server], (path, probe): (&str, &Value)) {
        let phases: Vec<&str> = [("Mutating", "mutate"), ("Validating", "validate")]
            .into_iter()
            .filter(|(kind, _)| {
                let kind = format!("kind: {kind}WebhookConfiguration");
                self.printed.contains(&kind)
            })
            .map(|(_, phase)| phase)
            .collect();
        let path = format!("{path}?dryRun=All");
        let deadline = Instant::now() + EFFECT_LIMIT;
        loop {
            let answer = self.cluster.request(Method::POST, &path, Some(probe)).await;
            let mut waiting = Vec::new();
            for phase in &phases {
                let mut asked = 0.0;
                for server in servers {
                    let page = server.metrics().await;
                    asked += metric(&page, "tollgate_requests_total", &[("endpoint", phase)]);
                }
                if asked == 0.0 {
                    waiting.push(phase);
                }
            }
            if waiting.is_empty() {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "kube-apiserver does not ask {} to {waiting:?}: it answered {answer:?}",
                self.name
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The manifests that were printed and applied.
    #[must_use]
    pub fn manifests(&self) -> &str {
        &self.printed
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        for kind in [
            "mutatingwebhookconfiguration",
            "validatingwebhookconfiguration",
        ] {
            let arguments = ["delete", "--ignore-not-found", kind, &self.name];
            // A test that has failed must not fail a second time here.
            drop(self.cluster.kubectl(&arguments).run());
        }
    }
}

/// Returns the output of `tollgate manifests` for a server.
///
/// # Panics
/// Panics if the command fails.
fn manifests(server: &Server, name: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(binary::tollgate());
    command.arg("manifests").arg("--config");
    command.arg(server.configuration().write());
    command.args(["--name", name]).args(arguments);
    if !arguments
        .iter()
        .any(|argument| ["--url", "--service"].contains(argument))
    {
        command.args(["--url", &server.url("")]);
    }
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("tollgate cannot be run: {error}"));
    assert!(
        output.status.success(),
        "tollgate manifests: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
