//! Reviews that kube-apiserver sends because of a registration that differs from the configuration.
//!
//! Nobody can change the configuration of all replicas and the webhook configurations at one moment. Between the two
//! changes, reviews arrive that no configured plugin is for. They must neither fail nor go unnoticed:
//!
//! | review | answer |
//! |---|---|
//! | to the path of a plugin that this server had before | allowed: the configuration no longer asks for the plugin |
//! | to the path of a plugin whose custom resource is not valid, with nothing earlier to serve | 404: failurePolicy applies |
//! | to the path of a plugin that enforces under `Fail` and is not loaded yet | 503, which kube-apiserver retries, for [`GRACE`]; then 404 |
//! | to the path of a plugin for a phase that it does not export | allowed |
//! | to the path of a plugin that this server never had | 503, which kube-apiserver retries, for [`GRACE`]; then 404 |
//! | that matches no rule of any plugin | allowed, as before |
//!
//! The server counts each of them and logs a warning at most every [`WARNING_PERIOD`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tollgate_admission::review::request::AdmissionRequest;
use tollgate_admission::{Call, Endpoint, Reply};
use tollgate_telemetry::metrics::{Metrics, Unserved};

use super::gate::phase_of;
use crate::plugin::{PluginSet, PluginState, RequestFilter};

/// How long the server asks for a retry after the first review to the path of a plugin that it never had, or that is not
/// loaded yet. A changed ConfigMap can reach the replicas after the webhook configuration did.
const GRACE: Duration = Duration::from_secs(30);

/// A name that nobody has asked for during this time is forgotten, and gets a new [`GRACE`].
const FORGOTTEN: Duration = Duration::from_secs(600);

/// Shortest time between two warnings with the same reason and path.
const WARNING_PERIOD: Duration = Duration::from_secs(60);

/// Most names that the server remembers although no configuration had them. Callers choose these names.
const MOST_NAMES: usize = 64;

/// The API group that is reserved for Tollgate. Plugins need no rules for it, so it says nothing about the registration.
const OWN_GROUP: &str = "tollgate.dev";

/// Length of the longest name that is remembered. The name of a plugin is never longer.
const LONGEST_NAME_BYTES: usize = 256;

/// The text that tells operators how to find the difference.
const REMEDY: &str =
    "compare the registration with `tollgate manifests --check`, and apply the manifests again";

/// Answers and reports reviews that no configured plugin is for.
pub(super) struct Watcher {
    metrics: Arc<Metrics>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Every plugin that this server has had since it started.
    known: BTreeSet<String>,
    /// Plugins that somebody wants and whose custom resources are not valid.
    refused: BTreeSet<String>,
    /// Plugins that the configuration has now, and that deny while they are not loaded.
    desired: BTreeSet<String>,
    /// Names in paths that no configuration had, or whose plugins are not loaded yet.
    strangers: BTreeMap<String, Asked>,
    /// The last warning of each reason and path.
    warnings: BTreeMap<(Unserved, String), Warned>,
}

/// When reviews to a path came.
#[derive(Clone, Copy)]
struct Asked {
    first: Instant,
    last: Instant,
}

/// A warning in the log.
#[derive(Clone, Copy)]
struct Warned {
    at: Instant,
    /// Reviews since then that were not logged.
    silent: u64,
}

// === impl Watcher ===

