//! Reads a certificate and its key from two files that another process may be replacing.
//!
//! kubelet swaps a whole folder at once by renaming a link, but the swap may fall between the two reads. The served
//! value holds both the certificate and the key, so no handshake sees a pair that does not match.

use std::{path::Path, thread, time::Duration};

use rustls::{InconsistentKeys, crypto::CryptoProvider, sign::CertifiedKey};
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};

use super::CertificateError;

/// Most attempts to read unusable files that keep changing.
const ATTEMPTS: usize = 5;

/// Pause before checking whether the files have changed.
const PAUSE: Duration = Duration::from_millis(50);

/// The contents of both files.
type Files = (Vec<u8>, Vec<u8>);

/// Reads both files. Reads them again if they are unusable and still changing.
pub(super) fn read(
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, CertificateError> {
    let mut files = read_both(certificate, key)?;
    let mut attempt = 1;
    loop {
        let error = match pair(&files, certificate, key, provider) {
            Ok(pair) => return Ok(pair),
            Err(error) => error,
        };
        thread::sleep(PAUSE);
        let again = read_both(certificate, key)?;
        if again == files || attempt == ATTEMPTS {
            return Err(error);
        }
        files = again;
        attempt += 1;
    }
}

fn read_both(certificate: &Path, key: &Path) -> Result<Files, CertificateError> {
    let read = |setting, path: &Path| {
        tollgate_config::file::read(path).map_err(|source| CertificateError::Read {
            setting,
            path: path.to_owned(),
            source,
        })
    };
    Ok((read("tls.certificate", certificate)?, read("tls.key", key)?))
}

fn pair(
    (certificate_pem, key_pem): &Files,
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, CertificateError> {
    let chain = CertificateDer::pem_slice_iter(certificate_pem)
        .collect::<Result<Vec<_>, _>>()
        .and_then(|chain| {
            if chain.is_empty() {
                Err(pem::Error::NoItemsFound)
            } else {
                Ok(chain)
            }
        })
        .map_err(|source| CertificateError::Certificate {
            path: certificate.to_owned(),
            source,
        })?;
    let private =
        PrivateKeyDer::from_pem_slice(key_pem).map_err(|source| CertificateError::Key {
            path: key.to_owned(),
            source,
        })?;
    CertifiedKey::from_der(chain, private, provider).map_err(|source| match source {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            CertificateError::Mismatch {
                certificate: certificate.to_owned(),
                key: key.to_owned(),
            }
        }
        source => CertificateError::Unusable {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            source,
        },
    })
}
