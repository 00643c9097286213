//! The task of the reconciler: runs its steps and reports events to it.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use time::OffsetDateTime;
use tokio::signal::unix::Signal;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{AbortHandle, JoinError, JoinSet, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, sleep_until};
use tokio_util::task::AbortOnDropHandle;
use tollgate_admission::Reloaded;
use tollgate_config::{Config, FailurePolicy, Origin, PluginConfig, PluginName, folder_of};
use tollgate_oci::{LastGood, Patience, Served};
use tollgate_telemetry::metrics::Metrics;

use super::ReloadRequest;
use super::desired::{Additions, Desired, Extended};
use super::load::{SharedCode, load, recall};
use super::note::log;
use super::reclaim::Reclaim;
use super::reconcile::{
    CallerId, Event, Failure, LastKnownGood, Note, Order, Outcome, Place, Recalled, Report,
    Serving, Stamps, State, Step, Ticket, enforces,
};
use super::rollout::{self, Page, RolloutRequest, Rollouts};
use super::roots::{self, RootRefresh};
use super::serving::serving;
use super::status::{Status, answer};
use super::watch::{Reading, Watch, read, stamps};
use crate::pipeline::Pipeline;
use crate::plugin::{Loader, Plugin, PluginSet, PluginState};

/// Brings the serving plugins in line with the desired ones, for as long as it runs.
pub struct Reconciler {
    source: Arc<dyn Desired>,
    loader: Arc<Loader>,
    metrics: Arc<Metrics>,
    status: Arc<Status>,
    /// The configuration of the start. Some of its keys apply until the process ends.
    started: Config,
    state: State<SharedCode>,
    watch: Watch,
    /// The records of the serving plugins; `None` if nothing is kept.
    last_good: Option<LastGood>,
    /// The version of each plugin that has been recorded since the last renewal.
    recorded: BTreeMap<PluginName, Served>,
    hangups: Signal,
    additions: Option<Additions>,
    reclaim: Arc<Reclaim>,
    reload_requests: mpsc::Receiver<ReloadRequest>,
    reload_sender: mpsc::Sender<ReloadRequest>,
    rollouts: Rollouts,
    rollout_requests: mpsc::Receiver<RolloutRequest>,
    rollout_sender: mpsc::Sender<RolloutRequest>,
}

/// The inputs of a server's start.
pub struct Begin {
    /// The source of the configuration.
    pub origin: Origin,
    /// The configuration to begin with.
    pub config: Config,
    /// Whether that configuration is the last known good, because the current one is not valid.
    pub is_last_known_good: bool,
    /// The records of the versions that served before this start; `None` if nothing is kept. Tollgate keeps the records
    /// up to date. If a desired version cannot be loaded, Tollgate falls back to its record.
    pub last_good: Option<LastGood>,
    /// Decides when freed memory is given back to the system.
    pub reclaim: Arc<Reclaim>,
    /// A source of entries beside the configuration. `config` contains them already.
    pub additions: Option<Additions>,
}

/// The work that runs beside the task.
struct Work {
    pipeline: Arc<Pipeline>,
    /// Notified when the first plugins are published.
    opened: Option<oneshot::Sender<()>>,
    patience: Arc<Patience>,
    loads: JoinSet<Event<SharedCode>>,
    /// The plugins with interim code, each until its optimised code is in use.
    finishing: JoinSet<()>,
    under_way: BTreeMap<Ticket, AbortHandle>,
    fetched: mpsc::Sender<Event<SharedCode>>,
    /// The poll or read of the files that is under way. The task does not wait for slow file systems.
    scan: Option<Scan>,
    /// Whether the next read loads everything again, changed or not.
    everything: bool,
    /// Whether another read must follow the one that is under way.
    again: bool,
    callers: BTreeMap<CallerId, Caller>,
    /// The callers for whom the next read is.
    queued: Vec<CallerId>,
    next_caller: u64,
    /// The values of the metrics, by plugin.
    gauges: BTreeMap<PluginName, Gauges>,
    /// The refresh of trusted roots that is under way.
    roots: RootRefresh,
}

