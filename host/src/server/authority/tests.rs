//! The authority's directory: made once, used again, and never left with a pair that does not fit.

use std::{os::unix::fs::PermissionsExt, thread};

use super::*;
use crate::config::ServiceName;

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

fn bundle(directory: &Path) -> String {
    fs::read_to_string(directory.join("tls/ca.crt")).expect("the bundle")
}

#[test]
fn issues_leaves_for_every_name_it_was_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::open(&settings(directory.path())).expect("an authority");
    let (chain, _) = authority.issue().expect("a leaf");
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
        "DNSName(gate.policy.svc)",
        "DNSName(gate.policy.svc.cluster.local)",
        "DNSName(tollgate.example.com)",
    ] {
        assert!(text.contains(&name.to_owned()), "{name} is not in {text:?}");
    }
    assert_eq!(text.len(), 7, "{text:?}");
    assert!(!Authority::is_due(leaf.validity().not_after.to_datetime()));
}

#[test]
fn keeps_the_key_to_itself() {
    let directory = tempfile::tempdir().expect("a directory");
    Authority::open(&settings(directory.path())).expect("an authority");
    let key = fs::metadata(directory.path().join("tls/ca.key")).expect("a key");
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
}

#[test]
fn ends_with_one_fitting_pair_when_many_start_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let keys: Vec<Vec<u8>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| Authority::open(&settings(path)).expect("an authority")))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .map(|authority| authority.issuer.key().subject_public_key_info())
            .collect()
    });
    assert!(keys.iter().all(|key| *key == keys[0]));
    let before = bundle(path);
    Authority::open(&settings(path)).expect("the pair fits");
    assert_eq!(bundle(path), before);
}

#[test]
fn makes_a_new_authority_after_a_kill_between_key_and_certificate() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    Authority::open(&settings(path)).expect("an authority");
    let before = bundle(path);
    fs::remove_file(path.join("tls/ca.crt")).expect("removed");
    Authority::open(&settings(path)).expect("an authority");
    assert_ne!(bundle(path), before);
}

#[test]
fn rejects_files_that_are_no_authority_rather_than_overwrite_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    Authority::open(&settings(path)).expect("an authority");
    let refusal = || {
        Authority::open(&settings(path))
            .expect_err("refused")
            .to_string()
    };
    let key_path = path.join("tls/ca.key");
    let other = KeyPair::generate().expect("a key");
    fs::write(&key_path, other.serialize_pem()).expect("written");
    assert!(refusal().contains("ca.key is not the key of ca.crt"));
    fs::write(&key_path, "nonsense").expect("written");
    assert!(refusal().contains("ca.key is no PEM private key"));
    fs::remove_file(&key_path).expect("removed");
    assert!(refusal().contains("without its ca.key"));
}

#[test]
fn replaces_an_authority_that_nears_its_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    Authority::open(&settings(path)).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = OffsetDateTime::now_utc() + Duration::days(20);
    let old = params.self_signed(&key).expect("a certificate").pem();
    fs::write(path.join("tls/ca.crt"), &old).expect("written");
    fs::write(path.join("tls/ca.key"), key.serialize_pem()).expect("written");
    Authority::open(&settings(path)).expect("an authority");
    assert_ne!(bundle(path), old);
}
