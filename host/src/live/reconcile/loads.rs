//! One load for each plugin: begun when its inputs change, when a retry or a poll is due, or when somebody asks; and
//! neither aborted nor restarted for anything else.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::place::{Code, Loaded};
use super::trouble::Trouble;
use super::{Failure, Note, Order, Outcome, State, Step, Ticket};
use crate::config::{PluginConfig, PluginName, Source};
use crate::stamp::Stamp;

/// Stamps by path; none where there is no file.
pub(crate) type Stamps = BTreeMap<PathBuf, Option<Stamp>>;

/// What is known of the desired version of one plugin.
#[derive(Debug)]
pub(super) struct Track<C> {
    /// The inputs of the last load that was begun.
    inputs: Inputs,
    pub(super) load: Option<Load>,
    /// The last load that succeeded, and the entry that it was for.
    pub(super) ready: Option<(PluginConfig, Loaded<C>)>,
    pub(super) trouble: Option<Trouble>,
    /// Whether the trouble is that the code cannot be asked as the entry says.
    is_unfit: bool,
    /// Time of the next look at the registry.
    poll: Instant,
}

/// What identifies a load. All else is about when the plugin is asked and what its answer counts for.
#[derive(Clone, Debug)]
struct Inputs {
    config: PluginConfig,
    /// Of its file, or of the keys that its artifact has to be signed with.
    stamps: Vec<Option<Stamp>>,
}

/// A load under way.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) ticket: Ticket,
    pub(super) began: Instant,
    /// The digest, as soon as the bytes are there.
    pub(super) fetched: Option<Arc<str>>,
    /// Whether somebody wants its result now, rather than at the next poll.
    asked: bool,
    /// Whether it is the first one of these inputs.
    is_first: bool,
    held_back: bool,
}

/// Why a load is begun.
#[derive(Clone, Copy, Default)]
struct Why {
    asked: bool,
    is_first: bool,
    /// The version that is not to be tried again yet is only compared.
    holds_back: bool,
    /// What the cache has of the serving digest will do.
    at_hand: bool,
}

// === impl Inputs ===

impl Inputs {
    fn of(config: &PluginConfig, stamps: &Stamps) -> Self {
        let stamps = files(config).map(|path| stamps.get(path).copied().flatten());
        Self {
            stamps: stamps.collect(),
            config: config.clone(),
        }
    }

    fn are(&self, other: &Self) -> bool {
        self.config.runs_like(&other.config) && self.stamps == other.stamps
    }

    /// Whether an artifact has to be signed by what it had to be signed by before.
    fn has_keys_of(&self, other: &Self) -> bool {
        self.config.signature_keys == other.config.signature_keys && self.stamps == other.stamps
    }
}

/// The files that a load reads: the plugin, or the keys that its artifact has to be signed with.
pub(crate) fn files(config: &PluginConfig) -> impl Iterator<Item = &PathBuf> {
    let own = match &config.source {
        Source::File(path) => Some(path),
        Source::Oci(_) => None,
    };
    own.into_iter().chain(&config.signature_keys)
}

fn is_file(config: &PluginConfig) -> bool {
    matches!(config.source, Source::File(_))
}

// === impl State ===

impl<C: Code> State<C> {
    /// Begins and aborts loads so that each desired plugin has the one that its inputs ask for.
    pub(super) fn adjust_loads(&mut self, everything: bool, now: Instant) -> Vec<Step<C>> {
        let mut steps = Vec::new();
        let desired = self.loadable();
        let gone: Vec<PluginName> = self
            .tracks
            .keys()
            .filter(|name| !desired.iter().any(|entry| entry.name == **name))
            .cloned()
            .collect();
        for name in gone {
            let track = self.tracks.remove(&name);
            steps.extend(track.and_then(|track| track.load).map(Load::abort));
        }
        for entry in &desired {
            let inputs = Inputs::of(entry, &self.stamps);
            let Some(track) = self.tracks.get(&entry.name) else {
                self.tracks
                    .insert(entry.name.clone(), Track::new(inputs, now));
                let why = Why {
                    asked: true,
                    is_first: true,
                    ..Why::default()
                };
                steps.extend(self.begin(entry, why, now));
                continue;
            };
            if !track.inputs.are(&inputs) {
                let at_hand = !is_file(entry) && track.inputs.has_keys_of(&inputs);
                let why = Why {
                    asked: true,
                    is_first: true,
                    at_hand,
                    ..Why::default()
                };
                if let Some(track) = self.tracks.get_mut(&entry.name) {
                    track.inputs = inputs;
                    steps.extend(track.load.take().map(Load::abort));
                }
                steps.extend(self.begin(entry, why, now));
            } else if everything {
                steps.extend(self.begin_asked(entry, now));
            }
            self.refit(entry, now, &mut steps);
        }
        steps
    }

