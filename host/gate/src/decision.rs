//! The record of a review: the verdict, and the part of each plugin. Tollgate shows it as `/decisions` on the admin
//! listener, in `tollgate explain` and in `tollgate review`.
//!
//! A record holds names, pointers, numbers and hashes, but no part of an object and no text from a plugin. So Tollgate
//! may keep it, and may show it to people who must not read the object.

mod costs;
mod kept;
mod ring;
mod search;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tollgate_admission::Endpoint;
use tollgate_admission::review::request::{
    AdmissionRequest, GroupVersionKind, GroupVersionResource,
};
use tollgate_admission::text::{Limit, one_line};
use tollgate_config::FailurePolicy;
use tollgate_config::Mode;

pub use costs::costs;
pub use kept::KeptDecision;
pub use ring::Ring;
pub use search::search;

use crate::pipeline::outcome::{Ended, Outcome, Report};
use crate::pipeline::passed_over::PassedOver;

/// One review, its verdict, and the part of each plugin.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// The uid of the review.
    pub uid: String,
    /// The time when this record was made, after the plugins were called.
    #[serde(with = "timestamp")]
    pub time: SystemTime,
    /// The endpoint: `mutate` or `validate`.
    pub endpoint: Cow<'static, str>,
    /// The operation that the review is about, such as `CREATE`.
    pub operation: Cow<'static, str>,
    /// The kind of the object, such as `Pod`.
    pub kind: String,
    /// The API group of the resource; empty for the core group.
    pub group: String,
    /// The API version of the resource.
    pub version: String,
    /// The resource, such as `pods`.
    pub resource: String,
    /// The subresource, such as `status`; `None` for the resource itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_resource: Option<String>,
    /// The namespace; `None` for cluster-scoped resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the object; empty if the object has none yet.
    pub name: String,
    /// The name of the user who sent the request.
    pub user: String,
    /// Whether the request was a dry run, which stores nothing.
    pub dry_run: bool,
    /// The plugin that the path named, if the path asked for that plugin alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
    /// The verdict, as one of:
    ///
    /// - `allowed`
    /// - `denied`
    /// - `error`: a fault or an internal error rejected the request.
    /// - `overloaded`: Tollgate made no decision.
    pub verdict: Cow<'static, str>,
    /// The HTTP status of a rejection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The message of a rejection, as length and hash. kube-apiserver shows this message to the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Text>,
    /// Number of operations in the patch that was sent.
    pub patch_operations: usize,
    /// Time from the head of the request to the answer, in milliseconds.
    pub milliseconds: f64,
    /// The plugins that were called, in the order of the calls.
    pub plugins: Vec<Called>,
    /// The plugins that were not called, where the reason is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_called: Vec<NotCalled>,
    /// Plugins that were not called, for reasons that cannot be derived later from this record and the configuration.
    #[serde(skip)]
    pub passed_over: Vec<PassedOver>,
}

/// The part of one plugin in a decision.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Called {
    /// The name of the plugin.
    #[serde(with = "shared")]
    pub name: Arc<str>,
    /// The digest of the plugin's content, as `sha256:…`; `None` if the file could not be read. In JSON, `None` is the
    /// empty string.
    #[serde(with = "empty_if_none")]
    pub digest: Option<Arc<str>>,
    /// The mode, which decides how the plugin's verdict counts.
    pub mode: Cow<'static, str>,
    /// The failure policy, which decides how the plugin's faults count.
    pub failure_policy: Cow<'static, str>,
    /// The version of the plugin that was called, and the reason, if a version is rolled out.
    #[serde(default, with = "optional", skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Arc<str>>,
    /// The place of the pod template that the plugin got as a Pod, such as `spec.template`. None if it got the object
    /// itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<Box<str>>,
    /// Index of the first rule of the plugin that matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<usize>,
    /// How the call ended: `allowed`, `unchanged`, `patched`, `denied`, `fault` or `excepted`.
    pub ended: Cow<'static, str>,
    /// The exception that kept the plugin from being called, as the configuration has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excepted: Option<String>,
    /// How the second call of the plugin ended, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reinvoked: Option<Cow<'static, str>>,
    /// The fault of the plugin, if the call ended in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Box<Fault>>,
    /// The denial of the plugin, if the call ended in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denial: Option<Box<Denial>>,
    /// The part of a denial that did not count, because the old object has the same violations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing: Option<Box<Denial>>,
    /// The places that the plugin changed.
    #[serde(default, skip_serializing_if = "Places::is_empty")]
    pub changed: Places,
    /// The places where the plugin changed a value that an earlier plugin wrote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
    /// The warnings of the plugin, as lengths and hashes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Text>,
    /// Number of annotations that the plugin asked to have in the audit log.
    pub annotations: usize,
    /// The members that were asked, in order, if the plugin is a group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
    /// Fuel that the plugin used.
    pub fuel: u64,
    /// Number of calls in this that did not run, because the answer of an earlier call was known to be theirs. Their fuel
    /// is that of the earlier call.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reused: u32,
    /// CPU time that the plugin used, in milliseconds.
    pub cpu_milliseconds: f64,
    /// Wall-clock time, in milliseconds, including the time that the call waited for its turn.
    pub milliseconds: f64,
}