/// The values of the metrics for one plugin.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Gauges {
    is_degraded: bool,
    is_held: bool,
}

/// A caller who asked for a reload.
struct Caller {
    request: ReloadRequest,
    since: Instant,
    /// Whether the files have been read for this caller.
    is_read: bool,
}

/// A poll or a read of the files that is under way.
enum Scan {
    /// A poll of the stamps.
    Poll(AbortOnDropHandle<Stamps>),
    /// A read of the configuration and of all stamps.
    Read {
        reading: AbortOnDropHandle<Reading>,
        everything: bool,
        caller_ids: Vec<CallerId>,
    },
}

/// The result of a poll or a read.
#[expect(
    clippy::large_enum_variant,
    reason = "one exists at a time, and none in the course of a review"
)]
enum Scanned {
    Poll(Result<Stamps, JoinError>),
    Read(Result<Reading, JoinError>),
}

/// How often the files are polled. Tollgate sees a change after at most twice this time, because a file must be at rest
/// between two polls.
const PERIOD: Duration = Duration::from_millis(100);
/// How often records are renewed although nothing has changed. Other servers delete records that nobody renews, see
/// `LONGEST_UNUSED` in `registry/last_good.rs`.
const RENEWAL: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of callers who wait to ask for a reload.
const CALLERS: usize = 16;
/// Maximum number of fetched digests that wait to be noted; each load has at most one. A digest that finds no room is
/// dropped. At worst, a start then recalls a version that it need not recall.
const FETCHED: usize = 1024;
/// Maximum time that a caller waits for the files to be read, in case the file system hangs.
const LONGEST_READ: Duration = Duration::from_secs(10);
const HANGS: &str = "reading the configuration and the plugins' files takes more than 10 s";

// === impl Reconciler ===

impl Reconciler {
    /// Creates a reconciler. `hangups` are the SIGHUPs of the process.
    #[must_use]
    pub fn new(begin: Begin, loader: Loader, metrics: Arc<Metrics>, hangups: Signal) -> Self {
        let Begin {
            origin,
            mut config,
            is_last_known_good,
            last_good,
            reclaim,
            additions,
        } = begin;
        let (reload_sender, reload_requests) = mpsc::channel(CALLERS);
        let (rollout_sender, rollout_requests) = mpsc::channel(CALLERS);
        let cache = config.registries.cache_directory.as_deref();
        let link = additions
            .as_ref()
            .map(|additions| additions.rollouts.clone());
        let rollouts = Rollouts::new(cache, origin.path(), metrics.clone(), link);
        let known_good = last_good
            .as_ref()
            .map(|records| last_known_good(records, &origin));
        let desired = config.take_plugins();
        let state = State::new(
            desired,
            known_good.unwrap_or_default(),
            config.registries.poll_interval,
            RandomState::new().hash_one(0),
            Instant::now().into_std(),
        );
        let read = (!is_last_known_good).then(OffsetDateTime::now_utc);
        let status = Arc::new(Status::new(origin.name(), read, state.snapshot()));
        let source: Arc<dyn Desired> = match &additions {
            None => Arc::new(origin),
            Some(additions) => Arc::new(Extended::new(origin, additions)),
        };
        Self {
            status,
            source,
            loader: Arc::new(loader),
            metrics,
            started: config,
            state,
            watch: Watch::default(),
            last_good,
            recorded: BTreeMap::new(),
            hangups,
            additions,
            reclaim,
            reload_requests,
            reload_sender,
            rollouts,
            rollout_requests,
            rollout_sender,
        }
    }

    pub(super) fn status(&self) -> Arc<Status> {
        self.status.clone()
    }

    pub(super) fn reclaim(&self) -> Arc<Reclaim> {
        Arc::clone(&self.reclaim)
    }

    pub(super) fn reload_sender(&self) -> mpsc::Sender<ReloadRequest> {
        self.reload_sender.clone()
    }

    pub(super) fn rollout_page(&self) -> Page {
        self.rollouts.page()
    }

