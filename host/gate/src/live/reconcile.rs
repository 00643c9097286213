//! The reconciler: decides on the steps that make the desired plugins serve. A pure state machine, without IO and
//! without its own clock.
//!
//! ```text
//! Event (configuration read, load ended, reload requested, time passed)
//!   → loads      one for each plugin, identified by its inputs                    loads
//!   → recalls    the versions that served before this start, if a load fails      start
//!   → places     the entries in effect, with their code                           placement
//!   → steps      load, abort, publish, record, answer, note
//! ```
//!
//! The task in `live/task.rs` runs the steps and reports the results as events. The reconciler publishes code as soon
//! as it is ready. A plugin that takes minutes to load, or never returns, delays no other load.

mod loads;
mod place;
mod placement;
mod reload;
mod report;
mod start;
#[cfg(test)]
mod tests;
mod trouble;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use loads::{Stamps, files};
pub(in crate::live) use place::enforces;
pub(crate) use place::{Code, Loaded, Place, Serving};
pub(crate) use placement::HeldBecause;
pub(crate) use reload::{CallerId, Report};
pub(crate) use report::{Held, Snapshot};
pub(crate) use start::{LastKnownGood, RecallOrder, Recalled};
pub(crate) use trouble::Trouble;

use loads::Track;
use placement::{Known, Placement, place};
use reload::Waiter;
use start::{Recall, Start};
use tollgate_config::{PluginConfig, PluginName, TufSource};
use trouble::Jitter;

/// The desired state, the serving state, and the work under way between the two.
pub(crate) struct State<C> {
    poll_interval: Duration,
    jitter: Jitter,
    tickets: u64,
    /// The entries of the last valid configuration: plugins in order, then shadows.
    desired: Vec<PluginConfig>,
    /// The stamps of the files that loads read, as last seen at rest.
    stamps: Stamps,
    /// The problems of the current configuration, if it is not valid.
    invalid: Option<String>,
    /// Keys of the configuration that have changed since the start and require a restart.
    needs_restart: Vec<&'static str>,
    tracks: BTreeMap<PluginName, Track<C>>,
    /// The plugins in effect, in order.
    places: Vec<Place<C>>,
    /// The places that were published last; `None` before the start is over.
    published: Option<Vec<Place<C>>>,
    /// Enforcing entries that do not serve as desired, and for which other plugins are held.
    awaited: BTreeSet<PluginName>,
    holding: Option<Holding>,
    start: Option<Start>,
    recalls: BTreeMap<PluginName, Recall>,
    waiters: Vec<Waiter>,
    /// The time of the last event.
    now: Instant,
}

/// Plugins that are held at their previous configuration.
struct Holding {
    since: Instant,
    plugins: BTreeMap<PluginName, HeldBecause>,
    /// The awaited and the held plugins, as last reported; `None` before the first report.
    reported: Option<(BTreeSet<PluginName>, BTreeMap<PluginName, HeldBecause>)>,
}

/// Identifies a load or a recall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(u64);

/// An event that the reconciler reacts to.
#[expect(
    clippy::large_enum_variant,
    reason = "one exists at a time, and none in the course of a review"
)]
pub(crate) enum Event<C> {
    /// The configuration and the stamps of all files were read.
    Read {
        /// The entries, with the keys that require a restart; or all problems.
        read: Result<(Vec<PluginConfig>, Vec<&'static str>), String>,
        /// The entries to desire although there are problems. None leaves the desired entries.
        meanwhile: Option<Vec<PluginConfig>>,
        stamps: Stamps,
        /// Whether to load everything again, changed or not.
        everything: bool,
        /// The callers who wait for the result.
        caller_ids: Vec<CallerId>,
    },
    /// The bytes of a load have arrived.
    Fetched { ticket: Ticket, digest: Arc<str> },
    /// A load has ended.
    Loaded {
        ticket: Ticket,
        outcome: Result<Outcome<C>, Failure>,
    },
    /// A recall has ended.
    Recalled {
        ticket: Ticket,
        outcome: Result<Recalled<C>, String>,
    },
    /// Time has passed.
    Tick,
}

/// The result of a load that has not failed.
#[derive(Clone, Debug)]
pub(crate) enum Outcome<C> {
    /// The code is new. If `is_cached` is set, no registry was asked.
    New { loaded: Loaded<C>, is_cached: bool },
    /// The digest is the one that the caller has. If `is_cached` is set, no registry was asked.
    Unchanged { is_cached: bool },
    /// The version is still the held-back one, or the check for another version failed.
    HeldBack,
}

/// A failed load.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) reason: String,
    /// Digest of the unusable bytes; `None` if the bytes are not the reason.
    pub(crate) digest: Option<Arc<str>>,
    /// Whether the reason is a signature or attestation that is missing.
    pub(crate) is_unsigned: bool,
}

