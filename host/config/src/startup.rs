//! How long a start stays unready instead of denying requests, and which replicas it asks meanwhile.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use super::limit::{self, Unit};
use super::plugin::is_label;
use super::quantity::format_duration;
use super::read::{Fields, Node};
use super::schema::Shape;

/// The behaviour of a start while required plugins cannot be loaded. Without such a plugin, requests would be denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Startup {
    /// How long the server stays unready because of these plugins. None means until they are loaded.
    pub grace: Option<Duration>,
    /// The other replicas. While one of them serves with all its plugins, the server stays unready, regardless of
    /// `grace`.
    pub peers: Vec<PeerAddress>,
}

/// Address at which replicas answer probes: a name for all of them, or one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// A DNS name or an IP address.
    pub host: String,
    /// The port of `probes.listen`.
    pub port: u16,
}

const GRACE: &str = "startupGrace";
const PEERS: &str = "startupPeers";
const NEVER: &str = "never";
const PEER_EXPECTED: &str = "the host and port of other replicas' probes.listen, such as \
    tollgate-peers.tollgate-system.svc.cluster.local:8080";

// === impl Startup ===

impl Startup {
    /// Reads the settings of a start.
    ///
    /// Without peers, a replica cannot see whether others serve well. If it became ready while it denies, a rollout
    /// would replace them. So it stays unready by default, unless the file sets a time.
    pub fn read(fields: &mut Fields<'_>) -> Self {
        let grace = fields.optional(GRACE).map(|node| read_grace(&node));
        let peers = fields
            .optional(PEERS)
            .and_then(|node| node.elements("hosts with ports"));
        let peers: Vec<_> = peers
            .unwrap_or_default()
            .iter()
            .filter_map(PeerAddress::read)
            .collect();
        let default = (!peers.is_empty()).then(|| limit::STARTUP_GRACE.default_duration());
        Self {
            grace: grace.unwrap_or(default),
            peers,
        }
    }
}

impl fmt::Display for Startup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the server is not ready until every plugin with mode enforce and failurePolicy Fail is loaded",
        )?;
        let Some(grace) = self.grace else {
            let why = if self.peers.is_empty() {
                " (startupGrace: never, which is the default without startupPeers)"
            } else {
                " (startupGrace: never)"
            };
            return f.write_str(why);
        };
        let grace = format_duration(grace);
        if self.peers.is_empty() {
            return write!(
                f,
                ", for {grace} at most (startupGrace); after that, it denies the requests that a missing plugin matches, \
                 and a rollout of the server continues"
            );
        }
        let peers: Vec<String> = self.peers.iter().map(ToString::to_string).collect();
        write!(
            f,
            ", for {grace} (startupGrace), and longer while one of {} has all of its plugins (startupPeers)",
            peers.join(", ")
        )
    }
}

fn read_grace(node: &Node<'_>) -> Option<Duration> {
    node.accepts(Shape::Words(vec![NEVER.to_owned()]));
    node.accepts(Shape::Amount(limit::STARTUP_GRACE));
    let text = node.value().as_str();
    if text == Some(NEVER) {
        return None;
    }
    if text.and_then(|text| Unit::Duration.parse(text)).is_none() {
        node.reject("never, or a duration with its unit, such as 30s or 5m");
        return None;
    }
    node.amount(&limit::STARTUP_GRACE).map(Duration::from_nanos)
}

// === impl PeerAddress ===

impl PeerAddress {
    fn read(node: &Node<'_>) -> Option<Self> {
        let text = node.text(PEER_EXPECTED)?;
        let peer = Self::parse(text);
        if peer.is_none() {
            node.reject(PEER_EXPECTED);
        }
        peer
    }

    fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port != 0)?;
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let is_address = match bare {
            Some(bare) => bare.parse::<std::net::Ipv6Addr>().is_ok(),
            None => host.parse::<std::net::Ipv4Addr>().is_ok(),
        };
        let host = bare.unwrap_or(host);
        let name = host.strip_suffix('.').unwrap_or(host);
        let is_name =
            bare.is_none() && name.len() <= 253 && name.split('.').all(|label| is_label(label, 63));
        (is_address || is_name).then(|| Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.parse() {
            Ok(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            _ => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_and_addresses_with_a_port() {
        for text in [
            "tollgate-peers:8080",
            "peers.tollgate-system.svc.cluster.local.:8080",
            "127.0.0.1:1",
            "[::1]:65535",
        ] {
            let peer = PeerAddress::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(peer.to_string(), text);
        }
        for text in [
            "",
            "peers",
            "peers:",
            "peers:0",
            "peers:65536",
            ":8080",
            "::1:8080",
            "[::1]",
            "[peers]:1",
            "http://peers:8080",
            "peers:8080/readyz",
            "a b:1",
        ] {
            assert_eq!(PeerAddress::parse(text), None, "{text}");
        }
    }
}
