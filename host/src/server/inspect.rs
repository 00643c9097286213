//! The files of `tls` and `authentication`, read as the server would read them at start: for `tollgate check`.
//!
//! Nothing is made or changed: where a self-signed authority is yet to be made, there is nothing to say.

use std::sync::Arc;

use rustls::crypto::ring;
use time::OffsetDateTime;

use super::{AuthenticationError, CertificateError, authentication, tls};
use crate::config::{Authentication, Tls};

/// What a part of the configuration finds in its files.
#[derive(Debug)]
pub struct Inspected {
    /// The configuration key.
    pub setting: String,
    /// What is there.
    pub result: Result<Usable, InspectError>,
}

/// Files that the server can use.
#[derive(Debug, Default)]
pub struct Usable {
    /// What is in them, without anything secret.
    pub description: String,
    /// What clients or the operator may be surprised by.
    pub warnings: Vec<String>,
}

/// Why the server could not use them.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// Certificate and key.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// What clients have to show.
    #[error(transparent)]
    Authentication(#[from] AuthenticationError),
}

// === impl InspectError ===

impl InspectError {
    /// What follows for a server that is started with it.
    #[must_use]
    pub fn consequence(&self) -> &'static str {
        match self {
            Self::Certificate(
                CertificateError::Outdated { .. } | CertificateError::AuthorityOutdated { .. },
            ) => "`serve` is not ready with it",
            Self::Authentication(AuthenticationError::ClientCaOutdated { .. }) => {
                "`serve` starts with it, and accepts what these have issued for as long as that is valid"
            }
            Self::Certificate(_) | Self::Authentication(_) => "`serve` does not start with it",
        }
    }
}

/// Reads every file of these sections; each that cannot be used is an error of its own.
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

/// A number of things, in English.
pub(super) fn count(number: usize, of: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {of}{plural}")
}

#[cfg(test)]
mod tests;