    /// Loads what somebody asks for, unless that is under way.
    fn begin_asked(&mut self, entry: &PluginConfig, now: Instant) -> Vec<Step<C>> {
        let mut steps = Vec::new();
        if let Some(track) = self.tracks.get_mut(&entry.name) {
            let is_under_way = track.load.as_ref().is_some_and(|load| {
                load.fetched.is_some() || (load.asked && !load.held_back) || is_file(entry)
            });
            if is_under_way {
                return steps;
            }
            steps.extend(track.load.take().map(Load::abort));
        }
        let why = Why {
            asked: true,
            ..Why::default()
        };
        steps.extend(self.begin(entry, why, now));
        steps
    }

    /// Begins the retries and polls that are due.
    pub(super) fn begin_due(&mut self, now: Instant) -> Vec<Step<C>> {
        let mut steps = Vec::new();
        for entry in self.loadable() {
            let Some(track) = self.tracks.get(&entry.name) else {
                continue;
            };
            if track.due(&entry).is_none_or(|due| due > now) {
                continue;
            }
            let why = Why {
                holds_back: true,
                ..Why::default()
            };
            steps.extend(self.begin(&entry, why, now));
        }
        steps
    }

    /// The time of the next retry or poll.
    pub(super) fn next_load(&self) -> Option<Instant> {
        let due = self.desired.iter().filter_map(|entry| {
            let track = self.tracks.get(&entry.name)?;
            track.due(entry)
        });
        due.min()
    }

    /// Begins a load of a plugin that is tracked, in the place of one that is under way.
    fn begin(&mut self, entry: &PluginConfig, why: Why, now: Instant) -> Option<Step<C>> {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let serving = self.same_code(entry).map(|loaded| loaded.digest);
        let place = self.place(&entry.name);
        let is_starting = self.start.is_some();
        let replaceable = self.recalls.contains_key(&entry.name);
        let in_force = place
            .filter(|place| why.at_hand && place.config.source == entry.source)
            .and_then(|place| Some(place.code()?.digest.clone()));
        let track = self.tracks.get_mut(&entry.name)?;
        let is_doubted = track.trouble.is_some() && !entry.signature_keys.is_empty();
        let held_back = track
            .trouble
            .as_ref()
            .filter(|_| why.holds_back && !is_file(entry))
            .and_then(|trouble| trouble.held_back(now).cloned());
        track.load = Some(Load {
            ticket,
            began: now,
            fetched: None,
            asked: why.asked,
            is_first: why.is_first,
            held_back: held_back.is_some(),
        });
        Some(Step::Load(Order {
            ticket,
            config: entry.clone(),
            // What has to be signed and may not be is looked at from scratch.
            have: serving.clone().filter(|_| is_file(entry) || !is_doubted),
            serves: serving.is_some(),
            held_back,
            at_hand: in_force,
            at_start: is_starting.then_some(replaceable),
        }))
    }

    /// Takes note of the digest of what is being loaded.
    pub(super) fn fetched(&mut self, ticket: Ticket, digest: Arc<str>) {
        let mut loads = self
            .tracks
            .values_mut()
            .filter_map(|track| track.load.as_mut());
        if let Some(load) = loads.find(|load| load.ticket == ticket) {
            load.fetched = Some(digest);
        }
    }

    /// Takes note of what came of a load. One that was given up for another counts for nothing.
    pub(super) fn loaded(
        &mut self,
        ticket: Ticket,
        outcome: Result<Outcome<C>, Failure>,
        now: Instant,
    ) -> Vec<Step<C>> {
        let mut steps = Vec::new();
        let is_it = |track: &Track<C>| {
            let load = track.load.as_ref();
            load.is_some_and(|load| load.ticket == ticket)
        };
        let Some(entry) = self
            .desired
            .iter()
            .find(|entry| self.tracks.get(&entry.name).is_some_and(is_it))
            .cloned()
        else {
            return steps;
        };
        let same = self.same_code(&entry);
        let poll = now + self.jitter.about(self.poll_interval);
        let Some(track) = self.tracks.get_mut(&entry.name) else {
            return steps;
        };
        let is_first = track.load.take().is_some_and(|load| load.is_first);
        track.poll = poll;
        let (loaded, is_cached) = match outcome {
            Err(failure) => {
                self.fail(&entry, failure, is_first, now, &mut steps);
                return steps;
            }
            Ok(Outcome::HeldBack) => return steps,
            Ok(Outcome::Unchanged { is_cached }) => match same {
                Some(mut loaded) => {
                    if !is_cached {
                        loaded.stale = None;
                    }
                    (loaded, is_cached)
                }
                // What it was compared with has gone meanwhile.
                None => {
                    let why = Why {
                        asked: true,
                        is_first,
                        ..Why::default()
                    };
                    steps.extend(self.begin(&entry, why, now));
                    return steps;
                }
            },
            Ok(Outcome::New { loaded, is_cached }) => (loaded, is_cached),
        };
        let (digest, stale) = (loaded.digest.clone(), loaded.stale.clone());
        let fits = loaded.code.fits(&entry);
        track.ready = Some((entry.clone(), loaded));
        track.is_unfit = fits.is_err();
        if let Err(reason) = fits {
            let failure = Failure { reason, digest };
            self.fail(&entry, failure, is_first, now, &mut steps);
            return steps;
        }
        let is_settled = |trouble: &Trouble| stale.is_none() && trouble.is_about(&digest);
        if is_cached && track.trouble.as_ref().is_some_and(|it| !is_settled(it)) {
            // It serves, of what is known of its tag; what was wrong with that is looked at again.
            let why = Why {
                asked: true,
                ..Why::default()
            };
            steps.extend(self.begin(&entry, why, now));
        } else if let Some(reason) = stale {
            let digest = Arc::from("");
            let failure = Failure { reason, digest };
            self.fail(&entry, failure, is_first, now, &mut steps);
        } else if track.trouble.take().is_some() {
            steps.push(Step::Note(Note::AsDesired { name: entry.name }));
        }
        steps
    }

