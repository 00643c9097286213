//! Manages one load for each plugin. A load begins when its inputs change, when a retry or a poll is due, or when a
//! caller asks for it. No other event aborts or restarts a load.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tollgate_config::stamp::Stamp;
use tollgate_config::{PluginConfig, PluginName, SignatureRequirement, Source};

use super::place::{Code, Loaded};
use super::trouble::Trouble;
use super::{Failure, Note, Order, Outcome, State, Step, Ticket};

/// File stamps by path; `None` if there is no such file.
pub(crate) type Stamps = BTreeMap<PathBuf, Option<Stamp>>;

/// The load state of one plugin's desired version.
#[derive(Debug)]
pub(super) struct Track<C> {
    /// The inputs of the load that was begun last.
    inputs: Inputs,
    pub(super) load: Option<Load>,
    /// The last load that succeeded, and the entry that it was for.
    pub(super) ready: Option<(PluginConfig, Loaded<C>)>,
    pub(super) trouble: Option<Trouble>,
    /// Whether the trouble is that the code does not fit the entry.
    is_unfit: bool,
    /// When the registry is polled next.
    poll: Instant,
}

/// The inputs that identify a load. All other parts of an entry decide when the plugin is called and how its answer
/// counts.
#[derive(Clone, Debug)]
struct Inputs {
    config: PluginConfig,
    /// The stamp of the plugin's file; empty for a reference.
    source: Vec<Option<Stamp>>,
    /// The stamps of the keys and trusted roots that the load reads.
    keys: Arc<[Option<Stamp>]>,
}

/// A load that is under way.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) ticket: Ticket,
    pub(super) began: Instant,
    /// The digest, as soon as the bytes have arrived.
    pub(super) fetched: Option<Arc<str>>,
    /// Whether a change or a caller asked for this load. If not, it is a retry or a poll.
    is_requested: bool,
    /// Whether this is the first load with these inputs.
    is_first: bool,
    held_back: bool,
}

/// The reason for a load.
#[derive(Clone, Copy, Default)]
struct Why {
    is_requested: bool,
    is_first: bool,
    /// Whether a held-back version is only compared with the tag's current version, and not loaded.
    holds_back: bool,
    /// Whether the cached artifact of the serving digest is good enough.
    at_hand: bool,
}

// === impl Inputs ===

impl Inputs {
    fn of(config: &PluginConfig, stamps: &Stamps) -> Self {
        let stamp = |path: &PathBuf| stamps.get(path).copied().flatten();
        Self {
            source: own_file(config).map(stamp).collect(),
            keys: key_files(config).map(stamp).collect(),
            config: config.clone(),
        }
    }

    fn are(&self, other: &Self) -> bool {
        self.config.runs_like(&other.config)
            && self.source == other.source
            && self.keys == other.keys
    }
}

/// The files that a load reads: the plugin, its keys and its trusted roots.
pub(crate) fn files(config: &PluginConfig) -> impl Iterator<Item = &PathBuf> {
    own_file(config).chain(key_files(config))
}

fn own_file(config: &PluginConfig) -> impl Iterator<Item = &PathBuf> {
    let own = match &config.source {
        Source::File(path) => Some(path),
        Source::Oci(_) => None,
    };
    own.into_iter()
}

/// The keys and trusted roots that prove who has signed the plugin's artifact, and the images that the plugin may have
/// verified.
fn key_files(config: &PluginConfig) -> impl Iterator<Item = &PathBuf> {
    let images = config.images.iter().flat_map(|images| images.files());
    config.signatures.files().chain(images)
}

fn is_file(config: &PluginConfig) -> bool {
    matches!(config.source, Source::File(_))
}

// === impl State ===

