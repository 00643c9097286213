//! Where a registry may lead: which addresses are dialled for it.
//!
//! A registry names further hosts: for tokens, and by redirects for the bytes themselves. Whoever controls it, or its
//! name, could have the host ask the node's own services or the cloud's metadata. So every address is looked at where
//! it is dialled, after the name has been resolved, and not where it is written.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Looks at the addresses that are dialled for one registry.
#[derive(Debug)]
pub(super) struct Dialer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The registry's own host, without its port.
    home: String,
    /// Whether the reference itself names this machine.
    home_is_loopback: bool,
    /// Whether the registry itself is at a private address.
    home_is_private: AtomicBool,
    /// Hosts that the operator has named as proxies.
    proxies: Vec<String>,
    /// Why an address was refused, for the message.
    refused: Mutex<Option<String>>,
}

/// What an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Public,
    Private,
    Loopback,
    /// Never anything that has plugins.
    Never(&'static str),
}

/// Beside 169.254.0.0/16 and fe80::/10, where most clouds have theirs: AWS over IPv6, Alibaba, Azure.
const METADATA: [IpAddr; 3] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
];

// === impl Reach ===

impl Reach {
    fn of(address: IpAddr) -> Self {
        if METADATA.contains(&address) {
            return Self::Never("a metadata service");
        }
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => match embedded(address) {
                Some(embedded) => Self::of(IpAddr::V4(embedded)),
                None => Self::of_v6(address),
            },
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let [first, second, ..] = address.octets();
        if address.is_loopback() {
            Self::Loopback
        } else if address.is_link_local() {
            Self::Never("a link-local address")
        } else if first == 0 || address.is_broadcast() || address.is_multicast() {
            Self::Never("no host's address")
        } else if address.is_private() || (first == 100 && second & 0xc0 == 64) {
            Self::Private
        } else {
            Self::Public
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        if address.is_loopback() {
            Self::Loopback
        } else if address.is_unicast_link_local() {
            Self::Never("a link-local address")
        } else if address.is_unspecified() || address.is_multicast() {
            Self::Never("no host's address")
        } else if address.is_unique_local() {
            Self::Private
        } else {
            Self::Public
        }
    }
}

/// The IPv4 address that an IPv6 address stands for: mapped, NAT64 and 6to4.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let of = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match segments {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(of(high, low))
        }
        [0x2002, high, low, ..] => Some(of(high, low)),
        _ => None,
    }
}

// === impl Dialer ===

impl Dialer {
    /// For a registry by its host and port. `proxies` are the hosts of proxies, which are dialled in any case.
    pub(super) fn new(registry: &str, proxies: Vec<String>) -> Self {
        let home = host_of(registry).to_ascii_lowercase();
        let literal = home.parse().ok().map(Reach::of);
        let home_is_loopback = home == "localhost" || literal == Some(Reach::Loopback);
        let home_is_private = home_is_loopback || literal == Some(Reach::Private);
        Self(Arc::new(Inner {
            home,
            home_is_loopback,
            home_is_private: AtomicBool::new(home_is_private),
            proxies,
            refused: Mutex::new(None),
        }))
    }

    /// Whether a URL may be asked for, as far as that can be told without resolving its host.
    pub(super) fn check(&self, url: &Url) -> Result<(), String> {
        let host = url.host_str().unwrap_or_default();
        match host.trim_matches(['[', ']']).parse() {
            Ok(address) => self.0.check(host.trim_matches(['[', ']']), address),
            Err(_) => Ok(()),
        }
    }

    /// Remembers why an address was refused, for whoever hears of it as an error of the connection.
    pub(super) fn refuse(&self, why: String) {
        let mut refused = self
            .0
            .refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *refused = Some(why);
    }

    /// Why the last address was refused; forgets it.
    pub(super) fn take_refused(&self) -> Option<String> {
        let mut refused = self
            .0
            .refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        refused.take()
    }

    pub(super) fn share(&self) -> Self {
        Self(self.0.clone())
    }
}

