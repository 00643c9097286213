//! The status of custom resources. Pure functions of what serves and of the resource.

use serde_json::{Value, json};
use tollgate_config::{Serving, ServingState};

use crate::desired::{Plan, Verdict};
use crate::kinds::Resource;

/// The entry of one replica in the status of one plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaEntry {
    /// The replica's name.
    pub(crate) name: String,
    /// Whether the resource is in effect on the replica as it is written.
    pub(crate) is_ready: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) digest: Option<String>,
    pub(crate) generation: i64,
}

/// A condition, without the time of its last change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) status: &'static str,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) generation: i64,
}

/// The type of the condition that says whether the resource is in effect.
const READY: &str = "Ready";
/// The reason of a condition while some replicas have not reported the current generation.
pub(crate) const PROGRESSING: &str = "Progressing";
/// Longer messages are cut. Kubernetes takes 32 KiB.
const LONGEST_MESSAGE_BYTES: usize = 2_000;
/// Characters of a digest in the short form: the algorithm and twelve digits.
const SHORT_DIGEST_CHARACTERS: usize = 19;

/// Returns this replica's entry for a plugin. None while its new version is still being loaded.
pub(crate) fn entry(
    replica: &str,
    name: &str,
    verdict: &Verdict,
    plan: &Plan,
    serving: &Serving,
) -> Option<ReplicaEntry> {
    let served = serving.get(name);
    let digest = served.and_then(|served| served.digest.as_deref());
    let say = |is_ready, reason: &str, message: String| {
        Some(ReplicaEntry {
            name: replica.to_owned(),
            is_ready,
            reason: reason.to_owned(),
            message: cut(message),
            digest: digest.map(str::to_owned).filter(|_| reason != "NameTaken"),
            generation: verdict.generation,
        })
    };
    if let Some(refusal) = &verdict.refusal {
        let message = match (verdict.is_kept, refusal.reason) {
            (true, _) => format!("{}; the previous version stays in effect", refusal.message),
            (false, _) => refusal.message.clone(),
        };
        return say(false, refusal.reason, message);
    }
    let desired = plan.config.plugins.iter();
    let desired = desired
        .into_iter()
        .find(|plugin| plugin.name.as_str() == name)?;
    let trouble = serving.troubles.get(name);
    if let Some(served) = served.filter(|served| *served.config == *desired) {
        match (&served.state, trouble) {
            (ServingState::Disabled, _) => {
                return say(
                    true,
                    "Disabled",
                    "the plugin is disabled and is not called".to_owned(),
                );
            }
            (ServingState::Loaded { .. }, None) if !serving.loading.contains(name) => {
                return say(
                    true,
                    "Serving",
                    "the plugin serves as configured".to_owned(),
                );
            }
            _ => {}
        }
    }
    if let Some(trouble) = trouble {
        let effect = match served.map(|served| &served.state) {
            Some(ServingState::Loaded { .. }) => "the previous version keeps serving",
            Some(ServingState::Failed { .. }) => {
                "its failurePolicy decides about the requests that it would match"
            }
            Some(ServingState::Disabled) | None => "the plugin is not called yet",
        };
        return say(false, "LoadFailed", format!("{trouble}; {effect}"));
    }
    if let Some(what_to_do) = serving.held.get(name) {
        let message = format!(
            "the plugin keeps its previous configuration, because another plugin does not serve as desired: {what_to_do}"
        );
        return say(false, "Held", message);
    }
    None
}

/// Returns the condition `Ready` of a plugin. Every replica computes the same from the same resource.
pub(crate) fn ready(resource: &Resource, entries: &[ReplicaEntry]) -> Option<Condition> {
    let generation = resource.generation;
    let current = || {
        entries
            .iter()
            .filter(|entry| entry.generation == generation)
    };
    let count = entries.len();
    let condition = |status, reason: &str, message: String| {
        Some(Condition {
            status,
            reason: reason.to_owned(),
            message: cut(message),
            generation,
        })
    };
    if let Some(entry) = current().find(|entry| !entry.is_ready) {
        let of = match count {
            1 => String::new(),
            _ => format!("replica {}: ", entry.name),
        };
        return condition("False", &entry.reason, format!("{of}{}", entry.message));
    }
    let first = current().next()?;
    let reached = current().count();
    if reached < count {
        let message = format!("{reached} of {count} replicas serve this generation");
        return condition("Unknown", PROGRESSING, message);
    }
    let message = match count {
        1 => first.message.clone(),
        _ => format!("on all {count} replicas: {}", first.message),
    };
    condition("True", &first.reason, message)
}

