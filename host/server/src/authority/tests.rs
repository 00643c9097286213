//! The authority's directory: created once, reused, and never left with a pair that does not match.

use std::{os::unix::fs::PermissionsExt, thread};

use rcgen::KeyPair;
use rustls_pki_types::pem::PemObject as _;
use time::Duration;
use tollgate_config::ServiceName;

use super::*;

fn settings(directory: &Path) -> SelfSigned {
    SelfSigned {
        directory: directory.join("tls"),
        names: vec!["tollgate.example.com".to_owned(), "192.0.2.7".to_owned()],
        service: Some(ServiceName {
            name: "gate".to_owned(),
            namespace: "policy".to_owned(),
        }),
    }
}

fn open(directory: &Path) -> Result<Authority, AuthorityError> {
    Authority::open(&settings(directory), OffsetDateTime::now_utc())
}

fn bundle(directory: &Path) -> String {
    fs::read_to_string(directory.join("tls/ca.crt")).expect("the bundle")
}

#[test]
fn issues_leaf_for_every_configured_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = open(directory.path()).expect("an authority");
    let (chain, _) = authority.issue(OffsetDateTime::now_utc()).expect("a leaf");
    let (_, leaf) = x509_parser::parse_x509_certificate(&chain[0]).expect("X.509");
    let names = leaf
        .subject_alternative_name()
        .expect("well-formed")
        .expect("present");
    let text: Vec<String> = names
        .value
        .general_names
        .iter()
        .map(ToString::to_string)
        .collect();
    for name in [
        "DNSName(localhost)",
        "DNSName(gate.policy)",
        "DNSName(gate.policy.svc)",
        "DNSName(gate.policy.svc.cluster.local)",
        "DNSName(tollgate.example.com)",
    ] {
        assert!(text.contains(&name.to_owned()), "{name} is not in {text:?}");
    }
    assert_eq!(text.len(), 8, "{text:?}");
    let expiry = leaf.validity().not_after.to_datetime();
    assert!(!authority.is_due(expiry, OffsetDateTime::now_utc()));
    assert!(authority.is_due(expiry, expiry - Duration::days(20)));
}

#[test]
fn writes_key_file_readable_by_owner_only() {
    let directory = tempfile::tempdir().expect("a directory");
    open(directory.path()).expect("an authority");
    let key = fs::metadata(directory.path().join("tls/ca.key")).expect("a key");
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
}

#[test]
fn concurrent_starts_end_with_one_matching_pair() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let keys: Vec<Vec<u8>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| open(path).expect("an authority")))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .map(|authority| authority.authority.key_pem().into_bytes())
            .collect()
    });
    assert!(keys.iter().all(|key| *key == keys[0]));
    let before = bundle(path);
    open(path).expect("the pair fits");
    assert_eq!(bundle(path), before);
}

#[test]
fn creates_authority_again_after_kill_between_key_and_certificate() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    open(path).expect("an authority");
    let before = bundle(path);
    fs::remove_file(path.join("tls/ca.crt")).expect("removed");
    open(path).expect("an authority");
    assert_ne!(bundle(path), before);
}

#[test]
fn rejects_invalid_authority_files_without_overwriting_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    open(path).expect("an authority");
    let refusal = || open(path).expect_err("refused").to_string();
    let key_path = path.join("tls/ca.key");
    let other = KeyPair::generate().expect("a key");
    fs::write(&key_path, other.serialize_pem()).expect("written");
    assert!(refusal().contains("ca.key does not belong to ca.crt"));
    fs::write(&key_path, "nonsense").expect("written");
    assert!(refusal().contains("ca.key is not a PEM private key"));
    fs::remove_file(&key_path).expect("removed");
    assert!(refusal().contains("without its ca.key"));
}

