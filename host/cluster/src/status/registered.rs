//! The condition `Registered`: whether the live webhook configurations have the plugin's rules.
//!
//! The leader says so in its own entry, and every replica computes the condition from the entries. So two installations
//! in one cluster do not overwrite each other's words.

use serde_json::{Value, json};
use tollgate_config::{ServingPlugin, ServingState};

use super::{Condition, ReplicaEntry, cut};
use crate::desired::Verdict;
use crate::kinds::Resource;
use crate::plugin::rules_digest;
use crate::registrar::{Report, Standing};

/// The words of an entry about the registration of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    /// The status of the condition.
    pub(crate) status: &'static str,
    /// The reason in CamelCase.
    pub(crate) reason: String,
    /// The text for people.
    pub(crate) message: String,
}

/// The type of the condition.
const REGISTERED: &str = "Registered";
const FOREIGN_CHANGE: &str = "ForeignChange";
const NOT_MANAGED: &str = "NotManaged";

/// Returns the condition of a plugin. While no entry of this generation has words about it, the condition stays as it is
/// written.
pub(crate) fn registered(resource: &Resource, entries: &[ReplicaEntry]) -> Option<Condition> {
    let said = entries
        .iter()
        .filter(|entry| entry.generation == resource.generation)
        .filter_map(|entry| entry.registration.as_ref());
    // The worst counts, if the replicas of two installations have words.
    let rank = |said: &&Registration| match said.status {
        "False" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    match said.min_by_key(rank) {
        Some(said) => Some(Condition {
            kind: REGISTERED,
            status: said.status,
            reason: said.reason.clone(),
            message: said.message.clone(),
            generation: resource.generation,
        }),
        None => Condition::written(resource, REGISTERED),
    }
}

// === impl Registration ===

impl Registration {
    /// The words of the leader about a plugin.
    pub(crate) fn of_leader(
        name: &str,
        verdict: &Verdict,
        served: Option<&ServingPlugin>,
        report: &Report,
    ) -> Self {
        if let Some(refusal) = verdict.refusal.as_ref().filter(|_| !verdict.is_kept) {
            let message = "the resource is not in effect, so nothing is registered for it";
            return Self::new("False", refusal.reason, message);
        }
        if let Some(why) = report.undecided {
            let message = format!("the leader registers nothing yet: {why}");
            return Self::new("Unknown", "Undecided", &message);
        }
        let waits = "a ready replica does not serve the plugin with these rules; they are registered when all do";
        match report.plugins.get(name) {
            Some(Standing::Registered(rules)) => match served.map(|served| &served.state) {
                Some(ServingState::Loaded {
                    matching,
                    mutates,
                    validates,
                }) if rules_digest(matching, *mutates, *validates) == *rules => {
                    let message =
                        "the live webhook configurations have the rules of the version that serves";
                    Self::new("True", REGISTERED, message)
                }
                _ => Self::new("False", "Waiting", waits),
            },
            Some(Standing::Waiting) => Self::new("False", "Waiting", waits),
            Some(Standing::Pending) => {
                let message = "the leader has not loaded the plugin, so its rules are not known; what was registered \
                               before stays";
                Self::new("Unknown", "NotLoaded", message)
            }
            Some(Standing::Unread) => {
                let message = "the leader cannot read the live webhook configurations";
                Self::new("Unknown", "NotRead", message)
            }
            Some(Standing::Changed(changes)) => Self::new("False", FOREIGN_CHANGE, changes),
            Some(Standing::Failed { reason, message }) => Self::new("False", reason, message),
            None => {
                let message = "the plugin is not called, so nothing is registered for it";
                Self::new("False", "NotDesired", message)
            }
        }
    }

    /// The words of a replica whose installation does not register itself.
    pub(crate) fn not_managed() -> Self {
        let message = "cluster.registration.enabled is false: compare the webhooks with `tollgate manifests --check`";
        Self::new("Unknown", NOT_MANAGED, message)
    }

    /// Whether the words are written at once. Others may right themselves in a moment.
    pub(crate) fn is_settled(&self) -> bool {
        self.status == "True" || [FOREIGN_CHANGE, NOT_MANAGED].contains(&self.reason.as_str())
    }

    fn new(status: &'static str, reason: &str, message: &str) -> Self {
        Self {
            status,
            reason: reason.to_owned(),
            message: cut(message.to_owned()),
        }
    }

    pub(super) fn read(entry: &Value) -> Option<Self> {
        let said = &entry["registered"];
        Some(Self {
            status: super::status_word(said["status"].as_str()?),
            reason: said["reason"].as_str()?.to_owned(),
            message: said["message"].as_str()?.to_owned(),
        })
    }

    pub(super) fn document(&self) -> Value {
        json!({ "status": self.status, "reason": self.reason, "message": self.message })
    }
}
