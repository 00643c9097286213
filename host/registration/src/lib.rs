//! The webhook configurations that register this host with kube-apiserver.
//!
//! ```text
//! plugins ─▶ hidden: one webhook for all, or each  ┐
//!         ─▶ rules: their union, no wider          ├─▶ webhook: Kubernetes' own types ─▶ YAML
//!         ─▶ time: what the chain may take         │
//! options ─▶ address, caBundle, what is left out   ┘
//! a cluster ─▶ live: its objects ─▶ drift: how they differ from the webhooks ─▶ doctor: what locks users out
//! ```
//!
//! kube-apiserver calls a webhook for every request that it is registered for, and for no other. Rules that are too
//! wide cost an extra call for each request in the cluster. One webhook under `Fail` can keep an administrator from
//! repairing the cluster. For both reasons, the rules are exactly the union of the plugins' rules, and exclude requests
//! that the cluster depends on.

pub mod doctor;
pub mod drift;
mod exclude;
mod hidden;
pub mod live;
mod rules;
#[cfg(test)]
mod tests;
mod time;
mod webhook;

use std::{collections::BTreeSet, time::Duration};

use tollgate_admission::Endpoint;
use tollgate_config::condition::MOST_CONDITIONS;
use tollgate_config::{ExistingViolations, FailurePolicy, Margin, Match, Mode, ReinvocationPolicy};

pub use self::exclude::NAMESPACES as EXCLUDED_NAMESPACES;
pub use self::{
    exclude::Lockout,
    hidden::Hiding,
    time::{TIMEOUT_BOUNDS_SECONDS, TooSlow},
    webhook::{Address, Webhooks},
};

use self::rules::RegisteredRule;
use self::webhook::{ClientConfig, LabelSelector, MatchCondition, Metadata, Webhook};

/// The suffix of webhook names, and the API group that is reserved for Tollgate.
pub const DOMAIN: &str = "tollgate.dev";

/// The default break-glass group. Requests of its members skip the plugins.
///
/// The group has no members. A user who may impersonate joins it for one command, which the audit log shows.
pub const BREAK_GLASS_GROUP: &str = "tollgate:break-glass";

/// The suffix of the names of configurations that kube-apiserver reads from files (manifest-based admission control).
pub const STATIC_SUFFIX: &str = ".static.k8s.io";

/// The properties of a plugin that matter for its registration.
#[derive(Clone, Copy, Debug)]
pub struct Participant<'a> {
    /// The plugin's name.
    pub name: &'a str,
    /// Whether the plugin mutates.
    pub mutates: bool,
    /// Whether the plugin validates.
    pub validates: bool,
    /// The requests that the plugin is called for.
    pub matching: &'a Match,
    /// The effect of the plugin's verdicts.
    pub mode: Mode,
    /// The effect of the plugin's faults.
    pub failure_policy: FailurePolicy,
    /// Whether the plugin is called again after a later plugin changed the object.
    pub reinvocation_policy: ReinvocationPolicy,
    /// Whether the plugin also evaluates the old object when it denies the new one.
    pub existing_violations: ExistingViolations,
    /// Timeout of one call.
    pub timeout: Duration,
}

/// The settings for registering the host.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The name of both configurations.
    pub name: String,
    /// Address at which kube-apiserver reaches the host.
    pub address: Address,
    /// PEM of the CAs that kube-apiserver trusts for the host. Without it, kube-apiserver uses its own CAs.
    pub ca_bundle: Option<Vec<u8>>,
    /// Whether each plugin gets its own webhook, even if one webhook for all would do.
    pub per_plugin: bool,
    /// Timeout of kube-apiserver. Without it, the shortest safe timeout is used.
    pub timeout_seconds: Option<u32>,
    /// Whether kube-apiserver calls the mutating webhooks again after other webhooks' changes. Without it, the plugins'
    /// own policies decide.
    pub reinvocation_policy: Option<ReinvocationPolicy>,
    /// Excluded namespaces.
    pub excluded_namespaces: BTreeSet<String>,
    /// Groups whose members' requests are excluded.
    pub break_glass_groups: BTreeSet<String>,
    /// Time that the host subtracts from kube-apiserver's timeout.
    pub margin: Margin,
}

fn serving<'a>(endpoint: Endpoint, plugins: &[Participant<'a>]) -> Vec<Participant<'a>> {
    plugins
        .iter()
        .copied()
        .filter(|plugin| plugin.serves(endpoint))
        .collect()
}

/// The name of a plugin in the name of its webhook. A plugin of a namespace has one part more than any other.
fn dotted(plugin: &str) -> String {
    match plugin.split_once('/') {
        Some((namespace, name)) => format!("{name}.{namespace}"),
        None => plugin.to_owned(),
    }
}