    pub(super) fn rollout_sender(&self) -> mpsc::Sender<RolloutRequest> {
        self.rollout_sender.clone()
    }

    /// Runs for as long as plugins are served. Notifies `opened` when the first plugins are in effect.
    pub async fn run(mut self, pipeline: Arc<Pipeline>, opened: oneshot::Sender<()>) {
        if let Some(records) = &self.last_good {
            let names = records.names();
            pipeline.knew(names.iter().map(PluginName::entry));
        }
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut rollout_ticks = interval(rollout::PERIOD);
        rollout_ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut root_ticks = interval(roots::PERIOD);
        root_ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut renewals = interval_at(Instant::now() + RENEWAL, RENEWAL);
        let (fetched, mut all_fetched) = mpsc::channel(FETCHED);
        let mut work = Work::new(pipeline, opened, fetched);
        // Stamp the files before anything is loaded. Read the configuration again, because it may have changed since
        // the start read it.
        self.begin_read(&mut work);
        let added = self.additions.as_ref();
        let added = added.map(|additions| additions.changed.clone());
        loop {
            let wake = self.state.next_wake().map(Instant::from_std);
            tokio::select! {
                _ = ticks.tick() => {
                    self.reclaim.tick();
                    self.poll(&mut work);
                }
                scanned = finished(&mut work.scan) => self.handle_scan(scanned, &mut work),
                Some(done) = work.loads.join_next() => {
                    let mut next = Some(done);
                    // Handle all finished loads together, so that they are published at the same time where possible.
                    while let Some(done) = next {
                        // The task of an aborted load ends with an error.
                        if let Ok(event) = done {
                            self.finish(&event, &mut work);
                            self.apply(event, &mut work);
                        }
                        next = work.loads.try_join_next();
                    }
                }
                Some(_) = work.finishing.join_next() => self.reclaim.loaded(),
                Some(event) = all_fetched.recv() => self.apply(event, &mut work),
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {
                    self.apply(Event::Tick, &mut work);
                }
                _ = renewals.tick() => {
                    self.recorded.clear();
                    self.record();
                }
                _ = self.hangups.recv() => {
                    tracing::info!("SIGHUP: reloading the configuration and all plugins");
                    work.everything = true;
                    self.begin_read(&mut work);
                }
                () = notified(added.as_deref()) => {
                    // A read that is under way may have missed the change.
                    work.again = matches!(work.scan, Some(Scan::Read { .. }));
                    self.begin_read(&mut work);
                }
                _ = rollout_ticks.tick(), if !self.rollouts.is_empty() => {
                    if self.rollouts.tick() {
                        self.republish(&work);
                    }
                }
                _ = root_ticks.tick() => {
                    let sources = self.state.tuf_sources();
                    work.roots.begin(self.loader.roots(), &self.metrics, sources);
                }
                Some(request) = self.rollout_requests.recv() => {
                    let answer = self.rollouts.change(&request.plugin, request.change);
                    self.republish(&work);
                    // The caller may be gone.
                    drop(request.answer.send(answer));
                }
                Some(request) = self.reload_requests.recv() => {
                    work.queue(request);
                    self.begin_read(&mut work);
                }
            }
        }
    }

    /// Polls the stamps of the files, unless a poll or a read is under way.
    fn poll(&mut self, work: &mut Work) {
        work.answer_late();
        if work.scan.is_some() {
            return;
        }
        let mut paths = self.state.files();
        paths.extend(self.source.files());
        let reclaim = Arc::clone(&self.reclaim);
        let stamping = spawn_blocking(move || {
            let stamps = stamps(paths);
            // The threads that read and link the plugins also run this closure, each at least once every second or
            // two. After large reviews, one such thread gives back most of the memory that all threads have freed.
            reclaim.idle();
            stamps
        });
        work.scan = Some(Scan::Poll(AbortOnDropHandle::new(stamping)));
    }

