//! Limits how long a start waits for registries that do not answer: once for each registry, and not once for each
//! plugin.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::RegistryError;

/// The registries that a start has waited for without success.
#[derive(Default)]
pub struct Patience(Mutex<HashMap<String, Lost>>);

/// The circumstances of a pull during the start.
#[derive(Clone, Copy)]
pub struct Start<'p> {
    /// The registries that were waited for already.
    pub patience: &'p Patience,
    /// Whether another version of the plugin can serve meanwhile.
    pub replaceable: bool,
}

/// The longest wait for a registry that had no success, and the reason.
struct Lost {
    waited: Duration,
    why: String,
}

/// How long a start waits for a registry if it can do without the answer.
pub(super) const SHORT: Duration = Duration::from_secs(3);

// === impl Patience ===

impl Patience {
    /// The error to return at once, if a plugin has already waited this long for the registry without success.
    pub(super) fn is_lost(&self, host: &str, wait: Duration) -> Option<RegistryError> {
        let hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = hosts.get(host).filter(|lost| lost.waited >= wait)?;
        Some(RegistryError::Away(lost.why.clone()))
    }

    pub(super) fn lose(&self, host: &str, waited: Duration, error: &RegistryError) {
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.get(host).is_none_or(|lost| lost.waited < waited) {
            let why = tollgate_admission::chain(error);
            hosts.insert(host.to_owned(), Lost { waited, why });
        }
    }
}
