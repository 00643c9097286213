//! One TUF repository: when it is asked, what is kept of it, and which set of that is in use.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use time::OffsetDateTime;
use tokio::time::timeout;
use tollgate_admission::chain;
use tollgate_config::{Registries, TufSource};

use super::kept::{Files, Kept, Shelf};
use super::remote::Remote;
use super::schedule::Schedule;
use super::verified::{self, Verified};
use super::{Refreshed, timestamp};
use crate::RegistryError;
use crate::causes::TufProblem;
use crate::signature::Root;

/// A repository, with its refreshes so far.
pub(super) struct Source {
    tuf: Arc<TufSource>,
    /// Held during a refresh, so that there is one at a time.
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Everything that this process has verified, in case that the disk does not take it.
    seen: Option<Files>,
    /// The last complete set, in case that the disk does not take it.
    kept: Option<Arc<[u8]>>,
    /// Whether the disk has not taken the last complete set.
    is_unwritten: bool,
    /// The set that was used last. It stays when nothing can be used any more.
    in_use: Option<Arc<InUse>>,
    /// The files that the set in use was chosen from. Unchanged files are not verified again.
    chosen_from: Option<Choice>,
    schedule: Schedule,
    /// Why the last refresh failed. None if it did not.
    failure: Option<String>,
}

/// The files that decide which set is in use.
struct Choice {
    pinned: Vec<u8>,
    in_memory: Option<Arc<[u8]>>,
    on_disk: Option<Vec<u8>>,
}

/// A verified set, and the trusted root in it.
pub(super) struct InUse {
    pub(super) verified: Verified,
    pub(super) root: Root,
}

/// When a repository is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Now.
    Now,
    /// Now, unless a refresh has failed a moment ago.
    IfAllowed,
    /// After the refresh interval, or after the pause that follows a failure.
    BySchedule,
}

/// Why there is no newer metadata, before the first refresh.
const NOT_ASKED: &str = "it was not asked yet";

// === impl Source ===

impl Source {
    pub(super) fn new(tuf: Arc<TufSource>) -> Self {
        Self {
            tuf,
            turn: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        }
    }

    /// Why the last refresh failed. None if it did not.
    pub(super) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// Whether the last refresh failed, or its result is in memory alone.
    pub(super) fn is_degraded(&self) -> bool {
        let state = self.lock();
        state.failure.is_some() || state.is_unwritten
    }

    /// The digest of the trusted root that was used last.
    pub(super) fn digest(&self) -> Option<[u8; 32]> {
        let state = self.lock();
        state.in_use.as_ref().map(|in_use| *in_use.root.digest())
    }

    /// Asks the repository, if it is due. Returns the result.
    pub(super) async fn refresh(&self, config: &Registries, due: Due) -> Option<Refreshed> {
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
        let on_disk = kept.seen();
        // Another process may have written a newer set, and this one may have failed to write its own.
        let before = Files::newer(on_disk.clone(), self.lock().seen.clone());
        let files = Shelf::of(before.unwrap_or_default());
        let remote = Remote::new(config, tuf)?;
        let updating = verified::update(remote, &pinned, &files, &tuf.target);
        let updated = timeout(config.timeout, updating).await;
        // What was verified before a failure counts against an older version later.
        let seen = files.files();
        if on_disk.as_ref() != Some(&seen) {
            kept.write_seen(&seen);
        }
        self.lock().seen = Some(seen.clone());
        updated
            .map_err(|_elapsed| {
                self.failed(TufProblem::TooSlow {
                    seconds: config.timeout.as_secs(),
                })
            })?
            .map_err(|error| self.failed(TufProblem::Update(error)))?;
        // Verify the set as a later load will. So a set that a load could not use replaces nothing.
        let found = InUse::of(&seen, &pinned, &tuf.target);
        let found = found.map_err(|problem| self.failed(problem))?;
        let newest = self.newest().ok();
        if let Some(newest) = &newest {
            let newer = newest.verified.check_older_than(&found.verified);
            newer.map_err(|error| self.failed(TufProblem::Update(error)))?;
        }
        let now = OffsetDateTime::now_utc();
        let in_use = newest.filter(|newest| newest.verified.counts_until(tuf) >= now);
        let changed = in_use.is_none_or(|in_use| in_use.verified.text != found.verified.text);
        let set = seen.to_bytes();
        let is_written = kept.write(&set, &found.verified.text);
        let mut state = self.lock();
        state.kept = Some(set.into());
        state.is_unwritten = !is_written;
        state.in_use = Some(Arc::new(found));
        state.chosen_from = None;
        Ok(changed)
    }

