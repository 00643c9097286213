//! The task that brings what is served to what is wanted.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::json;
use time::OffsetDateTime;
use tokio::signal::unix::Signal;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::Ask;
use super::candidate::{Candidate, Outcome, candidate, meanwhile};
use super::status::Status;
use super::trouble::Trouble;
use super::watch::{Stamps, Watch, stamps};
use crate::config::{Config, Origin, PluginConfig, PluginName, Source};
use crate::engine::chain;
use crate::memory;
use crate::metrics::Metrics;
use crate::pipeline::Pipeline;
use crate::plugin::{Artifact, LoadError, Loader, Plugin, PluginSet, PluginState};
use crate::registry::{LastGood, Patience, Served, Start};
use crate::server::Reloaded;
use crate::stamp::Stamp;

/// Keeps what is served at what is wanted.
pub struct Keeper {
    origin: Origin,
    loader: Arc<Loader>,
    metrics: Arc<Metrics>,
    status: Arc<Status>,
    /// What the process was started with: some of it stays until its end.
    started: Config,
    /// The plugins of the last valid configuration.
    wanted: Vec<PluginConfig>,
    /// What was last made of each, or tried to.
    tried: BTreeMap<PluginName, Tried>,
    watch: Watch,
    /// When each tag is looked at next.
    polls: BTreeMap<PluginName, Instant>,
    /// Looks at registries that are under way: however long one takes, files and the configuration go on.
    pulls: JoinSet<Pull>,
    /// Which of them count: the last of each plugin.
    pulling: BTreeMap<PluginName, Pulling>,
    pull_number: u64,
    /// Plugins whose entries are not in force before something has come from a registry.
    waiting: BTreeSet<PluginName>,
    /// Those who wait for looks at registries.
    asked: Vec<Asked>,
    /// What is written down of what serves; none where nothing is kept.
    last_good: Option<LastGood>,
    /// What was written down of each since the last renewal.
    recorded: BTreeMap<PluginName, Served>,
    hangups: Signal,
    asks: mpsc::Receiver<Ask>,
    asking: mpsc::Sender<Ask>,
}

/// What a plugin was last loaded from, or tried to.
#[derive(PartialEq)]
struct Tried {
    config: PluginConfig,
    /// Of its file, or of the keys that its artifact has to be signed with.
    stamps: Vec<Option<Stamp>>,
}

/// What a look at a registry came to.
struct Pull {
    number: u64,
    config: PluginConfig,
    /// Of the keys that it was to be signed with.
    stamps: Vec<Option<Stamp>>,
    /// Whether somebody wants to know, whatever came of it.
    asked: bool,
    /// The version that was not to be tried again yet: it was only looked whether it is still that one.
    held_back: Option<Arc<str>>,
    fetched: Result<Artifact, LoadError>,
}

/// A look at a registry that is under way.
struct Pulling {
    number: u64,
    asked: bool,
    task: AbortHandle,
}

/// Somebody who asked for a reload, and what has come of it so far.
struct Asked {
    ask: Ask,
    /// Whose registries are still being asked.
    names: BTreeSet<PluginName>,
    changed: BTreeSet<String>,
    swapped: bool,
}

/// What was published.
struct Published {
    changed: Vec<String>,
    swapped: bool,
}

/// Those that are to be taken up.
type Pulls = BTreeMap<PluginName, Pull>;

/// Where a plugin is looked for.
enum Look {
    /// There is no reason to.
    Nowhere,
    /// Where it is: in its file, or in what was fetched.
    At(Option<Result<Artifact, LoadError>>),
    /// In what is there without its registry: this, where it is known to be what the reference stands for.
    Around(Option<Arc<Plugin>>),
}

/// What a look at everything came to.
struct Looked {
    candidates: Vec<(PluginConfig, Candidate)>,
    stamps: Stamps,
}

/// A change is seen after twice this at most, for a file has to rest for one look.
const PERIOD: Duration = Duration::from_millis(100);
/// How long a newer configuration waits for plugins that are being loaded for an older one.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longer than any pull takes.
const FAR: Duration = Duration::from_secs(24 * 3600 * 365);
/// How often what serves is written down although nothing has changed: records of nobody's are removed one day.
const RENEWAL: Duration = Duration::from_secs(24 * 3600);
/// Plugins that are pulled at the same time. Preparing them has its own bound.
const PULLS: usize = 16;
/// Those who ask for a reload and wait their turn.
const ASKS: usize = 16;

