//! Client authentication: a certificate in the handshake, and a bearer token or a password with every request.
//!
//! The certificate and the header are two layers. A client must pass each layer that is configured. In the header,
//! either a token or a password is enough, because a request can carry only one of them. All files are read again while
//! serving. An unusable file is reported and does not replace the version in use.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use http::{HeaderMap, HeaderValue, header};
use rustls::{crypto::CryptoProvider, server::danger::ClientCertVerifier};
use time::OffsetDateTime;
use tokio::time::{Instant, timeout_at};
use tollgate_admission::tokens::{Right, TokenReviewer, TokenVerdict};
use tollgate_telemetry::metrics::{AuthenticationFailure, Metrics};

use crate::inspect::{Usable, count};
use crate::tls;
use tollgate_config as config;

mod basic;
mod bearer;
mod client;

pub(super) use self::client::Peer;
use self::{basic::Passwords, bearer::Tokens, client::ClientCertificates};

/// The credentials that clients must present.
#[derive(Debug)]
pub(super) struct Authentication {
    client: Option<Arc<ClientCertificates>>,
    bearer: Option<Tokens>,
    basic: Option<Passwords>,
    /// The verifier of tokens of the cluster, on the admin listener.
    reviewer: Option<Arc<dyn TokenReviewer>>,
}

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Refused {
    /// The client did not present the required credential.
    Client(AuthenticationFailure),
    /// Other password checks kept the host from checking this one in time.
    Busy,
    /// The token is valid, and its user lacks the right.
    Forbidden,
    /// kube-apiserver does not say whether the token is valid.
    Unavailable,
}

/// Error when a file of credentials is unusable.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticationError {
    /// A file cannot be read.
    #[error("cannot read {path} ({setting})")]
    Read {
        /// The configuration key.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// The error from the system.
        source: std::io::Error,
    },
    /// The file of authorities holds no usable authority.
    #[error(
        "{path} (authentication.clientCertificate.ca) {problem}: expected PEM with one or more CERTIFICATE sections, \
         each with a CA certificate"
    )]
    ClientCa {
        /// The file.
        path: PathBuf,
        /// The problem with the file.
        problem: &'static str,
    },
    /// None of the authorities in the file is valid now.
    #[error(
        "{path} (authentication.clientCertificate.ca) holds only CA certificates that have expired or are not valid \
         yet: add one that is valid today"
    )]
    ClientCaOutdated {
        /// The file.
        path: PathBuf,
    },
    /// A line is not a token, or the file holds none.
    #[error(
        "{path} (authentication.bearer.file){} {problem}: expected one token per line, of visible ASCII characters \
         without spaces", at(.line)
    )]
    Bearer {
        /// The file.
        path: PathBuf,
        /// The line number, from 1. None if the error is about the whole file.
        line: Option<usize>,
        /// The problem with the line or the file.
        problem: &'static str,
    },
    /// A line is not a name with a hashed password, or the file holds none.
    #[error(
        "{path} (authentication.basic.file){} {problem}: expected one NAME:HASH per line, with a bcrypt hash of cost \
         {} or less, as `htpasswd -nB NAME` writes it", at(.line), basic::HIGHEST_COST
    )]
    Basic {
        /// The file.
        path: PathBuf,
        /// The line number, from 1. None if the error is about the whole file.
        line: Option<usize>,
        /// The problem with the line or the file.
        problem: &'static str,
    },
}

/// Tokens of Kubernetes have one or two kilobytes.
const LONGEST_TOKEN_BYTES: usize = 8 << 10;

const BEARER: HeaderValue = HeaderValue::from_static("Bearer realm=\"tollgate\"");
const BASIC: HeaderValue = HeaderValue::from_static("Basic realm=\"tollgate\", charset=\"UTF-8\"");

// === impl Authentication ===

