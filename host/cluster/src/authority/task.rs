//! Keeps the Secret, and gives out the certificate.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::stored::{Change, Data, Stored, StoredError};
use crate::Installation;
use crate::api::{is_conflict, labels, words};
use crate::options::{Clock, Timing};

/// Pause after a failure, and after another replica wrote first.
const RETRY: Duration = Duration::from_secs(1);

/// Time limit of one look.
const LIMIT: Duration = Duration::from_secs(10);

/// A certificate for the server, with the CAs that clients must trust.
#[derive(Debug)]
pub struct Certificate {
    /// The chain, with the server's own certificate first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key of the certificate.
    pub key: PrivateKeyDer<'static>,
    /// The PEM of every CA that clients must trust. The registrar writes it into `caBundle`.
    pub bundle: String,
    /// The end of the certificate.
    pub expiry: OffsetDateTime,
    /// The end of the CA that signs.
    pub authority_expiry: OffsetDateTime,
    /// When the CA's successor starts to sign, if there is one.
    pub successor_signs_from: Option<OffsetDateTime>,
}

/// The reason why the Secret could not be kept.
#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error("cannot read or write the Secret")]
    Request(#[from] kube::Error),
    #[error(transparent)]
    Stored(#[from] StoredError),
}

/// Keeps the Secret for as long as the process lives. Sends the certificate whenever it changes.
pub(crate) async fn keep(
    api: Api<Secret>,
    installation: Installation,
    names: Vec<String>,
    timing: Timing,
    clock: Clock,
    certificate: watch::Sender<Option<Arc<Certificate>>>,
) {
    let secret = installation.authority_secret();
    let mut known: Option<Data> = None;
    let mut problem = None;
    loop {
        let look = look(&api, &installation, &names, &clock, known.as_ref());
        let pause = match timeout(LIMIT, look).await {
            Ok(Ok(Some(stored))) => {
                problem = None;
                let data = stored.data();
                if known.as_ref() != Some(&data) {
                    certificate.send_replace(Some(Arc::new(Certificate::of(stored))));
                    known = Some(data);
                }
                timing.authority
            }
            Ok(Ok(None)) => RETRY,
            Ok(Err(error)) => {
                let text = error.to_string();
                if problem.as_ref() != Some(&text) {
                    let error = words(&error);
                    tracing::error!(secret, error, "cannot keep the certificate; retrying");
                    problem = Some(text);
                }
                RETRY
            }
            Err(_) => {
                tracing::warn!(
                    secret,
                    "kube-apiserver does not answer; retrying to read the Secret"
                );
                RETRY
            }
        };
        sleep(pause).await;
    }
}

/// Reads the Secret once, and makes the change that is due. Returns none if another replica wrote first.
///
/// A Secret that somebody deleted is created again from `known`, so that the registered CA stays the same.
async fn look(
    api: &Api<Secret>,
    installation: &Installation,
    names: &[String],
    clock: &Clock,
    known: Option<&Data>,
) -> Result<Option<Stored>, KeepError> {
    let name = installation.authority_secret();
    let secret = api.get_opt(&name).await?;
    let data = match &secret {
        Some(secret) => secret.data.as_ref(),
        None => known,
    };
    let (stored, changes) = Stored::tend(data, names, clock.now())?;
    if secret.is_some() && changes.is_empty() {
        return Ok(Some(stored));
    }
    let written = match secret {
        Some(mut secret) => {
            secret.data = Some(stored.data());
            api.replace(&name, &PostParams::default(), &secret).await
        }
        None => {
            let secret = Secret {
                metadata: ObjectMeta {
                    name: Some(name.clone()),
                    namespace: Some(installation.namespace.clone()),
                    labels: Some(labels(installation)),
                    ..ObjectMeta::default()
                },
                data: Some(stored.data()),
                ..Secret::default()
            };
            api.create(&PostParams::default(), &secret).await
        }
    };
    match written {
        Ok(_) => {
            for change in changes {
                report(&name, change);
            }
            Ok(Some(stored))
        }
        Err(error) if is_conflict(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn report(secret: &str, change: Change) {
    use tollgate_authority::Step;

    match change {
        Change::Created => tracing::info!(secret, "created a certificate authority"),
        Change::Authority(Step::SuccessorAdded { signs_from }) => {
            tracing::info!(secret, %signs_from, "added the successor of the certificate authority; caBundle has both");
        }
        Change::Authority(Step::SuccessorSigns) => {
            tracing::info!(
                secret,
                "the successor of the certificate authority signs from now on"
            );
        }
        Change::Authority(Step::ExpiredRemoved) => {
            tracing::info!(secret, "removed an expired certificate authority");
        }
        Change::Leaf => tracing::info!(secret, "issued a certificate"),
    }
}

// === impl Certificate ===

impl Certificate {
    fn of(stored: Stored) -> Self {
        let Stored { authority, leaf } = stored;
        Self {
            expiry: leaf.expiry(),
            bundle: authority.bundle_pem(),
            authority_expiry: authority.expiry(),
            successor_signs_from: authority.successor_signs_from(),
            chain: vec![leaf.certificate],
            key: leaf.key,
        }
    }
}