impl<C: Code> State<C> {
    /// Begins and aborts loads, so that each desired plugin has the load that its inputs require.
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
                    is_requested: true,
                    is_first: true,
                    ..Why::default()
                };
                steps.extend(self.begin(entry, why, now));
                continue;
            };
            if !track.inputs.are(&inputs) {
                // A cached artifact counts only if it is signed as today's keys require.
                let at_hand = !is_file(entry) && track.inputs.config.signatures == entry.signatures;
                let why = Why {
                    is_requested: true,
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

    /// Begins the load that a caller asks for, unless such a load is under way.
    fn begin_asked(&mut self, entry: &PluginConfig, now: Instant) -> Vec<Step<C>> {
        let mut steps = Vec::new();
        if let Some(track) = self.tracks.get_mut(&entry.name) {
            let is_under_way = track.load.as_ref().is_some_and(|load| {
                load.fetched.is_some() || (load.is_requested && !load.held_back) || is_file(entry)
            });
            if is_under_way {
                return steps;
            }
            steps.extend(track.load.take().map(Load::abort));
        }
        let why = Why {
            is_requested: true,
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

    /// Begins a load of a tracked plugin. The caller has aborted the previous load.
    fn begin(&mut self, entry: &PluginConfig, why: Why, now: Instant) -> Option<Step<C>> {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let serving = self.same_code(entry);
        let place = self.place(&entry.name);
        let is_new = !entry.is_shadow() && place.is_none_or(|place| place.code().is_none());
        let is_starting = self.start.is_some();
        let replaceable = self.recalls.contains_key(&entry.name);
        let in_force = place
            .filter(|place| why.at_hand && place.config.source == entry.source)
            .and_then(|place| Some(place.code()?.digest.clone()));
        let track = self.tracks.get_mut(&entry.name)?;
        let is_doubted = track.trouble.is_some()
            && entry.signature_requirement() != SignatureRequirement::Nothing;
        let held_back = track
            .trouble
            .as_ref()
            .filter(|_| why.holds_back && !is_file(entry))
            .and_then(|trouble| trouble.held_back(now).cloned());
        // Code is bound to the keys that its load has read, so changed keys need a whole load.
        let has_read_keys = |loaded: &&Loaded<C>| {
            track.inputs.keys.is_empty() || loaded.keys.as_ref() == Some(&track.inputs.keys)
        };
        // If a signature is required and the last load failed, the artifact is checked from scratch.
        let have = serving
            .as_ref()
            .filter(|_| is_file(entry) || !is_doubted)
            .filter(has_read_keys)
            .map(|loaded| loaded.digest.clone());
        track.load = Some(Load {
            ticket,
            began: now,
            fetched: None,
            is_requested: why.is_requested,
            is_first: why.is_first,
            held_back: held_back.is_some(),
        });
        Some(Step::Load(Order {
            ticket,
            config: entry.clone(),
            have,
            serves: serving.is_some(),
            is_new,
            held_back,
            at_hand: in_force,
            at_start: is_starting.then_some(replaceable),
        }))
    }

    /// Notes the digest of the bytes that a load has fetched.
    pub(super) fn fetched(&mut self, ticket: Ticket, digest: Arc<str>) {
        let mut loads = self
            .tracks
            .values_mut()
            .filter_map(|track| track.load.as_mut());
        if let Some(load) = loads.find(|load| load.ticket == ticket) {
            load.fetched = Some(digest);
        }
    }

    /// Handles the end of a load. The result of an aborted load is ignored.
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
                // The code that the load was compared with is gone.
                None => {
                    let why = Why {
                        is_requested: true,
                        is_first,
                        ..Why::default()
                    };
                    steps.extend(self.begin(&entry, why, now));
                    return steps;
                }
            },
            Ok(Outcome::New {
                mut loaded,
                is_cached,
            }) => {
                loaded.keys = Some(track.inputs.keys.clone());
                (loaded, is_cached)
            }
        };
        let (digest, stale) = (loaded.digest.clone(), loaded.stale.clone());
        let fits = loaded.code.fits(&entry);
        track.ready = Some((entry.clone(), loaded));
        track.is_unfit = fits.is_err();
        if let Err(reason) = fits {
            let failure = Failure {
                reason,
                digest: Some(digest),
                is_unsigned: false,
            };
            self.fail(&entry, failure, is_first, now, &mut steps);
            return steps;
        }
        let is_settled = |trouble: &Trouble| stale.is_none() && trouble.is_about(&digest);
        if is_cached && track.trouble.as_ref().is_some_and(|it| !is_settled(it)) {
            // The cached code serves. The registry is asked again about the earlier trouble.
            let why = Why {
                is_requested: true,
                ..Why::default()
            };
            steps.extend(self.begin(&entry, why, now));
        } else if let Some(reason) = stale {
            let failure = Failure {
                reason,
                digest: None,
                is_unsigned: false,
            };
            self.fail(&entry, failure, is_first, now, &mut steps);
        } else if track.trouble.take().is_some() {
            steps.push(Step::Note(Note::AsDesired { name: entry.name }));
        }
        steps
    }

    /// Checks whether loaded code still fits an entry that has changed.
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
                let failure = Failure {
                    reason,
                    digest: Some(same.digest),
                    is_unsigned: false,
                };
                self.fail(entry, failure, true, now, steps);
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
        let Failure {
            reason,
            digest,
            is_unsigned,
        } = failure;
        let longest = match &entry.source {
            // If the bytes are not the reason, a tag is retried at least as often as it is polled.
            Source::Oci(reference) if digest.is_none() && reference.digest.is_none() => {
                Some(self.poll_interval)
            }
            Source::Oci(_) | Source::File(_) => None,
        };
        let earlier = track.trouble.as_ref().filter(|_| !is_first);
        let is_news = earlier.is_none_or(|earlier| earlier.reason != reason);
        let jitter = &mut self.jitter;
        let trouble = Trouble {
            is_unsigned,
            ..Trouble::next(reason, digest, earlier, longest, now, jitter)
        };
        track.trouble = Some(trouble.clone());
        steps.push(Step::Note(Note::Trouble {
            name: entry.name.clone(),
            retry_in: trouble.next.saturating_duration_since(now),
            trouble,
            is_news,
        }));
    }

    /// The newest code that runs as an entry says, whether or not it fits the entry.
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

    /// The entries to load now. Shadows are loaded after the start, because they decide nothing. The new version of a
    /// rollout may decide, so it is loaded at once.
    fn loadable(&self) -> Vec<PluginConfig> {
        let rolled_out = |shadow: &PluginConfig| {
            let mut entries = self.desired.iter();
            entries.any(|entry| {
                entry.active_rollout().is_some() && entry.name.as_str() == shadow.name.entry()
            })
        };
        let is_starting = self.start.is_some();
        let entries = self.desired.iter().filter(|entry| entry.enabled);
        let entries =
            entries.filter(|entry| !(is_starting && entry.is_shadow() && !rolled_out(entry)));
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

    /// When the next attempt is due; `None` if a load is under way or no attempt is needed.
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
            // A tag with a bad version is polled as usual. The bad version itself is not tried before its time.
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