/// The part of a member in the verdict of its group.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Member {
    /// The name of the member in its group.
    #[serde(with = "shared")]
    pub name: Arc<str>,
    /// How the call ended: `allowed`, `denied` or `fault`.
    pub ended: Cow<'static, str>,
    /// Fuel that the member used.
    pub fuel: u64,
}

/// A plugin that was not called, and the reason.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct NotCalled {
    /// The name of the plugin.
    pub name: String,
    /// The reason why the plugin was not called.
    pub why: Cow<'static, str>,
}

/// The length and the hash of a text that is not kept itself.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Text {
    /// Length of the text, in bytes.
    pub bytes: usize,
    /// The first 64 bits of the text's SHA-256, in hexadecimal: enough to find the same text elsewhere.
    pub sha256: String,
}

/// A fault of a plugin.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The kind of the fault, such as `out-of-fuel`.
    pub kind: Cow<'static, str>,
    /// The host's message about the fault; `None` if the message contains text from the plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The length and the hash of that message if `message` is `None`. The log has the message itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Text>,
}

/// A denial of a plugin, without its texts.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Denial {
    /// The HTTP status that the plugin asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The length and the hash of the plugin's message.
    pub message: Text,
    /// Number of causes that the plugin gave.
    pub causes: usize,
    /// The fields that the causes name.
    #[serde(default, skip_serializing_if = "Places::is_empty")]
    pub fields: Places,
}

/// The first of some pointers into the object.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Places {
    /// The pointers that are kept.
    pub pointers: Vec<String>,
    /// Number of further pointers, which are not kept.
    pub more: usize,
}

/// A place that an earlier plugin had already written to.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// The pointer to the place.
    pub pointer: String,
    /// The name of the earlier plugin.
    pub with: String,
}

/// Maximum length of a kept name, in bytes. Names come from the sender of the review and may be as long as its body.
const LONGEST_NAME_BYTES: usize = 256;
/// Maximum number of places kept of one plugin's changes, and of one denial.
const MOST_PLACES: usize = 32;
/// Maximum number of warnings kept of one plugin, and of conflicts.
const MOST_ENTRIES: usize = 16;
/// Number of bytes kept of a text's hash. The record has two hexadecimal digits for each byte.
const HASH_BYTES: usize = 8;
/// Kinds of faults whose message holds no text from the plugin: the host writes it itself.
const KINDS_WITH_HOST_MESSAGE: [&str; 9] = [
    "out-of-fuel",
    "cpu-deadline",
    "deadline",
    "memory",
    "not-loaded",
    "unreadable",
    "match-condition",
    "conflict",
    "not-converging",
];

// === impl Decision ===

impl Decision {
    /// Begins the record of a review, with the data of its request.
    #[must_use]
    pub fn about(request: &AdmissionRequest, endpoint: Endpoint, only: Option<&str>) -> Self {
        let GroupVersionKind { kind, .. } = &request.kind;
        let GroupVersionResource {
            group,
            version,
            resource,
        } = &request.resource;
        Self {
            uid: short(&request.uid),
            time: SystemTime::now(),
            endpoint: Cow::Borrowed(endpoint.name()),
            operation: Cow::Borrowed(request.operation.as_str()),
            kind: short(kind),
            group: short(group),
            version: short(version),
            resource: short(resource),
            sub_resource: request.sub_resource.as_deref().map(short),
            namespace: request.namespace.as_deref().map(short),
            name: short(request.object_name().unwrap_or_default()),
            user: short(request.username()),
            dry_run: request.dry_run,
            only: only.map(short),
            verdict: Cow::Borrowed("overloaded"),
            code: None,
            message: None,
            patch_operations: 0,
            milliseconds: 0.0,
            plugins: Vec::new(),
            not_called: Vec::new(),
            passed_over: Vec::new(),
        }
    }

