//! Decides which addresses a registry may lead to.
//!
//! A registry names further hosts: for tokens, and by redirects for the bytes themselves. An attacker who controls the
//! registry or its name could make the host ask the node's own services or the cloud's metadata service. So Tollgate
//! checks each address when it dials, after the name has been resolved. An address that is written in a URL is checked
//! before the request.
//!
//! Behind a proxy, Tollgate dials only the proxy, and the proxy resolves the names. In this case Tollgate also resolves
//! each name itself before it sends a request. A name that Tollgate cannot resolve is left to the proxy, unless it is
//! one that only a private network knows.

mod reach;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use reach::Reach;

/// Checks the addresses that are dialled for one registry.
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
    /// The reason why the last address was refused, for the error message.
    refused: Mutex<Option<AddressError>>,
    /// Names that could not be resolved here, each with the time until which Tollgate does not try again.
    unresolved: Mutex<HashMap<String, Instant>>,
}

/// Why Tollgate does not dial an address, or does not ask a proxy for a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The address never serves plugins.
    #[error("{at} is {kind}, which Tollgate never dials")]
    Never {
        /// The host, with its address.
        at: String,
        /// The kind of address.
        kind: &'static str,
    },
    /// The address is this machine's own.
    #[error(
        "{at} is a loopback address, which Tollgate dials only if the reference names localhost or a loopback address"
    )]
    Loopback {
        /// The host, with its address.
        at: String,
    },
    /// The address is private and the registry is public.
    #[error("{at} is a private address, which Tollgate does not dial for a public registry")]
    Private {
        /// The host, with its address.
        at: String,
    },
    /// The name is that of a metadata service.
    #[error("{host} is the name of a metadata service, which Tollgate never dials")]
    Metadata {
        /// The name.
        host: String,
    },
    /// The name is private, only the proxy can resolve it, and the registry is public.
    #[error(
        "{host} is the name of a private network and cannot be resolved without the proxy; Tollgate does not ask the \
         proxy for such names on behalf of a public registry"
    )]
    PrivateName {
        /// The name.
        host: String,
    },
}

/// Names of metadata services. Tollgate refuses them no matter who resolves them.
const METADATA_NAMES: [&str; 7] = [
    "metadata.google.internal",
    "metadata.goog",
    "metadata",
    "instance-data",
    "instance-data.ec2.internal",
    "metadata.tencentyun.com",
    "metadata.azure.internal",
];
/// Endings of names that only a private network or the machine itself resolves (RFC 6761, 6762, 8375; ICANN has
/// reserved `internal`).
const PRIVATE_ENDINGS: [&str; 6] = [
    "localhost",
    "local",
    "internal",
    "home.arpa",
    "svc",
    "cluster.local",
];
/// Timeout for resolving a name behind a proxy. There may be no DNS server that answers, and a request must not wait
/// for it for long.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a name counts as one that only the proxy resolves.
const UNRESOLVED_FOR: Duration = Duration::from_secs(60);

// === impl Dialer ===

impl Dialer {
    /// A dialer for a registry, given as host and port. `proxies` are the hosts of proxies, which are always dialled.
    pub(crate) fn new(registry: &str, proxies: Vec<String>) -> Self {
        // Parse the host as in a URL, so that `127.1` and `2130706433` are addresses too.
        let url = Url::parse(&format!("http://{registry}/")).ok();
        let home = url.as_ref().map(host_of).unwrap_or_default();
        let literal = home.parse().ok().map(Reach::of);
        let home_is_loopback = home == "localhost" || literal == Some(Reach::Loopback);
        let home_is_private = home_is_loopback || literal == Some(Reach::Private);
        Self(Arc::new(Inner {
            home,
            home_is_loopback,
            home_is_private: AtomicBool::new(home_is_private),
            proxies,
            refused: Mutex::new(None),
            unresolved: Mutex::default(),
        }))
    }

    /// Checks whether a URL may be requested.
    ///
    /// An address in the URL is checked as it is. A name of a metadata service is refused. With a proxy, any other name
    /// is resolved and all of its addresses are checked. Without a proxy, the name passes, and its addresses are
    /// checked when they are dialled.
    ///
    /// # Errors
    /// The reason why the URL may not be requested.
    pub(super) async fn check(&self, url: &Url) -> Result<(), AddressError> {
        let host = host_of(url);
        if let Ok(address) = host.parse() {
            return self.0.check(&host, address);
        }
        self.0.check_name(&host)?;
        if self.0.proxies.is_empty() {
            return Ok(());
        }
        let found = if self.0.is_unresolved(&host) {
            None
        } else {
            let lookup = tokio::net::lookup_host((host.as_str(), 0));
            let found = tokio::time::timeout(LOOKUP_TIMEOUT, lookup).await;
            found.ok().and_then(Result::ok)
        };
        match found {
            Some(found) => {
                let found: Vec<SocketAddr> = found.collect();
                self.0.learn(&host, &found);
                // The proxy may dial any of these addresses.
                let mut found = found.iter();
                found.try_for_each(|address| self.0.check(&host, address.ip()))
            }
            None => {
                self.0.remember_unresolved(&host);
                self.0.check_unresolved(&host)
            }
        }
    }

