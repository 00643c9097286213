//! The state that the tasks of this crate share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tollgate_config::{Config, Tenancy};
use tollgate_rollout::{Commons, Heard};

use crate::Installation;
use crate::desired::{Kept, Plan, World, plan};
use crate::kinds::{Kind, Resource, key};
use crate::settings::{Held, Holder};
use crate::status::rollout::heard;

/// The world as it was last seen, and the plan that follows from it.
pub(crate) struct Store {
    /// Where relative paths of resources start.
    folder: PathBuf,
    state: Mutex<State>,
    /// The last plan; `None` before the configuration was first read.
    pub(crate) plan: watch::Sender<Option<Arc<Plan>>>,
    /// The objects that hold settings, as the resources name them.
    pub(crate) holders: watch::Sender<BTreeSet<Holder>>,
    /// Notified when the next plan would differ.
    pub(crate) changed: Arc<Notify>,
    /// What the status of the resources says about rollouts.
    pub(crate) commons: watch::Sender<Arc<Commons>>,
    installation: Installation,
    /// Notified when any resource has changed, its status included.
    pub(crate) touched: Notify,
    began: Instant,
}

struct State {
    world: World,
    kept: Kept,
    /// Whether there is a last known good.
    is_recorded: bool,
    /// The plugins of the file. None before it was read.
    of_file: Option<BTreeSet<String>>,
    /// Why resources cannot be listed or watched.
    trouble: BTreeMap<Kind, String>,
}

/// How long a start waits for the first lists when the last known good can serve in their place.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

// === impl Store ===