    /// Adds the verdict and the rest of the outcome.
    #[must_use]
    pub fn with_outcome(mut self, outcome: &Outcome, verdict: &'static str) -> Self {
        self.verdict = Cow::Borrowed(verdict);
        self.patch_operations = outcome.patch.len();
        if let Some(status) = &outcome.status {
            self.code = Some(status.code);
            self.message = Some(Text::of(&status.message));
        }
        self
    }

    /// Adds the time that the review took.
    #[must_use]
    pub fn with_duration(mut self, duration: Duration) -> Self {
        self.milliseconds = milliseconds(duration);
        self
    }

    /// The memory that the record takes, in bytes. This is an estimate.
    pub(crate) fn bytes(&self) -> usize {
        let names = [
            &self.uid,
            &self.kind,
            &self.group,
            &self.version,
            &self.resource,
            &self.name,
            &self.user,
        ];
        let optional = [&self.sub_resource, &self.namespace, &self.only];
        size_of::<Self>()
            + names.iter().map(|name| name.len()).sum::<usize>()
            + optional
                .iter()
                .filter_map(|name| Some(name.as_ref()?.len()))
                .sum::<usize>()
            + self.plugins.iter().map(Called::bytes).sum::<usize>()
            + size_of_val(&*self.passed_over)
    }
}

// === impl Called ===

impl Called {
    /// The part of one plugin, as its report describes it. `rule` is the index of the rule that matched.
    #[must_use]
    pub fn of(report: &Report, rule: Option<usize>) -> Self {
        let (mut fault, mut denial, mut excepted) = (None, None, None);
        match &report.ended {
            Ended::Faulted(report) => {
                let is_host_message = KINDS_WITH_HOST_MESSAGE.contains(&report.kind);
                fault = Some(Box::new(Fault {
                    kind: Cow::Borrowed(report.kind),
                    message: is_host_message
                        .then(|| one_line(&report.message, Limit::Bytes(2 * LONGEST_NAME_BYTES))),
                    text: (!is_host_message).then(|| Text::of(&report.message)),
                }));
            }
            Ended::Denied(refusal) => denial = Some(Box::new(Denial::of(refusal))),
            Ended::Excepted(exception) => excepted = Some(short(exception)),
            _ => {}
        }
        Self {
            name: report.plugin.shared(),
            digest: report.digest.clone(),
            mode: Cow::Borrowed(report.mode.as_str()),
            failure_policy: Cow::Borrowed(report.failure_policy.as_str()),
            rollout: report.rollout.clone(),
            pod_template: report.template.map(|workload| workload.field().into()),
            rule,
            ended: Cow::Borrowed(report.ended.as_str()),
            excepted,
            reinvoked: report.reinvoked.map(Cow::Borrowed),
            fault,
            denial,
            existing: report
                .existing
                .as_ref()
                .map(|existing| Box::new(Denial::of(existing))),
            changed: Places::first(report.changed.iter().map(String::as_str)),
            conflicts: report
                .conflicts
                .iter()
                .take(MOST_ENTRIES)
                .map(|(pointer, with)| Conflict {
                    pointer: short(pointer),
                    with: with.as_str().to_owned(),
                })
                .collect(),
            warnings: report
                .warnings
                .iter()
                .take(MOST_ENTRIES)
                .map(|warning| Text::of(warning))
                .collect(),
            annotations: report.annotations.len(),
            members: report
                .members
                .iter()
                .map(|member| Member {
                    name: member.name.clone(),
                    ended: Cow::Borrowed(member.ended),
                    fuel: member.fuel,
                })
                .collect(),
            fuel: report.cost.fuel,
            reused: report.cost.reused,
            cpu_milliseconds: milliseconds(report.cost.cpu_time),
            milliseconds: milliseconds(report.cost.duration),
        }
    }

