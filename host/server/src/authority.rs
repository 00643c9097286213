//! The host's own certificate authority, used when no certificate is configured.
//!
//! The authority is kept in a directory and reused, because its certificate is registered as `caBundle` in the cluster.
//! The leaf is created at start, is kept in memory only, and is replaced before it expires.
//!
//! Half a year before the authority expires, the host adds its successor to `ca.crt`. This file holds all certificates
//! that clients must trust. The successor starts to sign 30 days later, which leaves time to register it everywhere:
//!
//! ```text
//! ca.crt   first           first, next                        first, next        next
//! ca.key   first           first                              next               next
//!          ──────── half a year before its end ── 30 days later ──── first has ended ──▶
//! ```
//!
//! The key determines which certificate of `ca.crt` signs, so renaming one file switches the signer atomically.

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
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject};
use time::{Duration, OffsetDateTime};
use tollgate_config::SelfSigned;

const CERTIFICATE_FILE: &str = "ca.crt";
const KEY_FILE: &str = "ca.key";
const NEXT_KEY_FILE: &str = "next.key";
const LOCK_FILE: &str = "ca.lock";

/// Tolerance for clocks in a cluster that differ a little.
const CLOCK_SKEW: Duration = Duration::hours(1);

/// Lifetime of an authority. The lifetime is long because a new authority must be registered as `caBundle` everywhere.
const AUTHORITY_LIFETIME: Duration = Duration::days(3650);

/// Remaining lifetime at which an authority gets a successor.
const AUTHORITY_RESERVE: Duration = Duration::days(180);

/// Time between adding the successor to `ca.crt` and its first signature, so that it can be registered as `caBundle`.
const OVERLAP: Duration = Duration::days(30);

/// Remaining lifetime at which the successor signs at once, even if it may not be registered yet.
const LAST_MOMENT: Duration = Duration::days(1);

const LEAF_LIFETIME: Duration = Duration::days(90);

/// Remaining lifetime at which a leaf is replaced.
const LEAF_RESERVE: Duration = Duration::days(30);

/// An authority that can issue leaves for the configured names.
#[derive(Debug)]
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    begin: OffsetDateTime,
    expiry: OffsetDateTime,
    successor_signs_from: Option<OffsetDateTime>,
    names: Vec<String>,
}

/// The content of the directory.
struct Kept {
    /// All certificates that clients must trust.
    bundle: Vec<Member>,
    /// The key of the certificate that signs.
    key: KeyPair,
}

/// A certificate of the bundle.
struct Member {
    certificate: CertificateDer<'static>,
    public_key: Vec<u8>,
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
}

/// Error when the authority cannot be read, created or used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A file or the directory cannot be used.
    #[error("cannot {action} {path}: tls.selfSigned.directory must be a writable directory")]
    File {
        /// The action that failed.
        action: &'static str,
        /// The path of the file or directory.
        path: PathBuf,
        /// The error from the system.
        source: io::Error,
    },
    /// The files exist but do not form an authority.
    #[error(
        "{directory} holds no usable certificate authority: {problem}; put the right ca.crt and ca.key there, or \
         remove both so that Tollgate creates a new authority, and then register the new ca.crt as caBundle"
    )]
    Unusable {
        /// The directory.
        directory: PathBuf,
        /// The problem with the files.
        problem: &'static str,
    },
    /// A certificate cannot be made for these names.
    #[error(
        "cannot create a certificate: tls.selfSigned.names and .service must be DNS names or IP addresses"
    )]
    Issue(#[source] rcgen::Error),
}

/// The file to register as `caBundle`.
pub fn bundle_path(settings: &SelfSigned) -> PathBuf {
    settings.directory.join(CERTIFICATE_FILE)
}

// === impl Authority ===

impl Authority {
    /// Opens the authority in the directory or creates one there, and prepares its successor. Waits while another
    /// process does the same, so two processes that start together use the same authority.
    ///
    /// If the directory is read-only, such as a mounted Secret, the authority is used as it is.
    pub(super) fn open(settings: &SelfSigned, now: OffsetDateTime) -> Result<Self, AuthorityError> {
        let directory = settings.directory.as_path();
        let kept = match lock(directory) {
            Ok(_lock) => {
                let kept = match read(directory)? {
                    Some(kept) => kept,
                    None => make(directory, now)?,
                };
                tend(kept, directory, now)?
            }
            Err(error) if error.is_read_only() => read(directory)?.ok_or(error)?,
            Err(error) => return Err(error),
        };
        Self::of(kept, settings)
    }

    /// Reads the authority in the directory, if any, and changes nothing.
    pub(crate) fn kept(settings: &SelfSigned) -> Result<Option<Self>, AuthorityError> {
        let kept = read(&settings.directory)?;
        kept.map(|kept| Self::of(kept, settings)).transpose()
    }