    /// Judges code that is there already under an entry that has changed around it.
    fn refit(&mut self, entry: &PluginConfig, now: Instant, steps: &mut Vec<Step<C>>) {
        let Some(same) = self.same_code(entry) else {
            return;
        };
        let Some(track) = self.tracks.get_mut(&entry.name) else {
            return;
        };
        match same.code.fits(entry) {
            Ok(()) if track.is_unfit => {
                track.is_unfit = false;
                track.trouble = None;
                let name = entry.name.clone();
                steps.push(Step::Note(Note::AsDesired { name }));
            }
            Err(reason) if !track.is_unfit => {
                track.is_unfit = true;
                let digest = same.digest;
                self.fail(entry, Failure { reason, digest }, true, now, steps);
            }
            Ok(()) | Err(_) => {}
        }
    }

    fn fail(
        &mut self,
        entry: &PluginConfig,
        failure: Failure,
        is_first: bool,
        now: Instant,
        steps: &mut Vec<Step<C>>,
    ) {
        let Some(track) = self.tracks.get_mut(&entry.name) else {
            return;
        };
        let Failure { reason, digest } = failure;
        let longest = match &entry.source {
            // What has to be looked for is looked for as often as without trouble.
            Source::Oci(reference) if digest.is_empty() && reference.digest.is_none() => {
                self.poll_interval
            }
            Source::Oci(_) | Source::File(_) => Duration::MAX,
        };
        let earlier = track.trouble.as_ref().filter(|_| !is_first);
        let is_news = earlier.is_none_or(|earlier| earlier.reason != reason);
        let jitter = &mut self.jitter;
        let trouble = Trouble::next(reason, digest, earlier, longest, now, jitter);
        track.trouble = Some(trouble.clone());
        steps.push(Step::Note(Note::Trouble {
            name: entry.name.clone(),
            retry_in: trouble.next.saturating_duration_since(now),
            trouble,
            is_news,
        }));
    }

    /// The newest code that runs as an entry says, whether or not it can be asked as it says.
    pub(super) fn same_code(&self, entry: &PluginConfig) -> Option<Loaded<C>> {
        let track = self.tracks.get(&entry.name);
        let ready = track.and_then(|track| track.ready.as_ref());
        let ready = ready.filter(|(config, _)| config.runs_like(entry));
        if let Some((_, loaded)) = ready {
            return Some(loaded.clone());
        }
        let place = self.place(&entry.name)?;
        let place = Some(place).filter(|place| place.config.runs_like(entry))?;
        place.code().cloned()
    }

    /// The entries that are to be loaded now. No start waits for candidates, which decide nothing.
    fn loadable(&self) -> Vec<PluginConfig> {
        let is_starting = self.start.is_some();
        let entries = self.desired.iter().filter(|entry| entry.enabled);
        let entries = entries.filter(|entry| !(is_starting && entry.is_candidate()));
        entries.cloned().collect()
    }
}

// === impl Track ===

impl<C> Track<C> {
    fn new(inputs: Inputs, now: Instant) -> Self {
        Self {
            inputs,
            load: None,
            ready: None,
            trouble: None,
            is_unfit: false,
            poll: now,
        }
    }

    /// The time of the next attempt; none while one is under way, and where there is no reason for one.
    fn due(&self, entry: &PluginConfig) -> Option<Instant> {
        if self.load.is_some() {
            return None;
        }
        let polled = match &entry.source {
            Source::Oci(reference) if reference.digest.is_none() => Some(self.poll),
            Source::Oci(_) | Source::File(_) => None,
        };
        match &self.trouble {
            None => polled,
            // A tag with a bad version is polled as ever; that version is not tried before its time.
            Some(trouble) if trouble.is_of_bytes() => {
                Some(polled.map_or(trouble.next, |poll| poll.min(trouble.next)))
            }
            Some(trouble) => Some(trouble.next),
        }
    }
}

// === impl Load ===

impl Load {
    pub(super) fn is_first(&self) -> bool {
        self.is_first
    }

    fn abort<C>(self) -> Step<C> {
        Step::Abort(self.ticket)
    }
}