    /// The newest kept set, if it counts at this time.
    pub(super) fn in_use(&self, now: OffsetDateTime) -> Result<Arc<InUse>, RegistryError> {
        let newest = self.newest()?;
        let verified = &newest.verified;
        if now > verified.counts_until(&self.tuf) {
            return Err(self.failed(TufProblem::Expired {
                role: verified.expires_first,
                expired: timestamp(verified.expires),
                counted_for: tollgate_config::format_duration(self.tuf.last_known_good_for),
                failure: self.failure().unwrap_or_else(|| NOT_ASKED.to_owned()),
            }));
        }
        Ok(newest)
    }

    /// The kept set with the newest metadata, verified from the pinned root, whether or not it counts by now.
    fn newest(&self) -> Result<Arc<InUse>, RegistryError> {
        let choice = Choice {
            pinned: self.pinned()?,
            in_memory: self.lock().kept.clone(),
            on_disk: Kept::of(&self.tuf).complete(),
        };
        {
            let state = self.lock();
            if let (Some(in_use), Some(before)) = (&state.in_use, &state.chosen_from)
                && before.is(&choice)
            {
                return Ok(in_use.clone());
            }
        }
        let newest = choice.newest(&self.tuf.target);
        let newest = newest.map_err(|unusable| {
            let failure = || self.failure().unwrap_or_else(|| NOT_ASKED.to_owned());
            self.failed(unusable.unwrap_or_else(|| TufProblem::Nothing { failure: failure() }))
        })?;
        let newest = Arc::new(newest);
        let mut state = self.lock();
        // A refresh may have ended meanwhile.
        if same(state.kept.as_ref(), choice.in_memory.as_ref()) {
            state.in_use = Some(newest.clone());
            state.chosen_from = Some(choice);
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

// === impl Choice ===

impl Choice {
    fn is(&self, other: &Self) -> bool {
        self.pinned == other.pinned
            && same(self.in_memory.as_ref(), other.in_memory.as_ref())
            && self.on_disk == other.on_disk
    }

    /// The set with the newest metadata. Fails with the reason why a set cannot be used, or with None if there is no set.
    fn newest(&self, target: &str) -> Result<InUse, Option<TufProblem>> {
        let (in_memory, on_disk) = (self.in_memory.as_deref(), self.on_disk.as_deref());
        // In most cases they are the same.
        let on_disk = on_disk.filter(|set| in_memory != Some(*set));
        let mut newest: Result<InUse, Option<TufProblem>> = Err(None);
        for set in [in_memory, on_disk].into_iter().flatten() {
            let Some(files) = Files::read(set) else {
                continue;
            };
            match (InUse::of(&files, &self.pinned, target), &newest) {
                (Ok(found), Ok(other)) if found.verified.is_older(&other.verified) => {}
                (Ok(found), _) => newest = Ok(found),
                (Err(problem), Err(_)) => newest = Err(Some(problem)),
                (Err(_), Ok(_)) => {}
            }
        }
        newest
    }
}

// === impl InUse ===

impl InUse {
    fn of(files: &Files, pinned: &[u8], target: &str) -> Result<Self, TufProblem> {
        let verified = Verified::of(files, pinned, target).map_err(TufProblem::Update)?;
        let root = Root::of(verified.text.as_bytes()).map_err(TufProblem::Invalid)?;
        Ok(Self { verified, root })
    }
}

impl fmt::Debug for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InUse")
            .field("verified", &self.verified)
            .finish_non_exhaustive()
    }
}

/// Whether both are the same set, and not only an equal one.
fn same(one: Option<&Arc<[u8]>>, other: Option<&Arc<[u8]>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}