impl Resolve for Dialer {
    fn resolve(&self, name: Name) -> Resolving {
        let inner = self.0.clone();
        Box::pin(async move {
            let host = name.as_str().to_ascii_lowercase();
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            let allowed = inner.allowed(&host, &found)?;
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

// === impl Inner ===

impl Inner {
    fn allowed(&self, host: &str, found: &[SocketAddr]) -> Result<Vec<SocketAddr>, String> {
        if self.proxies.iter().any(|proxy| proxy == host) {
            return Ok(found.to_owned());
        }
        if host == self.home {
            let is_private = |address: &SocketAddr| {
                matches!(Reach::of(address.ip()), Reach::Private | Reach::Loopback)
            };
            let private = !found.is_empty() && found.iter().all(is_private);
            self.home_is_private.store(private, Ordering::Relaxed);
        }
        let mut why = None;
        let mut allowed = Vec::with_capacity(found.len());
        for address in found {
            match self.check(host, address.ip()) {
                Ok(()) => allowed.push(*address),
                Err(refused) => why = Some(refused),
            }
        }
        match why {
            Some(why) if allowed.is_empty() => {
                let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
                *refused = Some(why.clone());
                Err(why)
            }
            _ => Ok(allowed),
        }
    }

    fn check(&self, host: &str, address: IpAddr) -> Result<(), String> {
        let at = if host == address.to_string() {
            host.to_owned()
        } else {
            format!("{host} ({address})")
        };
        match Reach::of(address) {
            Reach::Public => Ok(()),
            Reach::Never(what) => Err(format!("{at} is {what}, which is never asked for plugins")),
            Reach::Loopback if self.home_is_loopback => Ok(()),
            Reach::Loopback => Err(format!(
                "{at} is this machine itself, and the reference does not name it as localhost or by such an address"
            )),
            Reach::Private if host == self.home || self.home_is_private.load(Ordering::Relaxed) => {
                Ok(())
            }
            Reach::Private => Err(format!(
                "{at} is a private address, and the registry that leads there is a public one"
            )),
        }
    }
}

/// Without the port and the brackets of an IPv6 address.
fn host_of(registry: &str) -> &str {
    if let Some(rest) = registry.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    registry.split(':').next().unwrap_or(registry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(registry: &str, home: &str, host: &str, address: &str) -> Result<(), String> {
        let dialer = Dialer::new(registry, Vec::new());
        let socket = |address: &str| SocketAddr::new(address.parse().unwrap(), 0);
        let at_home = dialer.0.allowed(&dialer.0.home, &[socket(home)]);
        at_home.map_err(|why| format!("home: {why}"))?;
        dialer.0.allowed(host, &[socket(address)]).map(drop)
    }

    #[test]
    fn a_registry_at_a_private_address_may_lead_to_others() {
        let registry = "registry.example.com:5000";
        assert_eq!(
            allowed(registry, "10.1.2.3", "auth.example.com", "192.168.0.1"),
            Ok(())
        );
        assert_eq!(
            allowed(registry, "10.1.2.3", "auth.example.com", "8.8.8.8"),
            Ok(())
        );
        assert_eq!(
            allowed("10.1.2.3:5000", "10.1.2.3", "auth.example.com", "fd12::1"),
            Ok(())
        );
    }

    #[test]
    fn a_public_registry_leads_to_public_addresses_only() {
        let refused = |address| {
            allowed(
                "registry.example.com",
                "8.8.8.8",
                "storage.example.com",
                address,
            )
            .unwrap_err()
        };
        for address in [
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "fd12::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(
                refused(address).contains("is a private address"),
                "{address}"
            );
        }
        assert_eq!(
            allowed(
                "registry.example.com",
                "8.8.8.8",
                "storage.example.com",
                "1.1.1.1"
            ),
            Ok(())
        );
    }

    #[test]
    fn nobody_leads_to_metadata_and_strangers_not_to_this_machine() {
        for home in ["8.8.8.8", "10.0.0.1"] {
            for address in [
                "169.254.169.254",
                "fe80::1",
                "fd00:ec2::254",
                "100.100.100.200",
                "::ffff:169.254.169.254",
                "64:ff9b::a9fe:a9fe",
                "2002:a9fe:a9fe::1",
                "0.0.0.0",
                "::",
            ] {
                let refused = allowed("registry.example.com", home, "evil.example.com", address);
                assert!(refused.unwrap_err().contains("never asked"), "{address}");
            }
            for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
                let refused = allowed("registry.example.com", home, "evil.example.com", address);
                assert!(
                    refused.unwrap_err().contains("this machine itself"),
                    "{address}"
                );
            }
        }
        // Nor does the registry's own name, unless the reference says so.
        let refused = allowed(
            "registry.example.com",
            "127.0.0.1",
            "evil.example.com",
            "1.1.1.1",
        );
        assert!(refused.unwrap_err().starts_with("home: "));
        assert_eq!(
            allowed("localhost:5000", "127.0.0.1", "localhost", "::1"),
            Ok(())
        );
        let refused = allowed(
            "localhost:5000",
            "127.0.0.1",
            "evil.example.com",
            "169.254.169.254",
        );
        assert!(refused.unwrap_err().contains("never asked"));
    }

    #[test]
    fn looks_at_addresses_in_urls() {
        let dialer = Dialer::new("registry.example.com", Vec::new());
        let check = |url: &str| dialer.check(&Url::parse(url).unwrap());
        assert!(check("http://169.254.169.254/latest/").is_err());
        assert!(check("https://[::1]:5000/").is_err());
        assert!(
            check("https://2852039166/").is_err(),
            "169.254.169.254 as one number"
        );
        assert!(check("https://auth.example.com/token").is_ok());
    }
}
