//! Whether kube-apiserver trusts a certificate, by the CAs that are registered with it.
//!
//! The server must not serve a certificate of another CA before that CA is registered, because kube-apiserver would
//! refuse new connections. The issuer of a certificate does not know the registration. cert-manager, for example,
//! replaces certificate and CA in one step, and kubelet then delivers them to each node at a different time.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError as Rejection, Error, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use time::OffsetDateTime;

/// Returns the CAs that are registered with kube-apiserver, in PEM: one bundle for each webhook that has one. None means
/// that they are not known.
#[derive(Clone)]
pub struct RegisteredAuthorities(Arc<Bundles>);

type Bundles = dyn Fn() -> Option<BTreeSet<Vec<u8>>> + Send + Sync;

/// Decides when a new certificate is served.
#[derive(Debug)]
pub(super) struct Trust {
    registered: Option<RegisteredAuthorities>,
    /// Whether the log has said that a certificate waits.
    waits: AtomicBool,
}

// === impl RegisteredAuthorities ===

impl RegisteredAuthorities {
    /// Creates a source of CAs. It is asked each time when a certificate changes.
    pub fn new(bundles: impl Fn() -> Option<BTreeSet<Vec<u8>>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(bundles))
    }
}

impl fmt::Debug for RegisteredAuthorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RegisteredAuthorities")
    }
}

// === impl Trust ===

impl Trust {
    pub(super) fn new(registered: Option<RegisteredAuthorities>) -> Self {
        Self {
            registered,
            waits: AtomicBool::new(false),
        }
    }

    /// Whether a new certificate has to wait: kube-apiserver trusts the served one and not the new one. When the served one
    /// is no longer trusted either, or expires, there is nothing to wait for.
    pub(super) fn must_wait(
        &self,
        served: &CertifiedKey,
        new: &CertifiedKey,
        provider: &Arc<CryptoProvider>,
        now: OffsetDateTime,
    ) -> bool {
        let bundles = self.registered.as_ref().and_then(|source| (source.0)());
        let must_wait = bundles.is_some_and(|bundles| {
            let trusts = |certified: &CertifiedKey| {
                let mut bundles = bundles.iter();
                bundles.all(|bundle| verifies(bundle, certified, provider, now))
            };
            !trusts(new) && trusts(served)
        });
        if must_wait && !self.waits.swap(must_wait, Ordering::Relaxed) {
            tracing::info!(
                "the new certificate is served as soon as its CA is registered; serving the previous one until then"
            );
        }
        if !must_wait {
            self.waits.store(false, Ordering::Relaxed);
        }
        must_wait
    }
}

/// Whether a bundle has a CA that has signed the certificate. The certificate's names do not matter here.
fn verifies(
    bundle: &[u8],
    certified: &CertifiedKey,
    provider: &Arc<CryptoProvider>,
    now: OffsetDateTime,
) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok));
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
    let (Ok(verifier), Some((leaf, between))) = (verifier, certified.cert.split_first()) else {
        return false;
    };
    let (Ok(name), Ok(seconds)) = (
        ServerName::try_from("tollgate.invalid"),
        u64::try_from(now.unix_timestamp()),
    ) else {
        return false;
    };
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    // The chain is verified before the name is.
    matches!(
        verifier.verify_server_cert(leaf, between, &name, &[], now),
        Ok(_)
            | Err(Error::InvalidCertificate(
                Rejection::NotValidForName | Rejection::NotValidForNameContext { .. }
            ))
    )
}
