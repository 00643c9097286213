//! Proves, on every replica, that a webhook entry reaches this installation.

use std::sync::Arc;

use tokio::sync::watch;
use tollgate_admission::canary::{Challenge, Prover};

use super::keys::{Key, is_own};
use crate::Installation;
use crate::lease::Replicas;

/// This replica as a prover.
#[derive(Debug)]
pub(crate) struct Own {
    pub(super) key: Arc<Key>,
    pub(super) installation: String,
    pub(super) replicas: watch::Receiver<Replicas>,
}

// === impl Own ===

impl Own {
    pub(crate) fn new(
        key: Arc<Key>,
        installation: &Installation,
        replicas: watch::Receiver<Replicas>,
    ) -> Self {
        Self {
            key,
            installation: installation.full_name(),
            replicas,
        }
    }
}

impl Prover for Own {
    fn prove(&self, challenge: &Challenge, path: &str, lacking: &[&str]) -> Option<String> {
        let public = self.key.public();
        let is_ours = {
            let replicas = self.replicas.borrow();
            let mut keys: Vec<&str> = replicas.canary_keys().collect();
            keys.push(&public);
            is_own(challenge, &self.installation, &keys)
        };
        let proof = || {
            self.key
                .prove(&self.installation, &challenge.nonce, path, lacking)
        };
        is_ours.then(proof)
    }
}