impl Store {
    /// Creates a store for an installation. `tenancy` is what the process was started with.
    pub(crate) fn new(
        folder: PathBuf,
        kept: Kept,
        installation: &Installation,
        tenancy: Option<&Tenancy>,
    ) -> Self {
        let state = State {
            world: World {
                namespace: Some(installation.namespace.clone()),
                tenancy: tenancy.map(|tenancy| tenancy.settings_from.clone()),
                ..World::default()
            },
            is_recorded: !kept.is_empty(),
            of_file: None,
            kept,
            trouble: BTreeMap::new(),
        };
        Self {
            folder,
            state: Mutex::new(state),
            plan: watch::Sender::new(None),
            holders: watch::Sender::new(BTreeSet::new()),
            changed: Arc::new(Notify::new()),
            commons: watch::Sender::new(Arc::default()),
            installation: installation.clone(),
            touched: Notify::new(),
            began: Instant::now(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the resources to the configuration that the file holds.
    pub(crate) fn add(&self, file: &Config) -> Config {
        let mut state = self.lock();
        let State { world, kept, .. } = &mut *state;
        let is_other = world.allow_settings_from(file.tenancy.as_ref());
        let plan = plan(file, &self.folder, world, kept);
        let config = plan.config.clone();
        self.plan.send_replace(Some(Arc::new(plan)));
        let names = file.plugins.iter();
        let names = names.map(|plugin| plugin.name.entry().to_owned());
        state.of_file = Some(names.collect());
        self.hear(&state);
        if is_other {
            self.note(state, false);
        }
        config
    }

    /// Returns the reason why the replica must not be ready yet.
    ///
    /// Without the first lists, the replica would let requests pass that resources deny. After a while, the last known
    /// good stands for the lists. A missing permission must not keep a replica out that serves its last known good.
    pub(crate) fn waiting(&self) -> Option<String> {
        let state = self.lock();
        if state.world.is_listed() {
            return None;
        }
        if state.is_recorded && self.began.elapsed() >= LONGEST_WAIT {
            return None;
        }
        let has_tenants = state.world.tenancy.is_some();
        let trouble = state.trouble.iter();
        let trouble = trouble.filter(|(kind, _)| has_tenants || **kind != Kind::TenantPlugin);
        let why: Vec<&str> = trouble.map(|(_, why)| why.as_str()).collect();
        let why = if why.is_empty() {
            "kube-apiserver has not answered yet".to_owned()
        } else {
            why.join("; ")
        };
        Some(format!(
            "waiting for the first list of custom resources: {why}"
        ))
    }

    /// Returns whether everything has been read that the first plan depends on.
    pub(crate) fn is_complete(&self) -> bool {
        self.lock().world.is_complete()
    }

    /// Returns the resources of a kind.
    pub(crate) fn resources(&self, kind: Kind) -> Vec<Resource> {
        let mut state = self.lock();
        let resources = state.world.of(kind).iter();
        resources.flat_map(BTreeMap::values).cloned().collect()
    }

    /// Returns the name of a resource among all resources of its kind.
    pub(crate) fn key(&self, kind: Kind, resource: &Resource) -> String {
        resource.key(kind, self.lock().world.namespace.as_deref())
    }

    /// Replaces all resources of a kind.
    pub(crate) fn replace(&self, kind: Kind, resources: Vec<Resource>) {
        let mut state = self.lock();
        state.trouble.remove(&kind);
        let installation = state.world.namespace.as_deref();
        let resources = resources.into_iter();
        let resources = resources.map(|resource| (resource.key(kind, installation), resource));
        let resources: BTreeMap<String, Resource> = resources.collect();
        let before = state.world.of(kind).replace(resources);
        let after = state.world.of(kind).as_ref();
        let is_same = before.zip(after).is_some_and(|(before, after)| {
            let pairs = || before.iter().zip(after);
            before.len() == after.len()
                && pairs().all(|((one, _), (other, _))| one == other)
                && pairs().all(|((_, one), (_, other))| one.is_same_version(other))
        });
        self.note(state, !is_same);
    }

    /// Adds or changes a resource.
    pub(crate) fn apply(&self, kind: Kind, resource: Resource) {
        let mut state = self.lock();
        state.trouble.remove(&kind);
        let name = resource.key(kind, state.world.namespace.as_deref());
        let Some(resources) = state.world.of(kind) else {
            return;
        };
        let after = resource.clone();
        let before = resources.insert(name, resource);
        let is_same = before.is_some_and(|before| before.is_same_version(&after));
        self.note(state, !is_same);
    }

    /// Removes a resource.
    pub(crate) fn delete(&self, kind: Kind, namespace: Option<&str>, name: &str) {
        let mut state = self.lock();
        let name = &key(kind, namespace, name, state.world.namespace.as_deref());
        let resources = state.world.of(kind).as_mut();
        let is_gone = resources.is_some_and(|resources| resources.remove(name).is_some());
        self.note(state, is_gone);
    }

    /// Notes why resources of a kind cannot be read. Returns whether that is news.
    pub(crate) fn fail(&self, kind: Kind, why: &str) -> bool {
        let before = self.lock().trouble.insert(kind, why.to_owned());
        before.as_deref() != Some(why)
    }

    /// Notes the content of an object that holds settings.
    pub(crate) fn hold(&self, holder: &Holder, held: Held) {
        let mut state = self.lock();
        let known = state.world.held.get(holder);
        // What was read before stays, for example while kube-apiserver is away.
        let is_worse = matches!(held, Held::Unreadable(_)) && matches!(known, Some(Held::Keys(_)));
        if is_worse || known == Some(&held) {
            return;
        }
        state.world.held.insert(holder.clone(), held);
        self.note(state, true);
    }

    /// Forgets an object that no resource names any more.
    pub(crate) fn let_go(&self, holder: &Holder) {
        self.lock().world.held.remove(holder);
    }

    /// Tells the rollouts what the status of the resources says.
    fn hear(&self, state: &State) {
        let resources = state.world.plugins.iter().flat_map(BTreeMap::values);
        let resources = resources.filter(|resource| resource.may_have_rollout());
        let heard = resources.map(|resource| {
            let heard = heard(resource, &self.installation);
            (resource.name.clone(), heard)
        });
        let now = Commons {
            of_file: state.of_file.clone(),
            plugins: heard
                .filter(|(_, heard)| *heard != Heard::default())
                .collect(),
        };
        self.commons.send_if_modified(|known| {
            let is_news = **known != now;
            if is_news {
                *known = Arc::new(now);
            }
            is_news
        });
    }

    fn note(&self, state: MutexGuard<'_, State>, is_changed: bool) {
        let holders = state.world.holders();
        self.hear(&state);
        drop(state);
        self.holders.send_if_modified(|known| {
            let is_new = *known != holders;
            *known = holders;
            is_new
        });
        if is_changed {
            self.changed.notify_one();
        }
        self.touched.notify_one();
    }
}

// === impl World ===

impl World {
    /// Takes over which objects may hold settings for plugins of namespaces. Returns whether that has changed.
    fn allow_settings_from(&mut self, tenancy: Option<&Tenancy>) -> bool {
        let Some(allowed) = &mut self.tenancy else {
            return false;
        };
        let now = tenancy.map(|tenancy| tenancy.settings_from.clone());
        let now = now.unwrap_or_default();
        let is_other = *allowed != now;
        *allowed = now;
        is_other
    }

    fn of(&mut self, kind: Kind) -> &mut Option<BTreeMap<String, Resource>> {
        match kind {
            Kind::Plugin => &mut self.plugins,
            Kind::TenantPlugin => &mut self.tenants,
            Kind::Exception => &mut self.exceptions,
        }
    }
}
