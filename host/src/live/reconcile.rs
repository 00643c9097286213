//! The reconciler: what to do so that the desired plugins serve. A pure state machine, without IO and without a clock of
//! its own.
//!
//! ```text
//! Event (configuration read, load ended, reload asked for, time)
//!   → loads      one for each plugin, identified by its inputs        loads
//!   → recalls    what served before this start, where a load fails    start
//!   → places     which entry is in force with which code              placement
//!   → Steps      load, abort, publish, record, answer, note
//! ```
//!
//! The task in `live/task.rs` carries the steps out and reports what came of them as events. Whatever is ready is
//! published at once: a plugin that takes minutes to load, or never returns, delays nobody else.

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
pub(crate) use place::{Code, Loaded, Place, Serving};
pub(crate) use placement::HeldBecause;
pub(crate) use reload::{Ask, Report};
pub(crate) use report::{Held, Snapshot};
pub(crate) use start::{LastKnownGood, RecallOrder, Recalled};
pub(crate) use trouble::Trouble;

use crate::config::{PluginConfig, PluginName};
use loads::Track;
use placement::{Known, Placement, place};
use reload::Waiter;
use start::{Recall, Start};
use trouble::Jitter;

/// What is desired, what serves, and what is under way in between.
pub(crate) struct State<C> {
    poll_interval: Duration,
    jitter: Jitter,
    tickets: u64,
    /// The entries of the last valid configuration: plugins in order, then candidates.
    desired: Vec<PluginConfig>,
    /// Of the files that loads read, as they were last seen at rest.
    stamps: Stamps,
    /// What is wrong with the configuration as it is now.
    invalid: Option<String>,
    /// Keys of the configuration that differ from those of the start and take a restart.
    needs_restart: Vec<&'static str>,
    tracks: BTreeMap<PluginName, Track<C>>,
    /// What is in force, in order.
    places: Vec<Place<C>>,
    /// What was last handed out; none before the start is over.
    published: Option<Vec<Place<C>>>,
    /// Enforcing entries that do not serve as desired, and for which others wait.
    awaited: BTreeSet<PluginName>,
    holding: Option<Holding>,
    start: Option<Start>,
    recalls: BTreeMap<PluginName, Recall>,
    waiters: Vec<Waiter>,
    /// The time of the last event.
    now: Instant,
}

/// Plugins that are kept at their previous configuration.
struct Holding {
    since: Instant,
    plugins: BTreeMap<PluginName, HeldBecause>,
    /// What was last said about it.
    told: Option<(BTreeSet<PluginName>, BTreeMap<PluginName, HeldBecause>)>,
}

/// Identifies a load or a recall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(u64);

/// What has happened.
#[expect(
    clippy::large_enum_variant,
    reason = "one exists at a time, and none in the course of a review"
)]
pub(crate) enum Event<C> {
    /// The configuration and the stamps of all files were read.
    Read {
        /// The entries, and the keys that take a restart; or all that is wrong.
        read: Result<(Vec<PluginConfig>, Vec<&'static str>), String>,
        stamps: Stamps,
        /// Whether everything is to be loaded again, changed or not.
        everything: bool,
        /// Who waits for what comes of it.
        asks: Vec<Ask>,
    },
    /// The bytes of a load are there.
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

/// What a load came to.
#[derive(Clone, Debug)]
pub(crate) enum Outcome<C> {
    /// Other code than what serves.
    New { loaded: Loaded<C>, is_cached: bool },
    /// The digest is that of the code that serves. Cached: nobody asked the registry.
    Unchanged { is_cached: bool },
    /// It is still the version that is not to be tried again yet, or the look at it failed.
    HeldBack,
}

/// Why a load failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) reason: String,
    /// Of the bytes that cannot be used; empty when the bytes are not the reason.
    pub(crate) digest: Arc<str>,
}

/// A load that is to be begun.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) ticket: Ticket,
    pub(crate) config: PluginConfig,
    /// The digest of the code that runs like this already.
    pub(crate) have: Option<Arc<str>>,
    /// Whether code that runs like this serves: then nothing comes from the cache in its place.
    pub(crate) serves: bool,
    /// A version that is not to be tried again yet.
    pub(crate) held_back: Option<Arc<str>>,
    /// The digest that the reference is known to stand for: no registry is asked where the cache has it.
    pub(crate) at_hand: Option<Arc<str>>,
    /// During the start: whether something else of the plugin can serve meanwhile.
    pub(crate) at_start: Option<bool>,
}

/// What is to be done.
#[expect(
    clippy::large_enum_variant,
    reason = "one exists at a time, and none in the course of a review"
)]
pub(crate) enum Step<C> {
    /// Begin a load.
    Load(Order),
    /// Give up a load or a recall.
    Abort(Ticket),
    /// Load what served before this start.
    Recall(RecallOrder),
    /// Put these in force. The names are of those that treat requests in another way than before.
    Publish {
        places: Vec<Place<C>>,
        changed: BTreeSet<PluginName>,
    },
    /// Record what serves as the last known good.
    Record,
    /// Answer somebody who asked for a reload.
    Answer { ask: Ask, report: Report },
    /// Tell the log and the metrics.
    Note(Note),
}

