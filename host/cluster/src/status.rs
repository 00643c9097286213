//! The status of custom resources. Pure functions of what serves and of the resource.

use serde_json::{Value, json};
use tollgate_config::{PluginConfig, Serving, ServingState};
use tollgate_rollout::Report;

use crate::Installation;
use crate::canary::Effect;
use crate::desired::{Plan, Verdict};
use crate::kinds::Resource;

mod effective;
mod registered;
pub(crate) mod rollout;
mod signature;
#[cfg(test)]
mod tests;

use self::effective::effective;
pub(crate) use self::registered::Registration;
use self::registered::registered;
pub(crate) use self::signature::Signature;
use self::signature::verified;

/// The entry of one replica in the status of one plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaEntry {
    /// The replica's name.
    pub(crate) name: String,
    /// The namespace and name of the replica's installation.
    pub(crate) installation: String,
    /// Whether the resource is in effect on the replica as it is written.
    pub(crate) is_ready: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) digest: Option<String>,
    pub(crate) generation: i64,
    /// The verdict about the signature. None while nothing is known.
    pub(crate) signature: Option<Signature>,
    /// The report about the registration. None unless this replica leads.
    pub(crate) registration: Option<Registration>,
    /// The report about the effect. None unless this replica leads.
    pub(crate) effect: Option<Effect>,
    /// The time of the replica's last call of the plugin, in RFC 3339. The replica writes it rarely.
    pub(crate) last_review: Option<String>,
    /// What the replica sees of the plugin's rollout.
    pub(crate) rollout: Option<Report>,
}

/// A condition, without the time of its last change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    /// The type.
    pub(crate) kind: &'static str,
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
    installation: &Installation,
    name: &str,
    verdict: &Verdict,
    plan: &Plan,
    serving: &Serving,
) -> Option<ReplicaEntry> {
    let served = serving.get(name);
    let digest = served.and_then(|served| served.digest.as_deref());
    let say = |is_ready, reason: &str, message: String| {
        Some(ReplicaEntry {
            digest: digest.map(str::to_owned).filter(|_| reason != "NameTaken"),
            ..ReplicaEntry::new(installation, is_ready, reason, message, verdict.generation)
        })
    };
    if let Some(refusal) = &verdict.refusal {
        let message = match (verdict.is_kept, refusal.reason) {
            (true, _) => format!("{}; the previous version stays in effect", refusal.message),
            (false, _) => refusal.message.clone(),
        };
        return say(false, refusal.reason, message);
    }
    let desired = tollgate_config::entries(&plan.config.plugins);
    let mut desired = desired.iter();
    let desired = desired.find(|plugin| plugin.name.as_str() == name)?;
    let trouble = serving.troubles.get(name);
    if let Some(served) = served.filter(|served| is_as_desired(&served.config, desired)) {
        match (&served.state, trouble) {
            (ServingState::Disabled, _) => {
                return say(
                    true,
                    "Disabled",
                    "the plugin is disabled and is not called".to_owned(),
                );
            }
            (ServingState::Loaded { .. }, None) if !serving.loading.contains(name) => {
                let message = "the plugin serves as configured".to_owned();
                return say(true, "Serving", message).map(|entry| ReplicaEntry {
                    signature: Some(Signature::of_serving(desired)),
                    ..entry
                });
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
        let is_untrusted = serving.unsigned.contains(name);
        let failed = say(false, "LoadFailed", format!("{trouble}; {effect}"));
        return failed.map(|entry| ReplicaEntry {
            signature: is_untrusted.then_some(Signature::Untrusted),
            ..entry
        });
    }
    if let Some(what_to_do) = serving.held.get(name) {
        let message = format!(
            "the plugin keeps its previous configuration, because another plugin does not serve as desired: {what_to_do}"
        );
        return say(false, "Held", message);
    }
    None
}

/// Whether a plugin serves as desired. A rollout may have made it enforce already.
fn is_as_desired(served: &PluginConfig, desired: &PluginConfig) -> bool {
    if served == desired {
        return true;
    }
    let mode = desired.mode;
    desired.active_rollout().is_some()
        && PluginConfig {
            mode,
            ..served.clone()
        } == *desired
}

/// Returns the conditions of a plugin. Every replica computes the same from the same resource. Without `Ready` there are
/// none.
pub(crate) fn conditions(resource: &Resource, entries: &[ReplicaEntry]) -> Vec<Condition> {
    let Some(ready) = ready(resource, entries) else {
        return Vec::new();
    };
    let others = [
        verified(resource, entries),
        registered(resource, entries),
        effective(resource, entries),
    ];
    std::iter::once(ready)
        .chain(others.into_iter().flatten())
        .collect()
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
            kind: READY,
            status,
            reason: reason.to_owned(),
            message: cut(message),
            generation,
        })
    };
    if let Some(entry) = current().find(|entry| !entry.is_ready) {
        return condition("False", &entry.reason, entry.named_message(count));
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
            kind: READY,
            status: "True",
            reason: "Active".to_owned(),
            message: "the plugins are not called for the requests that match".to_owned(),
            generation: verdict.generation,
        },
        Some(refusal) => Condition {
            kind: READY,
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
    /// An entry of this replica, without a digest and without words about signature, registration and effect.
    pub(crate) fn new(
        installation: &Installation,
        is_ready: bool,
        reason: &str,
        message: String,
        generation: i64,
    ) -> Self {
        Self {
            name: installation.replica.clone(),
            installation: installation.full_name(),
            is_ready,
            reason: reason.to_owned(),
            message: cut(message),
            digest: None,
            generation,
            signature: None,
            registration: None,
            effect: None,
            last_review: None,
            rollout: None,
        }
    }

    /// The message, with the replica's name if there are several replicas.
    fn named_message(&self, count: usize) -> String {
        match count {
            1 => self.message.clone(),
            _ => format!("replica {}: {}", self.name, self.message),
        }
    }

    fn read(value: &Value) -> Option<Self> {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        Some(Self {
            name: text("name")?,
            is_ready: value["ready"].as_bool()?,
            reason: text("reason")?,
            message: text("message").unwrap_or_default(),
            digest: text("digest"),
            generation: value["observedGeneration"].as_i64()?,
            installation: text("installation").unwrap_or_default(),
            signature: Signature::read(value),
            registration: Registration::read(value),
            effect: Effect::read(value),
            last_review: text("lastReview"),
            rollout: rollout::read_report(&value["rollout"]),
        })
    }

    /// Returns the part of the entry that `/plugins` shows. `generation` is the one of the resource.
    pub(crate) fn shown(&self, generation: i64) -> Value {
        json!({
            "name": self.name,
            "ready": self.is_ready,
            "reason": self.reason,
            "message": self.message,
            "digest": self.digest,
            "current": self.generation == generation,
        })
    }

    pub(crate) fn document(&self, now: &str) -> Value {
        let mut document = json!({
            "name": self.name,
            "installation": self.installation,
            "ready": self.is_ready,
            "reason": self.reason,
            "message": self.message,
            "observedGeneration": self.generation,
            "since": now,
        });
        if let Some(digest) = &self.digest {
            document["digest"] = json!(digest);
        }
        if let Some(signature) = &self.signature {
            signature.write(&mut document);
        }
        if let Some(registration) = &self.registration {
            document["registered"] = registration.document();
        }
        if let Some(effect) = &self.effect {
            document["effective"] = effect.document();
        }
        if let Some(last_review) = &self.last_review {
            document["lastReview"] = json!(last_review);
        }
        if let Some(report) = &self.rollout {
            document["rollout"] = rollout::report_document(report);
        }
        document
    }
}

