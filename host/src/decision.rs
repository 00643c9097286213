//! What became of a review, for whoever asks afterwards: `/decisions` on the admin listener, `tollgate explain` and
//! `tollgate review`.
//!
//! Holds names, pointers, numbers and hashes; nothing of an object, and no words of a plugin. So it may be kept, and
//! shown to people who must not read what was reviewed.

mod ring;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use ring::Ring;

use crate::config::FailurePolicy;
use crate::config::Mode;
use crate::pipeline::outcome::{self, Ended, Outcome, Report};
use crate::pipeline::passed_over::PassedOver;
use crate::pipeline::text::{Limit, one_line};
use crate::review::request::{AdmissionRequest, GroupVersionKind, GroupVersionResource};
use crate::server::Endpoint;

/// One review and what became of it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// The uid of the review.
    pub uid: String,
    /// When it had been read.
    #[serde(with = "timestamp")]
    pub time: SystemTime,
    /// `mutate` or `validate`.
    pub endpoint: Cow<'static, str>,
    /// What is asked, such as `CREATE`.
    pub operation: Cow<'static, str>,
    /// The kind, such as `Pod`.
    pub kind: String,
    /// Its group; empty for the core group.
    pub group: String,
    /// Its version.
    pub version: String,
    /// The resource, such as `pods`.
    pub resource: String,
    /// Such as `status`; none for the resource itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_resource: Option<String>,
    /// None for cluster-scoped resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Empty where the object has none yet.
    pub name: String,
    /// Who asks.
    pub user: String,
    /// Nothing would have been stored.
    pub dry_run: bool,
    /// The one plugin that the path named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
    /// `allowed`, `denied`, `error` where a fault refuses it, or `overloaded` where no decision was taken.
    pub verdict: Cow<'static, str>,
    /// HTTP status of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The message of a refusal, which kube-apiserver shows to the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Text>,
    /// Operations of the patch that was sent.
    pub patch_operations: usize,
    /// From the head of the request to the answer.
    pub milliseconds: f64,
    /// The plugins that were called, in their order.
    pub plugins: Vec<Called>,
    /// The plugins that were not, as far as it is known why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_called: Vec<NotCalled>,
    /// Those of them for which it could not be found out later.
    #[serde(skip)]
    pub passed_over: Vec<PassedOver>,
}

/// A plugin's part in a decision.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Called {
    /// Its name.
    #[serde(with = "shared")]
    pub name: Arc<str>,
    /// Its content, as `sha256:…`; empty where the file could not be read.
    #[serde(with = "shared")]
    pub digest: Arc<str>,
    /// What its verdict counts for.
    pub mode: Cow<'static, str>,
    /// What its faults count for.
    pub failure_policy: Cow<'static, str>,
    /// The index of the first of its rules that matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<usize>,
    /// `allowed`, `unchanged`, `patched`, `denied`, `fault` or `excepted`.
    pub ended: Cow<'static, str>,
    /// The exception for which it was not called after all, as the configuration has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excepted: Option<String>,
    /// How its second call ended, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reinvoked: Option<Cow<'static, str>>,
    /// The fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Box<Fault>>,
    /// What it refuses the request with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denial: Option<Box<Denial>>,
    /// What it would have refused, were it not as bad in the old object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing: Option<Box<Denial>>,
    /// The places that it changed.
    #[serde(default, skip_serializing_if = "Places::is_empty")]
    pub changed: Places,
    /// The places where it changed what an earlier plugin wrote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
    /// Its warnings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Text>,
    /// How many annotations it wants in the audit log.
    pub annotations: usize,
    /// Fuel used.
    pub fuel: u64,
    /// CPU time used.
    pub cpu_milliseconds: f64,
    /// Time by the clock, waiting for its turn included.
    pub milliseconds: f64,
}

/// A plugin that was not called.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct NotCalled {
    /// Its name.
    pub name: String,
    /// Why not.
    pub why: Cow<'static, str>,
}

/// A text that is not kept.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Text {
    /// Its length.
    pub bytes: usize,
    /// The first 64 bits of its SHA-256: enough to find the same text elsewhere.
    pub sha256: String,
}

