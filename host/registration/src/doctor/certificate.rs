//! Examines the CAs that kube-apiserver trusts for Tollgate.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use time::{Duration, OffsetDateTime};
use x509_parser::pem::Pem;
use x509_parser::prelude::X509Certificate;

use super::{Finding, Installation, Registered, Severity};
use crate::live::{Objects, name_of, text};

/// A certificate that expires within this time is found.
const SOON: Duration = Duration::days(30);

/// The annotation by which cert-manager's injector adds a bundle.
const INJECTOR: &str = "cert-manager.io/inject-ca-from";

/// Key of a Secret that holds a serving certificate.
const KEY: &str = "tls.crt";

pub(super) fn examine(
    registered: Registered<'_>,
    objects: &Objects,
    installation: &Installation,
    now: OffsetDateTime,
    findings: &mut Vec<Finding>,
) {
    let mut add = |severity, check, problem: String, fix: &str| {
        findings.push(Finding {
            severity,
            check,
            object: registered.to_string(),
            problem,
            fix: fix.to_owned(),
        });
    };
    let renew = "print the manifests again with the current CA (`tollgate manifests`, `--ca FILE`), and apply them";
    let client = &registered.webhook["clientConfig"];
    let bundle = client["caBundle"].as_str().unwrap_or_default();
    if bundle.is_empty() {
        if client["service"].is_object() {
            let annotations = &registered.configuration["metadata"]["annotations"];
            let injected = annotations.get(INJECTOR).is_some();
            let problem = if injected {
                "caBundle is empty, although cert-manager is to inject it: kube-apiserver cannot verify Tollgate"
            } else {
                "caBundle is empty: kube-apiserver verifies Tollgate with the CAs of its own system, which have no \
                 certificate for a Service"
            };
            add(Severity::Error, "ca-missing", problem.to_owned(), renew);
        }
        return;
    }
    let pem = STANDARD.decode(bundle).unwrap_or_default();
    let trusted = certificates(&pem);
    if trusted.is_empty() {
        let problem = "caBundle has no certificate that can be read".to_owned();
        add(Severity::Error, "ca-invalid", problem, renew);
        return;
    }
    let ends: Vec<OffsetDateTime> = trusted
        .iter()
        .filter_map(|pem| Some(pem.parse_x509().ok()?.validity().not_after.to_datetime()))
        .collect();
    if let Some(end) = ends.iter().max() {
        if *end <= now {
            let problem = format!(
                "all CAs in caBundle have expired, the last on {}",
                end.date()
            );
            add(Severity::Error, "ca-expired", problem, renew);
        } else if *end <= now + SOON {
            let problem = format!("the last CA in caBundle expires on {}", end.date());
            add(Severity::Warning, "ca-expires-soon", problem, renew);
        }
    }
    for (secret, pem) in served(objects, installation) {
        let chain = certificates(&pem);
        let is_known = chain.iter().any(|pem| {
            pem.parse_x509()
                .is_ok_and(|certificate| is_trusted(&certificate, pem, &trusted))
        });
        if !chain.is_empty() && !is_known {
            add(
                Severity::Error,
                "ca-mismatch",
                format!(
                    "caBundle trusts no issuer of the certificates in the Secret {secret}, so kube-apiserver rejects \
                     Tollgate's certificate"
                ),
                renew,
            );
        }
        if let Some(end) = chain.first().and_then(|pem| {
            let certificate = pem.parse_x509().ok()?;
            Some(certificate.validity().not_after.to_datetime())
        }) && end <= now
        {
            add(
                Severity::Error,
                "certificate-expired",
                format!(
                    "the certificate in the Secret {secret} expired on {}",
                    end.date()
                ),
                "renew the certificate; see whether cert-manager, or the tool that writes the Secret, works",
            );
        }
    }
}

fn certificates(pem: &[u8]) -> Vec<Pem> {
    Pem::iter_from_buffer(pem)
        .filter_map(Result::ok)
        .filter(|pem| pem.label == "CERTIFICATE")
        .collect()
}

/// Returns whether the bundle holds the certificate or its issuer, by name and key identifier. Signatures are not
/// verified.
fn is_trusted(certificate: &X509Certificate<'_>, pem: &Pem, trusted: &[Pem]) -> bool {
    trusted.iter().any(|ca| {
        let Ok(parsed) = ca.parse_x509() else {
            return false;
        };
        let same_key = match (authority_key(certificate), subject_key(&parsed)) {
            (Some(wanted), Some(key)) => wanted == key,
            _ => true,
        };
        ca.contents == pem.contents
            || (certificate.issuer().as_raw() == parsed.subject().as_raw() && same_key)
    })
}

fn authority_key(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    use x509_parser::extensions::ParsedExtension::AuthorityKeyIdentifier;
    certificate
        .extensions()
        .iter()
        .find_map(|extension| match extension.parsed_extension() {
            AuthorityKeyIdentifier(of) => of.key_identifier.as_ref().map(|key| key.0.to_vec()),
            _ => None,
        })
}

fn subject_key(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    use x509_parser::extensions::ParsedExtension::SubjectKeyIdentifier;
    certificate
        .extensions()
        .iter()
        .find_map(|extension| match extension.parsed_extension() {
            SubjectKeyIdentifier(key) => Some(key.0.to_vec()),
            _ => None,
        })
}

/// Lists the Secrets of the installation's namespace with a certificate for its Service, and the certificates.
fn served(objects: &Objects, installation: &Installation) -> Vec<(String, Vec<u8>)> {
    let name = format!("{}.{}.svc", installation.service, installation.namespace);
    objects
        .of_kind("Secret")
        .filter(|secret| text(secret, "namespace") == installation.namespace)
        .filter_map(|secret| {
            let pem = STANDARD.decode(secret["data"][KEY].as_str()?).ok()?;
            let secret = format!("{}/{}", text(secret, "namespace"), name_of(secret));
            Some((secret, pem))
        })
        .filter(|(_, pem)| {
            let chain = certificates(pem);
            let leaf = chain.first().and_then(|pem| pem.parse_x509().ok());
            leaf.is_some_and(|leaf| {
                let names = leaf.subject_alternative_name().ok().flatten();
                names.is_some_and(|names| {
                    names.value.general_names.iter().any(|one| {
                        matches!(one, x509_parser::prelude::GeneralName::DNSName(one) if *one == name)
                    })
                })
            })
        })
        .collect()
}
