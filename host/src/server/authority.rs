//! A certificate authority of the host's own, for when nobody brings a certificate.
//!
//! The authority is kept in a directory and used again, because its certificate is registered as
//! `caBundle` in the cluster. The leaf is made at start, lives in memory, and is replaced before
//! it ends.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use time::{Duration, OffsetDateTime};

use crate::config::SelfSigned;

const CERTIFICATE_FILE: &str = "ca.crt";
const KEY_FILE: &str = "ca.key";
const LOCK_FILE: &str = "ca.lock";

/// Clocks in a cluster differ a little.
const CLOCK_SKEW: Duration = Duration::hours(1);

/// Long, because a change means registering the `caBundle` anew everywhere.
const AUTHORITY_LIFETIME: Duration = Duration::days(3650);

/// An authority with less than this left is replaced at start: a leaf of full length must fit.
const AUTHORITY_RESERVE: Duration = Duration::days(120);

const LEAF_LIFETIME: Duration = Duration::days(90);

/// A leaf with less than this left is replaced.
const LEAF_RESERVE: Duration = Duration::days(30);

/// An authority that can issue leaves for the configured names.
#[derive(Debug)]
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    names: Vec<String>,
    certificate_path: PathBuf,
}

/// The authority cannot be read, made or used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A file or the directory cannot be used.
    #[error("cannot {action} {path}: tls.selfSigned.directory must be a writable directory")]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The files are there, and are no authority.
    #[error(
        "{directory} holds no usable certificate authority: {problem}; put the right ca.crt and ca.key there, or remove both and a new authority is made, whose ca.crt then has to be registered as caBundle"
    )]
    Unusable {
        /// The directory.
        directory: PathBuf,
        /// What is wrong.
        problem: &'static str,
    },
    /// A certificate cannot be made for these names.
    #[error(
        "cannot make a certificate: tls.selfSigned.names and .service must be DNS names or IP addresses"
    )]
    Issue(#[source] rcgen::Error),
}

// === impl Authority ===

impl Authority {
    /// Reads the authority in the directory, or makes one there. Waits while another process does
    /// the same, so that two that start at once end with the same.
    pub(super) fn open(settings: &SelfSigned) -> Result<Self, AuthorityError> {
        let directory = settings.directory.as_path();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(directory)
            .map_err(failed("create", directory))?;
        let lock_path = directory.join(LOCK_FILE);
        let lock = File::create(&lock_path).map_err(failed("create", &lock_path))?;
        lock.lock().map_err(failed("lock", &lock_path))?;
        let issuer = match read(directory)? {
            Some(issuer) => issuer,
            None => make(directory)?,
        };
        Ok(Self {
            issuer,
            names: names(settings),
            certificate_path: directory.join(CERTIFICATE_FILE),
        })
    }

    pub(super) fn certificate_path(&self) -> &Path {
        &self.certificate_path
    }

    /// Whether a leaf that ends at `expiry` is to be replaced.
    pub(super) fn is_due(expiry: OffsetDateTime) -> bool {
        expiry - OffsetDateTime::now_utc() < LEAF_RESERVE
    }

    /// A fresh leaf and its key.
    pub(super) fn issue(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), AuthorityError> {
        let key = KeyPair::generate().map_err(AuthorityError::Issue)?;
        let mut params =
            CertificateParams::new(self.names.clone()).map_err(AuthorityError::Issue)?;
        params.distinguished_name = common_name("Tollgate");
        params.not_before = OffsetDateTime::now_utc() - CLOCK_SKEW;
        params.not_after = OffsetDateTime::now_utc() + LEAF_LIFETIME;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let leaf = params
            .signed_by(&key, &self.issuer)
            .map_err(AuthorityError::Issue)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        Ok((vec![leaf.der().clone()], key.into()))
    }
}

fn names(settings: &SelfSigned) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    if let Some(service) = &settings.service {
        let short = format!("{}.{}.svc", service.name, service.namespace);
        names.push(format!("{short}.cluster.local"));
        names.push(short);
    }
    for name in &settings.names {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// The authority in the directory; none when there is none or it nears its end.
fn read(directory: &Path) -> Result<Option<Issuer<'static, KeyPair>>, AuthorityError> {
    let unusable = |problem| AuthorityError::Unusable {
        directory: directory.to_owned(),
        problem,
    };
    let certificate = read_file(&directory.join(CERTIFICATE_FILE))?;
    let key = read_file(&directory.join(KEY_FILE))?;
    let (certificate, key) = match (certificate, key) {
        (Some(certificate), Some(key)) => (certificate, key),
        // Also what a process leaves that was killed between the two: the key comes first.
        (None, _) => return Ok(None),
        (Some(_), None) => return Err(unusable("there is a ca.crt without its ca.key")),
    };
    let key = KeyPair::from_pem(&key).map_err(|_| unusable("ca.key is no PEM private key"))?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(certificate.as_bytes())
        .map_err(|_| unusable("ca.crt is no PEM certificate"))?;
    let parsed = pem
        .parse_x509()
        .map_err(|_| unusable("ca.crt is no X.509 certificate"))?;
    if parsed.public_key().raw != key.subject_public_key_info() {
        return Err(unusable("ca.key is not the key of ca.crt"));
    }
    if !parsed.is_ca() {
        return Err(unusable("ca.crt is not the certificate of an authority"));
    }
    let expiry = parsed.validity().not_after.to_datetime();
    if expiry - OffsetDateTime::now_utc() < AUTHORITY_RESERVE {
        tracing::warn!(
            directory = %directory.display(),
            %expiry,
            "the self-signed authority nears its end and is replaced: register the new ca.crt as caBundle"
        );
        return Ok(None);
    }
    Issuer::from_ca_cert_pem(&certificate, key)
        .map(Some)
        .map_err(|_| unusable("ca.crt is not the certificate of an authority"))
}

fn make(directory: &Path) -> Result<Issuer<'static, KeyPair>, AuthorityError> {
    let key = KeyPair::generate().map_err(AuthorityError::Issue)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name("Tollgate self-signed authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = OffsetDateTime::now_utc() - CLOCK_SKEW;
    params.not_after = OffsetDateTime::now_utc() + AUTHORITY_LIFETIME;
    let certificate = params.self_signed(&key).map_err(AuthorityError::Issue)?;
    let certificate_path = directory.join(CERTIFICATE_FILE);
    // Killed at any point in between, this leaves a key alone, never a pair that does not fit.
    match fs::remove_file(&certificate_path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed("replace", &certificate_path)(error));
        }
        _ => {}
    }
    write_file(&directory.join(KEY_FILE), 0o600, &key.serialize_pem())?;
    write_file(&certificate_path, 0o644, &certificate.pem())?;
    tracing::info!(
        ca_bundle = %certificate_path.display(),
        "made a self-signed authority: register this file as caBundle"
    );
    Ok(Issuer::new(params, key))
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished_name = DistinguishedName::new();
    distinguished_name.push(DnType::CommonName, name);
    distinguished_name
}

fn read_file(path: &Path) -> Result<Option<String>, AuthorityError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path)(error)),
    }
}

/// Writes beside and renames, so that a reader sees all or nothing.
fn write_file(path: &Path, mode: u32, text: &str) -> Result<(), AuthorityError> {
    let beside = path.with_extension("new");
    let written = || {
        // Left by a process that was killed: its mode may be another.
        drop(fs::remove_file(&beside));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    written().map_err(failed("write", path))
}

fn failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> AuthorityError {
    let path = path.to_owned();
    move |source| AuthorityError::File {
        action,
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests;
