//! The host's own certificate authority, used when no certificate is configured, in a directory.
//!
//! `tollgate-authority` says when an authority gets a successor, and when the successor signs. This module reads and
//! writes the directory. The leaf is created at start, is kept in memory only, and is replaced before it expires.
//!
//! | file | content |
//! |---|---|
//! | `ca.crt` | every certificate that clients must trust; register it as `caBundle` |
//! | `ca.key` | the key that signs |
//! | `next.key` | the successor's key, from the moment on at which `ca.crt` has its certificate |
//!
//! The key determines which certificate of `ca.crt` signs, so renaming one file switches the signer atomically.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use time::OffsetDateTime;
use tollgate_authority::{IssueError, Step, Unreadable};
use tollgate_config::SelfSigned;

const CERTIFICATE_FILE: &str = "ca.crt";
const KEY_FILE: &str = "ca.key";
const NEXT_KEY_FILE: &str = "next.key";
const LOCK_FILE: &str = "ca.lock";

/// An authority that can issue leaves for the configured names.
#[derive(Debug)]
pub(super) struct Authority {
    authority: tollgate_authority::Authority,
    names: Vec<String>,
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
    Issue(#[source] IssueError),
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
        let authority = match lock(directory) {
            Ok(_lock) => {
                let mut authority = match read(directory)? {
                    Some(authority) => authority,
                    None => make(directory, now)?,
                };
                tend(&mut authority, directory, now)?;
                authority
            }
            Err(error) if error.is_read_only() => read(directory)?.ok_or(error)?,
            Err(error) => return Err(error),
        };
        Ok(Self {
            authority,
            names: settings.subject_names(),
        })
    }

    /// Reads the authority in the directory, if any, and changes nothing.
    pub(crate) fn kept(settings: &SelfSigned) -> Result<Option<Self>, AuthorityError> {
        let authority = read(&settings.directory)?;
        Ok(authority.map(|authority| Self {
            authority,
            names: settings.subject_names(),
        }))
    }

    /// The start of the signing certificate's validity.
    pub(super) fn begin(&self) -> OffsetDateTime {
        self.authority.begin()
    }

    /// The end of the signing certificate's validity.
    pub(super) fn expiry(&self) -> OffsetDateTime {
        self.authority.expiry()
    }

    /// When the successor starts to sign. The operator must register the successor as `caBundle` by then.
    pub(super) fn successor_signs_from(&self) -> Option<OffsetDateTime> {
        self.authority.successor_signs_from()
    }

    /// Whether both sign with the same certificate.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.authority.certificate() == other.authority.certificate()
    }

    /// Whether a leaf that ends at `expiry` must be replaced: it expires soon, and a new leaf would last longer.
    pub(super) fn is_due(&self, expiry: OffsetDateTime, now: OffsetDateTime) -> bool {
        tollgate_authority::is_leaf_due(expiry, self.expiry(), now)
    }

    /// Issues a new leaf with its key.
    pub(super) fn issue(
        &self,
        now: OffsetDateTime,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), AuthorityError> {
        let leaf = self.authority.issue(&self.names, now);
        let leaf = leaf.map_err(AuthorityError::Issue)?;
        Ok((vec![leaf.certificate], leaf.key))
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
fn read(directory: &Path) -> Result<Option<tollgate_authority::Authority>, AuthorityError> {
    let unusable = |problem| AuthorityError::unusable(directory, problem);
    let certificate = read_file(&directory.join(CERTIFICATE_FILE))?;
    let key = read_file(&directory.join(KEY_FILE))?;
    let (certificate, key) = match (certificate, key) {
        (Some(certificate), Some(key)) => (certificate, key),
        // A process that was killed between the two writes leaves this state too: it writes the key first.
        (None, _) => return Ok(None),
        (Some(_), None) => return Err(unusable("ca.crt exists without its ca.key")),
    };
    let next_key = read_file(&directory.join(NEXT_KEY_FILE))?;
    tollgate_authority::Authority::read(&certificate, &key, next_key.as_deref())
        .map(Some)
        .map_err(|unreadable| {
            unusable(match unreadable {
                Unreadable::Bundle => "ca.crt is not a PEM certificate",
                Unreadable::Certificate => "ca.crt is not an X.509 certificate",
                Unreadable::NoAuthority => "ca.crt is not a CA certificate",
                Unreadable::Key => "ca.key is not a PEM private key",
                Unreadable::NextKey => "next.key is not a PEM private key",
                Unreadable::Mismatch => "ca.key does not belong to ca.crt",
            })
        })
}

fn make(
    directory: &Path,
    now: OffsetDateTime,
) -> Result<tollgate_authority::Authority, AuthorityError> {
    let authority = tollgate_authority::Authority::create(now).map_err(AuthorityError::Issue)?;
    let certificate_path = directory.join(CERTIFICATE_FILE);
    // A process that is killed here leaves only a key, and never a pair that does not match.
    write_file(&directory.join(KEY_FILE), 0o600, &authority.key_pem())?;
    write_file(&certificate_path, 0o644, &authority.bundle_pem())?;
    tracing::info!(
        ca_bundle = %certificate_path.display(),
        "created a self-signed authority; register this file as caBundle"
    );
    Ok(authority)
}

/// Makes the steps that are due, and writes each of them.
fn tend(
    authority: &mut tollgate_authority::Authority,
    directory: &Path,
    now: OffsetDateTime,
) -> Result<(), AuthorityError> {
    let certificate_path = directory.join(CERTIFICATE_FILE);
    let next_key_path = directory.join(NEXT_KEY_FILE);
    while let Some(step) = authority.advance(now).map_err(AuthorityError::Issue)? {
        match step {
            Step::SuccessorAdded { signs_from } => {
                let key = authority.next_key_pem().unwrap_or_default();
                // The certificate is written second, so clients never trust a certificate that has no key.
                write_file(&next_key_path, 0o600, &key)?;
                write_file(&certificate_path, 0o644, &authority.bundle_pem())?;
                tracing::warn!(
                    ca_bundle = %certificate_path.display(),
                    %signs_from,
                    "the self-signed authority expires soon, and its successor is in the same file; register the file \
                     as caBundle before the successor signs"
                );
            }
            Step::SuccessorSigns => {
                fs::rename(&next_key_path, directory.join(KEY_FILE))
                    .map_err(failed("rename", &next_key_path))?;
                tracing::info!(ca_bundle = %certificate_path.display(), "the successor of the self-signed authority \
                    signs from now on");
            }
            Step::ExpiredRemoved => {
                write_file(&certificate_path, 0o644, &authority.bundle_pem())?;
            }
        }
    }
    Ok(())
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