/// A fault of a plugin.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Its name, such as `out-of-fuel`.
    pub kind: Cow<'static, str>,
    /// What the host says of it; none where the plugin's own words are part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The text that is in the log in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Text>,
}

/// A refusal.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Denial {
    /// The HTTP status that the plugin wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// What it says.
    pub message: Text,
    /// How many single reasons it gives.
    pub causes: usize,
    /// The places that they are about.
    #[serde(default, skip_serializing_if = "Places::is_empty")]
    pub fields: Places,
}

/// Pointers into the object: the first ones.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Places {
    /// Those that are kept.
    pub pointers: Vec<String>,
    /// How many more there were.
    pub more: usize,
}

/// A place that an earlier plugin had written to.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// Where.
    pub pointer: String,
    /// Which plugin.
    pub with: String,
}

/// Names come from whoever sent the review, and may be as long as its body.
const LONGEST_NAME_BYTES: usize = 256;
/// Of the places that one plugin changed or objects to.
const MOST_PLACES: usize = 32;
/// Of a plugin's warnings and conflicts.
const MOST_ENTRIES: usize = 16;
/// Hexadecimal digits of a text's hash.
const HASH_BYTES: usize = 8;
/// Faults that the host describes in its own words, from its own numbers.
const TOLD_BY_HOST: [&str; 9] = [
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
    /// Begins the record of a review: what is known of it when it has been read.
    #[must_use]
    pub fn about(request: &AdmissionRequest, endpoint: Endpoint, only: Option<&str>) -> Self {
        let GroupVersionKind { kind, .. } = &request.kind;
        let GroupVersionResource {
            group,
            version,
            resource,
        } = &request.resource;
        let user = request.document.member("userInfo");
        let user = user.and_then(|user| user.member("username")?.as_text());
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
            user: short(user.unwrap_or_default()),
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

    /// Adds what it came to.
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

    /// Adds how long it took.
    #[must_use]
    pub fn with_duration(mut self, duration: Duration) -> Self {
        self.milliseconds = milliseconds(duration);
        self
    }

    /// What it takes in memory, near enough.
    fn bytes(&self) -> usize {
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
    /// The part that a report tells of.
    #[must_use]
    pub fn of(report: &Report, rule: Option<usize>) -> Self {
        let (mut fault, mut denial, mut excepted) = (None, None, None);
        match &report.ended {
            Ended::Faulted(report) => {
                let told = TOLD_BY_HOST.contains(&report.kind);
                fault = Some(Box::new(Fault {
                    kind: Cow::Borrowed(report.kind),
                    message: told
                        .then(|| one_line(&report.message, Limit::Bytes(2 * LONGEST_NAME_BYTES))),
                    text: (!told).then(|| Text::of(&report.message)),
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
            fuel: report.cost.fuel,
            cpu_milliseconds: milliseconds(report.cost.cpu_time),
            milliseconds: milliseconds(report.cost.duration),
        }
    }

    /// Whether nothing comes after it in a chain of mutators.
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
        // Name and digest are the plugin's own.
        size_of::<Self>()
            + places(&self.changed)
            + denials
                .map(|denial| size_of::<Denial>() + places(&denial.fields))
                .sum::<usize>()
            + self.excepted.as_ref().map_or(0, String::len)
            + self.fault.as_ref().map_or(0, |_| size_of::<Fault>())
            + fault.map_or(0, String::len)
            + self
                .conflicts
                .iter()
                .map(|conflict| {
                    size_of::<Conflict>() + conflict.pointer.len() + conflict.with.len()
                })
                .sum::<usize>()
            + self.warnings.len() * (size_of::<Text>() + 2 * HASH_BYTES)
    }
}

// === impl Denial ===

impl Denial {
    fn of(refusal: &outcome::Denial) -> Self {
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
    /// What is kept of a text.
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
    /// Whether there are none.
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

/// To the microsecond.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000_000.0).round() / 1000.0
}

/// A text that others have too.
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

/// RFC 3339, to the millisecond.
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
