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
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod verified;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::timeout;
use tollgate_admission::chain;
use tollgate_config::{Registries, TufSource};

use super::RegistryError;
use super::causes::TufProblem;
use super::signature::Root;
use kept::{Files, Kept};
use remote::Remote;
use schedule::Schedule;
use verified::Verified;

/// The trusted roots that come from TUF repositories.
pub struct TrustedRoots {
    config: Registries,
    sources: Mutex<HashMap<Arc<TufSource>, Arc<Source>>>,
}

/// A repository, with its refreshes so far.
struct Source {
    tuf: Arc<TufSource>,
    /// Held during a refresh, so that there is one at a time.
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last complete set, in case that the disk does not take it.
    kept: Option<Files>,
    schedule: Schedule,
    /// Why the last refresh failed. None if it did not.
    failure: Option<String>,
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
        let verified = source.verified(OffsetDateTime::now_utc());
        let (verified, failure) = (verified?, source.lock().failure.clone());
        let root = Root::of(verified.text.as_bytes());
        let root = root.map_err(|message| source.failed(TufProblem::Invalid(message)))?;
        Ok(root.at_place(verified.describe(tuf, failure.as_deref())))
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

    /// The first expiry of these roots, and whether one of them is not current or cannot be used.
    #[must_use]
    pub fn summary(&self, tufs: &[Arc<TufSource>]) -> (Option<OffsetDateTime>, bool) {
        let (mut expires, mut is_degraded) = (None, false);
        for tuf in tufs {
            let source = self.source(tuf);
            is_degraded |= source.lock().failure.is_some();
            match source.verified(OffsetDateTime::now_utc()) {
                Ok(verified) => {
                    expires = Some(expires.map_or(verified.expires, |known: OffsetDateTime| {
                        known.min(verified.expires)
                    }));
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
            let used = source.verified(OffsetDateTime::now_utc());
            Some(RootReport {
                url: tuf.url.to_string(),
                expires: used.as_ref().ok().map(|verified| verified.expires),
                in_use: used
                    .map(|verified| verified.describe(tuf, source.lock().failure.as_deref()))
                    .map_err(|error| chain(&error)),
                refreshed,
            })
        });
        join_all(refreshes).await.into_iter().flatten().collect()
    }

    fn source(&self, tuf: &Arc<TufSource>) -> Arc<Source> {
        let new = || {
            Arc::new(Source {
                tuf: tuf.clone(),
                turn: tokio::sync::Mutex::default(),
                state: Mutex::default(),
            })
        };
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

/// When a repository is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// Now.
    Now,
    /// Now, unless a refresh has failed a moment ago.
    IfAllowed,
    /// After the refresh interval, or after the pause that follows a failure.
    BySchedule,
}

// === impl Source ===

impl Source {
    /// Asks the repository, if it is due. Returns the result.
    async fn refresh(&self, config: &Registries, due: Due) -> Option<Refreshed> {
        let _turn = self.turn.lock().await;
        let is_due = {
            let state = self.lock();
            match due {
                Due::Now => true,
                Due::IfAllowed => state.schedule.is_allowed(Instant::now()),
                Due::BySchedule => state.schedule.is_due(Instant::now()),
            }
        };
        if !is_due {
            return None;
        }
        let fetched = self.fetch(config).await;
        let interval = self.tuf.refresh_interval;
        let mut state = self.lock();
        Some(match fetched {
            Ok(changed) => {
                // After a refresh that a load has asked for, the next scheduled one tells the metrics and the log.
                if due != Due::IfAllowed {
                    state.schedule.succeeded(interval, Instant::now());
                }
                state.failure = None;
                match changed {
                    true => Refreshed::Changed,
                    false => Refreshed::Unchanged,
                }
            }
            Err(error) => {
                let reason = match &error {
                    RegistryError::Tuf { problem, .. } => problem.to_string(),
                    other => chain(other),
                };
                state.schedule.failed(interval, Instant::now());
                state.failure = Some(reason.clone());
                Refreshed::Failed(reason)
            }
        })
    }

    /// Gets the newer metadata and the trusted root, verifies them, and keeps them. Returns whether the root has changed.
    async fn fetch(&self, config: &Registries) -> Result<bool, RegistryError> {
        let tuf = &self.tuf;
        let pinned = self.pinned()?;
        let kept = Kept::of(tuf);
        let before = kept.seen().or_else(|| self.lock().kept.clone());
        let files = kept::Shelf::of(before.clone().unwrap_or_default());
        let remote = Remote::new(config, tuf)?;
        let updating = verified::update(remote, &pinned, &files, &tuf.target);
        let updated = timeout(config.timeout, updating).await;
        // What was verified before a failure counts against an older version later.
        let seen = files.files();
        if before.as_ref() != Some(&seen) {
            kept.write_seen(&seen);
        }
        updated
            .map_err(|_elapsed| {
                self.failed(TufProblem::TooSlow {
                    seconds: config.timeout.as_secs(),
                })
            })?
            .map_err(|error| self.failed(TufProblem::Update(error)))?;
        // Verify the set as a later load will. So a set that a load could not use replaces nothing.
        let verified = Verified::of(&seen, &pinned, &tuf.target)
            .map_err(|error| self.failed(TufProblem::Update(error)))?;
        Root::of(verified.text.as_bytes())
            .map_err(|message| self.failed(TufProblem::Invalid(message)))?;
        let in_use = self.verified(OffsetDateTime::now_utc()).ok();
        let changed = in_use.is_none_or(|in_use| in_use.text != verified.text);
        kept.write(&seen, &verified.text);
        self.lock().kept = Some(seen);
        Ok(changed)
    }

    /// The kept set with the newest metadata, verified from the pinned root.
    fn verified(&self, now: OffsetDateTime) -> Result<Verified, RegistryError> {
        let pinned = self.pinned()?;
        let in_memory = self.lock().kept.clone();
        let all = [in_memory, Kept::of(&self.tuf).complete()];
        let mut newest: Option<Verified> = None;
        let mut unusable = None;
        for files in all.into_iter().flatten() {
            match Verified::of(&files, &pinned, &self.tuf.target) {
                Ok(verified)
                    if newest
                        .as_ref()
                        .is_none_or(|other| other.is_older(&verified)) =>
                {
                    newest = Some(verified);
                }
                Ok(_) => {}
                Err(error) => unusable = Some(error),
            }
        }
        let failure = self.lock().failure.clone();
        let Some(newest) = newest else {
            return Err(self.failed(match (unusable, failure) {
                (Some(error), _) => TufProblem::Update(error),
                (None, failure) => TufProblem::Nothing {
                    failure: failure.unwrap_or_else(|| "it was not asked yet".to_owned()),
                },
            }));
        };
        if now > newest.expires + self.tuf.last_known_good_for {
            return Err(self.failed(TufProblem::Expired {
                role: newest.expires_first,
                expired: timestamp(newest.expires),
                counted_for: tollgate_config::format_duration(self.tuf.last_known_good_for),
                failure: failure.unwrap_or_else(|| "it was not asked yet".to_owned()),
            }));
        }
        Ok(newest)
    }

    /// The root that the operator has pinned.
    fn pinned(&self) -> Result<Vec<u8>, RegistryError> {
        tollgate_config::file::read(&self.tuf.root).map_err(|error| {
            self.failed(TufProblem::Pinned {
                path: self.tuf.root.clone(),
                error,
            })
        })
    }

    fn failed(&self, problem: TufProblem) -> RegistryError {
        RegistryError::Tuf {
            url: self.tuf.url.to_string(),
            problem,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