    /// Reads the configuration and stamps all files. A poll that is under way is dropped.
    fn begin_read(&mut self, work: &mut Work) {
        if matches!(work.scan, Some(Scan::Read { .. })) {
            return;
        }
        let (source, known) = (self.source.clone(), self.state.files());
        let reading = spawn_blocking(move || read(&*source, known));
        work.scan = Some(Scan::Read {
            reading: AbortOnDropHandle::new(reading),
            everything: std::mem::take(&mut work.everything),
            caller_ids: std::mem::take(&mut work.queued),
        });
    }

    fn handle_scan(&mut self, scanned: Scanned, work: &mut Work) {
        let scan = work.scan.take();
        match (scanned, scan) {
            (Scanned::Poll(stamps), _) => {
                if stamps.is_ok_and(|stamps| self.watch.has_changed(stamps)) {
                    self.begin_read(work);
                }
            }
            (
                Scanned::Read(Ok(reading)),
                Some(Scan::Read {
                    everything,
                    caller_ids,
                    ..
                }),
            ) => {
                self.watch.reading(reading.stamps.clone());
                for caller_id in &caller_ids {
                    if let Some(caller) = work.callers.get_mut(caller_id) {
                        caller.is_read = true;
                    }
                }
                let event = self.understood(reading, everything, caller_ids, &work.pipeline);
                self.apply(event, work);
            }
            // The thread has failed. The callers are answered when their waiting time is over.
            (Scanned::Read(_), _) => {}
        }
        if work.everything || work.again {
            work.again = false;
            self.begin_read(work);
        }
    }

    fn understood(
        &self,
        reading: Reading,
        everything: bool,
        caller_ids: Vec<CallerId>,
        pipeline: &Pipeline,
    ) -> Event<SharedCode> {
        let Reading {
            read,
            meanwhile,
            stamps,
        } = reading;
        if let Some(config) = read.as_ref().ok().or(meanwhile.as_ref()) {
            pipeline.refuse(config.refused.clone());
            let denying = config.plugins.iter().filter(|plugin| denies(plugin));
            let denying = denying.map(|plugin| plugin.name.entry().to_owned());
            pipeline.desire(denying.collect());
        }
        let read = read.map(|mut config| {
            self.status.lock().read = Some(OffsetDateTime::now_utc());
            let needs_restart = config.needs_restart(&self.started);
            (config.take_plugins(), needs_restart)
        });
        Event::Read {
            read,
            meanwhile: meanwhile.map(|mut config| config.take_plugins()),
            stamps,
            everything,
            caller_ids,
        }
    }

    /// Passes an event to the reconciler and runs its steps.
    fn apply(&mut self, event: Event<SharedCode>, work: &mut Work) {
        match &event {
            Event::Loaded { ticket, .. } | Event::Recalled { ticket, .. } => {
                work.under_way.remove(ticket);
            }
            Event::Read { .. } | Event::Fetched { .. } | Event::Tick => {}
        }
        let mut is_reload = matches!(event, Event::Read { .. });
        let mut is_swap = false;
        let steps = self.state.apply(event, std::time::Instant::now());
        // Update the status first, so that it fits the plugins that these steps publish.
        let is_degraded = self.account(work);
        let mut answers = Vec::new();
        for step in steps {
            match step {
                Step::Load(order) => self.begin_load(order, work),
                Step::Abort(ticket) => {
                    if let Some(task) = work.under_way.remove(&ticket) {
                        task.abort();
                    }
                }
                Step::Recall(order) => {
                    let served = self.last_good.as_ref();
                    let served = served.and_then(|records| records.of(&order.before.name));
                    let (loader, patience) = (self.loader.clone(), work.patience.clone());
                    let ticket = order.ticket;
                    let recalling =
                        tokio::spawn(
                            async move { recall(&loader, &patience, order, served).await },
                        );
                    let recalling = AbortOnDropHandle::new(recalling);
                    let task = work.loads.spawn(async move {
                        let outcome = recalling.await;
                        let outcome = outcome.unwrap_or_else(|lost| Err(lost.to_string()));
                        Event::Recalled { ticket, outcome }
                    });
                    work.under_way.insert(ticket, task);
                }
                Step::Publish { places, changed } => {
                    is_swap |= !changed.is_empty();
                    self.publish(places, &changed, work);
                }
                Step::Record => self.record(),
                Step::Answer { caller_id, report } => answers.push((caller_id, report)),
                Step::Note(note) => {
                    is_reload |= matches!(note, Note::Trouble { .. });
                    log(&note, &self.status);
                }
            }
        }
        self.tell(work);
        if is_reload || is_swap {
            self.metrics.reloaded(match (is_degraded, is_swap) {
                (true, _) => "failed",
                (false, true) => "applied",
                (false, false) => "unchanged",
            });
        }
        for (caller_id, report) in answers {
            work.answer(caller_id, &report);
        }
    }

