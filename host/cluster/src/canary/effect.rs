//! The words about the condition `Effective` of a plugin. Does no IO.

use serde_json::{Value, json};
use tollgate_config::{ServingPlugin, ServingState};

use super::answer::{Sighting, Sightings};
use crate::desired::Verdict;
use crate::plugin::rules_digest;
use crate::registrar::{Report, Standing};

/// The words of an entry about the effect of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    /// The status of the condition.
    pub(crate) status: &'static str,
    /// The reason in CamelCase.
    pub(crate) reason: String,
    /// The text for people.
    pub(crate) message: String,
}

const EFFECTIVE: &str = "Effective";
const NOT_MANAGED: &str = "NotManaged";
const LONGEST_MESSAGE_CHARACTERS: usize = 900;

// === impl Effect ===

impl Effect {
    /// The words of the leader about a custom resource.
    pub(crate) fn of_leader(
        name: &str,
        verdict: &Verdict,
        served: Option<&ServingPlugin>,
        report: &Report,
        sightings: &Sightings,
    ) -> Self {
        if let Some(refusal) = verdict.refusal.as_ref().filter(|_| !verdict.is_kept) {
            let message = "the resource is not in effect, so kube-apiserver does not call it";
            return Self::new("False", refusal.reason, message);
        }
        if let Some(Standing::Registered(rules)) = report.plugins.get(name) {
            let is_same = match served.map(|served| &served.state) {
                Some(ServingState::Loaded {
                    matching,
                    mutates,
                    validates,
                }) => rules_digest(matching, *mutates, *validates) == *rules,
                _ => false,
            };
            if !is_same {
                let message = "the rules of the version that serves are not registered yet";
                return Self::new("Unknown", "Waiting", message);
            }
        }
        Self::of_plugin(name, report, sightings)
    }

    /// The words of the leader about a plugin, wherever it is configured.
    pub(crate) fn of_plugin(name: &str, report: &Report, sightings: &Sightings) -> Self {
        if let Some(why) = report.undecided {
            let message = format!("the leader examines nothing yet: {why}");
            return Self::new("Unknown", "Undecided", &message);
        }
        match report.plugins.get(name) {
            None => {
                let message = "the plugin is not called, because it is disabled";
                return Self::new("False", "NotDesired", message);
            }
            Some(Standing::Pending) => {
                let message = "the leader has not loaded the plugin, so its rules are not known";
                return Self::new("Unknown", "NotLoaded", message);
            }
            Some(Standing::Unread) => {
                let message = "the leader cannot read the live webhook configurations";
                return Self::new("Unknown", "NotRead", message);
            }
            Some(_) => {}
        }
        if report.unexamined.contains(name) {
            let message = "the leader has not decided about the webhook configurations yet";
            return Self::new("Unknown", "Pending", message);
        }
        if let Some(shortfall) = report.shortfalls.get(name) {
            return Self::new("False", shortfall.reason, &shortfall.message);
        }
        let is_of_plugin = |names: &[String]| names.iter().any(|one| one == name);
        let entries = report.entries.iter();
        let entries: Vec<_> = entries
            .filter(|entry| is_of_plugin(&entry.plugins))
            .collect();
        let words = entries.iter().map(|entry| {
            let sighting = sightings.get(&entry.canary);
            Self::of_entry(name, &entry.webhook, sighting)
        });
        match words.min_by_key(Self::rank) {
            Some(worst) if worst.status != "True" => worst,
            Some(_) => {
                let names: Vec<&str> = entries.iter().map(|entry| entry.webhook.as_str()).collect();
                let message = format!(
                    "kube-apiserver calls {} and gets answers, and the live rules are those of the plugin",
                    names.join(" and ")
                );
                Self::new("True", EFFECTIVE, &message)
            }
            None => Self::new("False", "NotRegistered", "no webhook calls the plugin"),
        }
    }

    fn of_entry(name: &str, webhook: &str, sighting: Option<&Sighting>) -> Self {
        match sighting {
            Some(Sighting::Answered { plugins, lacking }) => {
                if lacking.iter().any(|one| one == name) {
                    let message = format!(
                        "webhook {webhook}: the replica that answered does not call the plugin"
                    );
                    return Self::new("False", "NotServed", &message);
                }
                if plugins.iter().any(|one| one == name) {
                    return Self::new("True", EFFECTIVE, "");
                }
                Self::pending(webhook)
            }
            Some(Sighting::Failed { reason, message }) => Self::new("False", reason, message),
            Some(Sighting::Unclear { reason, message }) => Self::new("Unknown", reason, message),
            None => Self::pending(webhook),
        }
    }

    fn pending(webhook: &str) -> Self {
        let message = format!("webhook {webhook}: no canary has been answered yet");
        Self::new("Unknown", "Pending", &message)
    }

    /// The words of a replica whose installation does not register itself.
    pub(crate) fn not_managed() -> Self {
        let message = "cluster.registration.enabled is false, so no webhook entry has a canary";
        Self::new("Unknown", NOT_MANAGED, message)
    }

    /// Whether the words are written at once. Others may right themselves in a moment.
    pub(crate) fn is_settled(&self) -> bool {
        self.status == "True" || self.reason == NOT_MANAGED
    }

    /// The worst words come first.
    pub(crate) fn rank(&self) -> u8 {
        match self.status {
            "False" => 0,
            "Unknown" => 1,
            _ => 2,
        }
    }

    fn new(status: &'static str, reason: &str, message: &str) -> Self {
        Self {
            status,
            reason: reason.to_owned(),
            message: message.chars().take(LONGEST_MESSAGE_CHARACTERS).collect(),
        }
    }

    pub(crate) fn read(entry: &Value) -> Option<Self> {
        let said = &entry["effective"];
        Some(Self {
            status: match said["status"].as_str()? {
                "True" => "True",
                "False" => "False",
                _ => "Unknown",
            },
            reason: said["reason"].as_str()?.to_owned(),
            message: said["message"].as_str()?.to_owned(),
        })
    }

    pub(crate) fn document(&self) -> Value {
        json!({ "status": self.status, "reason": self.reason, "message": self.message })
    }
}