impl Authentication {
    pub(super) fn load(
        settings: &config::Authentication,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, AuthenticationError> {
        let client = settings
            .client_certificate
            .as_ref()
            .map(|settings| ClientCertificates::load(settings, provider).map(Arc::new));
        let bearer = settings.bearer.as_deref().map(Tokens::load);
        let basic = settings.basic.as_deref().map(Passwords::load);
        let client = client.transpose()?;
        let checked = client
            .as_ref()
            .map_or(Ok(()), |client| client.check(OffsetDateTime::now_utc()));
        if let Err(error) = checked {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "serving although no CA certificate for clients is valid now; replace the file with one that holds a \
                 valid CA certificate"
            );
        }
        Ok(Self {
            client,
            bearer: bearer.transpose()?,
            basic: basic.transpose()?,
            reviewer: None,
        })
    }

    /// Accepts tokens that the reviewer accepts, too.
    pub(super) fn with_reviewer(self, reviewer: Option<Arc<dyn TokenReviewer>>) -> Self {
        Self { reviewer, ..self }
    }

    /// Whether a client must present anything.
    pub(super) fn is_required(&self) -> bool {
        self.client.is_some()
            || self.bearer.is_some()
            || self.basic.is_some()
            || self.reviewer.is_some()
    }

    /// The verifier for client certificates in the TLS handshake.
    pub(super) fn verifier(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        let client = Arc::clone(self.client.as_ref()?);
        Some(client)
    }

    /// Sets the metric for the expiry of the client certificate authorities.
    pub(super) fn announce(&self, metrics: &Metrics) {
        if let Some(client) = &self.client
            && let Some(expiry) = client.expiry()
        {
            metrics.certificate(Some(client.path()), expiry.unix_timestamp());
        }
    }

    /// Lines for `/readyz` about the client authorities.
    pub(super) fn detail(&self, now: OffsetDateTime) -> Vec<String> {
        let client = self.client.iter().map(|client| {
            let ends = tls::ends(client.expiry(), now);
            format!("client CA {}: {ends}", client.path().display())
        });
        client.collect()
    }

    /// Reads all files again and applies changes. Returns the result for each configuration key.
    pub(super) fn refresh(&self) -> Vec<(&'static str, Result<bool, AuthenticationError>)> {
        let client = self.client.as_ref().map(|client| client.refresh());
        let bearer = self.bearer.as_ref().map(Tokens::refresh);
        let basic = self.basic.as_ref().map(Passwords::refresh);
        [
            ("authentication.clientCertificate", client),
            ("authentication.bearer", bearer),
            ("authentication.basic", basic),
        ]
        .into_iter()
        .filter_map(|(setting, result)| Some((setting, result?)))
        .collect()
    }

    /// Checks whether a request may be served on this connection. `right` is what the user of a token of the cluster
    /// needs for it.
    pub(super) async fn admit(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        right: Option<Right>,
        deadline: Instant,
    ) -> Result<(), Refused> {
        if let Some(client) = &self.client {
            client.recheck(peer).map_err(Refused::Client)?;
        }
        if self.bearer.is_none() && self.basic.is_none() && self.reviewer.is_none() {
            return Ok(());
        }
        let missing = Refused::Client(AuthenticationFailure::Missing);
        let (scheme, credential) = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.split_once(' '))
            .ok_or(missing)?;
        let credential = credential.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return self.admit_token(credential, right, deadline).await;
        }
        match &self.basic {
            Some(passwords) if scheme.eq_ignore_ascii_case("basic") => {
                passwords.admit(credential, deadline).await
            }
            _ => Err(missing),
        }
    }

    /// Checks a token against the file first, and then with the reviewer.
    async fn admit_token(
        &self,
        token: &str,
        right: Option<Right>,
        deadline: Instant,
    ) -> Result<(), Refused> {
        let tokens = self.bearer.as_ref();
        if tokens.is_some_and(|tokens| tokens.accept(token)) {
            return Ok(());
        }
        match (&self.reviewer, right) {
            (Some(reviewer), Some(right)) => review(&**reviewer, token, right, deadline).await,
            _ if tokens.is_some() => Err(Refused::Client(AuthenticationFailure::Bearer)),
            _ => Err(Refused::Client(AuthenticationFailure::Missing)),
        }
    }

    /// The `WWW-Authenticate` values of a 401 answer.
    pub(super) fn challenges(&self) -> Vec<HeaderValue> {
        let has_bearer = self.bearer.is_some() || self.reviewer.is_some();
        let bearer = has_bearer.then_some(BEARER);
        let basic = self.basic.is_some().then_some(BASIC);
        bearer.into_iter().chain(basic).collect()
    }
}