#[test]
fn publishes_successor_a_month_before_it_signs() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let start = OffsetDateTime::now_utc();
    let at = |days| Authority::open(&settings(path), start + Duration::days(days)).expect("usable");
    let trusted = || bundle(path).matches("BEGIN CERTIFICATE").count();
    let first = at(0);
    assert_eq!(trusted(), 1);
    // For years, no new registration is needed.
    let before = bundle(path);
    assert!(at(3_469).is_same(&first));
    assert_eq!((bundle(path), first.successor_signs_from()), (before, None));
    // Half a year before the end, the bundle holds the successor, which does not sign yet.
    let waiting = at(3_471);
    assert!(waiting.is_same(&first));
    assert_eq!(trusted(), 2);
    let signs_from = waiting.successor_signs_from().expect("a date");
    assert!((signs_from - start - Duration::days(3_501)).abs() < Duration::minutes(1));
    let registered = bundle(path);
    assert!(at(3_500).is_same(&first));
    // The successor signs after a month. The bundle that was registered then covers both.
    let next = at(3_502);
    assert!(!next.is_same(&first));
    assert_eq!(next.successor_signs_from(), None);
    assert_eq!(bundle(path), registered);
    let (leaf, _) = next.issue(start + Duration::days(3_502)).expect("a leaf");
    let trusting: Vec<_> = CertificateDer::pem_slice_iter(registered.as_bytes())
        .collect::<Result<_, _>>()
        .expect("PEM");
    assert!(
        trusting.contains(next.authority.certificate())
            && trusting.contains(first.authority.certificate())
    );
    assert!(is_signed_by(&leaf[0], next.authority.certificate()));
    // The first authority leaves the bundle when it has expired.
    assert!(at(3_651).is_same(&next));
    assert_eq!(trusted(), 1);
    assert!(!path.join("tls/next.key").exists());
}

#[test]
fn replaces_authority_at_once_when_it_is_about_to_expire() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let first = open(path).expect("an authority");
    let late = first.expiry() - Duration::hours(1);
    let next = Authority::open(&settings(path), late).expect("an authority");
    assert!(!next.is_same(&first));
}

#[test]
fn issues_no_leaf_that_outlives_authority() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let authority = open(path).expect("an authority");
    let late = authority.expiry() - Duration::days(10);
    let (chain, _) = authority.issue(late).expect("a leaf");
    let (_, leaf) = x509_parser::parse_x509_certificate(&chain[0]).expect("X.509");
    let expiry = leaf.validity().not_after.to_datetime();
    assert_eq!(expiry, authority.expiry());
    assert!(!authority.is_due(expiry, late));
}

#[test]
fn recreates_successor_after_kill_before_it_was_published() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let first = open(path).expect("an authority");
    let orphan = KeyPair::generate().expect("a key").serialize_pem();
    fs::write(path.join("tls/next.key"), &orphan).expect("written");
    assert!(open(path).expect("usable").is_same(&first));
    let later = first.expiry() - Duration::days(100);
    Authority::open(&settings(path), later).expect("usable");
    let key = fs::read_to_string(path.join("tls/next.key")).expect("a key");
    assert_ne!(key, orphan);
    assert_eq!(bundle(path).matches("BEGIN CERTIFICATE").count(), 2);
}

#[test]
fn distinguishes_read_only_directory_from_other_failures() {
    let of = |kind: io::ErrorKind| failed("create", Path::new("/tls/ca.lock"))(kind.into());
    assert!(of(io::ErrorKind::ReadOnlyFilesystem).is_read_only());
    assert!(of(io::ErrorKind::PermissionDenied).is_read_only());
    assert!(!of(io::ErrorKind::StorageFull).is_read_only());
}

fn is_signed_by(leaf: &CertificateDer<'_>, authority: &CertificateDer<'_>) -> bool {
    let (_, leaf) = x509_parser::parse_x509_certificate(leaf).expect("X.509");
    let (_, authority) = x509_parser::parse_x509_certificate(authority).expect("X.509");
    let identifier = |extension: Option<&[u8]>| extension.map(<[u8]>::to_vec);
    let issuer =
        leaf.extensions()
            .iter()
            .find_map(|extension| match extension.parsed_extension() {
                x509_parser::extensions::ParsedExtension::AuthorityKeyIdentifier(of) => {
                    identifier(of.key_identifier.as_ref().map(|key| key.0))
                }
                _ => None,
            });
    let own =
        authority
            .extensions()
            .iter()
            .find_map(|extension| match extension.parsed_extension() {
                x509_parser::extensions::ParsedExtension::SubjectKeyIdentifier(of) => {
                    identifier(Some(of.0))
                }
                _ => None,
            });
    issuer.is_some() && issuer == own
}