    fn of(kept: Kept, settings: &SelfSigned) -> Result<Self, AuthorityError> {
        let directory = settings.directory.as_path();
        let signer = kept.signer(directory)?;
        let (certificate, begin, expiry) = (
            signer.certificate.clone(),
            signer.not_before,
            signer.not_after,
        );
        let successor_signs_from = kept
            .successor(directory)?
            .map(|(successor, _)| successor.signs_from());
        let issuer = Issuer::from_ca_cert_der(&certificate, kept.key)
            .map_err(|_| AuthorityError::unusable(directory, "ca.crt is not a CA certificate"))?;
        Ok(Self {
            issuer,
            certificate,
            begin,
            expiry,
            successor_signs_from,
            names: settings.subject_names(),
        })
    }

    /// The start of the signing certificate's validity.
    pub(super) fn begin(&self) -> OffsetDateTime {
        self.begin
    }

    /// The end of the signing certificate's validity.
    pub(super) fn expiry(&self) -> OffsetDateTime {
        self.expiry
    }

    /// When the successor starts to sign. The operator must register the successor as `caBundle` by then.
    pub(super) fn successor_signs_from(&self) -> Option<OffsetDateTime> {
        self.successor_signs_from
    }

    /// Whether both sign with the same certificate.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.certificate == other.certificate
    }

    /// Whether a leaf that ends at `expiry` must be replaced: it expires soon, and a new leaf would last longer.
    pub(super) fn is_due(&self, expiry: OffsetDateTime, now: OffsetDateTime) -> bool {
        expiry - now < LEAF_RESERVE && self.expiry - expiry > LAST_MOMENT
    }

    /// Issues a new leaf with its key.
    pub(super) fn issue(
        &self,
        now: OffsetDateTime,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), AuthorityError> {
        let key = KeyPair::generate().map_err(AuthorityError::Issue)?;
        let mut params =
            CertificateParams::new(self.names.clone()).map_err(AuthorityError::Issue)?;
        params.distinguished_name = common_name("Tollgate");
        params.not_before = now - CLOCK_SKEW;
        params.not_after = (now + LEAF_LIFETIME).min(self.expiry);
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

// === impl AuthorityError ===

impl AuthorityError {
    fn unusable(directory: &Path, problem: &'static str) -> Self {
        Self::Unusable {
            directory: directory.to_owned(),
            problem,
        }
    }

    fn is_read_only(&self) -> bool {
        matches!(self, Self::File { source, .. } if matches!(
            source.kind(),
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
        ))
    }
}

// === impl Kept ===

impl Kept {
    fn signer(&self, directory: &Path) -> Result<&Member, AuthorityError> {
        self.member_of(&self.key)
            .ok_or_else(|| AuthorityError::unusable(directory, "ca.key does not belong to ca.crt"))
    }

    /// The certificate that signs next, and its key. Returns none for a key without certificate, which a killed process
    /// may have left.
    fn successor(&self, directory: &Path) -> Result<Option<(&Member, KeyPair)>, AuthorityError> {
        let Some(text) = read_file(&directory.join(NEXT_KEY_FILE))? else {
            return Ok(None);
        };
        let key = KeyPair::from_pem(&text).map_err(|_| {
            AuthorityError::unusable(directory, "next.key is not a PEM private key")
        })?;
        Ok(self.member_of(&key).map(|member| (member, key)))
    }

    fn member_of(&self, key: &KeyPair) -> Option<&Member> {
        let public_key = key.subject_public_key_info();
        self.bundle
            .iter()
            .find(|member| member.public_key == public_key)
    }

    fn pem(&self) -> String {
        let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
        let pem = |member: &Member| {
            let section = pem::Pem::new("CERTIFICATE", member.certificate.as_ref());
            pem::encode_config(&section, lines)
        };
        self.bundle.iter().map(pem).collect()
    }
}

// === impl Member ===

impl Member {
    fn read(certificate: CertificateDer<'static>) -> Result<Self, &'static str> {
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)
            .map_err(|_| "ca.crt is not an X.509 certificate")?;
        if !parsed.is_ca() {
            return Err("ca.crt is not a CA certificate");
        }
        let public_key = parsed.public_key().raw.to_vec();
        let validity = parsed.validity();
        let (not_before, not_after) = (
            validity.not_before.to_datetime(),
            validity.not_after.to_datetime(),
        );
        Ok(Self {
            public_key,
            not_before,
            not_after,
            certificate,
        })
    }

    fn signs_from(&self) -> OffsetDateTime {
        self.not_before + CLOCK_SKEW + OVERLAP
    }
}

fn lock(directory: &Path) -> Result<File, AuthorityError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(directory)
        .map_err(failed("create", directory))?;
    let lock_path = directory.join(LOCK_FILE);
    let lock = File::create(&lock_path).map_err(failed("create", &lock_path))?;
    lock.lock().map_err(failed("lock", &lock_path))?;
    Ok(lock)
}

