//! Turns errors of a connection into advice: names the configuration key that makes a registry reachable.

use std::error::Error;
use std::io;

/// Advice for a registry that uses TLS although its `plainHTTP` is true.
pub(super) const EXPECTS_TLS: &str =
    ": plainHTTP is true for this registry, but it may expect TLS (registries.hosts[].plainHTTP)";
const SPEAKS_PLAIN_HTTP: &str = ": the registry does not speak TLS; if that is intended, write \
     plainHTTP: true for its host (registries.hosts[].plainHTTP)";
const MAY_SPEAK_PLAIN_HTTP: &str = ": the registry broke off the TLS handshake; if it is meant to be used without TLS, \
     write plainHTTP: true for its host (registries.hosts[].plainHTTP)";
const UNKNOWN_AUTHORITY: &str =
    ": no trusted CA has signed its certificate; configure its CA (registries.hosts[].ca)";

/// Advice on how to solve a connection error; empty if there is none.
pub(super) fn hint(error: &(dyn Error + 'static), plain_http: bool) -> &'static str {
    if plain_http {
        // A TLS server answers plain HTTP with an alert, or with nothing.
        let is_foreign = causes(error).into_iter().any(|cause| {
            let http = cause.downcast_ref::<hyper::Error>();
            http.is_some_and(|http| http.is_parse() || http.is_incomplete_message())
        });
        return if is_foreign { EXPECTS_TLS } else { "" };
    }
    if broke_off_the_handshake(error) {
        return MAY_SPEAK_PLAIN_HTTP;
    }
    let tls = causes(error)
        .into_iter()
        .find_map(|cause| cause.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidMessage(_)) => SPEAKS_PLAIN_HTTP,
        Some(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)) => {
            UNKNOWN_AUTHORITY
        }
        _ => "",
    }
}

/// Whether the connection was made and ended before the TLS handshake was complete.
fn broke_off_the_handshake(error: &(dyn Error + 'static)) -> bool {
    let is_connecting = error
        .downcast_ref::<reqwest::Error>()
        .is_some_and(reqwest::Error::is_connect);
    is_connecting
        && causes(error).into_iter().any(|cause| {
            let io = cause.downcast_ref::<io::Error>();
            io.is_some_and(|io| io.kind() == io::ErrorKind::UnexpectedEof)
        })
}

/// The error and all of its causes. This includes errors wrapped in an `io::Error`, which `source` does not return.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> Vec<&'e (dyn Error + 'static)> {
    let mut all = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        all.push(error);
        let wrapped = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .map(|wrapped| wrapped as &(dyn Error + 'static));
        next = wrapped.or_else(|| error.source());
    }
    all
}

#[cfg(test)]
mod tests {
    use rustls::{CertificateError, InvalidMessage};

    use super::*;

    fn wrapped(error: rustls::Error) -> io::Error {
        io::Error::other(io::Error::new(io::ErrorKind::InvalidData, error))
    }

    #[test]
    fn distinguishes_plain_server_from_untrusted_certificate() {
        let plain = wrapped(rustls::Error::InvalidMessage(
            InvalidMessage::InvalidContentType,
        ));
        assert_eq!(hint(&plain, false), SPEAKS_PLAIN_HTTP);
        let unknown = wrapped(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer,
        ));
        assert_eq!(hint(&unknown, false), UNKNOWN_AUTHORITY);
        let expired = wrapped(rustls::Error::InvalidCertificate(CertificateError::Expired));
        assert_eq!(hint(&expired, false), "");
        assert_eq!(hint(&io::Error::other("refused"), false), "");
        assert_eq!(hint(&io::Error::other("refused"), true), "");
    }
}
