//! What the server listens to, how it treats requests, and what the engine may use.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::limit;
use super::plugin::is_label;
use super::quantity::format_bytes;
use super::read::{Fields, Node};

/// Where the certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// PEM files.
    Files {
        /// The certificate and what leads to its CA.
        certificate: PathBuf,
        /// The private key.
        key: PathBuf,
    },
    /// Made at start.
    SelfSigned(SelfSigned),
}

/// A CA and a certificate of the server's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfSigned {
    /// Where the CA is kept, with its certificate for use as caBundle.
    pub directory: PathBuf,
    /// DNS names and IP addresses beside `localhost`, `127.0.0.1` and `::1`.
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

/// How many decisions are kept for those who ask afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionLimits {
    /// Decisions; none are kept with 0.
    pub max_count: u32,
    /// What they may take in memory.
    pub max_bytes: u64,
}

/// How requests are treated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requests {
    /// The longest body of one request.
    pub max_body_bytes: u64,
    /// All bodies together that are being read or answered.
    pub max_bytes_in_flight: u64,
    /// The memory that all decoded documents may take together.
    pub max_decoded_bytes: u64,
    /// Connections at the same time.
    pub max_connections: u32,
    /// What is kept back of the time that the caller gives.
    pub deadline_margin: Margin,
    /// The time of a request that does not say.
    pub default_timeout: Duration,
    /// How long a connection may stay idle.
    pub idle_timeout: Duration,
    /// How long requests in flight may take after SIGTERM.
    pub shutdown_grace_period: Duration,
    /// How deep JSON may be nested.
    pub max_depth: u32,
}

/// A share of a time, but not less than a minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Margin {
    /// The share, in hundredths.
    pub percent: u32,
    /// The minimum.
    pub at_least: Duration,
}

/// What the engine may use, for all plugins together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Calls of plugins at the same time.
    pub max_concurrent_calls: u32,
    /// The linear memories of all calls together.
    pub max_memory_bytes: u64,
    /// The WebAssembly stack of one call.
    pub max_wasm_stack_bytes: u64,
    /// The size of a plugin's file.
    pub max_plugin_bytes: u64,
    /// The time that snapshotting and compiling a plugin may take.
    pub load_timeout: Duration,
    /// The memory that snapshotting and compiling a plugin may take.
    pub load_memory_bytes: u64,
    /// Where compiled plugins are kept between starts; without it nothing is kept.
    pub cache_directory: Option<PathBuf>,
}

/// The addresses that the server listens on when nothing else is said.
const LISTEN: SocketAddr = SocketAddr::V4(std::net::SocketAddrV4::new(
    std::net::Ipv4Addr::UNSPECIFIED,
    8443,
));
const ADMIN_LISTEN: SocketAddr = SocketAddr::V4(std::net::SocketAddrV4::new(
    std::net::Ipv4Addr::LOCALHOST,
    8081,
));

const SELF_SIGNED_DIRECTORY: &str = "tollgate-tls";

pub(crate) fn read_listen(fields: &mut Fields<'_>) -> (SocketAddr, SocketAddr, DecisionLimits) {
    let listen = fields
        .optional("listen")
        .and_then(|node| node.socket_address());
    let mut admin = fields.section("admin");
    let admin_listen = admin
        .optional("listen")
        .and_then(|node| node.socket_address());
    let (listen, admin_listen) = (
        listen.unwrap_or(LISTEN),
        admin_listen.unwrap_or(ADMIN_LISTEN),
    );
    // An unspecified address takes the port on all of them; port 0 is whichever one is free.
    let same_address = listen.ip() == admin_listen.ip()
        || listen.ip().is_unspecified()
        || admin_listen.ip().is_unspecified();
    if same_address && listen.port() == admin_listen.port() && listen.port() != 0 {
        admin.problem(
            "listen",
            format!("got {admin_listen}, expected another port than `listen` has"),
        );
    }
    let decisions = DecisionLimits::read(&mut admin);
    admin.finish();
    (listen, admin_listen, decisions)
}

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
            // Asked for so that they are known keys.
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

    /// The host names and addresses that the certificate is for, each once.
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
    /// The names under which the service is reached; kube-apiserver asks for the one that ends in `.svc`.
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
    fn read(admin: &mut Fields<'_>) -> Self {
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
    /// What to keep back of that time; never more than the time itself.
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
