//! Certificates from files: what is accepted, what each refusal says, and the change while serving.

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
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])
        .and_then(|params| params.self_signed(&key))
        .expect("a certificate");
    (certificate.pem(), key.serialize_pem())
}

#[tokio::test]
async fn rejects_files_that_are_missing_wrong_or_of_two_issues() {
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
async fn serves_a_changed_certificate_and_keeps_the_old_one_while_the_new_is_unusable() {
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

/// As kubelet lays out a Secret: links into a folder that a link named `..data` leads to.
fn publish(folder: &Path, version: &str, (certificate, key): &(String, String)) {
    let data = folder.join(version);
    fs::create_dir(&data).expect("made");
    fs::write(data.join("tls.crt"), certificate).expect("written");
    fs::write(data.join("tls.key"), key).expect("written");
    std::os::unix::fs::symlink(version, folder.join("..next")).expect("linked");
    fs::rename(folder.join("..next"), folder.join("..data")).expect("renamed");
}

#[tokio::test]
async fn never_serves_half_of_a_secret_that_is_swapped_all_the_time() {
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
        // One that cannot be read whole for several swaps in a row is an error, and the old one stays.
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
async fn shows_when_a_certificate_ends() {
    let files = Files::new();
    let certificates = files.load().await.expect("usable");
    let end = OffsetDateTime::from_unix_timestamp(4_000_000_000).expect("a time");
    let now = end - time::Duration::days(12);
    assert_eq!(ends(Some(end), now), "ends on 2096-10-02, in 12 days");
    assert_eq!(ends(Some(end), end), "EXPIRED on 2096-10-02");
    let detail = certificates.detail(now);
    let path = files.directory.path().join("tls.crt");
    assert_eq!(detail.len(), 1);
    let start = format!("certificate {}: ends on 4096-01-01", path.display());
    assert!(detail[0].starts_with(&start), "{detail:?}");
}

#[test]
fn tells_a_chain_from_certificates_in_the_wrong_order() {
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
    assert!(is_chain(&[leaf.clone(), authority.clone()]));
    assert!(!is_chain(&[authority, leaf]));
}