// === impl Keeper ===

impl Keeper {
    /// A keeper of what was read from `origin`. `hangups` are the process's SIGHUPs.
    #[must_use]
    pub fn new(
        origin: Origin,
        mut config: Config,
        loader: Loader,
        metrics: Arc<Metrics>,
        hangups: Signal,
    ) -> Self {
        let (asking, asks) = mpsc::channel(ASKS);
        let wanted = config.take_plugins();
        let starting = wanted
            .iter()
            .filter(|plugin| plugin.enabled && !plugin.is_candidate())
            .map(|plugin| (plugin.name.clone(), plugin.source.to_string()));
        Self {
            status: Arc::new(Status::new(origin.to_string(), starting.collect())),
            wanted,
            last_good: None,
            recorded: BTreeMap::new(),
            started: config,
            tried: BTreeMap::new(),
            watch: Watch::default(),
            polls: BTreeMap::new(),
            pulls: JoinSet::new(),
            pulling: BTreeMap::new(),
            pull_number: 0,
            waiting: BTreeSet::new(),
            asked: Vec::new(),
            origin,
            loader: Arc::new(loader),
            metrics,
            hangups,
            asks,
            asking,
        }
    }

    /// Falls back to what served last, where the first set lacks something, and writes down what serves.
    #[must_use]
    pub fn with_last_good(self, last_good: Option<LastGood>) -> Self {
        Self { last_good, ..self }
    }

    pub(super) fn status(&self) -> Arc<Status> {
        self.status.clone()
    }

    pub(super) fn asks(&self) -> mpsc::Sender<Ask> {
        self.asking.clone()
    }

    /// Loads the first set: all plugins, whatever becomes of one. Where one cannot be loaded, what served last of it
    /// before this start is. Candidates come when it serves: no start waits for what decides nothing.
    pub async fn load(&mut self) -> PluginSet {
        // Before the files are read: what is written meanwhile is seen by the first look.
        let stamps = stamps(self.files()).await;
        let mut first = self.wanted.clone();
        first.retain(|plugin| !plugin.is_candidate());
        let patience = Patience::default();
        let making: Vec<_> = first
            .iter()
            .map(|wanted| self.first(wanted, &patience))
            .collect();
        let made: Vec<_> = futures_util::stream::iter(making)
            .buffered(PULLS)
            .collect()
            .await;
        let mut plugins = Vec::with_capacity(made.len());
        for (wanted, (plugin, trouble)) in first.iter().zip(made) {
            match trouble {
                Some((reason, digest)) => self.in_trouble(wanted, reason, digest, None),
                None => self.metrics.plugin_degraded(wanted.name.as_str(), false),
            }
            plugins.push(plugin);
        }
        let set = PluginSet::new(plugins);
        memory::loaded();
        if let Some(last_good) = &self.last_good {
            last_good.clear_out();
        }
        self.record(&set);
        self.loader.tidy();
        self.tried = tried(&first, &stamps);
        for plugin in &self.wanted {
            self.polls.insert(plugin.name.clone(), self.next_poll());
        }
        // The configuration itself is not among the stamps, so that it is read again at once: it may have changed
        // since it was read for the start.
        self.watch.reading(stamps);
        self.tell_metrics();
        set
    }

    /// A plugin of the first set, or what served last of it; with what is wrong, and the digest that it is wrong with.
    async fn first(
        &self,
        wanted: &PluginConfig,
        patience: &Patience,
    ) -> (Arc<Plugin>, Option<(String, Arc<str>)>) {
        let records = self.last_good.as_ref();
        let served = records.and_then(|records| records.of(&wanted.name));
        let start = Start {
            patience,
            replaceable: served.is_some(),
        };
        let plugin = self.loader.load_at_start(wanted.clone(), start).await;
        let made = self.fall_back(Arc::new(plugin), served, patience).await;
        if let Some(starting) = &mut self.status.lock().starting {
            starting.remove(&wanted.name);
        }
        made
    }