impl Watcher {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            state: Mutex::default(),
        }
    }

    /// Notes plugins that the server has, or that an earlier run of it had.
    pub(super) fn knows<'n>(&self, names: impl Iterator<Item = &'n str>) {
        let mut state = self.lock();
        for name in names {
            state.strangers.remove(name);
            if !state.known.contains(name) {
                state.known.insert(name.to_owned());
            }
        }
    }

    /// Replaces the names of plugins that somebody wants and that cannot be served.
    pub(super) fn refuses(&self, names: BTreeSet<String>) {
        self.lock().refused = names;
    }

    /// Replaces the names of the plugins that the configuration has, and that deny while they are not loaded.
    pub(super) fn desires(&self, names: BTreeSet<String>) {
        self.lock().desired = names;
    }

    /// Returns the answer to a call whose path names a plugin, if the host must not review it. For the path of a
    /// removed plugin, the host reviews without plugins, which allows the request.
    pub(super) fn refusal(&self, call: &Call, plugins: &PluginSet) -> Option<Reply> {
        let name = call.plugin.as_deref()?;
        let now = Instant::now();
        let Some(plugin) = plugins.get(name) else {
            // A path names plugins, and a shadow is not one.
            let is_shadow = plugins.find(name).is_some();
            let standing = if is_shadow {
                Stranger::Unknown
            } else {
                self.standing(name, now)
            };
            let retries = match standing {
                Stranger::Removed => {
                    self.note(Unserved::Removed, call, now, |silent| {
                        tracing::warn!(
                            plugin = name,
                            endpoint = call.endpoint.name(),
                            unlogged_reviews = silent,
                            "allowing reviews for a plugin that was removed from the configuration but is still \
                             registered; after a restart, the webhook's failurePolicy applies to them; {REMEDY}"
                        );
                    });
                    return None;
                }
                Stranger::Refused => {
                    self.note(Unserved::Refused, call, now, |silent| {
                        tracing::error!(
                            plugin = name,
                            endpoint = call.endpoint.name(),
                            unlogged_reviews = silent,
                            "got a review for a plugin whose custom resource is not valid, and there is no earlier \
                             version to serve; the webhook's failurePolicy applies; see the resource's status"
                        );
                    });
                    return Some(Reply::NoSuchPlugin(format!(
                        "the custom resource of the plugin `{name}` is not valid, and no earlier version can serve"
                    )));
                }
                Stranger::Pending { retries } => {
                    self.note(Unserved::Pending, call, now, |silent| {
                        tracing::error!(
                            plugin = name,
                            endpoint = call.endpoint.name(),
                            unlogged_reviews = silent,
                            retries,
                            "got a review for a plugin of the configuration that is not loaded; the webhook's \
                             failurePolicy applies; /plugins shows why it is not loaded"
                        );
                    });
                    let text = format!("the plugin `{name}` is not loaded yet");
                    return Some(unavailable(text, retries));
                }
                Stranger::New => true,
                Stranger::Unknown => false,
            };
            // The name may hold anything that a path can. It is not a plugin's, so the log shows it and metrics do not.
            self.note(Unserved::Unknown, call, now, |silent| {
                tracing::warn!(
                    plugin = short(name),
                    endpoint = call.endpoint.name(),
                    unlogged_reviews = silent,
                    retries,
                    "got a review for a plugin that this server never had; correct the name, the Service or the \
                     configuration; {REMEDY}"
                );
            });
            let text = format!("no plugin named `{name}` is configured");
            return Some(unavailable(text, retries));
        };
        if let PluginState::Loaded(loaded) = &plugin.state
            && !loaded.interfaces().exports(phase_of(call.endpoint))
        {
            let phase = phase_of(call.endpoint).name();
            self.note(Unserved::Phase, call, now, |silent| {
                tracing::warn!(
                    plugin = name,
                    endpoint = call.endpoint.name(),
                    unlogged_reviews = silent,
                    "allowing reviews for a plugin that does not {phase} but is registered for it; {REMEDY}"
                );
            });
        }
        None
    }

    /// Reports the review if no rule of the plugins that it is for matches it.
    pub(super) fn examine(&self, call: &Call, plugins: &PluginSet, request: &AdmissionRequest) {
        let only = call.plugin.as_deref();
        if request.resource.group == OWN_GROUP {
            return;
        }
        if only.is_some_and(|name| plugins.get(name).is_none()) || serves(call, plugins, request) {
            return;
        }
        if let Some(plugin) = only.and_then(|name| plugins.get(name))
            && let PluginState::Loaded(loaded) = &plugin.state
            && !loaded.interfaces().exports(phase_of(call.endpoint))
        {
            // This one is reported already.
            return;
        }
        self.note(Unserved::Unmatched, call, Instant::now(), |silent| {
            tracing::warn!(
                endpoint = call.endpoint.name(),
                path_plugin = only,
                operation = request.operation.as_str(),
                group = short(&request.resource.group),
                version = short(&request.resource.version),
                resource = short(&request.resource.resource),
                subresource = request.sub_resource.as_deref().map(short),
                unlogged_reviews = silent,
                "allowing a review that no plugin has a rule for: the registered rules are wider than the \
                 configuration; {REMEDY}"
            );
        });
    }

    fn standing(&self, name: &str, now: Instant) -> Stranger {
        self.lock().standing(name, now)
    }

    /// Counts the review, and calls `warn` with the number of reviews since the last warning if one is due.
    fn note(&self, reason: Unserved, call: &Call, now: Instant, warn: impl FnOnce(u64)) {
        self.metrics.unserved(call.endpoint.name(), reason);
        let path = path_of(call.endpoint, call.plugin.as_deref());
        let silent = self.lock().warning(reason, path, now);
        if let Some(silent) = silent {
            warn(silent);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unavailable(text: String, retries: bool) -> Reply {
    if retries {
        Reply::NotYet(text)
    } else {
        Reply::NoSuchPlugin(text)
    }
}

/// How a name that no configured plugin has stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stranger {
    /// A plugin of this name was there before.
    Removed,
    /// A configuration or a resource has a plugin of this name, and the host cannot serve it.
    Refused,
    /// The configuration has a plugin of this name, which is not loaded yet.
    Pending {
        /// Whether somebody has only just begun to ask for it.
        retries: bool,
    },
    /// The name is unknown, and somebody has only just begun to ask for it.
    New,
    /// The name is unknown.
    Unknown,
}

// === impl State ===

impl State {
    fn standing(&mut self, name: &str, now: Instant) -> Stranger {
        if self.refused.contains(name) {
            return Stranger::Refused;
        }
        let is_desired = self.desired.contains(name);
        if self.known.contains(name) && !is_desired {
            return Stranger::Removed;
        }
        let is_new = self.is_new(name, now);
        match (is_desired, is_new) {
            (true, retries) => Stranger::Pending { retries },
            (false, true) => Stranger::New,
            (false, false) => Stranger::Unknown,
        }
    }

    /// Whether somebody has only just begun to ask for a name.
    fn is_new(&mut self, name: &str, now: Instant) -> bool {
        let since = |then: Instant| now.saturating_duration_since(then);
        self.strangers
            .retain(|_, asked| since(asked.last) < FORGOTTEN);
        if let Some(asked) = self.strangers.get_mut(name) {
            asked.last = now;
            return since(asked.first) < GRACE;
        }
        if self.strangers.len() >= MOST_NAMES || name.len() > LONGEST_NAME_BYTES {
            return false;
        }
        let asked = Asked {
            first: now,
            last: now,
        };
        self.strangers.insert(name.to_owned(), asked);
        true
    }

    /// Returns the number of reviews since the last warning, if another warning is due.
    fn warning(&mut self, reason: Unserved, path: String, now: Instant) -> Option<u64> {
        let is_over = |warned: &Warned| now.saturating_duration_since(warned.at) >= WARNING_PERIOD;
        let key = (reason, path);
        if let Some(warned) = self.warnings.get_mut(&key) {
            if !is_over(warned) {
                warned.silent += 1;
                return None;
            }
            let silent = warned.silent;
            *warned = Warned { at: now, silent: 0 };
            return Some(silent);
        }
        if self.warnings.len() >= MOST_NAMES {
            self.warnings.retain(|_, warned| !is_over(warned));
        }
        if self.warnings.len() >= MOST_NAMES {
            return None;
        }
        self.warnings.insert(key, Warned { at: now, silent: 0 });
        Some(0)
    }
}

/// Returns whether a rule of a plugin matches the request, whatever else keeps the plugin from being called.
fn serves(call: &Call, plugins: &PluginSet, request: &AdmissionRequest) -> bool {
    let phase = phase_of(call.endpoint);
    plugins
        .iter()
        .filter(|plugin| plugin.is_asked_by(call.plugin.as_deref()))
        .any(|plugin| match plugin.request_filter(phase) {
            RequestFilter::Nothing => false,
            RequestFilter::Everything => true,
            RequestFilter::Matching(matching) => matching.matching_rule(request).is_some(),
        })
}

fn path_of(endpoint: Endpoint, plugin: Option<&str>) -> String {
    match plugin {
        None => endpoint.name().to_owned(),
        Some(plugin) => format!("{}/{}", endpoint.name(), short(plugin)),
    }
}

/// Shortens a name of the request for the log and the memory. The sender of the review chooses it.
fn short(name: &str) -> String {
    use tollgate_admission::text::{Limit, one_line};
    one_line(name, Limit::Bytes(LONGEST_NAME_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(base: Instant, seconds: u64) -> Instant {
        base + Duration::from_secs(seconds)
    }

    #[test]
    fn asks_for_retries_until_grace_is_over() {
        let (mut state, base) = (State::default(), Instant::now());
        assert_eq!(state.standing("new", base), Stranger::New);
        assert_eq!(state.standing("new", at(base, 29)), Stranger::New);
        assert_eq!(state.standing("new", at(base, 30)), Stranger::Unknown);
        assert_eq!(state.standing("new", at(base, 600)), Stranger::Unknown);
        assert_eq!(state.standing("new", at(base, 1300)), Stranger::New);
    }

    #[test]
    fn allows_plugin_that_was_configured_before() {
        let metrics = Metrics::new();
        let watcher = Watcher::new(metrics);
        let now = Instant::now();
        assert_eq!(watcher.standing("labels", now), Stranger::New);
        watcher.knows(["labels"].into_iter());
        assert_eq!(watcher.standing("labels", at(now, 9)), Stranger::Removed);
        assert_eq!(watcher.standing("labels", at(now, 9000)), Stranger::Removed);
    }

    #[test]
    fn refuses_plugin_that_somebody_wants_and_that_cannot_serve() {
        let watcher = Watcher::new(Metrics::new());
        let now = Instant::now();
        watcher.knows(["labels"].into_iter());
        watcher.refuses(BTreeSet::from(["labels".to_owned(), "never".to_owned()]));
        assert_eq!(watcher.standing("labels", now), Stranger::Refused);
        assert_eq!(watcher.standing("never", now), Stranger::Refused);
        watcher.refuses(BTreeSet::new());
        assert_eq!(watcher.standing("labels", now), Stranger::Removed);
        assert_eq!(watcher.standing("never", now), Stranger::New);
    }

    #[test]
    fn plugin_that_was_added_again_is_not_taken_for_a_removed_one() {
        let watcher = Watcher::new(Metrics::new());
        let now = Instant::now();
        watcher.knows(["labels"].into_iter());
        watcher.desires(BTreeSet::from(["labels".to_owned()]));
        let pending = |retries| Stranger::Pending { retries };
        assert_eq!(watcher.standing("labels", now), pending(true));
        assert_eq!(watcher.standing("labels", at(now, 31)), pending(false));
        // Once it was loaded, it has its time again.
        watcher.knows(["labels"].into_iter());
        assert_eq!(watcher.standing("labels", at(now, 40)), pending(true));
        watcher.desires(BTreeSet::new());
        assert_eq!(watcher.standing("labels", now), Stranger::Removed);
    }

    #[test]
    fn remembers_bounded_number_of_names_that_callers_choose() {
        let (mut state, now) = (State::default(), Instant::now());
        for index in 0..MOST_NAMES {
            assert_eq!(state.standing(&index.to_string(), now), Stranger::New);
        }
        assert_eq!(state.standing("one-too-many", now), Stranger::Unknown);
        assert_eq!(state.strangers.len(), MOST_NAMES);
        let long = "x".repeat(LONGEST_NAME_BYTES + 1);
        assert_eq!(State::default().standing(&long, now), Stranger::Unknown);
        for index in 0..=MOST_NAMES {
            let warning = state.warning(Unserved::Unknown, index.to_string(), now);
            assert_eq!(warning.is_some(), index < MOST_NAMES, "{index}");
        }
        assert_eq!(state.warnings.len(), MOST_NAMES);
        let later = now + WARNING_PERIOD;
        assert!(
            state
                .warning(Unserved::Unknown, "next".to_owned(), later)
                .is_some()
        );
        assert_eq!(state.warnings.len(), 1);
    }

    #[test]
    fn warns_once_per_period_and_reason() {
        let (mut state, base) = (State::default(), Instant::now());
        let mut warning = |reason, seconds| {
            let path = "validate/a".to_owned();
            state.warning(reason, path, at(base, seconds))
        };
        assert_eq!(warning(Unserved::Removed, 0), Some(0));
        assert_eq!(warning(Unserved::Removed, 1), None);
        assert_eq!(warning(Unserved::Unmatched, 1), Some(0));
        assert_eq!(warning(Unserved::Removed, 59), None);
        assert_eq!(warning(Unserved::Removed, 60), Some(2));
        assert_eq!(warning(Unserved::Removed, 61), None);
    }
}