    /// Tells the sources of entries what serves.
    fn tell(&self, work: &Work) {
        let Some(additions) = &self.additions else {
            return;
        };
        let snapshot = &self.status.lock().snapshot;
        let live = work.pipeline.live();
        let serving = serving(&live, snapshot, |name| self.rollouts.enforces(name));
        additions.serving.send_replace(Arc::new(serving));
    }

    /// Publishes the plugins that serve already, with the rollouts as they are now.
    fn republish(&self, work: &Work) {
        let live = work.pipeline.live();
        let set = PluginSet::new(live.parts().cloned().collect());
        let set = set.with_rollouts(self.rollouts.rollouts());
        work.pipeline.publish(set);
        self.tell(work);
    }

    /// Begins to replace interim code that was just loaded.
    fn finish(&self, event: &Event<SharedCode>, work: &mut Work) {
        let loaded = match event {
            Event::Loaded {
                outcome: Ok(Outcome::New { loaded, .. }),
                ..
            } => loaded,
            Event::Recalled {
                outcome: Ok(Recalled { loaded, .. }),
                ..
            } => loaded,
            _ => return,
        };
        if loaded.code.guest.is_interim() {
            let (loader, code) = (self.loader.clone(), Arc::downgrade(&loaded.code));
            work.finishing
                .spawn(async move { loader.finish(code).await });
        }
    }

    fn begin_load(&self, order: Order, work: &mut Work) {
        let (loader, patience) = (self.loader.clone(), work.patience.clone());
        let ticket = order.ticket;
        let fetched = work.fetched.clone();
        let on_fetched = move |digest| {
            // If the queue is full or the process ends, the digest is dropped.
            drop(fetched.try_send(Event::Fetched { ticket, digest }));
        };
        // Load in a separate task, so that a panic is only a failure of this load.
        let loading =
            tokio::spawn(async move { load(&loader, &patience, order, on_fetched).await });
        let loading = AbortOnDropHandle::new(loading);
        let task = work.loads.spawn(async move {
            let outcome = loading.await.unwrap_or_else(|lost| {
                Err(Failure {
                    reason: format!("the task that loads the plugin failed: {lost}"),
                    digest: None,
                    is_unsigned: false,
                })
            });
            Event::Loaded { ticket, outcome }
        });
        work.under_way.insert(ticket, task);
    }

    fn publish(
        &mut self,
        places: Vec<Place<SharedCode>>,
        changed: &BTreeSet<PluginName>,
        work: &mut Work,
    ) {
        let live = work.pipeline.live();
        let plugins = places.into_iter().map(|place| self.plugin(place, &live));
        let plugins: Vec<Arc<Plugin>> = plugins.collect();
        let rollouts = self.rollouts.follow(&plugins);
        let set = PluginSet::new(plugins).with_rollouts(rollouts);
        work.pipeline.publish(set);
        self.reclaim.loaded();
        if let Some(opened) = work.opened.take() {
            if let Some(last_good) = &self.last_good {
                last_good.clear_out();
            }
            // At the end of the process nobody receives this.
            let _: Result<(), ()> = opened.send(());
        } else if !changed.is_empty() {
            let names: Vec<&str> = changed.iter().map(PluginName::as_str).collect();
            let changed = names.join(", ");
            tracing::info!(changed, "swapped plugins");
        }
    }

