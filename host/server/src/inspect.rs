//! Reads the files of `tls` and `authentication` as the server does at start, for `tollgate check`.
//!
//! The functions here change nothing. If there is no self-signed authority yet, they report nothing about it.

use std::sync::Arc;

use rustls::crypto::ring;
use time::OffsetDateTime;
use tollgate_config::{Authentication, Tls};

use super::{AuthenticationError, CertificateError, authentication, tls};

/// The result of reading the files of one part of the configuration.
#[derive(Debug)]
pub struct Inspected {
    /// The configuration key.
    pub setting: String,
    /// A description of the files, or the reason why they are unusable.
    pub result: Result<Usable, InspectError>,
}

/// Files that the server can use.
#[derive(Debug, Default)]
pub struct Usable {
    /// Description of the content, without secrets.
    pub description: String,
    /// Facts that may surprise clients or the operator.
    pub warnings: Vec<String>,
}

/// The reason why the server cannot use the files.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The certificate or its key is unusable.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The credentials that clients must present are unusable.
    #[error(transparent)]
    Authentication(#[from] AuthenticationError),
}

// === impl InspectError ===

impl InspectError {
    /// The consequence for a server that starts with these files.
    #[must_use]
    pub fn consequence(&self) -> &'static str {
        match self {
            Self::Certificate(
                CertificateError::Outdated { .. } | CertificateError::AuthorityOutdated { .. },
            ) => "`serve` starts with it but is not ready",
            Self::Authentication(AuthenticationError::ClientCaOutdated { .. }) => {
                "`serve` starts with it, and accepts client certificates of these CAs while the client certificates \
                 are valid"
            }
            Self::Certificate(_) | Self::Authentication(_) => "`serve` does not start with it",
        }
    }
}

/// Reads every file of these sections. Every unusable file gives its own error.
#[must_use]
pub fn inspect(
    tls: &Tls,
    authentication: &Authentication,
    admin: Option<&Authentication>,
) -> Vec<Inspected> {
    let (provider, now) = (
        Arc::new(ring::default_provider()),
        OffsetDateTime::now_utc(),
    );
    let certificate = tls::inspect(tls, &provider, now)
        .map_err(InspectError::from)
        .transpose();
    let certificate = certificate.map(|result| Inspected {
        setting: "tls".to_owned(),
        result,
    });
    let of = |prefix: &'static str, authentication: &Authentication| {
        let inspected = authentication::inspect(authentication, &provider, now);
        inspected
            .into_iter()
            .map(move |(setting, result)| Inspected {
                setting: format!("{prefix}{setting}"),
                result: result.map_err(InspectError::from),
            })
    };
    certificate
        .into_iter()
        .chain(of("", authentication))
        .chain(admin.into_iter().flat_map(|admin| of("admin.", admin)))
        .collect()
}

/// Formats a count with its noun in the singular or plural.
pub(super) fn count(number: usize, of: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {of}{plural}")
}

#[cfg(test)]
mod tests;
