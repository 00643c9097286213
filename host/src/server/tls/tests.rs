//! Certificates from files: what is accepted, what each refusal says, and the change while serving.

use std::fs;

use rcgen::{CertificateParams, KeyPair};

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
        Certificates::load(&self.tls(), &Metrics::new()).await
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
