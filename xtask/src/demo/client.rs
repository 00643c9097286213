//! Calls the host as kube-apiserver does: over HTTPS with the CA from the webhook configuration.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::answer::Answer;
use super::costs::Costs;
use super::server::Server;

/// Time limit for an answer, many times longer than the host needs.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A client of one host.
pub(super) struct Client {
    agent: Agent,
    url: String,
    probes_url: String,
}

/// A review's answer, sizes and duration.
pub(super) struct Exchange {
    pub(super) answer: Answer,
    pub(super) request_bytes: usize,
    pub(super) response_bytes: usize,
    pub(super) took: Duration,
}

// === impl Client ===

impl Client {
    pub(super) fn new(server: &Server) -> anyhow::Result<Self> {
        let pem = std::fs::read(server.ca())
            .with_context(|| format!("cannot read {}", server.ca().display()))?;
        let ca = Certificate::from_pem(&pem).context("the host's CA is not a PEM certificate")?;
        let provider = rustls::crypto::ring::default_provider();
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&[ca]))
            .unversioned_rustls_crypto_provider(provider.into())
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            // The host is on loopback, so proxies from the environment must not be used.
            .proxy(None)
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .build();
        Ok(Self {
            agent: config.new_agent(),
            url: server.url(),
            probes_url: server.probes_url(),
        })
    }

    /// Sends a review to `/mutate` or `/validate`.
    pub(super) fn review(&self, path: &str, review: &Value) -> anyhow::Result<Exchange> {
        let url = format!("{}{path}?timeout=10s", self.url);
        let body = review.to_string();
        let began = Instant::now();
        let mut response = self
            .agent
            .post(&url)
            .content_type("application/json")
            .send(&body)
            .with_context(|| format!("POST {url}"))?;
        let text = response
            .body_mut()
            .read_to_string()
            .with_context(|| format!("POST {url}"))?;
        let took = began.elapsed();
        let status = response.status();
        anyhow::ensure!(
            status == 200,
            "POST {url} was answered with HTTP {status}: {text}"
        );
        let answer = Answer::read(&text, review)?;
        Ok(Exchange {
            answer,
            request_bytes: body.len(),
            response_bytes: text.len(),
            took,
        })
    }

    /// Returns the plugins' costs so far.
    pub(super) fn costs(&self) -> anyhow::Result<Costs> {
        let url = format!("{}/metrics", self.probes_url);
        let mut response = self
            .agent
            .get(&url)
            .call()
            .with_context(|| format!("GET {url}"))?;
        let text = response
            .body_mut()
            .read_to_string()
            .with_context(|| format!("GET {url}"))?;
        Ok(Costs::read(&text))
    }
}