    async fn fall_back(
        &self,
        plugin: Arc<Plugin>,
        served: Option<Served>,
        patience: &Patience,
    ) -> (Arc<Plugin>, Option<(String, Arc<str>)>) {
        let digest = plugin.digest.clone();
        let PluginState::Failed { reason } = &plugin.state else {
            let trouble = plugin.stale.clone().map(|reason| (reason, Arc::from("")));
            return (plugin, trouble);
        };
        let name = &plugin.config.name;
        let Some(served) = served else {
            let trouble = (reason.clone(), digest);
            return (plugin, Some(trouble));
        };
        let start = Start {
            patience,
            replaceable: false,
        };
        match self.loader.last_good(&plugin.config, served, start).await {
            Ok(last) => {
                tracing::warn!(plugin = %name, digest = %last.digest, "the plugin serves as it did before the start");
                (Arc::new(last), Some((reason.clone(), digest)))
            }
            Err(error) => {
                let reason =
                    format!("{reason}; what served before the start cannot be had: {error}");
                let failed =
                    self.loader
                        .failed(plugin.config.clone(), digest.clone(), reason.clone());
                (Arc::new(failed), Some((reason, digest)))
            }
        }
    }

    /// Writes down what serves, where that is news.
    fn record(&mut self, live: &PluginSet) {
        let Some(last_good) = &self.last_good else {
            return;
        };
        // A candidate serves nobody.
        let enabled = self
            .wanted
            .iter()
            .filter(|plugin| plugin.enabled && !plugin.is_candidate());
        let names: BTreeSet<&PluginName> = enabled.map(|plugin| &plugin.name).collect();
        last_good.retain(&names);
        self.recorded.retain(|name, _| names.contains(name));
        for plugin in live.iter() {
            let name = &plugin.config.name;
            let is_loaded = matches!(plugin.state, PluginState::Loaded(_));
            if !is_loaded || !names.contains(name) {
                continue;
            }
            let served = Served::of(&plugin.config, &plugin.digest);
            if self.recorded.get(name) != Some(&served) {
                last_good.record(name, &served, self.loader.needs(&served));
                self.recorded.insert(name.clone(), served);
            }
        }
    }

    /// Runs for as long as the plugins are served.
    pub async fn run(mut self, pipeline: Arc<Pipeline>) {
        let mut looks = interval(PERIOD);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut renewals = interval_at(Instant::now() + RENEWAL, RENEWAL);
        loop {
            self.answer();
            let mut pulled = Pulls::new();
            let (ask, everything) = tokio::select! {
                _ = looks.tick() => {
                    memory::look();
                    self.look_at_registries(&pipeline.live());
                    if !self.is_needed().await {
                        continue;
                    }
                    (None, false)
                }
                Some(pull) = self.pulls.join_next() => {
                    let mut next = Some(pull);
                    // All that are there: they are prepared at the same time.
                    while let Some(pull) = next {
                        // One that was given up for another is an error.
                        let landed = pull.ok().filter(|pull| self.lands(pull));
                        pulled.extend(landed.map(|pull| (pull.config.name.clone(), pull)));
                        next = self.pulls.try_join_next();
                    }
                    if pulled.is_empty() {
                        continue;
                    }
                    (None, false)
                }
                _ = renewals.tick() => {
                    self.recorded.clear();
                    self.record(&pipeline.live());
                    continue;
                }
                _ = self.hangups.recv() => {
                    tracing::info!("SIGHUP: reading the configuration and all plugins again");
                    (None, true)
                }
                ask = self.asks.recv() => (ask, true),
            };
            let published = self.reload(&pipeline, everything, pulled).await;
            self.loader.tidy();
            self.asked.extend(ask.map(|ask| Asked {
                ask,
                names: self.pulling.keys().cloned().collect(),
                changed: BTreeSet::new(),
                swapped: false,
            }));
            for asked in &mut self.asked {
                asked.changed.extend(published.changed.iter().cloned());
                asked.swapped |= published.swapped;
            }
        }
    }

    /// Answers those who wait for nothing any more.
    fn answer(&mut self) {
        for mut asked in std::mem::take(&mut self.asked) {
            asked.names.retain(|name| self.pulling.contains_key(name));
            if asked.names.is_empty() {
                // Whoever asked may have gone.
                drop(asked.ask.send(self.told(&asked.changed, asked.swapped)));
            } else {
                self.asked.push(asked);
            }
        }
    }