/// Lets the reviewer decide about a token. A text that cannot be a token is not sent to the reviewer.
async fn review(
    reviewer: &dyn TokenReviewer,
    token: &str,
    right: Right,
    deadline: Instant,
) -> Result<(), Refused> {
    let refused = Refused::Client(AuthenticationFailure::Bearer);
    let is_token = !token.is_empty()
        && token.len() <= LONGEST_TOKEN_BYTES
        && token.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_token {
        return Err(refused);
    }
    match timeout_at(deadline, reviewer.review(token, right)).await {
        Ok(TokenVerdict::Allowed) => Ok(()),
        Ok(TokenVerdict::NotAuthenticated) => Err(refused),
        Ok(TokenVerdict::Forbidden) => Err(Refused::Forbidden),
        Ok(TokenVerdict::Unavailable { reason }) => {
            tracing::warn!(
                reason = &*reason,
                "cannot verify the token of an administrator; refusing the request"
            );
            Err(Refused::Unavailable)
        }
        Err(_elapsed) => Err(Refused::Unavailable),
    }
}

/// Reads the file of each part of `authentication`, for `tollgate check`.
pub(super) fn inspect(
    settings: &config::Authentication,
    provider: &Arc<CryptoProvider>,
    now: OffsetDateTime,
) -> Vec<(&'static str, Result<Usable, AuthenticationError>)> {
    let of = |description| Usable {
        description,
        warnings: Vec::new(),
    };
    let client = settings.client_certificate.as_ref().map(|settings| {
        ClientCertificates::load(settings, provider).and_then(|client| {
            client.check(now)?;
            let expiry = client.expiry();
            let description = format!(
                "{}, {}",
                count(client.count(), "CA certificate"),
                tls::ends(expiry, now)
            );
            let has_ended = expiry.is_some_and(|expiry| expiry <= now);
            let warning = "a CA certificate has expired: client certificates that it issued are still accepted while \
                they are valid; remove it from the file when no client uses it any more";
            Ok(Usable {
                description,
                warnings: has_ended.then(|| warning.to_owned()).into_iter().collect(),
            })
        })
    });
    let bearer = settings
        .bearer
        .as_deref()
        .map(|path| Tokens::load(path).map(|tokens| of(count(tokens.count(), "token"))));
    let basic = settings
        .basic
        .as_deref()
        .map(|path| Passwords::load(path).map(|passwords| of(count(passwords.count(), "name"))));
    [
        ("authentication.clientCertificate", client),
        ("authentication.bearer", bearer),
        ("authentication.basic", basic),
    ]
    .into_iter()
    .filter_map(|(setting, result)| Some((setting, result?)))
    .collect()
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, AuthenticationError> {
    tollgate_config::file::read(path).map_err(|source| AuthenticationError::Read {
        setting,
        path: path.to_owned(),
        source,
    })
}

/// Lines with content, numbered from 1. Errors must not show a line, because it may be a credential.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    bytes
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .enumerate()
        .filter(|(_, line)| !line.is_empty() && !line.starts_with(b"#"))
        .map(|(index, line)| (index + 1, line))
}

fn at(line: &Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(", line {line},"))
}

#[cfg(test)]
mod tests;