// === impl Condition ===

impl Condition {
    /// Returns the document of the condition. The time of the last change stays while the status is the same.
    pub(crate) fn document(&self, resource: &Resource, now: &str) -> Value {
        let earlier = written(resource, self.kind);
        let since = earlier
            .filter(|earlier| earlier["status"] == self.status)
            .and_then(|earlier| earlier["lastTransitionTime"].as_str());
        json!({
            "type": self.kind,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "observedGeneration": self.generation,
            "lastTransitionTime": since.unwrap_or(now),
        })
    }

    /// Returns whether the resource's status contains this condition.
    pub(crate) fn is_written(&self, resource: &Resource) -> bool {
        written(resource, self.kind).is_some_and(|earlier| {
            earlier["status"] == self.status
                && earlier["reason"] == self.reason.as_str()
                && earlier["message"] == self.message.as_str()
                && earlier["observedGeneration"] == self.generation
        })
    }

    /// Returns whether an event tells of the condition: its status or reason is another one than in the resource's
    /// status. Of conditions other than `Ready`, only that they become `False`, and that this is over.
    pub(crate) fn is_news(&self, resource: &Resource) -> bool {
        let earlier = written(resource, self.kind);
        let is_other = earlier.is_none_or(|earlier| {
            earlier["status"] != self.status || earlier["reason"] != self.reason.as_str()
        });
        let was_false = earlier.is_some_and(|earlier| earlier["status"] == "False");
        is_other && (self.kind == READY || self.status == "False" || was_false)
    }

    /// Reads a condition of a resource's status.
    fn written(resource: &Resource, kind: &'static str) -> Option<Self> {
        let written = written(resource, kind)?;
        let text = |key: &str| written[key].as_str().map(str::to_owned);
        Some(Self {
            kind,
            status: status_word(written["status"].as_str()?),
            reason: text("reason")?,
            message: text("message")?,
            generation: written["observedGeneration"].as_i64()?,
        })
    }
}

/// Returns a condition of a resource's status.
fn written<'r>(resource: &'r Resource, kind: &str) -> Option<&'r Value> {
    let conditions = resource.status["conditions"].as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == kind)
}

/// Returns the status that a text stands for.
fn status_word(text: &str) -> &'static str {
    match text {
        "True" => "True",
        "False" => "False",
        _ => "Unknown",
    }
}
