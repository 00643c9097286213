//! Certificates from files: valid ones, the message of each rejection, and the change while serving.

use std::{fs, path::Path};

use rcgen::{CertificateParams, KeyPair};

use rustls_pki_types::pem::PemObject;

use super::*;

struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let files = Self { directory };
        let (certificate, key) = pair();
        files.write(&certificate, &key);
        files
    }

    fn write(&self, certificate: &str, key: &str) {
        let directory = self.directory.path();
        fs::write(directory.join("tls.crt"), certificate).expect("written");
        fs::write(directory.join("tls.key"), key).expect("written");
    }

    fn tls(&self) -> Tls {
        Tls::Files {
            certificate: self.directory.path().join("tls.crt"),
            key: self.directory.path().join("tls.key"),
        }
    }

    async fn load(&self) -> Result<Certificates, CertificateError> {
        let provider = Arc::new(ring::default_provider());
        Certificates::load(&self.tls(), provider, None, &Metrics::new()).await
    }

    async fn refusal(&self, certificate: &str, key: &str) -> String {
        self.write(certificate, key);
        let error = self.load().await.expect_err("refused");
        error.to_string()
    }
}

fn pair() -> (String, String) {
    pair_by(&KeyPair::generate().expect("a key"), |_| {})
}

/// Creates a certificate for `key`, with changes to its default parameters.
fn pair_by(key: &KeyPair, change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("names");
    change(&mut params);
    let certificate = params.self_signed(key).expect("a certificate");
    (certificate.pem(), key.serialize_pem())
}

/// Creates a certificate that is valid from `from` to `until`, in hours from now.
fn pair_valid(from: i64, until: i64) -> (String, String) {
    let now = OffsetDateTime::now_utc();
    pair_by(&KeyPair::generate().expect("a key"), |params| {
        params.not_before = now + time::Duration::hours(from);
        params.not_after = now + time::Duration::hours(until);
    })
}

#[tokio::test]
async fn rejects_missing_invalid_or_mismatched_files() {
    let files = Files::new();
    let (certificate, key) = pair();
    let (_, other_key) = pair();
    let text = files.refusal("", &key).await;
    assert!(
        text.contains("tls.crt (tls.certificate) does not hold a certificate"),
        "{text}"
    );
    let text = files.refusal(&key, &key).await;
    assert!(
        text.contains("expected PEM with one or more CERTIFICATE sections"),
        "{text}"
    );
    let text = files.refusal(&certificate, &certificate).await;
    assert!(
        text.contains("tls.key (tls.key) does not hold a private key"),
        "{text}"
    );
    let text = files.refusal(&certificate, &other_key).await;
    assert!(
        text.contains("does not belong to the first certificate"),
        "{text}"
    );
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let text = files.refusal(broken, &key).await;
    assert!(text.contains("cannot be used"), "{text}");
    fs::remove_file(files.directory.path().join("tls.key")).expect("removed");
    files.load().await.expect_err("refused");
}

#[tokio::test]
async fn serves_changed_certificate_and_keeps_old_one_on_failure() {
    let files = Files::new();
    let metrics = Metrics::new();
    let certificates = files.load().await.expect("usable");
    let served = || certificates.live.0.load().cert[0].clone();
    let first = served();
    assert!(!certificates.refresh(&metrics).expect("usable"));
    let (certificate, key) = pair();
    files.write(&certificate, "half-written");
    certificates.refresh(&metrics).expect_err("refused");
    assert_eq!(served(), first);
    files.write(&certificate, &key);
    assert!(certificates.refresh(&metrics).expect("usable"));
    assert_ne!(served(), first);
}

/// Lays out a Secret as kubelet does: links into a folder that the link `..data` points to.
fn publish(folder: &Path, version: &str, (certificate, key): &(String, String)) {
    let data = folder.join(version);
    fs::create_dir(&data).expect("made");
    fs::write(data.join("tls.crt"), certificate).expect("written");
    fs::write(data.join("tls.key"), key).expect("written");
    std::os::unix::fs::symlink(version, folder.join("..next")).expect("linked");
    fs::rename(folder.join("..next"), folder.join("..data")).expect("renamed");
}

#[tokio::test]
async fn never_serves_mixed_pair_while_secret_is_swapped() {
    let directory = tempfile::tempdir().expect("a directory");
    let folder = directory.path().to_owned();
    publish(&folder, "0", &pair());
    for name in ["tls.crt", "tls.key"] {
        let target = Path::new("..data").join(name);
        std::os::unix::fs::symlink(target, folder.join(name)).expect("linked");
    }
    let tls = Tls::Files {
        certificate: folder.join("tls.crt"),
        key: folder.join("tls.key"),
    };
    let provider = Arc::new(ring::default_provider());
    let metrics = Metrics::new();
    let certificates = Certificates::load(&tls, provider, None, &metrics)
        .await
        .expect("usable");
    let swapping = std::thread::spawn(move || {
        for version in 1..200 {
            publish(&folder, &version.to_string(), &pair());
        }
    });
    let mut changes = 0;
    while !swapping.is_finished() {
        // A refresh fails if the files change during several reads in a row. The old certificate then stays.
        if certificates.refresh(&metrics).unwrap_or(false) {
            changes += 1;
        }
        certificates.live.0.load().keys_match().expect("a pair");
    }
    swapping.join().expect("no panic");
    assert!(changes > 0);
    certificates.refresh(&metrics).expect("usable");
    let certificate = fs::read(directory.path().join("tls.crt")).expect("read");
    let newest = CertificateDer::from_pem_slice(&certificate).expect("PEM");
    assert_eq!(certificates.live.0.load().cert[0], newest);
}

