//! `cluster`: how the server uses the cluster that it runs in.

use std::time::Duration;

use super::limit;
use super::plugin::is_label;
use super::read::{Fields, Node};

/// The use of the cluster that the server runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Whether custom resources are a source of plugins.
    pub enabled: bool,
    /// The name of the installation. All replicas share it.
    pub installation: String,
    /// The namespace of the installation. None means that of the pod's service account.
    pub namespace: Option<String>,
    /// The name of this replica. None means `POD_NAME`, and then the host's name.
    pub replica: Option<String>,
    /// How the installation registers its webhooks. None means that somebody else does.
    pub registration: Option<ClusterRegistration>,
}

/// How the installation registers its webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRegistration {
    /// The service in front of the replicas, in the namespace of the installation.
    pub service: String,
    /// The port of the service.
    pub port: u16,
    /// The ClusterRole that owns the webhook configurations, so that they go when the installation goes. None means that
    /// the Namespace owns them.
    pub anchor: Option<String>,
    /// Whether each plugin gets its own webhook, even if one webhook for all would do.
    pub per_plugin: bool,
    /// Time between two canaries of a webhook.
    pub canary_interval: Duration,
}

const INSTALLATION: &str = "tollgate";
const NAME_EXPECTED: &str = "a name of at most 40 characters of a-z, 0-9 and -, such as tollgate";
const SERVICE_EXPECTED: &str =
    "the name of a service and perhaps a port, such as tollgate or tollgate:8443";
const HTTPS_PORT: u16 = 443;
const ANCHOR_EXPECTED: &str =
    "the name of a ClusterRole: at most 63 characters of a-z, 0-9 and -, such as tollgate-anchor";
const NAMESPACE_EXPECTED: &str =
    "the name of a namespace: at most 63 characters of a-z, 0-9 and -, such as tollgate-system";
const REPLICA_EXPECTED: &str =
    "the name of a pod: at most 63 characters of a-z, 0-9 and -, such as tollgate-0";

// === impl Cluster ===

impl Cluster {
    pub(super) fn read(fields: &mut Fields<'_>) -> Self {
        let mut section = fields.section("cluster");
        let enabled = section.optional("enabled").and_then(|node| node.boolean());
        let installation = section
            .optional("installation")
            .and_then(|node| label(&node, 40, NAME_EXPECTED));
        let namespace = section
            .optional("namespace")
            .and_then(|node| label(&node, 63, NAMESPACE_EXPECTED));
        let replica = section
            .optional("replica")
            .and_then(|node| label(&node, 63, REPLICA_EXPECTED));
        let installation = installation.unwrap_or_else(|| INSTALLATION.to_owned());
        let registration =
            ClusterRegistration::read(section.section("registration"), &installation);
        section.finish();
        Self {
            enabled: enabled.unwrap_or(false),
            installation,
            namespace,
            replica,
            registration,
        }
    }
}

// === impl ClusterRegistration ===

impl ClusterRegistration {
    fn read(mut section: Fields<'_>, installation: &str) -> Option<Self> {
        let enabled = section.optional("enabled").and_then(|node| node.boolean());
        let service = section.optional("service").and_then(|node| service(&node));
        let anchor = section
            .optional("anchor")
            .and_then(|node| label(&node, 63, ANCHOR_EXPECTED));
        let per_plugin = section
            .optional("perPlugin")
            .and_then(|node| node.boolean());
        let default = limit::CANARY_INTERVAL.default_duration();
        let canary_interval = section.duration(&limit::CANARY_INTERVAL, default);
        section.finish();
        let (service, port) = service.unwrap_or_else(|| (installation.to_owned(), HTTPS_PORT));
        enabled.unwrap_or(true).then(|| Self {
            service,
            port,
            anchor,
            per_plugin: per_plugin.unwrap_or(false),
            canary_interval,
        })
    }
}

fn service(node: &Node<'_>) -> Option<(String, u16)> {
    let text = node.quotable_text(SERVICE_EXPECTED)?;
    let (name, port) = match text.split_once(':') {
        None => (text, Some(HTTPS_PORT)),
        Some((name, port)) => (name, port.parse().ok().filter(|port| *port > 0)),
    };
    match port {
        Some(port) if is_label(name, 63) => Some((name.to_owned(), port)),
        _ => {
            node.reject(SERVICE_EXPECTED);
            None
        }
    }
}

fn label(node: &Node<'_>, longest: usize, expected: &str) -> Option<String> {
    let text = node.quotable_text(expected)?;
    if !is_label(text, longest) {
        node.reject(expected);
        return None;
    }
    Some(text.to_owned())
}