    /// Whether a file has changed, or something that failed is to be tried again.
    async fn is_needed(&mut self) -> bool {
        let mut paths = self.files();
        paths.push(self.origin.path().to_owned());
        let changed = self.watch.has_changed(stamps(paths).await);
        let state = self.status.lock();
        let is_due = |plugin: &PluginConfig| file(plugin).is_some() && state.is_due(&plugin.name);
        changed || self.wanted.iter().any(is_due)
    }

    /// Begins to look at what is due, beside everything else.
    fn look_at_registries(&mut self, live: &PluginSet) {
        let now = Instant::now();
        let mut due = Vec::new();
        for plugin in &self.wanted {
            let Source::Oci(reference) = &plugin.source else {
                continue;
            };
            let next = self.polls.get(&plugin.name).copied().unwrap_or(now);
            let moves = reference.digest.is_none();
            let running = live
                .find(plugin.name.as_str())
                .is_some_and(|running| running.config.runs_like(plugin));
            let first = plugin.is_candidate() && !running;
            let polled = (moves || first) && next <= now;
            let (is_due, held_back) = match self.status.lock().trouble(&plugin.name) {
                None => (polled, None),
                // A tag with a bad version is looked at as ever; that version is not tried before its time.
                Some(trouble) if trouble.is_of_bytes() => {
                    (polled || trouble.is_due(), trouble.held_back().cloned())
                }
                Some(trouble) => (trouble.is_due(), None),
            };
            // One is under way.
            if !plugin.enabled || !is_due || next > now + FAR / 2 {
                continue;
            }
            let troubled = self.status.lock().troubles.contains_key(&plugin.name);
            let have = have(live, plugin, troubled);
            due.push((plugin.clone(), have, held_back));
        }
        for (plugin, have, held_back) in due {
            self.pull(plugin, have, held_back, false);
        }
    }

    /// Begins to look at a plugin's registry, in the place of a look that is under way.
    fn pull(
        &mut self,
        config: PluginConfig,
        have: Option<Arc<str>>,
        held_back: Option<Arc<str>>,
        asked: bool,
    ) {
        let name = config.name.clone();
        // Until it is back, the next one is far away.
        self.polls.insert(name.clone(), Instant::now() + FAR);
        self.pull_number += 1;
        let number = self.pull_number;
        let tried = self.tried.get(&name);
        let stamps = tried.map(|tried| tried.stamps.clone()).unwrap_or_default();
        let have = held_back.clone().or(have);
        let loader = self.loader.clone();
        let task = self.pulls.spawn(async move {
            let wanted = config.clone();
            let fetching = async move { loader.fetch(&wanted, have.as_deref()).await };
            let fetching = AbortOnDropHandle::new(tokio::spawn(fetching));
            let fetched = fetching.await.unwrap_or_else(|lost| Err(lost.into()));
            Pull {
                number,
                config,
                stamps,
                asked,
                held_back,
                fetched,
            }
        });
        let pulling = Pulling {
            number,
            asked,
            task,
        };
        if let Some(earlier) = self.pulling.insert(name, pulling) {
            earlier.task.abort();
        }
    }

    /// Takes note of a look at a registry that is over, and says whether to look at the plugin for its sake.
    fn lands(&mut self, pull: &Pull) -> bool {
        let name = &pull.config.name;
        let current = self.pulling.get(name).map(|pulling| pulling.number);
        if current != Some(pull.number) {
            return false;
        }
        self.pulling.remove(name);
        let news = self.is_news(pull);
        news || pull.asked || self.waiting.contains(name)
    }

    /// Whether anything follows from a look at a registry.
    fn is_news(&mut self, pull: &Pull) -> bool {
        let name = &pull.config.name;
        self.polls.insert(name.clone(), self.next_poll());
        if let Some(held_back) = &pull.held_back {
            return matches!(
                &pull.fetched,
                Ok(artifact) if artifact.digest != *held_back && artifact.stale.is_none()
            );
        }
        let troubled = self.status.lock().troubles.contains_key(name);
        troubled || !matches!(&pull.fetched, Ok(artifact) if artifact.is_known())
    }

