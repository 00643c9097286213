//! The addresses of the server: for kube-apiserver, for administrators, and for probes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;

use super::authentication::Authentication;
use super::plugin::is_label;
use super::read::{Fields, Node};
use super::server::DecisionLimits;

/// The admin listener: `/plugins`, `/shadows`, `/decisions` and `POST /reload`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// IP address and port.
    pub listen: SocketAddr,
    /// The authentication of clients. If it is configured, the listener uses TLS.
    pub authentication: Option<Authentication>,
    /// Accepted names in a request's `Host`, in addition to those of the loopback interface.
    pub hosts: Vec<String>,
}

/// The addresses that the server listens on.
pub(super) struct Listeners {
    pub(super) listen: SocketAddr,
    pub(super) admin: Admin,
    pub(super) probes: SocketAddr,
    pub(super) decisions: DecisionLimits,
}

const LISTEN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 8443));
const ADMIN_LISTEN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8081));
/// kubelet and Prometheus use the pod's address.
const PROBES_LISTEN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 8080));

const HOST_EXPECTED: &str = "a DNS name or an IP address without a port, such as tollgate.internal";

// === impl Listeners ===

impl Listeners {
    pub(crate) fn read(fields: &mut Fields<'_>, folder: &Path) -> Self {
        let address = |node: Option<Node<'_>>| node.and_then(|node| node.socket_address());
        let listen = address(fields.optional("listen")).unwrap_or(LISTEN);
        let mut section = fields.section("admin");
        let admin_listen = address(section.optional("listen")).unwrap_or(ADMIN_LISTEN);
        let hosts = section
            .optional("hosts")
            .and_then(|node| node.elements("DNS names and IP addresses"));
        let authentication = section
            .has("authentication")
            .then(|| Authentication::read_of_admin(&mut section, folder));
        if authentication.is_none() {
            // Reads the key to mark it as known.
            let _ = section.optional("authentication");
        }
        let admin = Admin {
            listen: admin_listen,
            authentication,
            hosts: hosts
                .unwrap_or_default()
                .iter()
                .filter_map(read_host)
                .collect(),
        };
        if let Some(problem) = admin.exposed() {
            section.problem("authentication", problem);
        }
        if share_a_port(listen, admin_listen) {
            section.problem(
                "listen",
                format!("got {admin_listen}, expected a port other than that of `listen`"),
            );
        }
        let decisions = DecisionLimits::read(&mut section);
        section.finish();
        let mut section = fields.section("probes");
        let probes = address(section.optional("listen")).unwrap_or(PROBES_LISTEN);
        for (key, other) in [("listen", listen), ("admin.listen", admin_listen)] {
            if share_a_port(probes, other) {
                let by_default = if section.has("listen") {
                    ""
                } else {
                    " by default"
                };
                section.problem(
                    "listen",
                    format!("got {probes}{by_default}, expected a port other than that of `{key}`"),
                );
            }
        }
        section.finish();
        Self {
            listen,
            admin,
            probes,
            decisions,
        }
    }
}

// === impl Admin ===

impl Admin {
    /// Returns a problem if other machines can reach the address without authentication.
    #[must_use]
    pub fn exposed(&self) -> Option<String> {
        let loopback = self.listen.ip().to_canonical().is_loopback();
        (!loopback && self.authentication.is_none()).then(|| {
            format!(
                "missing, expected clientCertificate, bearer, basic or tokenReview: admin.listen is {}, which is not a loopback \
                 address, so anyone who reaches it could read decisions and reload plugins; probes and metrics are \
                 at probes.listen",
                self.listen
            )
        })
    }
}

/// Returns whether two addresses conflict. An unspecified address takes the port on all addresses. Port 0 means any
/// free port and never conflicts.
fn share_a_port(one: SocketAddr, other: SocketAddr) -> bool {
    let same_address =
        one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    same_address && one.port() == other.port() && one.port() != 0
}

fn read_host(node: &Node<'_>) -> Option<String> {
    let text = node.text(HOST_EXPECTED)?;
    let is_name = text.len() <= 253 && text.split('.').all(|label| is_label(label, 63));
    if !is_name && text.parse::<IpAddr>().is_err() {
        node.reject(HOST_EXPECTED);
        return None;
    }
    Some(text.to_owned())
}