/// An order to begin a load.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) ticket: Ticket,
    pub(crate) config: PluginConfig,
    /// The digest of the code that already runs as `config` says.
    pub(crate) have: Option<Arc<str>>,
    /// Whether code that runs as `config` says is loaded already. If so, a stale version from the cache must not
    /// replace it.
    pub(crate) serves: bool,
    /// Whether no version of the plugin decides yet, so that every second of the load counts.
    pub(crate) is_new: bool,
    /// A version that must not be tried again yet.
    pub(crate) held_back: Option<Arc<str>>,
    /// The digest that the reference is known to stand for. If the cache has it, no registry is asked.
    pub(crate) at_hand: Option<Arc<str>>,
    /// Set during the start: whether another version of the plugin can serve meanwhile.
    pub(crate) at_start: Option<bool>,
}

/// A step for the task to run.
#[expect(
    clippy::large_enum_variant,
    reason = "one exists at a time, and none in the course of a review"
)]
pub(crate) enum Step<C> {
    /// Begin a load.
    Load(Order),
    /// Abort a load or a recall.
    Abort(Ticket),
    /// Load the version that served before this start.
    Recall(RecallOrder),
    /// Put these places into effect. `changed` names the plugins that treat requests differently than before.
    Publish {
        places: Vec<Place<C>>,
        changed: BTreeSet<PluginName>,
    },
    /// Record the serving plugins as the last known good.
    Record,
    /// Answer a caller who asked for a reload.
    Answer { caller_id: CallerId, report: Report },
    /// Report a note to the log and the metrics.
    Note(Note),
}

/// A note for the log and the metrics.
#[derive(Clone, Debug)]
pub(crate) enum Note {
    /// A load has failed.
    Trouble {
        name: PluginName,
        trouble: Trouble,
        retry_in: Duration,
        is_news: bool,
    },
    /// A plugin that was in trouble is as desired.
    AsDesired { name: PluginName },
    /// The version that served before the start serves again.
    Recalled { name: PluginName, digest: Arc<str> },
    /// Plugins are held at their previous configuration.
    Held(Held),
    /// The whole configuration is in effect again.
    Released,
    /// The configuration is not valid.
    Invalid { reason: String },
    /// Keys have changed that require a restart.
    NeedsRestart { keys: Vec<&'static str> },
}

/// How long a hold stays unreported if no load has failed. Loading takes time, so a short hold is normal.
const QUIET: Duration = Duration::from_secs(5);

// === impl State ===

impl<C: Code> State<C> {
    /// A state in which nothing is loaded. `seed` makes the times of retries and polls differ between replicas.
    pub(crate) fn new(
        desired: Vec<PluginConfig>,
        last_known_good: LastKnownGood,
        poll_interval: Duration,
        seed: u64,
        now: Instant,
    ) -> Self {
        let start = Start::new(now, last_known_good.entries.is_none());
        let (places, recalls) = start::first_places(&desired, last_known_good);
        Self {
            poll_interval,
            jitter: Jitter::new(seed),
            tickets: 0,
            desired,
            stamps: Stamps::new(),
            invalid: None,
            needs_restart: Vec::new(),
            tracks: BTreeMap::new(),
            places,
            published: None,
            awaited: BTreeSet::new(),
            holding: None,
            start: Some(start),
            recalls,
            waiters: Vec::new(),
            now,
        }
    }