    /// Takes the reason why the last address was refused.
    pub(super) fn take_refused(&self) -> Option<AddressError> {
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
            // The operator has named this proxy. Hosts that a registry leads to have been checked before.
            if inner.proxies.contains(&host) {
                return Ok(Box::new(found.into_iter()) as Addrs);
            }
            let allowed = inner.allowed(&host, &found)?;
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

// === impl Inner ===

impl Inner {
    /// Notes whether the registry itself is at private addresses.
    fn learn(&self, host: &str, found: &[SocketAddr]) {
        if self.is_home(host) {
            let is_private = |address: &SocketAddr| {
                matches!(Reach::of(address.ip()), Reach::Private | Reach::Loopback)
            };
            let private = !found.is_empty() && found.iter().all(is_private);
            self.home_is_private.store(private, Ordering::Relaxed);
        }
    }

    fn allowed(&self, host: &str, found: &[SocketAddr]) -> Result<Vec<SocketAddr>, AddressError> {
        self.learn(host, found);
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

    fn check(&self, host: &str, address: IpAddr) -> Result<(), AddressError> {
        let at = if host == address.to_string() {
            host.to_owned()
        } else {
            format!("{host} ({address})")
        };
        match Reach::of(address) {
            Reach::Public => Ok(()),
            Reach::Never(kind) => Err(AddressError::Never { at, kind }),
            Reach::Loopback if self.home_is_loopback => Ok(()),
            Reach::Loopback => Err(AddressError::Loopback { at }),
            Reach::Private
                if self.is_home(host) || self.home_is_private.load(Ordering::Relaxed) =>
            {
                Ok(())
            }
            Reach::Private => Err(AddressError::Private { at }),
        }
    }

    /// Refuses names of metadata services, no matter who resolves them.
    fn check_name(&self, host: &str) -> Result<(), AddressError> {
        if METADATA_NAMES.contains(&without_dot(host)) {
            return Err(AddressError::Metadata {
                host: host.to_owned(),
            });
        }
        Ok(())
    }

    /// Checks a name that only the proxy can resolve.
    fn check_unresolved(&self, host: &str) -> Result<(), AddressError> {
        if self.is_home(host)
            || !is_private_name(host)
            || self.home_is_private.load(Ordering::Relaxed)
            || is_private_name(&self.home)
        {
            return Ok(());
        }
        Err(AddressError::PrivateName {
            host: host.to_owned(),
        })
    }

    fn is_unresolved(&self, host: &str) -> bool {
        let unresolved = self
            .unresolved
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        unresolved
            .get(host)
            .is_some_and(|until| *until > Instant::now())
    }

    fn remember_unresolved(&self, host: &str) {
        let now = Instant::now();
        let mut unresolved = self
            .unresolved
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        unresolved.retain(|_, until| *until > now);
        unresolved
            .entry(host.to_owned())
            .or_insert(now + UNRESOLVED_FOR);
    }

    fn is_home(&self, host: &str) -> bool {
        without_dot(host) == without_dot(&self.home)
    }
}

/// The host of a URL in lower case, without the brackets of an IPv6 address.
fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    host.trim_matches(['[', ']']).to_ascii_lowercase()
}

/// The name without a dot at its end.
fn without_dot(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// Whether the name can only be private.
fn is_private_name(host: &str) -> bool {
    let host = without_dot(host);
    let ends_so = |ending: &str| {
        host.strip_suffix(ending)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    !host.contains('.') || PRIVATE_ENDINGS.into_iter().any(ends_so)
}

/// How harmful an address is: 0 for public, 1 for private, 2 for this machine, 3 for one that is never a registry's.
pub(super) fn harm(address: IpAddr) -> u8 {
    match Reach::of(address) {
        Reach::Public => 0,
        Reach::Private => 1,
        Reach::Loopback => 2,
        Reach::Never(_) => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(registry: &str, home: &str, host: &str, address: &str) -> Result<(), String> {
        let dialer = Dialer::new(registry, Vec::new());
        let socket = |address: &str| SocketAddr::new(address.parse().unwrap(), 0);
        let at_home = dialer.0.allowed(&dialer.0.home, &[socket(home)]);
        at_home.map_err(|why| format!("home: {why}"))?;
        let allowed = dialer.0.allowed(host, &[socket(address)]);
        allowed.map(drop).map_err(|why| why.to_string())
    }

    #[test]
    fn private_registry_may_lead_to_private_addresses() {
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
    fn public_registry_leads_to_public_addresses_only() {
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
    fn refuses_metadata_services_and_foreign_loopback() {
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
                assert!(refused.unwrap_err().contains("never dials"), "{address}");
            }
            for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
                let refused = allowed("registry.example.com", home, "evil.example.com", address);
                assert!(
                    refused.unwrap_err().contains("is a loopback address"),
                    "{address}"
                );
            }
        }
        // The registry's own name must not lead to this machine either, unless the reference says so.
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
        assert!(refused.unwrap_err().contains("never dials"));
    }

    #[tokio::test]
    async fn checks_literal_addresses_in_urls() {
        let dialer = Dialer::new("registry.example.com", Vec::new());
        let refused = [
            "http://169.254.169.254/latest/",
            // The same address as one number, in octal and in hexadecimal.
            "https://2852039166/",
            "https://0251.0376.0251.0376/",
            "https://0xa9fea9fe/",
            "https://[::1]:5000/",
            "https://[::a9fe:a9fe]/",
            "https://[::ffff:a9fe:a9fe]/",
            "https://[::ffff:0:a9fe:a9fe]/",
            "https://[64:ff9b::a9fe:a9fe]/",
            "https://[64:ff9b:1::a9fe:a9fe]/",
            "https://[fd00:ec2::254]/",
            "https://metadata.google.internal/computeMetadata/v1/",
            "https://METADATA.google.internal./computeMetadata/v1/",
            "https://metadata\u{3002}google\u{3002}internal/",
            "https://instance-data/latest/",
        ];
        for url in refused {
            let url = Url::parse(url).unwrap();
            let why = dialer.check(&url).await.expect_err(url.as_str());
            let why = why.to_string();
            assert!(
                why.contains("never dials") || why.contains("is a loopback address"),
                "{url}: {why}"
            );
        }
        for url in [
            "https://auth.example.com/token",
            "https://[2606:4700::1111]/",
        ] {
            assert_eq!(dialer.check(&Url::parse(url).unwrap()).await, Ok(()));
        }
    }

    #[test]
    fn url_parser_rejects_zones() {
        assert!(Url::parse("https://[fe80::1%eth0]/").is_err());
        assert!(Url::parse("https://[fe80::1%25eth0]/").is_err());
    }

    #[test]
    fn recognizes_every_notation_of_loopback_registry() {
        for registry in ["localhost:5000", "127.1:5000", "2130706433", "[::1]:5000"] {
            let dialer = Dialer::new(registry, Vec::new());
            assert!(dialer.0.home_is_loopback, "{registry}");
        }
        for registry in ["registry.example.com:5000", "127.example.com", "10.0.0.1"] {
            let dialer = Dialer::new(registry, Vec::new());
            assert!(!dialer.0.home_is_loopback, "{registry}");
        }
    }

    #[test]
    fn leaves_no_private_names_to_proxy() {
        let check = |registry: &str, host: &str| {
            let dialer = Dialer::new(registry, vec!["proxy.example.com".to_owned()]);
            dialer.0.check_unresolved(host).is_ok()
        };
        let table = [
            ("registry.example.com", "storage.example.net", true),
            ("registry.example.com", "localhost", false),
            ("registry.example.com", "admin.localhost", false),
            ("registry.example.com", "printer.local", false),
            ("registry.example.com", "vault.corp.internal.", false),
            ("registry.example.com", "kubernetes.default.svc", false),
            ("registry.example.com", "vault", false),
            ("registry.example.com", "mylocalhost.com", true),
            ("registry.corp.internal", "auth.corp.internal", true),
            ("registry.corp.internal", "registry.corp.internal.", true),
            ("10.0.0.1:5000", "auth.corp.internal", true),
        ];
        for (registry, host, expected) in table {
            assert_eq!(
                check(registry, host),
                expected,
                "{registry} leads to {host}"
            );
        }
    }

    #[tokio::test]
    async fn resolves_names_before_asking_proxy() {
        let url = Url::parse("https://localhost:9/").unwrap();
        let proxies = vec!["proxy.example.com".to_owned()];
        let dialer = Dialer::new("registry.example.com", proxies.clone());
        let why = dialer.check(&url).await.unwrap_err().to_string();
        assert!(why.contains("is a loopback address"), "{why}");
        let dialer = Dialer::new("localhost:5000", proxies);
        assert_eq!(dialer.check(&url).await, Ok(()));
        // Requests through a proxy dial the proxy's own host. A registry must not lead to that host.
        let dialer = Dialer::new("registry.example.com", vec!["localhost".to_owned()]);
        assert!(dialer.check(&url).await.is_err());
    }
}
