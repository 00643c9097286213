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
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, sleep, sleep_until};

use super::Ask;
use super::candidate::{Candidate, Outcome, candidate};
use super::grace::{Grace, awaited};
use super::status::Status;
use super::trouble::Trouble;
use super::watch::{Stamps, Watch, stamps};
use crate::config::{Config, Origin, PluginConfig, PluginName, Source};
use crate::engine::chain;
use crate::metrics::Metrics;
use crate::pipeline::Pipeline;
use crate::plugin::{Artifact, LoadError, Loader, Plugin, PluginSet, PluginState};
use crate::registry::{LastGood, Served};
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
    grace: Grace,
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
    config: PluginConfig,
    /// The version that was not to be tried again yet: it was only looked whether it is still that one.
    held_back: Option<Arc<str>>,
    fetched: Result<Artifact, LoadError>,
}

/// Those that are to be taken up.
type Pulls = BTreeMap<PluginName, Pull>;

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
        Self {
            status: Arc::new(Status::new(origin.to_string())),
            wanted: config.take_plugins(),
            grace: Grace::new(config.startup_grace),
            last_good: None,
            recorded: BTreeMap::new(),
            started: config,
            tried: BTreeMap::new(),
            watch: Watch::default(),
            polls: BTreeMap::new(),
            pulls: JoinSet::new(),
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

    pub(super) fn grace(&self) -> Grace {
        self.grace
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
        let set = self.loader.load_all(first.clone()).await;
        let making: Vec<_> = set
            .iter()
            .map(|plugin| self.fall_back(plugin.clone()))
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
        if let Some(last_good) = &self.last_good {
            last_good.clear_out();
        }
        self.record(&set);
        if let Some(plugins) = awaited(&set) {
            tracing::warn!(
                plugins,
                seconds = self.started.startup_grace.as_secs(),
                "not ready before these are loaded, or startupGrace is over"
            );
        }
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
    async fn fall_back(&self, plugin: Arc<Plugin>) -> (Arc<Plugin>, Option<(String, Arc<str>)>) {
        let digest = plugin.digest.clone();
        let PluginState::Failed { reason } = &plugin.state else {
            let trouble = plugin.stale.clone().map(|reason| (reason, Arc::from("")));
            return (plugin, trouble);
        };
        let name = &plugin.config.name;
        let served = self.last_good.as_ref().and_then(|records| records.of(name));
        let Some(served) = served else {
            let trouble = (reason.clone(), digest);
            return (plugin, Some(trouble));
        };
        match self.loader.last_good(&plugin.config, served).await {
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
        let mut is_waiting = awaited(&pipeline.live()).is_some();
        loop {
            let mut pulled = Pulls::new();
            let (ask, everything) = tokio::select! {
                _ = looks.tick() => {
                    self.look_at_registries(&pipeline.live());
                    if !self.is_needed().await {
                        continue;
                    }
                    (None, false)
                }
                Some(pull) = self.pulls.join_next() => {
                    // The panic hook has reported what was lost.
                    let pull = pull.ok();
                    let Some(pull) = pull.filter(|pull| self.is_news(pull)) else {
                        continue;
                    };
                    pulled.insert(pull.config.name.clone(), pull);
                    (None, false)
                }
                () = sleep_until(self.grace.end()), if is_waiting => {
                    is_waiting = false;
                    if let Some(plugins) = awaited(&pipeline.live()) {
                        tracing::error!(
                            plugins,
                            "startupGrace is over: ready without these; what they would be asked about is denied"
                        );
                    }
                    continue;
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
            let reloaded = self.reload(&pipeline, everything, pulled).await;
            self.loader.tidy();
            if let Some(ask) = ask {
                // Whoever asked may have gone.
                drop(ask.send(reloaded));
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
            let (due, held_back) = match self.status.lock().trouble(&plugin.name) {
                None => (polled, None),
                // A tag with a bad version is looked at as ever; that version is not tried before its time.
                Some(trouble) if trouble.is_of_bytes() => {
                    (polled || trouble.is_due(), trouble.held_back().cloned())
                }
                Some(trouble) => (trouble.is_due(), None),
            };
            // Until a pull is back, its next one is far away.
            if !plugin.enabled || !due || next > now + FAR / 2 {
                continue;
            }
            self.polls.insert(plugin.name.clone(), now + FAR);
            let have = live.find(plugin.name.as_str()).filter(|serving| {
                matches!(serving.state, PluginState::Loaded(_)) && serving.config.runs_like(plugin)
            });
            let have = have.map(|serving| serving.digest.clone());
            let have = held_back.clone().or(have);
            let (loader, config) = (self.loader.clone(), plugin.clone());
            self.pulls.spawn(async move {
                let fetched = loader.fetch(&config, have.as_deref()).await;
                Pull {
                    config,
                    held_back,
                    fetched,
                }
            });
        }
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
    ) -> Reloaded {
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
        let reloaded = self.publish(pipeline, &live, looked);
        self.tell_metrics();
        reloaded
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
            let due = file(wanted).is_some() && self.status.lock().is_due(name);
            let pulled = pulled
                .remove(name)
                .filter(|pull| pull.config.runs_like(wanted));
            let other = self.tried.get(name) != tried.get(name);
            // What was pulled beside a change was pulled for what was wanted before it.
            let fetched = pulled
                .filter(|_| !other && !everything)
                .map(|pull| pull.fetched);
            let earlier = live.find(name.as_str()).cloned();
            let runs = earlier
                .as_ref()
                .is_some_and(|earlier| earlier.config.runs_like(wanted));
            // What decides nothing holds up nothing: a candidate is pulled beside everything else.
            let waits = wanted.is_candidate() && wanted.enabled && file(wanted).is_none() && !runs;
            let look = everything || due || (other && !waits) || fetched.is_some();
            async move {
                let made = if look {
                    candidate(&self.loader, earlier, wanted.clone(), fetched).await
                } else {
                    Candidate {
                        plugin: earlier,
                        outcome: Outcome::Untouched,
                    }
                };
                (wanted.clone(), made)
            }
        });
        let making: Vec<_> = making.collect();
        futures_util::stream::iter(making)
            .buffered(PULLS)
            .collect()
            .await
    }

    /// Swaps the set where anything of it is new, and keeps account of what is not as it is wanted.
    fn publish(&mut self, pipeline: &Pipeline, live: &PluginSet, looked: Looked) -> Reloaded {
        let Looked { candidates, stamps } = looked;
        let now_tried = tried(&self.wanted, &stamps);
        let mut plugins: Vec<Arc<Plugin>> = Vec::with_capacity(candidates.len());
        for (wanted, candidate) in candidates {
            plugins.extend(candidate.plugin);
            let name = &wanted.name;
            match candidate.outcome {
                Outcome::Untouched => {}
                Outcome::AsWanted => {
                    if self.status.lock().troubles.remove(name).is_some() {
                        tracing::info!(plugin = %name, "the plugin is as configured again");
                    }
                    self.metrics.plugin_degraded(name.as_str(), false);
                }
                Outcome::Failed { reason, digest } => {
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
        for gone in self.tried.keys().filter(|name| !is_wanted(name)) {
            self.metrics.plugin_gone(gone.as_str());
        }
        for plugin in &self.wanted {
            if self.tried.get(&plugin.name) != now_tried.get(&plugin.name) {
                let next = if plugin.is_candidate() {
                    Instant::now()
                } else {
                    self.next_poll()
                };
                self.polls.insert(plugin.name.clone(), next);
            }
        }
        self.polls.retain(|name, _| now_tried.contains_key(name));
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
            tracing::info!(changed = changed.join(", "), "the plugins were swapped");
        }
        self.record(&pipeline.live());
        let state = self.status.lock();
        let result = match (state.is_degraded(), same) {
            (true, _) => "failed",
            (false, true) => "unchanged",
            (false, false) => "applied",
        };
        self.metrics.reloaded(result);
        let mut report = json!({
            "result": result,
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