/// Returns the condition `Ready` of an exception.
pub(crate) fn exception_ready(verdict: &Verdict) -> Condition {
    match &verdict.refusal {
        None => Condition {
            status: "True",
            reason: "Active".to_owned(),
            message: "the plugins are not called for the requests that match".to_owned(),
            generation: verdict.generation,
        },
        Some(refusal) => Condition {
            status: "False",
            reason: refusal.reason.to_owned(),
            message: cut(refusal.message.clone()),
            generation: verdict.generation,
        },
    }
}

/// Returns the digest that all current entries share, if they do.
pub(crate) fn digest(entries: &[ReplicaEntry]) -> Option<&str> {
    let first = entries.first()?.digest.as_deref()?;
    let same = |entry: &ReplicaEntry| entry.digest.as_deref() == Some(first);
    entries.iter().all(same).then_some(first)
}

/// Returns the short form of a digest, for a column.
pub(crate) fn short(digest: &str) -> &str {
    digest.get(..SHORT_DIGEST_CHARACTERS).unwrap_or(digest)
}

/// Reads the entries of a resource's status, in the order of their names. Entries that cannot be read are left out.
pub(crate) fn entries(resource: &Resource) -> Vec<ReplicaEntry> {
    let entries = resource.status["replicas"].as_array();
    let mut entries: Vec<_> = entries
        .into_iter()
        .flatten()
        .filter_map(ReplicaEntry::read)
        .collect();
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    entries
}

fn cut(mut message: String) -> String {
    if message.len() > LONGEST_MESSAGE_BYTES {
        let end = (0..=LONGEST_MESSAGE_BYTES).rev();
        let end = end.into_iter().find(|&end| message.is_char_boundary(end));
        message.truncate(end.unwrap_or(0));
        message.push('…');
    }
    message
}

// === impl ReplicaEntry ===

impl ReplicaEntry {
    fn read(value: &Value) -> Option<Self> {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        Some(Self {
            name: text("name")?,
            is_ready: value["ready"].as_bool()?,
            reason: text("reason")?,
            message: text("message").unwrap_or_default(),
            digest: text("digest"),
            generation: value["observedGeneration"].as_i64()?,
        })
    }

    pub(crate) fn document(&self, now: &str) -> Value {
        let mut document = json!({
            "name": self.name,
            "ready": self.is_ready,
            "reason": self.reason,
            "message": self.message,
            "observedGeneration": self.generation,
            "since": now,
        });
        if let Some(digest) = &self.digest {
            document["digest"] = json!(digest);
        }
        document
    }
}

// === impl Condition ===

impl Condition {
    /// Returns the document of the condition. The time of the last change stays while the status is the same.
    pub(crate) fn document(&self, resource: &Resource, now: &str) -> Value {
        let earlier = written(resource);
        let since = earlier
            .filter(|earlier| earlier["status"] == self.status)
            .and_then(|earlier| earlier["lastTransitionTime"].as_str());
        json!({
            "type": READY,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "observedGeneration": self.generation,
            "lastTransitionTime": since.unwrap_or(now),
        })
    }

    /// Returns whether the resource's status contains this condition.
    pub(crate) fn is_written(&self, resource: &Resource) -> bool {
        written(resource).is_some_and(|earlier| {
            earlier["status"] == self.status
                && earlier["reason"] == self.reason.as_str()
                && earlier["message"] == self.message.as_str()
                && earlier["observedGeneration"] == self.generation
        })
    }

    /// Returns whether the condition says something else than the resource's status: another status or reason.
    pub(crate) fn is_news(&self, resource: &Resource) -> bool {
        written(resource).is_none_or(|earlier| {
            earlier["status"] != self.status || earlier["reason"] != self.reason.as_str()
        })
    }
}

/// Returns the condition of a resource's status.
fn written(resource: &Resource) -> Option<&Value> {
    let conditions = resource.status["conditions"].as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == READY)
}