    /// Handles an event and returns the steps to run.
    pub(crate) fn apply(&mut self, event: Event<C>, now: Instant) -> Vec<Step<C>> {
        let mut steps = Vec::new();
        let mut new_caller_ids = Vec::new();
        self.now = now;
        match event {
            Event::Read {
                read,
                meanwhile,
                stamps,
                everything,
                caller_ids,
            } => {
                self.read(read, meanwhile, &mut steps);
                self.stamps = stamps;
                steps.extend(self.adjust_loads(everything, now));
                if let Some(start) = &mut self.start {
                    start.has_begun = true;
                }
                new_caller_ids = caller_ids;
            }
            Event::Fetched { ticket, digest } => self.fetched(ticket, digest),
            Event::Loaded { ticket, outcome } => steps.extend(self.loaded(ticket, outcome, now)),
            Event::Recalled { ticket, outcome } => steps.extend(self.recalled(ticket, outcome)),
            Event::Tick => {}
        }
        steps.extend(self.begin_due(now));
        self.settle(now, &mut steps);
        self.wait_for_loads(new_caller_ids, &steps, now);
        steps.extend(self.answer(now));
        steps
    }

    /// When [`Event::Tick`] is due, unless another event happens before.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let holding = self.holding.as_ref().filter(|_| self.start.is_none());
        let hold = holding.filter(|holding| holding.reported.is_none());
        let waiters = self.waiters.iter().map(|waiter| waiter.until).min();
        let times = [
            self.next_load(),
            self.next_of_start(),
            hold.map(|holding| holding.since + QUIET),
            waiters,
        ];
        times.into_iter().flatten().min()
    }

    /// All files that loads of the desired plugins read.
    pub(crate) fn files(&self) -> Vec<std::path::PathBuf> {
        let enabled = self.desired.iter().filter(|entry| entry.enabled);
        enabled.flat_map(files).cloned().collect()
    }

    /// The TUF repositories that publish trusted roots of the plugins that are desired or in effect, each once. A plugin that
    /// is held verifies images with its previous entry.
    pub(crate) fn tuf_sources(&self) -> Vec<Arc<TufSource>> {
        let in_effect = self.places.iter().map(|place| &place.config);
        let all = self.desired.iter().chain(in_effect);
        let enabled = all.filter(|entry| entry.enabled);
        let mut sources: Vec<Arc<TufSource>> = Vec::new();
        for source in enabled.flat_map(PluginConfig::tuf_sources) {
            if !sources.contains(source) {
                sources.push(source.clone());
            }
        }
        sources
    }

    /// The plugins that are desired or in effect.
    pub(crate) fn names(&self) -> impl Iterator<Item = &PluginName> {
        let in_force = self.places.iter().map(|place| &place.config.name);
        self.desired.iter().map(|entry| &entry.name).chain(in_force)
    }

    /// The plugins in effect, in order.
    pub(crate) fn places(&self) -> &[Place<C>] {
        &self.places
    }

