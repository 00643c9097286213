//! The webhook configurations that register this host with kube-apiserver.
//!
//! ```text
//! plugins ─▶ hidden: one webhook for all, or each  ┐
//!         ─▶ rules: their union, no wider          ├─▶ webhook: Kubernetes' own types ─▶ YAML
//!         ─▶ time: what the chain may take         │
//! options ─▶ address, caBundle, what is left out   ┘
//! ```
//!
//! kube-apiserver calls nothing that is not registered, and everything that is: rules that are too wide cost each
//! request of the cluster a call, and one webhook under `Fail` can keep an administrator from mending the cluster.
//! So the rules are the union of the plugins' and no more, and what a cluster lives by is left out.

mod exclude;
mod hidden;
mod rules;
#[cfg(test)]
mod tests;
mod time;
mod webhook;

use std::{collections::BTreeSet, time::Duration};

use crate::{
    condition::MOST_CONDITIONS,
    config::{ExistingViolations, FailurePolicy, Margin, Match, Mode, ReinvocationPolicy},
    server::Endpoint,
};

pub(crate) use self::exclude::NAMESPACES as EXCLUDED_NAMESPACES;
pub use self::{
    hidden::Hiding,
    time::{TIMEOUT_BOUNDS_SECONDS, TooSlow},
    webhook::{Address, Webhooks},
};

use self::rules::RegisteredRule;
use self::webhook::{ClientConfig, LabelSelector, MatchCondition, Metadata, Webhook};

/// The name that webhooks end in, and the API group that is to be Tollgate's.
pub const DOMAIN: &str = "tollgate.dev";

/// The group whose members are not asked about, when no other is named. Nobody is in it: whoever may impersonate
/// takes it on for one command, which the audit log shows.
pub const BREAK_GLASS_GROUP: &str = "tollgate:break-glass";

/// What a plugin is registered by.
#[derive(Clone, Copy, Debug)]
pub struct Participant<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether it changes objects.
    pub mutates: bool,
    /// Whether it judges objects.
    pub validates: bool,
    /// What it is called for.
    pub matching: &'a Match,
    /// What its verdicts count for.
    pub mode: Mode,
    /// What its faults count for.
    pub failure_policy: FailurePolicy,
    /// Whether it is called again when another has changed the object after it.
    pub reinvocation_policy: ReinvocationPolicy,
    /// Whether it is asked about the old object, too, when it denies the new one.
    pub existing_violations: ExistingViolations,
    /// What one call may take.
    pub timeout: Duration,
}

/// How the host is registered.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The name of both configurations.
    pub name: String,
    /// Where kube-apiserver reaches the host.
    pub address: Address,
    /// PEM of the authorities that kube-apiserver is to trust; without it, its own.
    pub ca_bundle: Option<Vec<u8>>,
    /// A webhook for each plugin rather than one for all, where that would do.
    pub per_plugin: bool,
    /// What kube-apiserver is to wait; without it, as little as is safe.
    pub timeout_seconds: Option<u32>,
    /// Whether other webhooks' changes have the mutating webhooks called again; without it, where a plugin wants that.
    pub reinvocation_policy: Option<ReinvocationPolicy>,
    /// Namespaces whose objects are not asked about.
    pub excluded_namespaces: BTreeSet<String>,
    /// Groups whose members are not asked about.
    pub break_glass_groups: BTreeSet<String>,
    /// What the host keeps back of the time that kube-apiserver gives.
    pub margin: Margin,
}

fn serving<'a>(endpoint: Endpoint, plugins: &[Participant<'a>]) -> Vec<Participant<'a>> {
    plugins
        .iter()
        .copied()
        .filter(|plugin| plugin.serves(endpoint))
        .collect()
}

// === impl Participant ===

impl Participant<'_> {
    fn serves(&self, endpoint: Endpoint) -> bool {
        match endpoint {
            Endpoint::Mutate => self.mutates,
            Endpoint::Validate => self.validates,
        }
    }
}

// === impl Registration ===

impl Registration {
    /// The webhooks of an endpoint, in the order in which kube-apiserver calls them; none when no plugin serves it.
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
        let webhooks = if self.per_plugin || hidden::find(endpoint, &plugins).is_some() {
            let one = |plugin: &Participant<'_>| {
                self.webhook(endpoint, Some(plugin.name), std::slice::from_ref(plugin))
            };
            plugins.iter().map(one).collect::<Result<_, _>>()?
        } else {
            vec![self.webhook(endpoint, None, &plugins)?]
        };
        let metadata = Metadata::new(&self.name);
        Ok(Some(Webhooks::new(endpoint, metadata, webhooks)))
    }

    /// Why the webhooks of an endpoint are one for each plugin, where nobody asked for that.
    #[must_use]
    pub fn hiding(&self, endpoint: Endpoint, plugins: &[Participant<'_>]) -> Option<Hiding> {
        if self.per_plugin {
            return None;
        }
        hidden::find(endpoint, &serving(endpoint, plugins))
    }

    fn webhook(
        &self,
        endpoint: Endpoint,
        plugin: Option<&str>,
        plugins: &[Participant<'_>],
    ) -> Result<Webhook, TooSlow> {
        let rules = rules::union(plugins.iter().flat_map(|plugin| plugin.matching.rules()));
        let (name, path) = match plugin {
            Some(plugin) => (
                format!("{plugin}.{}.{DOMAIN}", endpoint.name()),
                format!("/{}/{plugin}", endpoint.name()),
            ),
            None => (
                format!("{}.{DOMAIN}", endpoint.name()),
                format!("/{}", endpoint.name()),
            ),
        };
        let fails = plugins.iter().any(|plugin| {
            plugin.mode == Mode::Enforce && plugin.failure_policy == FailurePolicy::Fail
        });
        let failure_policy = if fails {
            FailurePolicy::Fail
        } else {
            FailurePolicy::Ignore
        };
        Ok(Webhook {
            name,
            client_config: ClientConfig::new(&self.address, &path, self.ca_bundle.as_deref()),
            match_conditions: self.conditions(&rules, plugins),
            namespace_selector: self.namespaces(plugins),
            object_selector: match plugins {
                [plugin] => LabelSelector::of_objects(&plugin.matching.object_selector),
                _ => None,
            },
            timeout_seconds: time::seconds(endpoint, plugins, self.margin, self.timeout_seconds)?,
            failure_policy: failure_policy.as_str(),
            match_policy: "Equivalent",
            side_effects: "None",
            reinvocation_policy: (endpoint == Endpoint::Mutate)
                .then(|| self.reinvocation(plugins).as_str()),
            admission_review_versions: ["v1", "v1beta1"],
            rules,
        })
    }

    /// What is never asked about, and, where the webhook is one plugin, what that one is not asked about. Of several
    /// plugins the conditions are not joined: a mutator can make an object into what a later one is for. Nor is one
    /// taken over that speaks of resources: where kube-apiserver converts an object, its conditions have the version
    /// that the client used as `request.resource`, and the webhook gets that of the rule (matchconditions/matcher.go).
    fn conditions(
        &self,
        rules: &[RegisteredRule],
        plugins: &[Participant<'_>],
    ) -> Vec<MatchCondition> {
        let mut conditions = exclude::conditions(rules, &self.break_glass_groups);
        let [plugin] = plugins else {
            return conditions;
        };
        let own = plugin.matching.conditions.iter();
        let own: Vec<_> = own
            .filter(|condition| !condition.text().contains("resource"))
            .collect();
        // Past that kube-apiserver refuses the webhook, and the host decides about them all the same.
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

    /// What all plugins leave out is left out, and where all name namespaces, there are no others.
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