    /// Whether the plugin's fault ends the chain of mutators, so that no later mutator is called.
    #[must_use]
    pub fn ends_chain(&self) -> bool {
        self.fault.is_some()
            && self.mode == Mode::Enforce.as_str()
            && self.failure_policy == FailurePolicy::Fail.as_str()
    }

    fn bytes(&self) -> usize {
        let places = |places: &Places| {
            places
                .pointers
                .iter()
                .map(|place| size_of::<String>() + place.len())
                .sum::<usize>()
        };
        let fault = self.fault.as_ref().and_then(|fault| fault.message.as_ref());
        let denials = self.denial.iter().chain(&self.existing);
        // The name and the digest share their memory with the plugin, so they are not counted.
        size_of::<Self>()
            + places(&self.changed)
            + denials
                .map(|denial| size_of::<Denial>() + places(&denial.fields))
                .sum::<usize>()
            + self.excepted.as_ref().map_or(0, String::len)
            + self.rollout.as_ref().map_or(0, |text| text.len())
            + self.pod_template.as_ref().map_or(0, |text| text.len())
            + self.fault.as_ref().map_or(0, |_| size_of::<Fault>())
            + fault.map_or(0, String::len)
            + self
                .conflicts
                .iter()
                .map(|conflict| {
                    size_of::<Conflict>() + conflict.pointer.len() + conflict.with.len()
                })
                .sum::<usize>()
            // The names share their memory with the group.
            + size_of_val(&*self.members)
            + self.warnings.len() * (size_of::<Text>() + 2 * HASH_BYTES)
    }
}

// === impl Denial ===

impl Denial {
    fn of(refusal: &tollgate_admission::Denial) -> Self {
        let causes = refusal.causes.iter();
        Self {
            code: refusal.code,
            message: Text::of(&refusal.message),
            causes: refusal.causes.len(),
            fields: Places::first(causes.filter_map(|cause| cause.field.as_deref())),
        }
    }
}

// === impl Text ===

impl Text {
    /// Reduces a text to its length and its hash.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let hash = Sha256::digest(text.as_bytes());
        Self {
            bytes: text.len(),
            sha256: hash
                .iter()
                .take(HASH_BYTES)
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        }
    }
}

// === impl Places ===

impl Places {
    /// Whether there were no places at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pointers.is_empty() && self.more == 0
    }

    fn first<'p>(mut pointers: impl Iterator<Item = &'p str>) -> Self {
        Self {
            pointers: pointers.by_ref().take(MOST_PLACES).map(short).collect(),
            more: pointers.count(),
        }
    }
}

fn short(text: &str) -> String {
    if text.len() <= LONGEST_NAME_BYTES {
        return text.to_owned();
    }
    one_line(text, Limit::Bytes(LONGEST_NAME_BYTES))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Converts a duration to milliseconds, rounded to the microsecond.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000_000.0).round() / 1000.0
}

/// Serializes a string that shares its memory with other values.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(text: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(from).map(Arc::from)
    }
}

/// Serializes an optional string that may share its memory with other values.
mod optional {
    use std::sync::Arc;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(super) fn serialize<S: Serializer>(
        text: &Option<Arc<str>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        text.as_deref().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Arc<str>>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        Ok(text.map(Arc::from))
    }
}

/// Serializes an optional string that shares its memory with other values. The empty string stands for `None`.
mod empty_if_none {
    use std::sync::Arc;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        text: &Option<Arc<str>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(text.as_deref().unwrap_or_default())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Arc<str>>, D::Error> {
        let text = String::deserialize(from)?;
        Ok((!text.is_empty()).then(|| Arc::from(text)))
    }
}

/// Serializes a time as RFC 3339, to the millisecond.
mod timestamp {
    use std::time::SystemTime;

    use serde::{Deserialize as _, Deserializer, Serializer, de, ser};
    use time::OffsetDateTime;
    use time::format_description::well_known::Rfc3339;

    pub(super) fn serialize<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
        let time = OffsetDateTime::from(*time);
        let time = time
            .replace_millisecond(time.millisecond())
            .map_err(ser::Error::custom)?;
        to.serialize_str(&time.format(&Rfc3339).map_err(ser::Error::custom)?)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SystemTime, D::Error> {
        let text = String::deserialize(from)?;
        let time = OffsetDateTime::parse(&text, &Rfc3339).map_err(de::Error::custom)?;
        Ok(time.into())
    }
}

#[cfg(test)]
mod tests;