    /// Within a tenth more or less: replicas do not all come at once.
    fn next_poll(&self) -> Instant {
        let interval = self.started.registries.poll_interval;
        let percent = 90 + u32::try_from(RandomState::new().hash_one(0) % 21).unwrap_or(10);
        Instant::now() + interval * percent / 100
    }

    fn files(&self) -> Vec<PathBuf> {
        let enabled = self.wanted.iter().filter(|plugin| plugin.enabled);
        let paths =
            enabled.flat_map(|plugin| file(plugin).into_iter().chain(&plugin.signature_keys));
        paths.cloned().collect()
    }

    /// Looks at the configuration and at what may have changed, or at everything, and publishes what came of it.
    async fn reload(
        &mut self,
        pipeline: &Pipeline,
        everything: bool,
        mut pulled: Pulls,
    ) -> Published {
        let live = pipeline.live();
        let looked = loop {
            let of_configuration = self.read_configuration().await;
            let mut stamps = stamps(self.files()).await;
            stamps.extend(of_configuration);
            let pulled = std::mem::take(&mut pulled);
            let candidates = self.candidates(&live, &stamps, everything, pulled);
            tokio::select! {
                candidates = candidates => break Looked { candidates, stamps },
                () = superseded(&self.origin, &stamps) => {
                    tracing::info!("the configuration has changed once more: what was being loaded is given up");
                }
            }
        };
        let published = self.publish(pipeline, &live, looked);
        if everything {
            self.pull_everything(&pipeline.live());
        }
        self.tell_metrics();
        published
    }

    /// Asks the registries of all plugins what they have, for somebody who waits for it.
    fn pull_everything(&mut self, live: &PluginSet) {
        let enabled = self.wanted.iter().filter(|plugin| plugin.enabled);
        let of_registries = enabled.filter(|plugin| file(plugin).is_none());
        for plugin in of_registries.cloned().collect::<Vec<_>>() {
            let pulling = self.pulling.get(&plugin.name);
            if pulling.is_none_or(|pulling| !pulling.asked) {
                let have = have(live, &plugin, true);
                self.pull(plugin, have, None, true);
            }
        }
    }

    /// Takes up what the configuration wants now, where it is valid. The stamp is from before it was read.
    async fn read_configuration(&mut self) -> Stamps {
        let stamps = stamps(vec![self.origin.path().to_owned()]).await;
        let origin = self.origin.clone();
        let read = match spawn_blocking(move || origin.load()).await {
            Ok(read) => read.map_err(|error| chain(&error)),
            Err(lost) => Err(lost.to_string()),
        };
        let mut state = self.status.lock();
        match read {
            Ok(mut config) => {
                let needs_restart = config.needs_restart(&self.started);
                if needs_restart != state.needs_restart && !needs_restart.is_empty() {
                    let keys = needs_restart.join(", ");
                    tracing::warn!(
                        keys,
                        "the configuration has changed where a running server cannot: restart it for these keys; the \
                         rest is taken up"
                    );
                }
                state.needs_restart = needs_restart;
                state.invalid = None;
                state.read = OffsetDateTime::now_utc();
                self.wanted = config.take_plugins();
            }
            Err(reason) => {
                if state.invalid.as_ref() != Some(&reason) {
                    tracing::error!(
                        reason,
                        "the configuration cannot be used; what it said before stays in force"
                    );
                }
                state.invalid = Some(reason);
            }
        }
        stamps
    }

    /// Each plugin that is wanted, in order, as it can be had.
    async fn candidates(
        &self,
        live: &PluginSet,
        stamps: &Stamps,
        everything: bool,
        mut pulled: Pulls,
    ) -> Vec<(PluginConfig, Candidate)> {
        let tried = tried(&self.wanted, stamps);
        let making = self.wanted.iter().map(|wanted| {
            let name = &wanted.name;
            let earlier = live.find(name.as_str()).cloned();
            let (before, now) = (self.tried.get(name), tried.get(name));
            let other = before != now;
            let (due, waits) = (self.status.lock().is_due(name), self.waiting.contains(name));
            // What was pulled beside a change was pulled for what was wanted before it.
            let pulled = pulled.remove(name).filter(|pull| {
                let stamps = now.map(|now| &now.stamps);
                !other && stamps == Some(&pull.stamps) && pull.is_of(wanted, earlier.as_ref())
            });
            let of_registry = wanted.enabled && file(wanted).is_none();
            let look = match pulled {
                Some(pull) => Look::At(Some(pull.fetched)),
                None if !of_registry && (everything || due || other) => Look::At(None),
                None if of_registry && (other || waits) => {
                    let at_hand = !waits && has_keys_of(before, now);
                    let digest = earlier.as_ref().filter(|_| at_hand);
                    Look::Around(digest.cloned())
                }
                None => Look::Nowhere,
            };
            async move {
                let made = self.made(wanted, earlier, look).await;
                (wanted.clone(), made)
            }
        });
        let making: Vec<_> = making.collect();
        futures_util::stream::iter(making)
            .buffered(PULLS)
            .collect()
            .await
    }

