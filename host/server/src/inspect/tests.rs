//! How `tollgate check` reads certificates and credentials, and how it reports those that `serve` could not use.

use std::fs;
use std::path::PathBuf;

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;
use tollgate_admission::chain;
use tollgate_config::{ClientCertificate, SelfSigned};

use super::*;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("written");
        path
    }

    /// Writes a certificate that ends on 1 January of `year`.
    fn certificate(&self, names: &[&str], year: i32) -> Tls {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let certificate = params.self_signed(&key).expect("a certificate");
        Tls::Files {
            certificate: self.write("tls.crt", &certificate.pem()),
            key: self.write("tls.key", &key.serialize_pem()),
        }
    }

    fn self_signed(&self) -> Tls {
        Tls::SelfSigned(SelfSigned {
            directory: self.path("authority"),
            names: Vec::new(),
            service: None,
        })
    }
}

fn said(tls: &Tls, authentication: &Authentication) -> Vec<String> {
    let line = |inspected: Inspected| match inspected.result {
        Ok(usable) => format!(
            "{}: ok, {} {:?}",
            inspected.setting, usable.description, usable.warnings
        ),
        Err(error) => format!("{}: {}", inspected.setting, chain(&error)),
    };
    inspect(tls, authentication, None)
        .into_iter()
        .map(line)
        .collect()
}

#[test]
fn describes_names_and_expiry_of_certificate() {
    let folder = Folder::new();
    let tls = folder.certificate(&["tollgate.tollgate-system.svc", "10.0.0.7"], 2999);
    let said = said(&tls, &Authentication::default());
    let [line] = said.as_slice() else {
        panic!("{said:?}")
    };
    assert!(
        line.starts_with("tls: ok, expires on 2999-01-01, in "),
        "{line}"
    );
    assert!(
        line.ends_with(" days, for tollgate.tollgate-system.svc, 10.0.0.7 []"),
        "{line}"
    );
}

#[test]
fn warns_about_certificate_that_clients_reject() {
    let folder = Folder::new();
    let tls = folder.certificate(&[], 2999);
    let said = said(&tls, &Authentication::default()).join("\n");
    assert!(said.contains("covers no DNS name or IP address"), "{said}");
}

#[test]
fn rejects_expired_certificate() {
    let folder = Folder::new();
    let tls = folder.certificate(&["localhost"], 2021);
    let said = said(&tls, &Authentication::default()).join("\n");
    assert!(
        said.contains("tls.crt (tls.certificate) expired on 2021-01-01: clients reject it"),
        "{said}"
    );
}

#[test]
fn rejects_ca_file_without_valid_certificate() {
    let folder = Folder::new();
    let authority = |year| {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        params.self_signed(&key).expect("a certificate").pem()
    };
    let (expired, valid) = (authority(2021), authority(2999));
    let of = |pem: &str| {
        let authentication = Authentication {
            client_certificate: Some(ClientCertificate {
                ca: folder.write("ca.crt", pem),
                subjects: Vec::new(),
            }),
            ..Authentication::default()
        };
        said(&folder.self_signed(), &authentication).join("\n")
    };
    let text = of(&expired);
    assert!(
        text.contains("holds only CA certificates that have expired"),
        "{text}"
    );
    let text = of(&format!("{expired}{valid}"));
    assert!(
        text.contains("2 CA certificates, EXPIRED on 2021-01-01"),
        "{text}"
    );
    assert!(
        text.contains(
            "a CA certificate has expired: client certificates that it issued are still accepted"
        ),
        "{text}"
    );
}

#[test]
fn rejects_key_of_other_certificate() {
    let folder = Folder::new();
    let tls = folder.certificate(&["localhost"], 2999);
    let other = KeyPair::generate().expect("a key");
    folder.write("tls.key", &other.serialize_pem());
    let said = said(&tls, &Authentication::default()).join("\n");
    assert!(
        said.contains("does not belong to the first certificate"),
        "{said}"
    );
}

#[test]
fn reports_all_errors_in_credential_files() {
    let folder = Folder::new();
    let authentication = Authentication {
        client_certificate: Some(ClientCertificate {
            ca: folder.write("ca.crt", "no certificate"),
            subjects: Vec::new(),
        }),
        bearer: Some(folder.path("nowhere")),
        basic: Some(folder.write("passwords", "jane:hunter2")),
        token_review: None,
    };
    let said = said(&folder.self_signed(), &authentication);
    assert_eq!(said.len(), 3, "{said:?}");
    for (line, words) in said.iter().zip([
        "authentication.clientCertificate: ",
        "authentication.bearer: cannot read ",
        "authentication.basic: ",
    ]) {
        assert!(line.starts_with(words), "{line}");
    }
    assert!(
        said[0].contains("expected PEM with one or more CERTIFICATE sections"),
        "{said:?}"
    );
    assert!(
        said[2].contains("line 1, has a hash that is not bcrypt"),
        "{said:?}"
    );
    assert!(!said[2].contains("hunter2"), "{said:?}");
}

#[test]
fn counts_accepted_credentials() {
    let folder = Folder::new();
    let authentication = Authentication {
        bearer: Some(folder.write("tokens", "one\n# old\ntwo\n")),
        ..Authentication::default()
    };
    assert_eq!(
        said(&folder.self_signed(), &authentication),
        ["authentication.bearer: ok, 2 tokens []"]
    );
}

#[test]
fn leaves_self_signed_directory_unchanged() {
    let folder = Folder::new();
    let tls = folder.self_signed();
    assert!(said(&tls, &Authentication::default()).is_empty());
    assert!(!folder.path("authority").exists());
    // `serve` does not start with a certificate that lacks its key.
    fs::create_dir(folder.path("authority")).expect("a folder");
    folder.write("authority/ca.crt", "PEM");
    let said = said(&tls, &Authentication::default()).join("\n");
    assert!(said.contains("ca.crt exists without its ca.key"), "{said}");
}