#[tokio::test]
async fn shows_certificate_expiry() {
    let files = Files::new();
    let certificates = files.load().await.expect("usable");
    let end = OffsetDateTime::from_unix_timestamp(4_000_000_000).expect("a time");
    let now = end - time::Duration::days(12);
    assert_eq!(ends(Some(end), now), "expires on 2096-10-02, in 12 days");
    assert_eq!(ends(Some(end), end), "EXPIRED on 2096-10-02");
    let detail = certificates.detail(now);
    let path = files.directory.path().join("tls.crt");
    assert_eq!(detail.len(), 1);
    let start = format!("certificate {}: expires on 4096-01-01", path.display());
    assert!(detail[0].starts_with(&start), "{detail:?}");
}

#[test]
fn detects_chain_in_wrong_order() {
    let authority_key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "authority");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).expect("a certificate");
    let issuer = rcgen::Issuer::new(params, authority_key);
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("names");
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "leaf");
    let leaf = params.signed_by(&key, &issuer).expect("a certificate");
    let (leaf, authority) = (leaf.der().clone(), authority.der().clone());
    assert!(validity::is_chain(&[leaf.clone(), authority.clone()]));
    assert!(!validity::is_chain(&[authority, leaf]));
}

#[tokio::test]
async fn rejects_new_pair_that_is_not_valid_now() {
    let files = Files::new();
    let metrics = Metrics::new();
    let certificates = files.load().await.expect("usable");
    let served = || certificates.live.0.load().cert[0].clone();
    let first = served();
    for (from, until, words) in [
        (-48, -24, "tls.crt (tls.certificate) expired on "),
        (-2, -1, "tls.crt (tls.certificate) expired on "),
        (24, 48, "tls.crt (tls.certificate) is not valid before "),
    ] {
        let (certificate, key) = pair_valid(from, until);
        files.write(&certificate, &key);
        let refused = certificates.refresh(&metrics).expect_err("refused");
        println!("valid from {from} h until {until} h: {refused}");
        assert!(refused.to_string().contains(words), "{refused}");
        assert_eq!(served(), first);
        assert_eq!(certificates.unusable(OffsetDateTime::now_utc()), None);
    }
    // The files stay the same until they become valid.
    let tomorrow = OffsetDateTime::now_utc() + time::Duration::hours(25);
    assert!(
        certificates
            .refresh_at(&metrics, tomorrow)
            .expect("valid by then")
    );
    assert_ne!(served(), first);
}

#[tokio::test]
async fn serves_new_pair_with_other_key_type() {
    let files = Files::new();
    let metrics = Metrics::new();
    let certificates = files.load().await.expect("usable");
    for algorithm in [&rcgen::PKCS_ED25519, &rcgen::PKCS_ECDSA_P384_SHA384] {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        let (certificate, key) = pair_by(&key, |_| {});
        files.write(&certificate, &key);
        assert!(certificates.refresh(&metrics).expect("usable"));
        certificates.live.0.load().keys_match().expect("a pair");
    }
}

#[tokio::test]
async fn becomes_usable_when_valid_pair_replaces_expired_one() {
    let files = Files::new();
    let now = OffsetDateTime::now_utc();
    let (certificate, key) = pair_valid(-48, -24);
    files.write(&certificate, &key);
    let certificates = files
        .load()
        .await
        .expect("an invalid pair is served at the start");
    let why = certificates.unusable(now).expect("unusable");
    assert!(why.contains("expired on "), "{why}");
    let (certificate, key) = pair_valid(-1, 1);
    files.write(&certificate, &key);
    assert!(certificates.refresh(&Metrics::new()).expect("usable"));
    assert_eq!(certificates.unusable(now), None);
    // The certificate expires while it is served. Callers see the reason in the handshake.
    assert_eq!(certificates.unusable(now + time::Duration::hours(2)), None);
    let detail = certificates
        .detail(now + time::Duration::hours(2))
        .join("\n");
    assert!(detail.contains("EXPIRED on "), "{detail}");
}

#[tokio::test]
async fn becomes_usable_when_first_pair_becomes_valid() {
    let files = Files::new();
    let now = OffsetDateTime::now_utc();
    let (certificate, key) = pair_valid(24, 48);
    files.write(&certificate, &key);
    let certificates = files
        .load()
        .await
        .expect("an invalid pair is served at the start");
    let why = certificates.unusable(now).expect("unusable");
    assert!(why.contains("is not valid before "), "{why}");
    assert_eq!(certificates.unusable(now + time::Duration::hours(24)), None);
}