/// Reads the directory. Returns none if it holds no authority.
fn read(directory: &Path) -> Result<Option<Kept>, AuthorityError> {
    let unusable = |problem| AuthorityError::unusable(directory, problem);
    let certificate = read_file(&directory.join(CERTIFICATE_FILE))?;
    let key = read_file(&directory.join(KEY_FILE))?;
    let (certificate, key) = match (certificate, key) {
        (Some(certificate), Some(key)) => (certificate, key),
        // A process that was killed between the two writes leaves this state too: it writes the key first.
        (None, _) => return Ok(None),
        (Some(_), None) => return Err(unusable("ca.crt exists without its ca.key")),
    };
    let key = KeyPair::from_pem(&key).map_err(|_| unusable("ca.key is not a PEM private key"))?;
    let bundle: Vec<_> = CertificateDer::pem_slice_iter(certificate.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| unusable("ca.crt is not a PEM certificate"))?;
    if bundle.is_empty() {
        return Err(unusable("ca.crt is not a PEM certificate"));
    }
    let bundle = bundle
        .into_iter()
        .map(Member::read)
        .collect::<Result<_, _>>()
        .map_err(unusable)?;
    let kept = Kept { bundle, key };
    kept.signer(directory)?;
    Ok(Some(kept))
}

fn make(directory: &Path, now: OffsetDateTime) -> Result<Kept, AuthorityError> {
    let (key, member) = new_member(directory, now)?;
    let certificate_path = directory.join(CERTIFICATE_FILE);
    // A process that is killed here leaves only a key, and never a pair that does not match.
    let kept = Kept {
        bundle: vec![member],
        key,
    };
    write_file(&directory.join(KEY_FILE), 0o600, &kept.key.serialize_pem())?;
    write_file(&certificate_path, 0o644, &kept.pem())?;
    tracing::info!(
        ca_bundle = %certificate_path.display(),
        "created a self-signed authority; register this file as caBundle"
    );
    Ok(kept)
}

/// Maintains the successor: adds one when the authority expires soon, and makes it sign when it is due.
fn tend(mut kept: Kept, directory: &Path, now: OffsetDateTime) -> Result<Kept, AuthorityError> {
    let left = kept.signer(directory)?.not_after - now;
    let certificate_path = directory.join(CERTIFICATE_FILE);
    if left < AUTHORITY_RESERVE && kept.successor(directory)?.is_none() {
        let (key, member) = new_member(directory, now)?;
        // The certificate is written second, so clients never trust a certificate that has no key.
        write_file(&directory.join(NEXT_KEY_FILE), 0o600, &key.serialize_pem())?;
        tracing::warn!(
            ca_bundle = %certificate_path.display(),
            signs_from = %member.signs_from(),
            "the self-signed authority expires soon, and its successor is in the same file; register the file as \
             caBundle before the successor signs"
        );
        kept.bundle.push(member);
        write_file(&certificate_path, 0o644, &kept.pem())?;
    }
    let due = |successor: &Member| left < LAST_MOMENT || successor.signs_from() <= now;
    let successor = kept.successor(directory)?;
    if let Some((_, key)) = successor.filter(|(successor, _)| due(successor)) {
        let next_key_path = directory.join(NEXT_KEY_FILE);
        fs::rename(&next_key_path, directory.join(KEY_FILE))
            .map_err(failed("rename", &next_key_path))?;
        kept.key = key;
        tracing::info!(ca_bundle = %certificate_path.display(), "the successor of the self-signed authority signs \
            from now on");
    }
    let count = kept.bundle.len();
    let signing = kept.key.subject_public_key_info();
    kept.bundle
        .retain(|member| member.not_after > now || member.public_key == signing);
    if kept.bundle.len() < count {
        write_file(&certificate_path, 0o644, &kept.pem())?;
    }
    Ok(kept)
}

fn new_member(directory: &Path, now: OffsetDateTime) -> Result<(KeyPair, Member), AuthorityError> {
    let key = KeyPair::generate().map_err(AuthorityError::Issue)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name("Tollgate self-signed authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = now - CLOCK_SKEW;
    params.not_after = now + AUTHORITY_LIFETIME;
    let certificate = params.self_signed(&key).map_err(AuthorityError::Issue)?;
    let member = Member::read(certificate.der().clone())
        .map_err(|problem| AuthorityError::unusable(directory, problem))?;
    Ok((key, member))
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

/// Writes a temporary file and renames it, so a reader never sees a partial file.
fn write_file(path: &Path, mode: u32, text: &str) -> Result<(), AuthorityError> {
    let beside = path.with_extension("new");
    let written = || {
        // A killed process may have left this file with another mode.
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
