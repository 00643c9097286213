//! The plugins as the registrar knows them: the desired ones, and those that this replica serves.

use std::collections::BTreeSet;
use std::time::Duration;

use tollgate_admission::Endpoint;
use tollgate_config::{ExistingViolations, FailurePolicy, Match, Mode, ReinvocationPolicy};
use tollgate_registration::Participant;

use crate::installation::digest;
use crate::lease::RulesDigest;

/// A plugin with the properties that matter for its registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// The plugin's name.
    pub name: String,
    /// The digest of the plugin's code, such as `sha256:…`. Empty if it is not known.
    pub digest: String,
    /// Whether the plugin mutates.
    pub mutates: bool,
    /// Whether the plugin validates.
    pub validates: bool,
    /// The requests that the plugin is called for.
    pub matching: Match,
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

/// The plugins that the installation shall serve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// The plugins whose rules are known, in the order in which they are called.
    pub plugins: Vec<Plugin>,
    /// The names of plugins whose rules are not known, because their code has not been loaded. Plugins of namespaces
    /// are never among them, because their rules come from their resources. While a pending plugin is registered, the
    /// registrar does not change the webhook configurations. The leader registers the other pending plugins when they
    /// are loaded.
    pub pending: BTreeSet<String>,
}

/// The plugins of this replica, and whether it is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Serving {
    /// Whether this replica is ready. kube-apiserver sends reviews to ready replicas only.
    pub ready: bool,
    /// The plugins that answer reviews on this replica.
    pub plugins: Vec<Plugin>,
}

/// A digest of the requests that a plugin is called for.
pub(crate) fn rules_digest(matching: &Match, mutates: bool, validates: bool) -> RulesDigest {
    let text = format!("{matching:?} {mutates} {validates}");
    RulesDigest(digest(text.as_bytes()))
}

// === impl Plugin ===

impl Plugin {
    /// A digest of the requests that the plugin is called for.
    ///
    /// Replicas of two versions of Tollgate may compute two digests for the same rules. Rules are then not widened until
    /// all replicas have the same version.
    #[must_use]
    pub fn rules_digest(&self) -> RulesDigest {
        rules_digest(&self.matching, self.mutates, self.validates)
    }

    pub(crate) fn participant(&self) -> Participant<'_> {
        Participant {
            name: &self.name,
            mutates: self.mutates,
            validates: self.validates,
            matching: &self.matching,
            mode: self.mode,
            failure_policy: self.failure_policy,
            reinvocation_policy: self.reinvocation_policy,
            existing_violations: self.existing_violations,
            timeout: self.timeout,
        }
    }

    pub(crate) fn serves(&self, endpoint: Endpoint) -> bool {
        match endpoint {
            Endpoint::Mutate => self.mutates,
            Endpoint::Validate => self.validates,
        }
    }
}