#[tokio::test]
async fn keeps_previous_authority_when_expired_one_replaces_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = SelfSigned {
        directory: directory.path().join("tls"),
        names: Vec::new(),
        service: None,
    };
    let provider = Arc::new(ring::default_provider());
    let metrics = Metrics::new();
    let tls = Tls::SelfSigned(settings.clone());
    let certificates = Certificates::load(&tls, provider, None, &metrics)
        .await
        .expect("made");
    let first = certificates.live.0.load().cert[0].clone();
    let authority_pair = |from: i64, until: i64| {
        let now = OffsetDateTime::now_utc();
        pair_by(&KeyPair::generate().expect("a key"), |params| {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
            params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
            params.not_before = now + time::Duration::days(from);
            params.not_after = now + time::Duration::days(until);
        })
    };
    let put = |(certificate, key): (String, String)| {
        fs::write(settings.directory.join("ca.key"), key).expect("written");
        fs::write(settings.directory.join("ca.crt"), certificate).expect("written");
        let Source::SelfSigned { authority, .. } = &certificates.source else {
            unreachable!("it is self-signed");
        };
        // Makes the next refresh read the directory.
        authority.lock().expect("not poisoned").1 = None;
    };
    put(authority_pair(1, 3_650));
    let refused = certificates.refresh(&metrics).expect_err("refused");
    println!("{refused}");
    assert!(
        refused
            .to_string()
            .contains("(tls.selfSigned.directory) is not valid before ")
    );
    assert_eq!(certificates.live.0.load().cert[0], first);
    // The same error is reported again.
    certificates.refresh(&metrics).expect_err("refused");
    put(authority_pair(-1, 3_650));
    assert!(certificates.refresh(&metrics).expect("usable"));
    assert_ne!(certificates.live.0.load().cert[0], first);
}

/// A CA and its certificate.
struct Signer(rcgen::Issuer<'static, KeyPair>, String);

impl Signer {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let pem = params.self_signed(&key).expect("a CA").pem();
        Self(rcgen::Issuer::new(params, key), pem)
    }

    /// Signs a certificate that is valid for some hours from now.
    fn pair(&self, hours: i64) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["gate.system.svc".to_owned()]).expect("names");
        let now = OffsetDateTime::now_utc();
        params.not_before = now - time::Duration::hours(1);
        params.not_after = now + time::Duration::hours(hours);
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }
}

#[tokio::test]
async fn certificate_of_another_ca_waits_until_that_ca_is_registered() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let registered = Arc::new(std::sync::Mutex::new(None));
    let register = |bundles: Option<&[&str]>| {
        let bundles = bundles.map(|bundles| {
            let bundles = bundles.iter().map(|bundle| bundle.as_bytes().to_vec());
            bundles.collect::<std::collections::BTreeSet<_>>()
        });
        *registered.lock().expect("not poisoned") = bundles;
    };
    let files = Files::new();
    let (certificate, key) = old.pair(2);
    files.write(&certificate, &key);
    let source = registered.clone();
    let authorities =
        RegisteredAuthorities::new(move || source.lock().expect("not poisoned").clone());
    let certificates = files.load().await.expect("usable");
    let certificates = certificates.registered_with(Some(authorities));
    let metrics = Metrics::new();
    let refresh = || certificates.refresh(&metrics).expect("usable");
    register(Some(&[&old.1]));
    // One of the same CA does not wait.
    let (certificate, key) = old.pair(2);
    files.write(&certificate, &key);
    assert!(refresh());
    // One of another CA waits until every webhook has that CA.
    let (certificate, key) = new.pair(2);
    files.write(&certificate, &key);
    let both = format!("{}{}", old.1, new.1);
    assert!(!refresh());
    register(Some(&[&old.1, &both]));
    assert!(!refresh());
    register(Some(&[&both]));
    assert!(refresh());
    assert!(!refresh(), "it is served already");
    // Where the served one is not trusted either, nothing is gained by waiting.
    register(Some(&[&old.1]));
    let (certificate, key) = new.pair(2);
    files.write(&certificate, &key);
    assert!(refresh());
    // What is not known, and what has no webhook, holds nothing up.
    for bundles in [None, Some(&[][..])] {
        register(bundles);
        let (certificate, key) = old.pair(2);
        files.write(&certificate, &key);
        assert!(refresh());
    }
    // An expired certificate does not hold up its successor.
    register(Some(&[&old.1]));
    let (certificate, key) = new.pair(9);
    files.write(&certificate, &key);
    let later = OffsetDateTime::now_utc() + time::Duration::hours(3);
    assert!(!certificates.refresh(&metrics).expect("usable"));
    assert!(certificates.refresh_at(&metrics, later).expect("usable"));
}
