//! Decides which requests the admin listener answers: those of administrators' programs, but none that a web page made
//! a browser send.
//!
//! A browser on an administrator's machine can reach loopback addresses and forwarded ports for every page that it
//! shows. Three signs reveal a request of a web page:
//!
//! - The name in `Host`. A page whose own name resolves to 127.0.0.1 still sends that name.
//! - `Origin` and `Sec-Fetch-Site`.
//! - For requests that change something, a missing `Tollgate-Admin` header. A page cannot send it to another origin
//!   without permission.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header, uri::Authority};

/// Header that a request must carry to change something. Its value does not matter.
pub(super) const CONFIRMATION: HeaderName = HeaderName::from_static("tollgate-admin");

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The hosts that a request may name.
#[derive(Debug)]
pub(super) enum Access {
    /// The names of the loopback interface, and these.
    Hosts(Vec<String>),
    /// Any host. Over TLS, the certificate has told the client which server it speaks to.
    AnyHost,
}

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Refusal {
    /// The request names no host, or more than one.
    NoHost,
    /// The request names another host.
    Host,
    /// A web page of another origin sent the request.
    Origin,
    /// The request changes something, and a web page could have sent it.
    Confirmation,
}

// === impl Access ===

impl Access {
    pub(super) fn check(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), Refusal> {
        let host = host(headers).ok_or(Refusal::NoHost)?;
        let target = uri.authority();
        if !self.accepts(host.host()) || target.is_some_and(|target| !self.accepts(target.host())) {
            return Err(Refusal::Host);
        }
        if !is_of_this_origin(headers, &host) {
            return Err(Refusal::Origin);
        }
        let reads = matches!(*method, Method::GET | Method::HEAD);
        if !reads && !headers.contains_key(CONFIRMATION) {
            return Err(Refusal::Confirmation);
        }
        Ok(())
    }

    fn accepts(&self, host: &str) -> bool {
        let Self::Hosts(hosts) = self else {
            return true;
        };
        if host.eq_ignore_ascii_case("localhost")
            || hosts.iter().any(|other| host.eq_ignore_ascii_case(other))
        {
            return true;
        }
        let literal: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        literal.is_some_and(|address| {
            address.to_canonical().is_loopback()
                || hosts.iter().any(|other| other.parse() == Ok(address))
        })
    }
}

/// The host that the request names. Its port is ignored, because it may be a forwarded one.
fn host(headers: &HeaderMap) -> Option<Authority> {
    let mut hosts = headers.get_all(header::HOST).into_iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return None;
    };
    let host: Authority = host.to_str().ok()?.parse().ok()?;
    (!host.as_str().contains('@') && !host.host().is_empty()).then_some(host)
}

/// Whether the request comes from this origin. Browsers reveal another origin in headers; other programs send neither
/// header.
fn is_of_this_origin(headers: &HeaderMap, host: &Authority) -> bool {
    let is_own = |origin: &str| {
        let behind = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        behind.is_some_and(|authority| authority.eq_ignore_ascii_case(host.as_str()))
    };
    let text = |value: &http::HeaderValue| value.to_str().map(str::to_owned).unwrap_or_default();
    let origins = headers.get_all(header::ORIGIN);
    let sites = headers.get_all(FETCH_SITE);
    origins.iter().all(|origin| is_own(&text(origin)))
        && sites
            .iter()
            .all(|site| matches!(&*text(site), "same-origin" | "none"))
}

// === impl Refusal ===

impl Refusal {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::NoHost => StatusCode::BAD_REQUEST,
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::Origin | Self::Confirmation => StatusCode::FORBIDDEN,
        }
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::NoHost => "expected exactly one Host header with a name or an IP address\n",
            Self::Host => {
                "the Host header names another host: expected localhost, 127.0.0.1, [::1] or a name from admin.hosts\n"
            }
            Self::Origin => {
                "a web page of another origin sent this request: use curl or tollgate instead\n"
            }
            Self::Confirmation => {
                "the header Tollgate-Admin is missing; it shows that no web page sent the request: use curl -X POST \
                 -H 'Tollgate-Admin: 1' …\n"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn check(access: &Access, method: &Method, headers: &[(&str, &str)]) -> Result<(), Refusal> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            map.append(name, HeaderValue::from_str(value).expect("a value"));
        }
        access.check(method, &Uri::from_static("/plugins"), &map)
    }

    #[test]
    fn accepts_loopback_and_configured_hosts_with_any_port() {
        let access = Access::Hosts(vec!["gate.internal".to_owned(), "10.0.0.7".to_owned()]);
        for host in [
            "localhost",
            "LOCALHOST:8081",
            "127.0.0.1:18081",
            "127.8.0.1",
            "[::1]:8081",
            "[::ffff:127.0.0.1]",
            "gate.internal:8081",
            "10.0.0.7:8081",
        ] {
            assert_eq!(
                check(&access, &Method::GET, &[("host", host)]),
                Ok(()),
                "{host}"
            );
        }
        for host in [
            "evil.example",
            "localhost.evil.example:8081",
            "127.0.0.1.evil.example",
            "10.0.0.8",
            "[::2]",
            "0.0.0.0:8081",
        ] {
            let refused = check(&access, &Method::GET, &[("host", host)]);
            assert_eq!(refused, Err(Refusal::Host), "{host}");
        }
        for host in [
            "",
            "localhost@evil.example",
            "a b",
            "evil.example/localhost",
        ] {
            let refused = check(&access, &Method::GET, &[("host", host)]);
            assert_eq!(refused, Err(Refusal::NoHost), "{host}");
        }
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(check(&access, &Method::GET, &two), Err(Refusal::NoHost));
        assert_eq!(check(&access, &Method::GET, &[]), Err(Refusal::NoHost));
        let any = check(&Access::AnyHost, &Method::GET, &[("host", "gate.example")]);
        assert_eq!(any, Ok(()));
    }

    #[test]
    fn checks_host_of_absolute_target() {
        let access = Access::Hosts(Vec::new());
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        let uri = Uri::from_static("http://evil.example/plugins");
        let refused = access.check(&Method::GET, &uri, &headers);
        assert_eq!(refused, Err(Refusal::Host));
    }

    #[test]
    fn rejects_requests_from_pages_of_other_origins() {
        let access = Access::Hosts(Vec::new());
        let with = |name, value| {
            let headers = [("host", "localhost:8081"), (name, value)];
            check(&access, &Method::GET, &headers)
        };
        assert_eq!(with("origin", "http://localhost:8081"), Ok(()));
        assert_eq!(with("sec-fetch-site", "none"), Ok(()));
        for origin in [
            "http://evil.example",
            "http://localhost:3000",
            "http://localhost",
            "null",
            "",
        ] {
            assert_eq!(with("origin", origin), Err(Refusal::Origin), "{origin}");
        }
        for site in ["cross-site", "same-site", ""] {
            assert_eq!(with("sec-fetch-site", site), Err(Refusal::Origin), "{site}");
        }
    }

    #[test]
    fn requires_confirmation_header_for_changes() {
        let access = Access::AnyHost;
        let host = ("host", "localhost");
        let refused = check(&access, &Method::POST, &[host]);
        assert_eq!(refused, Err(Refusal::Confirmation));
        let confirmed = check(&access, &Method::POST, &[host, ("tollgate-admin", "1")]);
        assert_eq!(confirmed, Ok(()));
    }
}
