//! How long a start waits for registries that say nothing: for each once, and not once for every plugin.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::RegistryError;

/// What a start has found out about registries.
#[derive(Default)]
pub(crate) struct Patience(Mutex<HashMap<String, Lost>>);

/// A plugin of the first set, which others of its registry may have been waited for already.
#[derive(Clone, Copy)]
pub(crate) struct Start<'p> {
    pub(crate) patience: &'p Patience,
    /// Whether something else of the plugin can serve meanwhile.
    pub(crate) replaceable: bool,
}

/// What a registry was waited for in vain.
struct Lost {
    waited: Duration,
    why: String,
}

/// For what can be done without.
pub(super) const SHORT: Duration = Duration::from_secs(3);

// === impl Patience ===

impl Patience {
    /// Why there is no use in waiting for a registry so long, as somebody has done that.
    pub(super) fn is_lost(&self, host: &str, wait: Duration) -> Option<RegistryError> {
        let hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = hosts.get(host).filter(|lost| lost.waited >= wait)?;
        Some(RegistryError::Away(lost.why.clone()))
    }

    pub(super) fn lose(&self, host: &str, waited: Duration, error: &RegistryError) {
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.get(host).is_none_or(|lost| lost.waited < waited) {
            let why = error.to_string();
            hosts.insert(host.to_owned(), Lost { waited, why });
        }
    }
}
