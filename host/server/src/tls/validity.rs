//! The validity period of a certificate, and other reasons for which clients may reject it.

use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};
use x509_parser::prelude::X509Certificate;

/// Tolerance for clocks that differ. A certificate whose validity begins within this time counts as valid.
const CLOCK_SKEW: Duration = Duration::minutes(5);

const UNORDERED_CHAIN: &str = "the certificate chain is out of order: clients may reject it; expected the server's \
    own certificate first, then the certificate of its issuer, and so on";
const OUTDATED_CHAIN: &str = "a certificate after the server's own in the chain has expired or is not valid yet: \
    clients reject the chain unless they know another path to their CA";
const NAMELESS: &str = "the certificate covers no DNS name or IP address: clients reject it because they ignore its \
    common name";
const NO_SERVER: &str =
    "the certificate is not for servers (extended key usage): clients reject it";

/// The period in which a certificate is valid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Validity {
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
}

/// The reason why a certificate is not valid now.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Outdated {
    /// The certificate has expired.
    #[error("expired on {}", .0.date())]
    Expired(OffsetDateTime),
    /// The certificate is not valid yet, even with tolerance for clocks that differ.
    #[error("is not valid before {}", moment(*.0))]
    NotYetValid(OffsetDateTime),
}

// === impl Validity ===

impl Validity {
    pub(crate) fn new(not_before: OffsetDateTime, not_after: OffsetDateTime) -> Self {
        Self {
            not_before,
            not_after,
        }
    }

    /// The validity of a certificate. Returns none if Tollgate cannot parse the certificate; clients may still accept
    /// it.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let validity = parsed(certificate)?.validity().clone();
        Some(Self::new(
            validity.not_before.to_datetime(),
            validity.not_after.to_datetime(),
        ))
    }

    pub(crate) fn check(self, now: OffsetDateTime) -> Result<(), Outdated> {
        if self.not_after <= now {
            Err(Outdated::Expired(self.not_after))
        } else if self.not_before > now + CLOCK_SKEW {
            Err(Outdated::NotYetValid(self.not_before))
        } else {
            Ok(())
        }
    }
}

/// Formats a moment to the second.
pub(crate) fn moment(time: OffsetDateTime) -> String {
    let time = time.replace_nanosecond(0).unwrap_or(time);
    time.format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}

/// The reasons for which clients may reject a chain whose first certificate is valid.
pub(super) fn warnings(chain: &[CertificateDer<'_>], now: OffsetDateTime) -> Vec<&'static str> {
    let issuers = chain.get(1..).unwrap_or_default();
    let is_outdated = |der| Validity::of(der).is_some_and(|validity| validity.check(now).is_err());
    let leaf = chain.first().and_then(|leaf| parsed(leaf));
    let is_for_clients = leaf.as_ref().is_some_and(|leaf| {
        let usage = leaf.extended_key_usage().ok().flatten();
        usage.is_some_and(|usage| !usage.value.server_auth && !usage.value.any)
    });
    [
        (!is_chain(chain), UNORDERED_CHAIN),
        (issuers.iter().any(is_outdated), OUTDATED_CHAIN),
        (leaf.is_some() && super::names(chain).is_empty(), NAMELESS),
        (is_for_clients, NO_SERVER),
    ]
    .into_iter()
    .filter_map(|(applies, warning)| applies.then_some(warning))
    .collect()
}

/// Whether each certificate was issued by the one after it.
pub(super) fn is_chain(chain: &[CertificateDer<'_>]) -> bool {
    chain
        .windows(2)
        .all(|pair| match (parsed(&pair[0]), parsed(&pair[1])) {
            (Some(issued), Some(by)) => issued.issuer().as_raw() == by.subject().as_raw(),
            // Clients may be able to read a certificate that x509-parser cannot.
            _ => true,
        })
}

/// The names of one certificate that another does not cover.
pub(super) fn missing(names: &[String], other: &[String]) -> Vec<String> {
    let covers = |pattern: &str, name: &str| {
        pattern.eq_ignore_ascii_case(name)
            || match (pattern.strip_prefix("*."), name.split_once('.')) {
                (Some(domain), Some((label, rest))) => {
                    label != "*" && domain.eq_ignore_ascii_case(rest)
                }
                _ => false,
            }
    };
    let is_missing = |name: &&String| !other.iter().any(|pattern| covers(pattern, name));
    names.iter().filter(is_missing).cloned().collect()
}

fn parsed<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerates_clocks_that_differ_by_minutes() {
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).expect("a time");
        let check =
            |from: Duration, until: Duration| Validity::new(now + from, now + until).check(now);
        let year = Duration::days(365);
        assert_eq!(check(-year, year), Ok(()));
        assert_eq!(check(Duration::minutes(5), year), Ok(()));
        let from = now + Duration::minutes(6);
        assert_eq!(
            check(Duration::minutes(6), year),
            Err(Outdated::NotYetValid(from))
        );
        assert_eq!(check(-year, Duration::ZERO), Err(Outdated::Expired(now)));
        assert_eq!(check(-year, Duration::SECOND), Ok(()));
    }

    #[test]
    fn finds_names_that_are_no_longer_covered() {
        let names = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let old = names("gate.policy gate.policy.svc 10.0.0.7");
        assert_eq!(missing(&old, &old), Vec::<String>::new());
        assert_eq!(
            missing(&old, &names("*.policy.svc 10.0.0.7 GATE.policy")),
            Vec::<String>::new()
        );
        assert_eq!(
            missing(&old, &names("*.svc gate.policy")),
            names("gate.policy.svc 10.0.0.7")
        );
    }
}