/// Something for the log and the metrics.
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
    /// What served before the start serves again.
    Recalled { name: PluginName, digest: Arc<str> },
    /// Plugins are kept at their previous configuration.
    Held(Held),
    /// The whole configuration is in force again.
    Released,
    /// The configuration is not valid.
    Invalid { reason: String },
    /// Keys have changed that take a restart.
    NeedsRestart { keys: Vec<&'static str> },
}

/// Others are told about a hold by which nothing has failed yet after this: loading takes its time.
const QUIET: Duration = Duration::from_secs(5);

// === impl State ===

impl<C: Code> State<C> {
    /// A state in which nothing has been loaded. `seed` makes replicas differ in the times of their retries and polls.
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

    /// Takes note of an event, and says what to do.
    pub(crate) fn apply(&mut self, event: Event<C>, now: Instant) -> Vec<Step<C>> {
        let mut steps = Vec::new();
        let mut new_asks = Vec::new();
        self.now = now;
        match event {
            Event::Read {
                read,
                stamps,
                everything,
                asks,
            } => {
                self.read(read, &mut steps);
                self.stamps = stamps;
                steps.extend(self.adjust_loads(everything, now));
                if let Some(start) = &mut self.start {
                    start.has_begun = true;
                }
                new_asks = asks;
            }
            Event::Fetched { ticket, digest } => self.fetched(ticket, digest),
            Event::Loaded { ticket, outcome } => steps.extend(self.loaded(ticket, outcome, now)),
            Event::Recalled { ticket, outcome } => steps.extend(self.recalled(ticket, outcome)),
            Event::Tick => {}
        }
        steps.extend(self.begin_due(now));
        self.settle(now, &mut steps);
        self.wait_for_loads(new_asks, &steps, now);
        steps.extend(self.answer(now));
        steps
    }

    /// When [`Event::Tick`] is due, if nothing else happens before.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let holding = self.holding.as_ref().filter(|_| self.start.is_none());
        let hold = holding.filter(|holding| holding.told.is_none());
        let waiters = self.waiters.iter().map(|waiter| waiter.until).min();
        let times = [
            self.next_load(),
            self.next_of_start(),
            hold.map(|holding| holding.since + QUIET),
            waiters,
        ];
        times.into_iter().flatten().min()
    }

    /// Every file that loads of the desired plugins read.
    pub(crate) fn files(&self) -> Vec<std::path::PathBuf> {
        let enabled = self.desired.iter().filter(|entry| entry.enabled);
        enabled.flat_map(files).cloned().collect()
    }

    /// The plugins that are desired or in force.
    pub(crate) fn names(&self) -> impl Iterator<Item = &PluginName> {
        let in_force = self.places.iter().map(|place| &place.config.name);
        self.desired.iter().map(|entry| &entry.name).chain(in_force)
    }

    /// What is in force.
    pub(crate) fn places(&self) -> &[Place<C>] {
        &self.places
    }

    fn read(
        &mut self,
        read: Result<(Vec<PluginConfig>, Vec<&'static str>), String>,
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
            }
        }
    }

    /// Decides what is in force, and hands it out where it differs.
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
            // A start is over when what it serves is recorded; later changes do not wait for the disk.
            steps.extend(is_first.then_some(Step::Record));
            steps.push(Step::Publish {
                places: self.places.clone(),
                changed,
            });
            steps.extend((is_other && !is_first).then_some(Step::Record));
        }
        steps.extend(self.tell_of_hold(now));
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
                    told: None,
                });
            }
            (Some(holding), true) => {
                if holding.told.is_some() {
                    steps.push(Step::Note(Note::Released));
                }
                self.holding = None;
            }
            (None, true) => {}
        }
        steps.extend(self.end_recalls());
    }

    /// Says once who is held for whom, when something has failed or it takes long.
    fn tell_of_hold(&mut self, now: Instant) -> Option<Step<C>> {
        let has_failed = self.awaited.iter().any(|name| {
            let track = self.tracks.get(name);
            track.is_some_and(|track| track.trouble.is_some())
        });
        let held = self.held()?;
        let holding = self.holding.as_mut()?;
        let current = (self.awaited.clone(), holding.plugins.clone());
        let is_time = has_failed || now >= holding.since + QUIET;
        if !is_time || holding.told.as_ref() == Some(&current) {
            return None;
        }
        holding.told = Some(current);
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

    fn failure(&self, entry: &PluginConfig) -> (String, Arc<str>) {
        let track = self.tracks.get(&entry.name);
        let trouble = track.and_then(|track| track.trouble.as_ref());
        let (mut reason, digest) = match trouble {
            Some(trouble) => (trouble.reason.clone(), trouble.digest.clone()),
            None => (start::LOADING.to_owned(), Arc::from("")),
        };
        if let Some(error) = self.recalls.get(&entry.name).and_then(Recall::error) {
            reason = format!("{reason}; what served before the start cannot be had: {error}");
        }
        (reason, digest)
    }
}

/// The names of those that are new, gone, or treat requests in another way.
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