/// The plugins of an endpoint that are not confined to a namespace.
fn of_cluster<'a>(endpoint: Endpoint, plugins: &[Participant<'a>]) -> Vec<Participant<'a>> {
    let mut plugins = serving(endpoint, plugins);
    plugins.retain(|plugin| plugin.namespace().is_none());
    plugins
}

/// Returns whether kube-apiserver must deny requests while the host does not answer.
fn must_answer(plugins: &[Participant<'_>]) -> bool {
    plugins
        .iter()
        .any(|plugin| plugin.mode == Mode::Enforce && plugin.failure_policy == FailurePolicy::Fail)
}

// === impl Participant ===

impl Participant<'_> {
    /// The namespace that the plugin is confined to. Such a plugin has the name of the namespace and a slash before its
    /// own.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.name.split_once('/').map(|(namespace, _)| namespace)
    }

    fn serves(&self, endpoint: Endpoint) -> bool {
        match endpoint {
            Endpoint::Mutate => self.mutates,
            Endpoint::Validate => self.validates,
        }
    }
}

// === impl Registration ===

impl Registration {
    /// Returns the webhooks of an endpoint, in the order in which kube-apiserver calls them. None if no plugin serves
    /// the endpoint.
    ///
    /// Each plugin of a namespace has its own webhook, for its namespace only. So it neither widens the rules of others,
    /// nor delays requests in other namespaces.
    ///
    /// # Errors
    ///
    /// When plugins may take longer than kube-apiserver waits.
    pub fn webhooks(
        &self,
        endpoint: Endpoint,
        plugins: &[Participant<'_>],
    ) -> Result<Option<Webhooks>, TooSlow> {
        let plugins = serving(endpoint, plugins);
        if plugins.is_empty() {
            return Ok(None);
        }
        let one = |plugin: &Participant<'_>| {
            self.webhook(endpoint, Some(plugin.name), std::slice::from_ref(plugin))
        };
        let (tenants, plugins): (Vec<_>, Vec<_>) = plugins
            .into_iter()
            .partition(|plugin| plugin.namespace().is_some());
        // kube-apiserver calls mutating webhooks in this order. So the plugins of the cluster have the last word.
        let mut webhooks = tenants.iter().map(one).collect::<Result<Vec<_>, _>>()?;
        if self.separates(endpoint, &plugins) {
            let own = plugins.iter().map(one).collect::<Result<Vec<_>, _>>()?;
            webhooks.extend(own);
        } else if !plugins.is_empty() {
            webhooks.push(self.webhook(endpoint, None, &plugins)?);
        }
        let metadata = Metadata::new(&self.name);
        Ok(Some(Webhooks::new(endpoint, metadata, webhooks)))
    }