    /// One plugin that is wanted, without waiting for a registry.
    async fn made(
        &self,
        wanted: &PluginConfig,
        earlier: Option<Arc<Plugin>>,
        look: Look,
    ) -> Candidate {
        let loader = &self.loader;
        match look {
            Look::Nowhere => Candidate {
                plugin: earlier,
                outcome: Outcome::Untouched,
            },
            Look::At(fetched) => candidate(loader, earlier, wanted.clone(), fetched).await,
            Look::Around(resolved) => {
                let resolved = resolved.and_then(|plugin| {
                    let artifact = at_hand(loader, &plugin, wanted)?;
                    Some((plugin, artifact))
                });
                let Some((plugin, artifact)) = resolved else {
                    return meanwhile(loader, earlier.as_ref(), wanted);
                };
                let mut made = candidate(loader, earlier, wanted.clone(), Some(Ok(artifact))).await;
                let trouble = self.status.lock().troubles.get(&wanted.name).cloned();
                let is_settled = |(_, trouble): &(String, Trouble)| {
                    plugin.stale.is_none() && trouble.is_about(&plugin.digest)
                };
                if matches!(made.outcome, Outcome::AsWanted)
                    && trouble.is_some_and(|trouble| !is_settled(&trouble))
                {
                    made.outcome = Outcome::InDoubt;
                }
                made
            }
        }
    }

    /// Swaps the set where anything of it is new, and keeps account of what is not as it is wanted.
    fn publish(&mut self, pipeline: &Pipeline, live: &PluginSet, looked: Looked) -> Published {
        let Looked { candidates, stamps } = looked;
        let now_tried = tried(&self.wanted, &stamps);
        let mut pulls = Vec::new();
        let mut plugins: Vec<Arc<Plugin>> = Vec::with_capacity(candidates.len());
        let mut replacing = false;
        for (wanted, candidate) in candidates {
            let is_new = candidate.plugin.is_none() && !wanted.is_candidate();
            replacing |= is_new && matches!(candidate.outcome, Outcome::Waits);
            plugins.extend(candidate.plugin);
            let name = &wanted.name;
            match candidate.outcome {
                Outcome::Untouched => {}
                Outcome::InDoubt => {
                    self.waiting.remove(name);
                    pulls.push(wanted);
                }
                Outcome::Waits => {
                    self.waiting.insert(name.clone());
                    let other = self.tried.get(name) != now_tried.get(name);
                    if other || !self.pulling.contains_key(name) {
                        pulls.push(wanted);
                    }
                }
                Outcome::AsWanted => {
                    self.waiting.remove(name);
                    if self.status.lock().troubles.remove(name).is_some() {
                        tracing::info!(plugin = %name, "the plugin is as configured again");
                    }
                    self.metrics.plugin_degraded(name.as_str(), false);
                }
                Outcome::Failed { reason, digest } => {
                    self.waiting.remove(name);
                    let same = self.tried.get(name) == now_tried.get(name);
                    let earlier = self.status.lock().troubles.get(name).cloned();
                    let earlier = earlier.filter(|_| same).map(|(_, trouble)| trouble);
                    self.in_trouble(&wanted, reason, digest, earlier.as_ref());
                }
            }
        }
        let is_wanted = |name: &PluginName| now_tried.contains_key(name);
        self.status
            .lock()
            .troubles
            .retain(|name, _| is_wanted(name));
        self.waiting.retain(is_wanted);
        self.pulling.retain(|name, pulling| {
            let stays = is_wanted(name);
            if !stays {
                pulling.task.abort();
            }
            stays
        });
        for gone in self.tried.keys().filter(|name| !is_wanted(name)) {
            self.metrics.plugin_gone(gone.as_str());
        }
        for plugin in &self.wanted {
            let other = self.tried.get(&plugin.name) != now_tried.get(&plugin.name);
            if other && !self.pulling.contains_key(&plugin.name) {
                self.polls.insert(plugin.name.clone(), self.next_poll());
            }
        }
        self.polls.retain(|name, _| now_tried.contains_key(name));
        if replacing {
            keep_replaced(live, &mut plugins, &now_tried);
        }
        self.tried = now_tried;
        self.watch.reading(stamps);

        let changed = changes(live, &plugins);
        let same = plugins.len() == live.all().count()
            && live
                .all()
                .zip(&plugins)
                .all(|(one, other)| Arc::ptr_eq(one, other));
        if !same {
            pipeline.publish(PluginSet::new(plugins));
            memory::loaded();
            tracing::info!(changed = changed.join(", "), "the plugins were swapped");
        }
        let live = pipeline.live();
        self.record(&live);
        for plugin in pulls {
            let have = have(&live, &plugin, true);
            self.pull(plugin, have, None, true);
        }
        let fetching = self.wanted.iter();
        let fetching = fetching.filter(|plugin| self.waiting.contains(&plugin.name));
        let fetching = fetching.map(|plugin| (plugin.name.clone(), plugin.source.to_string()));
        let mut state = self.status.lock();
        state.fetching = fetching.collect();
        self.metrics.reloaded(state.result(!same));
        Published {
            changed,
            swapped: !same,
        }
    }