    fn read(
        &mut self,
        read: Result<(Vec<PluginConfig>, Vec<&'static str>), String>,
        meanwhile: Option<Vec<PluginConfig>>,
        steps: &mut Vec<Step<C>>,
    ) {
        match read {
            Ok((desired, keys)) => {
                if keys != self.needs_restart && !keys.is_empty() {
                    let keys = keys.clone();
                    steps.push(Step::Note(Note::NeedsRestart { keys }));
                }
                self.desired = desired;
                if self.start.as_ref().is_some_and(|start| start.is_fresh) {
                    self.places = start::unloaded(&self.desired);
                }
                self.needs_restart = keys;
                self.invalid = None;
            }
            Err(reason) => {
                if self.invalid.as_ref() != Some(&reason) {
                    let reason = reason.clone();
                    steps.push(Step::Note(Note::Invalid { reason }));
                }
                self.invalid = Some(reason);
                if let Some(desired) = meanwhile {
                    self.desired = desired;
                }
            }
        }
    }

    /// Decides which plugins are in effect, and publishes them if they have changed.
    fn settle(&mut self, now: Instant, steps: &mut Vec<Step<C>>) {
        self.arrange(now, steps);
        steps.extend(self.begin_recalls(now));
        if self.is_start_over(now) {
            self.start = None;
            steps.extend(self.adjust_loads(false, now));
            self.arrange(now, steps);
        }
        if self.start.is_some() {
            return;
        }
        let is_same = self.published.as_ref().is_some_and(|published| {
            published.len() == self.places.len()
                && published
                    .iter()
                    .zip(&self.places)
                    .all(|(one, other)| one.is(other))
        });
        if !is_same {
            let changed = changes(self.published.as_deref().unwrap_or_default(), &self.places);
            let is_first = self.published.is_none();
            self.published = Some(self.places.clone());
            for waiter in &mut self.waiters {
                waiter.changed.extend(changed.iter().cloned());
            }
            let is_other = !changed.is_empty();
            // The first plugins are recorded before they are published. Later changes do not wait for the disk.
            steps.extend(is_first.then_some(Step::Record));
            steps.push(Step::Publish {
                places: self.places.clone(),
                changed,
            });
            steps.extend((is_other && !is_first).then_some(Step::Record));
        }
        steps.extend(self.report_hold(now));
    }

    fn arrange(&mut self, now: Instant, steps: &mut Vec<Step<C>>) {
        let Placement {
            places,
            awaited,
            held,
        } = place(&self.desired, &self.places, self);
        self.places = places;
        self.awaited = awaited;
        match (&mut self.holding, held.is_empty()) {
            (Some(holding), false) => holding.plugins = held,
            (None, false) => {
                self.holding = Some(Holding {
                    since: now,
                    plugins: held,
                    reported: None,
                });
            }
            (Some(holding), true) => {
                if holding.reported.is_some() {
                    steps.push(Step::Note(Note::Released));
                }
                self.holding = None;
            }
            (None, true) => {}
        }
        steps.extend(self.end_recalls());
    }

    /// Reports once which plugins are held and for which others, after a failure or when the hold takes long.
    fn report_hold(&mut self, now: Instant) -> Option<Step<C>> {
        let has_failed = self.awaited.iter().any(|name| {
            let track = self.tracks.get(name);
            track.is_some_and(|track| track.trouble.is_some())
        });
        let held = self.held()?;
        let holding = self.holding.as_mut()?;
        let current = (self.awaited.clone(), holding.plugins.clone());
        let is_time = has_failed || now >= holding.since + QUIET;
        if !is_time || holding.reported.as_ref() == Some(&current) {
            return None;
        }
        holding.reported = Some(current);
        Some(Step::Note(Note::Held(held)))
    }

    fn place(&self, name: &PluginName) -> Option<&Place<C>> {
        self.places.iter().find(|place| place.config.name == *name)
    }

    fn entry(&self, name: &PluginName) -> Option<&PluginConfig> {
        self.desired.iter().find(|entry| entry.name == *name)
    }
}

impl<C: Code> Known<C> for State<C> {
    fn ready(&self, entry: &PluginConfig) -> Option<Loaded<C>> {
        self.same_code(entry)
            .filter(|loaded| loaded.code.fits(entry).is_ok())
    }

    fn is_to_come(&self, name: &PluginName) -> bool {
        self.recalls.get(name).is_some_and(Recall::is_to_come)
    }

    fn failure(&self, entry: &PluginConfig) -> (String, Option<Arc<str>>) {
        let track = self.tracks.get(&entry.name);
        let trouble = track.and_then(|track| track.trouble.as_ref());
        let (mut reason, digest) = match trouble {
            Some(trouble) => (trouble.reason.clone(), trouble.digest.clone()),
            None => (start::LOADING.to_owned(), None),
        };
        if let Some(error) = self.recalls.get(&entry.name).and_then(Recall::error) {
            reason = format!("{reason}; failed to load the last known good: {error}");
        }
        (reason, digest)
    }
}

/// The names of the plugins that are new, are gone, or treat requests differently.
fn changes<C: Code>(before: &[Place<C>], after: &[Place<C>]) -> BTreeSet<PluginName> {
    let same = |one: &Place<C>, places: &[Place<C>]| {
        let other = places
            .iter()
            .find(|other| other.config.name == one.config.name);
        other.is_some_and(|other| one.serves_like(other))
    };
    let new = after.iter().filter(|place| !same(place, before));
    let gone = before.iter().filter(|place| !same(place, after));
    let changed = new.chain(gone).map(|place| place.config.name.clone());
    changed.collect()
}
