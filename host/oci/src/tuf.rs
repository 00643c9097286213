//! Trusted roots from TUF repositories: refreshed in the background, kept on disk, usable offline.
//!
//! ```text
//! pinned root.json ─▶ root 2 … n ─▶ timestamp ─▶ snapshot ─▶ targets ─▶ trusted_root.json
//!   refresh (network) ─▶ seen.json: all that was verified, so that no version goes back
//!                     ─▶ kept.json: the last complete set, replaced as a whole
//!                     ─▶ trusted_root.json: written when it changes; the reconciler watches it and loads again
//!   use (no network)  ◀─ kept.json, verified from the pinned root in each load
//! ```
//!
//! `sigstore-tuf` verifies the metadata. A load never waits for a repository, unless nothing has been kept yet. When a
//! refresh fails, the last complete set stays in use until its metadata has expired, and for
//! `signatures.tuf.lastKnownGoodFor` after that.

mod kept;
mod remote;
mod schedule;
mod source;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod verified;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::timeout;
use tollgate_admission::chain;
use tollgate_config::{Registries, TufSource};

use super::RegistryError;
use super::causes::TufProblem;
use super::signature::Root;
use kept::Files;
use source::{Due, Source};
use verified::Verified;

/// The trusted roots that come from TUF repositories.
pub struct TrustedRoots {
    config: Registries,
    sources: Mutex<HashMap<Arc<TufSource>, Arc<Source>>>,
}

/// The state of a trusted root from a TUF repository.
#[derive(Clone, Debug)]
pub struct RootReport {
    /// The URL of the repository.
    pub url: String,
    /// The result of the refresh.
    pub refreshed: Refreshed,
    /// The trusted root in use, as people read it; or the reason why there is none.
    pub in_use: Result<String, String>,
    /// When the metadata of the trusted root in use expires.
    pub expires: Option<OffsetDateTime>,
}

/// The result of a refresh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// The trusted root has changed.
    Changed,
    /// The trusted root is the same as before.
    Unchanged,
    /// The refresh has failed, for this reason.
    Failed(String),
}

// === impl Refreshed ===

impl Refreshed {
    /// The name in metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Failed(_) => "failed",
        }
    }
}

// === impl TrustedRoots ===

impl TrustedRoots {
    /// Creates the client. It asks nothing yet. `config` has the CAs and credentials of hosts, and the time limit.
    pub(super) fn new(config: Registries) -> Arc<Self> {
        Arc::new(Self {
            config,
            sources: Mutex::default(),
        })
    }

    /// The trusted root of a repository as it was kept last, without network.
    ///
    /// # Errors
    /// When nothing was kept, when it does not follow from the pinned root, or when it has expired for too long.
    pub(super) fn current(&self, tuf: &Arc<TufSource>) -> Result<Root, RegistryError> {
        let source = self.source(tuf);
        let in_use = source.in_use(OffsetDateTime::now_utc())?;
        let place = in_use.verified.describe(tuf, source.failure().as_deref());
        Ok(in_use.root.clone().at_place(place))
    }

    /// The digest of the trusted root that was used last, without reading anything. None if none was used yet.
    pub(super) fn digest(&self, tuf: &Arc<TufSource>) -> Option<[u8; 32]> {
        self.lock().get(tuf)?.digest()
    }

    /// Asks the repositories of which nothing usable is kept, each for up to `limit`. The other ones are not asked.
    pub(super) async fn ready<'t>(
        &self,
        tufs: impl Iterator<Item = &'t Arc<TufSource>>,
        limit: Duration,
    ) {
        for tuf in tufs {
            if self.current(tuf).is_err() {
                let source = self.source(tuf);
                // The one who uses the root reports the failure.
                drop(timeout(limit, source.refresh(&self.config, Due::IfAllowed)).await);
            }
        }
    }

    /// Asks these repositories now, and reports the result of each.
    pub async fn refresh(&self, tufs: &[Arc<TufSource>]) -> Vec<RootReport> {
        self.refresh_as(tufs, Due::Now).await
    }

    /// Asks those of these repositories whose refresh is due, and forgets all other ones.
    pub async fn refresh_due(&self, tufs: &[Arc<TufSource>]) -> Vec<RootReport> {
        self.lock().retain(|known, _| tufs.contains(known));
        self.refresh_as(tufs, Due::BySchedule).await
    }

    /// The first expiry of these roots, and whether one of them is not current, is not kept on disk or cannot be used.
    #[must_use]
    pub fn summary(&self, tufs: &[Arc<TufSource>]) -> (Option<OffsetDateTime>, bool) {
        let (mut expires, mut is_degraded) = (None, false);
        for tuf in tufs {
            let source = self.source(tuf);
            is_degraded |= source.is_degraded();
            match source.in_use(OffsetDateTime::now_utc()) {
                Ok(in_use) => {
                    let own = in_use.verified.expires;
                    expires = Some(expires.map_or(own, |known: OffsetDateTime| known.min(own)));
                }
                Err(_) => is_degraded = true,
            }
        }
        (expires, is_degraded)
    }

    async fn refresh_as(&self, tufs: &[Arc<TufSource>], due: Due) -> Vec<RootReport> {
        let refreshes = tufs.iter().map(|tuf| async move {
            let source = self.source(tuf);
            let refreshed = source.refresh(&self.config, due).await?;
            let used = source.in_use(OffsetDateTime::now_utc());
            Some(RootReport {
                url: tuf.url.to_string(),
                expires: used.as_ref().ok().map(|used| used.verified.expires),
                in_use: used
                    .map(|used| used.verified.describe(tuf, source.failure().as_deref()))
                    .map_err(|error| chain(&error)),
                refreshed,
            })
        });
        join_all(refreshes).await.into_iter().flatten().collect()
    }

    fn source(&self, tuf: &Arc<TufSource>) -> Arc<Source> {
        let new = || Arc::new(Source::new(tuf.clone()));
        self.lock().entry(tuf.clone()).or_insert_with(new).clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<TufSource>, Arc<Source>>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TrustedRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrustedRoots").finish_non_exhaustive()
    }
}

/// Verifies the text of a kept set, and returns the target.
pub(super) fn verify_kept(pinned: &[u8], kept: &[u8], target: &str) -> Result<String, TufProblem> {
    let files: Files = serde_json::from_slice(kept)
        .map_err(|error| TufProblem::Update(sigstore_tuf::Error::Json(error)))?;
    let verified = Verified::of(&files, pinned, target).map_err(TufProblem::Update)?;
    Ok(verified.text)
}

fn timestamp(time: OffsetDateTime) -> String {
    time.format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}