    /// What is told to whoever asked for a reload.
    fn told(&self, changed: &BTreeSet<String>, swapped: bool) -> Reloaded {
        let state = self.status.lock();
        let mut report = json!({
            "result": state.result(swapped),
            "changed": changed,
            "needsRestart": state.needs_restart,
        });
        if let Some(reason) = &state.invalid {
            report["invalid"] = reason.as_str().into();
        }
        for (name, (_, trouble)) in &state.troubles {
            report["failed"][name.as_str()] = trouble.reason.as_str().into();
        }
        Reloaded {
            complete: !state.is_degraded(),
            report,
        }
    }

    fn in_trouble(
        &self,
        wanted: &PluginConfig,
        reason: String,
        digest: Arc<str>,
        earlier: Option<&Trouble>,
    ) {
        let name = wanted.name.as_str();
        let news = earlier.is_none_or(|earlier| earlier.reason != reason);
        let longest = match &wanted.source {
            // What has to be looked for is looked for as often as without trouble.
            Source::Oci(reference) if digest.is_empty() && reference.digest.is_none() => {
                self.started.registries.poll_interval
            }
            Source::Oci(_) | Source::File(_) => Duration::MAX,
        };
        let trouble = Trouble::next(reason, digest.clone(), earlier, longest);
        let retry_in_seconds = trouble.retry_in().as_secs_f32();
        if news {
            tracing::error!(plugin = name, %digest, reason = trouble.reason, retry_in_seconds, "what the configuration wants of the plugin cannot be loaded; what there was before stays");
        } else {
            tracing::debug!(
                plugin = name,
                reason = trouble.reason,
                retry_in_seconds,
                "still not loaded"
            );
        }
        self.metrics.plugin_degraded(name, true);
        let mut state = self.status.lock();
        let source = wanted.source.to_string();
        state
            .troubles
            .insert(wanted.name.clone(), (source, trouble));
    }

    fn tell_metrics(&self) {
        let all = !self.status.lock().is_degraded();
        let now = OffsetDateTime::now_utc().unix_timestamp();
        self.metrics.as_configured(all, now);
    }
}

/// Returns when there is a newer configuration than the one that was stamped, and it has waited long enough.
async fn superseded(origin: &Origin, read: &Stamps) {
    let began = Instant::now();
    let mut seen = Stamps::new();
    loop {
        sleep(PERIOD).await;
        let now = stamps(vec![origin.path().to_owned()]).await;
        let newer = now
            .iter()
            .any(|(path, stamp)| read.get(path) != Some(stamp));
        if newer && now == seen && began.elapsed() >= PATIENCE {
            return;
        }
        seen = now;
    }
}

