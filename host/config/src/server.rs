//! The certificate, the handling of requests, and the resources of the engine.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::limit;
use super::plugin::is_label;
use super::quantity::format_bytes;
use super::read::{Fields, Node};

/// The source of the server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// PEM files.
    Files {
        /// The certificate and its chain up to the CA.
        certificate: PathBuf,
        /// The private key.
        key: PathBuf,
    },
    /// A certificate that the server creates at startup.
    SelfSigned(SelfSigned),
}

/// A CA and a certificate that the server creates itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfSigned {
    /// Folder of the CA, with its certificate for use as caBundle.
    pub directory: PathBuf,
    /// DNS names and IP addresses, in addition to `localhost`, `127.0.0.1` and `::1`.
    pub names: Vec<String>,
    /// The Kubernetes service in front of the server.
    pub service: Option<ServiceName>,
}

/// A Kubernetes service, written `name.namespace`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceName {
    /// The service's name.
    pub name: String,
    /// The service's namespace.
    pub namespace: String,
}

/// Limits for the decisions that are kept for later questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionLimits {
    /// Maximum number of decisions. With 0, none are kept.
    pub max_count: u32,
    /// Maximum size of the decisions in memory.
    pub max_bytes: u64,
}

/// The handling of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requests {
    /// Maximum size of one request's body.
    pub max_body_bytes: u64,
    /// Maximum size of all bodies that are being read or answered.
    pub max_bytes_in_flight: u64,
    /// Maximum memory of all decoded documents together.
    pub max_decoded_bytes: u64,
    /// Maximum number of concurrent connections.
    pub max_connections: u32,
    /// Time that is subtracted from the caller's timeout.
    pub deadline_margin: Margin,
    /// Timeout of a request that names none.
    pub default_timeout: Duration,
    /// Time after which an idle connection is closed.
    pub idle_timeout: Duration,
    /// Time that requests in flight may take after SIGTERM.
    pub shutdown_grace_period: Duration,
    /// Maximum nesting depth of JSON.
    pub max_depth: u32,
}

/// A share of a time, with a minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Margin {
    /// The share, in hundredths.
    pub percent: u32,
    /// The minimum.
    pub at_least: Duration,
}

/// The resources that the engine may use, for all plugins together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Maximum number of concurrent calls of plugins.
    pub max_concurrent_calls: u32,
    /// Maximum size of the linear memories of all calls together.
    pub max_memory_bytes: u64,
    /// Memory for answers that later calls may be given. With 0, every call runs.
    pub answer_cache_bytes: u64,
    /// Maximum number of instances that are kept for the next call of their plugin. With 0, every call gets a new one.
    pub kept_instances: u32,
    /// Size of the WebAssembly stack of one call.
    pub max_wasm_stack_bytes: u64,
    /// Maximum size of a plugin's file.
    pub max_plugin_bytes: u64,
    /// Time that snapshotting and compiling a plugin may take.
    pub load_timeout: Duration,
    /// Memory that snapshotting and compiling a plugin may take.
    pub load_memory_bytes: u64,
    /// Folder for compiled plugins between starts. Without it, none are kept.
    pub cache_directory: Option<PathBuf>,
}

const SELF_SIGNED_DIRECTORY: &str = "tollgate-tls";

// === impl Tls ===

impl Tls {
    pub(crate) fn read(fields: &mut Fields<'_>, folder: &Path) -> Self {
        let mut tls = fields.section("tls");
        let from_files = tls.has("certificate") || tls.has("key");
        if from_files && tls.has("selfSigned") {
            fields.problem(
                "tls",
                "expected either certificate and key, or selfSigned, not both",
            );
        }
        let files = if from_files {
            let certificate = tls.required(
                "certificate",
                "the path of a PEM file with the certificate of `key`",
            );
            let key = tls.required(
                "key",
                "the path of a PEM file with the private key of `certificate`",
            );
            let path = |node: Option<Node<'_>>| {
                node.and_then(|node| node.path_in(folder))
                    .unwrap_or_default()
            };
            Some(Self::Files {
                certificate: path(certificate),
                key: path(key),
            })
        } else {
            // Reads the keys to mark them as known.
            let _ = (tls.optional("certificate"), tls.optional("key"));
            None
        };
        let self_signed = SelfSigned::read(&mut tls, folder);
        tls.finish();
        files.unwrap_or(Self::SelfSigned(self_signed))
    }
}

// === impl SelfSigned ===

impl SelfSigned {
    fn read(tls: &mut Fields<'_>, folder: &Path) -> Self {
        let mut fields = tls.section("selfSigned");
        let directory = fields
            .optional("directory")
            .and_then(|node| node.path_in(folder));
        let names = fields
            .optional("names")
            .and_then(|node| node.elements("DNS names and IP addresses"));
        let service = fields
            .optional("service")
            .and_then(|node| ServiceName::read(&node));
        fields.finish();
        Self {
            directory: directory.unwrap_or_else(|| folder.join(SELF_SIGNED_DIRECTORY)),
            names: names
                .unwrap_or_default()
                .iter()
                .filter_map(read_subject_name)
                .collect(),
            service,
        }
    }

