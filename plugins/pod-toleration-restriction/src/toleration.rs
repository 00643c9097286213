//! Tolerations: how they are read, when one covers another, and how two lists become one.

use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;
use tollgate_sdk::QualifiedName;

pub(crate) const EQUAL: &str = "Equal";
pub(crate) const EXISTS: &str = "Exists";
pub(crate) const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";
const EFFECTS: [&str; 4] = ["", NO_SCHEDULE, "PreferNoSchedule", NO_EXECUTE];

/// A toleration. An empty text is "not set".
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Toleration {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) operator: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) value: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) effect: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) toleration_seconds: Option<i64>,
}

/// A toleration of an annotation or a Pod. Like Go's decoder, it takes names in any case and unknown ones, and null for
/// "not set".
#[derive(Default)]
pub(crate) struct Lenient(pub(crate) Toleration);

/// A toleration of a list that is merged, with its JSON.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) toleration: Toleration,
    pub(crate) json: Json,
}

// === impl Toleration ===

impl Toleration {
    /// Whether this tolerates everything that another one tolerates. The rule is `isSuperset` of
    /// pkg/util/tolerations in Kubernetes.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        if self == other {
            return true;
        }
        let is_any_key = self.key.is_empty() && self.operator == EXISTS;
        if self.key != other.key && !is_any_key {
            return false;
        }
        if self.effect != other.effect && !self.effect.is_empty() {
            return false;
        }
        if self.effect == NO_EXECUTE
            && let Some(most) = self.toleration_seconds
            && other
                .toleration_seconds
                .is_none_or(|seconds| seconds > most)
        {
            return false;
        }
        match self.operator.as_str() {
            EXISTS => true,
            // Without an operator, the other one does not count as Equal.
            EQUAL | "" => other.operator == EQUAL && other.value == self.value,
            _ => false,
        }
    }

    /// Returns what is wrong with a toleration of the settings, by the rules of `ValidateTolerations` in Kubernetes.
    pub(crate) fn error(&self) -> Option<String> {
        if !self.key.is_empty() && self.key.parse::<QualifiedName>().is_err() {
            return Some("key must be the key of a label".to_owned());
        }
        if self.key.is_empty() && self.operator != EXISTS {
            return Some("operator must be Exists when key is empty".to_owned());
        }
        if self.toleration_seconds.is_some() && self.effect != NO_EXECUTE {
            return Some("effect must be NoExecute when tolerationSeconds is set".to_owned());
        }
        match self.operator.as_str() {
            EXISTS if !self.value.is_empty() => {
                return Some("value must be empty when operator is Exists".to_owned());
            }
            // A value has the form of a key without a prefix, or is empty.
            EQUAL | ""
                if !self.value.is_empty()
                    && (self.value.contains('/')
                        || self.value.parse::<QualifiedName>().is_err()) =>
            {
                return Some("value must be the value of a label".to_owned());
            }
            EXISTS | EQUAL | "" => {}
            _ => return Some("operator must be Equal or Exists".to_owned()),
        }
        if !EFFECTS.contains(&self.effect.as_str()) {
            return Some("effect must be NoSchedule, PreferNoSchedule or NoExecute".to_owned());
        }
        None
    }
}

// === impl Lenient ===

impl<'de> Deserialize<'de> for Lenient {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Lenient;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a toleration")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<Lenient, M::Error> {
                let mut read = Toleration::default();
                while let Some(name) = members.next_key::<String>()? {
                    let place = match name.to_ascii_lowercase().as_str() {
                        "key" => &mut read.key,
                        "operator" => &mut read.operator,
                        "value" => &mut read.value,
                        "effect" => &mut read.effect,
                        "tolerationseconds" => {
                            read.toleration_seconds = members.next_value()?;
                            continue;
                        }
                        _ => {
                            members.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    if let Some(text) = members.next_value()? {
                        *place = text;
                    }
                }
                Ok(Lenient(read))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

// === impl Entry ===

impl From<Toleration> for Entry {
    fn from(toleration: Toleration) -> Self {
        Self {
            // A structure of texts and numbers always has a JSON form.
            json: serde_json::to_value(&toleration).unwrap_or_default(),
            toleration,
        }
    }
}

/// Reads a list of an annotation. None if the text is not such a list. The text `null` is an empty one.
pub(crate) fn parse(text: &str) -> Option<Vec<Toleration>> {
    let list: Option<Vec<Option<Lenient>>> = serde_json::from_str(text).ok()?;
    let list = list.unwrap_or_default().into_iter();
    Some(list.map(|one| one.unwrap_or_default().0).collect())
}

/// Makes one list of two. What another toleration covers is left out, and of equal ones the first stays.
pub(crate) fn merge(all: &[Entry]) -> Vec<Entry> {
    let mut merged: Vec<Entry> = Vec::new();
    for (index, entry) in all.iter().enumerate() {
        let one = &entry.toleration;
        let is_covered_before = merged.iter().any(|other| other.toleration.covers(one));
        let is_covered_after = || {
            let mut later = all[index + 1..].iter().map(|other| &other.toleration);
            later.any(|other| other != one && other.covers(one))
        };
        if !is_covered_before && !is_covered_after() {
            merged.push(entry.clone());
        }
    }
    merged
}

/// Whether each toleration is covered by one of a list. An empty list allows all.
pub(crate) fn are_listed(tolerations: &[Toleration], whitelist: &[Toleration]) -> bool {
    let is_listed = |one: &Toleration| whitelist.iter().any(|listed| listed.covers(one));
    whitelist.is_empty() || tolerations.iter().all(is_listed)
}

#[cfg(test)]
mod tests;