/// Keeps those that are gone from the configuration, each at its place, while what may replace them is fetched: there is
/// no moment with neither.
fn keep_replaced(
    live: &PluginSet,
    plugins: &mut Vec<Arc<Plugin>>,
    wanted: &BTreeMap<PluginName, Tried>,
) {
    let mut place = 0;
    for earlier in live.iter() {
        let name = &earlier.config.name;
        if wanted.contains_key(name) {
            let next = plugins.iter().position(|next| next.config.name == *name);
            place = next.map_or(place, |next| next + 1);
        } else {
            plugins.insert(place, earlier.clone());
            place += 1;
        }
    }
}

/// The digest that serves, where the same is wanted. What has to be signed and may not be is looked at from scratch.
fn have(live: &PluginSet, wanted: &PluginConfig, doubted: bool) -> Option<Arc<str>> {
    if doubted && !wanted.signature_keys.is_empty() {
        return None;
    }
    let serving = live.find(wanted.name.as_str()).filter(|serving| {
        matches!(serving.state, PluginState::Loaded(_)) && serving.config.runs_like(wanted)
    });
    serving.map(|serving| serving.digest.clone())
}

/// What is wanted, where it is known and there without its registry: what the reference stands for, as it serves.
fn at_hand(loader: &Loader, serving: &Plugin, wanted: &PluginConfig) -> Option<Artifact> {
    let PluginState::Loaded(loaded) = &serving.state else {
        return None;
    };
    if serving.config.source != wanted.source {
        return None;
    }
    if serving.config.runs_like(wanted) {
        let hold = loaded.hold.clone();
        return Some(Artifact::known(serving.digest.clone(), hold));
    }
    loader.at_hand(wanted, &serving.digest)
}

/// Whether it has to be signed by what it had to be signed by before.
fn has_keys_of(before: Option<&Tried>, now: Option<&Tried>) -> bool {
    let keys = |tried: &Tried| (tried.config.signature_keys.clone(), tried.stamps.clone());
    before.is_some() && before.map(keys) == now.map(keys)
}

// === impl Pull ===

impl Pull {
    /// Whether it is what is wanted now that was looked for, and something can be made of it.
    fn is_of(&self, wanted: &PluginConfig, earlier: Option<&Arc<Plugin>>) -> bool {
        let serves = |digest: &str| {
            earlier.is_some_and(|earlier| {
                matches!(earlier.state, PluginState::Loaded(_))
                    && *earlier.digest == *digest
                    && earlier.config.runs_like(wanted)
            })
        };
        let is_usable = match &self.fetched {
            Ok(artifact) => !artifact.is_known() || serves(&artifact.digest),
            Err(_) => true,
        };
        self.config.runs_like(wanted) && is_usable
    }
}

fn file(plugin: &PluginConfig) -> Option<&PathBuf> {
    match &plugin.source {
        Source::File(path) => Some(path),
        Source::Oci(_) => None,
    }
}

fn tried(wanted: &[PluginConfig], stamps: &Stamps) -> BTreeMap<PluginName, Tried> {
    let tried = wanted.iter().map(|plugin| {
        let paths = file(plugin).into_iter().chain(&plugin.signature_keys);
        let stamps = paths
            .map(|path| stamps.get(path).copied().flatten())
            .collect();
        let config = plugin.clone();
        (plugin.name.clone(), Tried { config, stamps })
    });
    tried.collect()
}

/// The names of those that are new, other or gone.
fn changes(live: &PluginSet, next: &[Arc<Plugin>]) -> Vec<String> {
    let mut changed = Vec::new();
    for plugin in next {
        let name = plugin.config.name.as_str();
        if live
            .find(name)
            .is_none_or(|earlier| !Arc::ptr_eq(earlier, plugin))
        {
            changed.push(name.to_owned());
        }
    }
    let is_next = |plugin: &Plugin| {
        next.iter()
            .any(|next| next.config.name == plugin.config.name)
    };
    for plugin in live.all().filter(|plugin| !is_next(plugin)) {
        changed.push(plugin.config.name.as_str().to_owned());
    }
    changed
}