    /// Returns the host names and addresses that the certificate is for, each once.
    #[must_use]
    pub fn subject_names(&self) -> Vec<String> {
        let mut names = vec![
            "localhost".to_owned(),
            "127.0.0.1".to_owned(),
            "::1".to_owned(),
        ];
        let service = self.service.iter().flat_map(ServiceName::dns_names);
        for name in service.chain(self.names.iter().cloned()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

fn read_subject_name(node: &Node<'_>) -> Option<String> {
    let expected = "a DNS name or an IP address";
    let text = node.text(expected)?;
    let labels = text.strip_prefix("*.").unwrap_or(text);
    let is_name = text.len() <= 253 && labels.split('.').all(|label| is_label(label, 63));
    if !is_name && text.parse::<IpAddr>().is_err() {
        node.reject(expected);
        return None;
    }
    Some(text.to_owned())
}

// === impl ServiceName ===

impl ServiceName {
    /// Returns the service's DNS names. kube-apiserver uses the one that ends in `.svc`.
    pub fn dns_names(&self) -> impl Iterator<Item = String> {
        ["", ".svc", ".svc.cluster.local"]
            .into_iter()
            .map(move |suffix| format!("{self}{suffix}"))
    }

    fn read(node: &Node<'_>) -> Option<Self> {
        let expected = "a service's name and namespace, such as tollgate.tollgate-system";
        let text = node.text(expected)?;
        let parts = text
            .split_once('.')
            .filter(|(name, namespace)| is_label(name, 63) && is_label(namespace, 63));
        let Some((name, namespace)) = parts else {
            node.reject(expected);
            return None;
        };
        Some(Self {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        })
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.name, self.namespace)
    }
}

// === impl DecisionLimits ===

impl DecisionLimits {
    pub(crate) fn read(admin: &mut Fields<'_>) -> Self {
        let mut fields = admin.section("decisions");
        let base = Self::default();
        let limits = Self {
            max_count: fields.amount_u32(&limit::MAX_DECISIONS, base.max_count),
            max_bytes: fields.amount(&limit::MAX_DECISION_BYTES, base.max_bytes),
        };
        fields.finish();
        limits
    }
}

impl Default for DecisionLimits {
    fn default() -> Self {
        Self {
            max_count: limit::MAX_DECISIONS.default_u32(),
            max_bytes: limit::MAX_DECISION_BYTES.default,
        }
    }
}

// === impl Requests ===

impl Requests {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Self {
        let mut fields = fields.section("requests");
        let mut margin = fields.section("deadlineMargin");
        let deadline_margin = Margin {
            percent: margin.amount_u32(&limit::MARGIN_PERCENT, limit::MARGIN_PERCENT.default_u32()),
            at_least: margin.duration(
                &limit::MARGIN_AT_LEAST,
                limit::MARGIN_AT_LEAST.default_duration(),
            ),
        };
        margin.finish();
        let requests = Self {
            max_body_bytes: fields.amount(&limit::MAX_BODY, limit::MAX_BODY.default),
            max_bytes_in_flight: fields.amount(&limit::MAX_IN_FLIGHT, limit::MAX_IN_FLIGHT.default),
            max_decoded_bytes: fields.amount(&limit::MAX_DECODED, limit::MAX_DECODED.default),
            max_connections: fields.amount_u32(
                &limit::MAX_CONNECTIONS,
                limit::MAX_CONNECTIONS.default_u32(),
            ),
            deadline_margin,
            default_timeout: fields.duration(
                &limit::DEFAULT_TIMEOUT,
                limit::DEFAULT_TIMEOUT.default_duration(),
            ),
            idle_timeout: fields
                .duration(&limit::IDLE_TIMEOUT, limit::IDLE_TIMEOUT.default_duration()),
            shutdown_grace_period: fields.duration(
                &limit::SHUTDOWN_GRACE_PERIOD,
                limit::SHUTDOWN_GRACE_PERIOD.default_duration(),
            ),
            max_depth: fields.amount_u32(&limit::MAX_DEPTH, limit::MAX_DEPTH.default_u32()),
        };
        if requests.max_bytes_in_flight < requests.max_body_bytes {
            let (in_flight, body) = (
                format_bytes(requests.max_bytes_in_flight),
                format_bytes(requests.max_body_bytes),
            );
            let by_default = if fields.has(limit::MAX_IN_FLIGHT.name()) {
                ""
            } else {
                " by default"
            };
            fields.problem(
                limit::MAX_IN_FLIGHT.name(),
                format!("got {in_flight}{by_default}, expected at least requests.maxBody, which is {body}"),
            );
        }
        fields.finish();
        requests
    }
}

// === impl Margin ===

impl Margin {
    /// Returns the margin for a time, which is never more than the time itself.
    #[must_use]
    pub fn of(self, time: Duration) -> Duration {
        (time * self.percent / 100).max(self.at_least).min(time)
    }
}

// === impl EngineConfig ===

impl EngineConfig {
    pub(crate) fn read(fields: &mut Fields<'_>, folder: &Path) -> Self {
        let mut fields = fields.section("engine");
        let engine = Self {
            max_concurrent_calls: fields.amount_u32(
                &limit::MAX_CONCURRENT_CALLS,
                limit::MAX_CONCURRENT_CALLS.default_u32(),
            ),
            max_memory_bytes: fields.amount(&limit::MAX_MEMORY, limit::MAX_MEMORY.default),
            answer_cache_bytes: fields.amount(&limit::ANSWER_CACHE, limit::ANSWER_CACHE.default),
            kept_instances: fields
                .amount_u32(&limit::KEPT_INSTANCES, limit::KEPT_INSTANCES.default_u32()),
            max_wasm_stack_bytes: fields
                .amount(&limit::MAX_WASM_STACK, limit::MAX_WASM_STACK.default),
            max_plugin_bytes: fields.amount(&limit::MAX_PLUGIN, limit::MAX_PLUGIN.default),
            load_timeout: fields
                .duration(&limit::LOAD_TIMEOUT, limit::LOAD_TIMEOUT.default_duration()),
            load_memory_bytes: fields.amount(&limit::LOAD_MEMORY, limit::LOAD_MEMORY.default),
            cache_directory: fields
                .optional("cacheDirectory")
                .and_then(|node| node.path_in(folder)),
        };
        fields.finish();
        engine
    }
}