    /// The plugin of a place. If nothing has changed, this is the plugin that already serves.
    fn plugin(&self, place: Place<SharedCode>, live: &PluginSet) -> Arc<Plugin> {
        let mut parts = live.parts();
        let earlier = parts.find(|plugin| plugin.config.name == place.config.name);
        if let Some(earlier) = earlier.filter(|earlier| is_of(earlier, &place)) {
            return earlier.clone();
        }
        let Place { config, serving } = place;
        Arc::new(match serving {
            Serving::Disabled => self.loader.plugin(config, None, PluginState::Disabled),
            Serving::Failed { reason, digest } => {
                let state = PluginState::Failed { reason };
                self.loader.plugin(config, digest, state)
            }
            Serving::Code(loaded) => {
                let plugin =
                    self.loader
                        .plugin_of(config.clone(), loaded.digest.clone(), &loaded.code);
                plugin.unwrap_or_else(|error| {
                    let reason = tollgate_admission::chain(&error);
                    let state = PluginState::Failed { reason };
                    self.loader.plugin(config, Some(loaded.digest), state)
                })
            }
        })
    }

    /// Records the configuration and the plugins in effect, and deletes records that are not needed any more.
    fn record(&mut self) {
        let Some(last_good) = &self.last_good else {
            return;
        };
        let in_force = || {
            let places = self.state.places().iter();
            places.filter(|place| !place.config.is_shadow())
        };
        // A shadow answers no requests, so it is not recorded. The new version of a rollout does, so the cache has to
        // keep its artifact.
        let rolled_out: BTreeSet<PluginName> = in_force()
            .filter(|place| place.config.active_rollout().is_some())
            .map(|place| place.config.name.of_shadow())
            .collect();
        let recorded = || {
            let places = self.state.places().iter();
            places.filter(|place| {
                !place.config.is_shadow() || rolled_out.contains(&place.config.name)
            })
        };
        let enabled = recorded().filter(|place| place.config.enabled);
        let names: BTreeSet<&PluginName> = enabled.map(|place| &place.config.name).collect();
        self.recorded.retain(|name, _| names.contains(name));
        for place in recorded() {
            let Serving::Code(loaded) = &place.serving else {
                continue;
            };
            let name = &place.config.name;
            let served = Served::of(&place.config, &loaded.digest);
            if self.recorded.get(name) != Some(&served) {
                last_good.record(name, &served, self.loader.needs(&served));
                self.recorded.insert(name.clone(), served);
            }
        }
        // Record the configuration after the plugins that it names, and before deleting the records of other plugins.
        let entries = in_force().map(|place| &place.config);
        last_good.record_configuration(self.started.document(entries));
        last_good.retain(&names);
        self.loader.tidy();
    }

    /// Updates the status and the metrics. Returns whether the desired state does not fully serve.
    fn account(&self, work: &mut Work) -> bool {
        let snapshot = self.state.snapshot();
        let is_degraded = snapshot.is_degraded();
        let now = OffsetDateTime::now_utc().unix_timestamp();
        self.metrics.as_configured(!is_degraded, now);
        let named: BTreeSet<PluginName> = self.state.names().cloned().collect();
        work.gauges.retain(|name, _| {
            let stays = named.contains(name);
            if !stays {
                self.metrics.plugin_gone(name.as_str());
            }
            stays
        });
        for name in &named {
            let held = snapshot.held.as_ref();
            let gauges = Gauges {
                is_degraded: snapshot.troubles.contains_key(name),
                is_held: held.is_some_and(|held| held.plugins.contains_key(name)),
            };
            if work.gauges.insert(name.clone(), gauges) != Some(gauges) {
                self.metrics
                    .plugin_degraded(name.as_str(), gauges.is_degraded);
                self.metrics.plugin_held(name.as_str(), gauges.is_held);
            }
        }
        self.status.lock().snapshot = snapshot;
        is_degraded
    }
}

