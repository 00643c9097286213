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
    pub setting: &'static str,
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

/// Reads every file of both sections; each that cannot be used is an error of its own.
#[must_use]
pub fn inspect(tls: &Tls, authentication: &Authentication) -> Vec<Inspected> {
    let (provider, now) = (
        Arc::new(ring::default_provider()),
        OffsetDateTime::now_utc(),
    );
    let certificate = tls::inspect(tls, &provider, now)
        .map_err(InspectError::from)
        .transpose();
    let certificate = certificate.map(|result| Inspected {
        setting: "tls",
        result,
    });
    let clients = authentication::inspect(authentication, &provider, now)
        .into_iter()
        .map(|(setting, result)| Inspected {
            setting,
            result: result.map_err(InspectError::from),
        });
    certificate.into_iter().chain(clients).collect()
}

/// A number of things, in English.
pub(super) fn count(number: usize, of: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {of}{plural}")
}

#[cfg(test)]
mod tests;