    /// Returns the reason why an endpoint gets one webhook per plugin although nobody asked for that.
    #[must_use]
    pub fn hiding(&self, endpoint: Endpoint, plugins: &[Participant<'_>]) -> Option<Hiding> {
        if self.per_plugin {
            return None;
        }
        hidden::find(endpoint, &of_cluster(endpoint, plugins))
    }

    /// Returns the webhooks of an endpoint that could keep new nodes from joining the cluster, because rules name
    /// resources that nodes need. Without such a name, the webhooks exclude these resources.
    #[must_use]
    pub fn lockouts(&self, endpoint: Endpoint, plugins: &[Participant<'_>]) -> Vec<Lockout> {
        let plugins = of_cluster(endpoint, plugins);
        let of_one_webhook = if self.separates(endpoint, &plugins) {
            1
        } else {
            plugins.len().max(1)
        };
        plugins
            .chunks(of_one_webhook)
            .filter(|plugins| must_answer(plugins))
            .filter_map(|plugins| exclude::lockout(endpoint, plugins))
            .collect()
    }

    /// Returns whether kube-apiserver reads the configurations from files. The suffix of their name decides, because
    /// kube-apiserver accepts no other names there, and no such names in the API.
    fn is_static(&self) -> bool {
        self.name.ends_with(STATIC_SUFFIX)
    }

    /// Returns whether each plugin of an endpoint gets its own webhook. All plugins must serve the endpoint.
    fn separates(&self, endpoint: Endpoint, plugins: &[Participant<'_>]) -> bool {
        self.per_plugin || hidden::find(endpoint, plugins).is_some()
    }

    fn webhook(
        &self,
        endpoint: Endpoint,
        plugin: Option<&str>,
        plugins: &[Participant<'_>],
    ) -> Result<Webhook, TooSlow> {
        let rules = rules::union(plugins.iter().flat_map(|plugin| plugin.matching.rules()));
        let tenant = plugins.iter().find_map(Participant::namespace);
        let (name, path) = match plugin {
            Some(plugin) => (
                format!("{}.{}.{DOMAIN}", dotted(plugin), endpoint.name()),
                format!("/{}/{plugin}", endpoint.name()),
            ),
            None => (
                format!("{}.{DOMAIN}", endpoint.name()),
                format!("/{}", endpoint.name()),
            ),
        };
        let failure_policy = if must_answer(plugins) {
            FailurePolicy::Fail
        } else {
            FailurePolicy::Ignore
        };
        Ok(Webhook {
            name,
            client_config: ClientConfig::new(&self.address, &path, self.ca_bundle.as_deref()),
            match_conditions: self.conditions(&rules, plugins),
            namespace_selector: match tenant {
                Some(_) => self.namespaces(plugins),
                None => self
                    .namespaces(plugins)
                    .and(webhook::shared_namespace_selector(plugins)),
            },
            object_selector: match plugins {
                [plugin] if tenant.is_none() && !plugin.matching.pod_templates => {
                    LabelSelector::of_objects(&plugin.matching.object_selector)
                }
                _ => None,
            },
            timeout_seconds: match tenant {
                Some(_) => {
                    time::longest_seconds(endpoint, plugins, self.margin, self.timeout_seconds)
                }
                None => time::seconds(endpoint, plugins, self.margin, self.timeout_seconds)?,
            },
            failure_policy: failure_policy.as_str(),
            match_policy: "Equivalent",
            side_effects: "None",
            reinvocation_policy: (endpoint == Endpoint::Mutate)
                .then(|| self.reinvocation(plugins).as_str()),
            admission_review_versions: ["v1", "v1beta1"],
            rules,
        })
    }

    /// Returns the match conditions of a webhook: the general exclusions, and the conditions of its plugin if it has
    /// only one.
    ///
    /// The conditions of several plugins are not joined: a mutator can change an object so that a later plugin applies.
    ///
    /// A condition that contains `resource` is not copied either. When kube-apiserver converts an object, conditions
    /// see the version that the client used as `request.resource`. The webhook gets the version of the rule
    /// (matchconditions/matcher.go). kube-apiserver does not know `namespaceObject` in a webhook's conditions.
    fn conditions(
        &self,
        rules: &[RegisteredRule],
        plugins: &[Participant<'_>],
    ) -> Vec<MatchCondition> {
        let mut conditions = exclude::conditions(rules, plugins, &self.break_glass_groups);
        if self.is_static() {
            conditions.extend(exclude::admission(rules, plugins));
        }
        // kube-apiserver refuses all webhooks for a text that it does not take. The author of a namespace's plugin must
        // not be able to cause that. The host evaluates its selectors in any case.
        let [plugin] = plugins else {
            return conditions;
        };
        // The conditions of a plugin that gets pod templates are about Pods. kube-apiserver would evaluate them with the
        // workload.
        if plugin.namespace().is_some() || plugin.matching.pod_templates {
            return conditions;
        }
        let own = plugin.matching.conditions.iter();
        let own: Vec<_> = own
            .filter(|condition| {
                !condition.text().contains("resource") && !condition.needs_namespace()
            })
            .collect();
        // kube-apiserver refuses a webhook with more conditions. The host evaluates the plugin's conditions in any
        // case.
        if conditions.len() + own.len() <= MOST_CONDITIONS {
            conditions.extend(own.into_iter().map(|condition| MatchCondition {
                name: format!("{}/{}", plugin.name, condition.name()),
                expression: condition.text().to_owned(),
            }));
        }
        conditions
    }

    fn reinvocation(&self, plugins: &[Participant<'_>]) -> ReinvocationPolicy {
        let wanted =
            |plugin: &Participant<'_>| plugin.reinvocation_policy == ReinvocationPolicy::IfNeeded;
        self.reinvocation_policy.unwrap_or_else(|| {
            if plugins.iter().any(wanted) {
                ReinvocationPolicy::IfNeeded
            } else {
                ReinvocationPolicy::Never
            }
        })
    }

    /// Returns the namespace selector. A namespace is excluded if all plugins exclude it. If all plugins name
    /// namespaces, only these are included.
    fn namespaces(&self, plugins: &[Participant<'_>]) -> LabelSelector {
        let mut excluded = self.excluded_namespaces.clone();
        let (first, rest) = plugins.split_first().expect("a webhook has a plugin");
        excluded.extend(first.matching.excluded_namespaces().filter_map(|name| {
            let everywhere = rest.iter().all(|plugin| {
                plugin
                    .matching
                    .excluded_namespaces()
                    .any(|other| other == name)
            });
            everywhere.then(|| name.to_owned())
        }));
        let all_name_some = plugins
            .iter()
            .all(|plugin| plugin.matching.namespaces().next().is_some());
        let only = all_name_some.then(|| {
            let names = plugins
                .iter()
                .flat_map(|plugin| plugin.matching.namespaces());
            names.map(str::to_owned).collect::<BTreeSet<_>>()
        });
        LabelSelector::of_namespaces(only, excluded)
    }
}