/// Whether the plugin is the same as the place describes.
fn is_of(plugin: &Plugin, place: &Place<SharedCode>) -> bool {
    let same = match (&plugin.state, &place.serving) {
        (PluginState::Loaded(loaded), Serving::Code(code)) => {
            let is_same = |guest: &Arc<_>| Arc::ptr_eq(guest, &code.code.guest);
            loaded.guest.as_ref().is_some_and(is_same)
                && plugin.digest.as_ref() == Some(&code.digest)
        }
        (
            PluginState::Failed { reason },
            Serving::Failed {
                reason: now,
                digest,
            },
        ) => reason == now && plugin.digest == *digest,
        (PluginState::Disabled, Serving::Disabled) => true,
        _ => false,
    };
    same && plugin.config == place.config
}

/// Waits until the additions change. Without additions, waits forever.
async fn notified(changed: Option<&Notify>) {
    match changed {
        Some(changed) => changed.notified().await,
        None => std::future::pending().await,
    }
}

/// Whether requests are denied while the plugin is not loaded.
fn denies(plugin: &PluginConfig) -> bool {
    enforces(plugin) && plugin.failure_policy == FailurePolicy::Fail
}

/// Waits for the poll or the read that is under way.
async fn finished(scan: &mut Option<Scan>) -> Scanned {
    match scan {
        None => std::future::pending().await,
        Some(Scan::Poll(stamping)) => Scanned::Poll(stamping.await),
        Some(Scan::Read { reading, .. }) => Scanned::Read(reading.await),
    }
}

// === impl Work ===

impl Work {
    fn new(
        pipeline: Arc<Pipeline>,
        opened: oneshot::Sender<()>,
        fetched: mpsc::Sender<Event<SharedCode>>,
    ) -> Self {
        Self {
            pipeline,
            opened: Some(opened),
            patience: Arc::new(Patience::default()),
            loads: JoinSet::new(),
            finishing: JoinSet::new(),
            under_way: BTreeMap::new(),
            fetched,
            scan: None,
            everything: false,
            again: false,
            callers: BTreeMap::new(),
            queued: Vec::new(),
            next_caller: 0,
            gauges: BTreeMap::new(),
            roots: RootRefresh::default(),
        }
    }

    /// Queues a caller for the next read, which will load everything again.
    fn queue(&mut self, request: ReloadRequest) {
        let caller_id = CallerId(self.next_caller);
        self.next_caller += 1;
        let caller = Caller {
            request,
            since: Instant::now(),
            is_read: false,
        };
        self.callers.insert(caller_id, caller);
        self.queued.push(caller_id);
        self.everything = true;
    }

    fn answer(&mut self, caller_id: CallerId, report: &Report) {
        let Some(caller) = self.callers.remove(&caller_id) else {
            return;
        };
        let complete = report.is_complete();
        let report = answer(report);
        // The caller may be gone.
        drop(caller.request.send(Reloaded { complete, report }));
    }

    /// Answers callers for whom the files have not been read in time.
    fn answer_late(&mut self) {
        let is_late = |_: &CallerId, caller: &mut Caller| {
            !caller.is_read && caller.since.elapsed() > LONGEST_READ
        };
        for (_, caller) in self.callers.extract_if(.., is_late) {
            let report = json!({ "result": "failed", "invalid": HANGS });
            let complete = false;
            drop(caller.request.send(Reloaded { complete, report }));
        }
    }
}

/// Returns the state that was recorded last.
fn last_known_good(records: &LastGood, origin: &Origin) -> LastKnownGood {
    let entries = records.configuration().and_then(|document| {
        let config = Config::of_document(&document, folder_of(origin.path()));
        match config {
            Ok(config) => Some(config.plugins),
            Err(problems) => {
                tracing::warn!(%problems, "ignoring the recorded configuration, because it is not valid any more");
                None
            }
        }
    });
    let plugins = records.names().into_iter().filter_map(|name| {
        let served = records.of(&name)?;
        Some((name, Arc::from(served.digest)))
    });
    LastKnownGood {
        plugins: plugins.collect(),
        entries,
    }
}
