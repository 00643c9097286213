//! Compares how a plugin and its shadow answer the same requests.
//!
//! ```text
//! the plugin's call → Verdict ┐
//! the shadow's call → Verdict ┴→ Difference → Counts: counts, and the last differences, for `/shadows`
//! ```
//!
//! All of this is pure, except the lock of the counts. Comparisons store uids, pointers and numbers, but no part of an
//! object and no text from a plugin.

mod counts;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tollgate_admission::text::{Limit, one_line};
use tollgate_engine::{Fault, Secrecy};
use tollgate_json::document::Json;
use tollgate_json::patch::diff;

pub use counts::{Call, Compared, Counts};

use crate::pipeline::outcome::Ended;
use crate::plugin::Outcome;

/// The result of one call of a plugin or its shadow, reduced to the parts that are compared.
#[derive(Clone, Debug)]
pub struct Verdict {
    ended: &'static str,
    end: End,
    /// The object after a mutator's call; `None` if there is no object to compare.
    object: Option<Json>,
    secrecy: Secrecy,
}

/// The effect of a call on the request.
#[derive(Clone, Debug, PartialEq)]
enum End {
    Passes,
    /// A denial, with the fields that it names.
    Denies(BTreeSet<String>),
    /// A fault, with its kind.
    Fails(&'static str),
}

/// The difference between a plugin and its shadow on one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    live: &'static str,
    shadow: &'static str,
    /// The kind of the shadow's fault. If the shadow had no fault, the kind of the plugin's fault.
    fault: Option<&'static str>,
    pointers: Vec<String>,
    /// Number of further pointers, which are not kept.
    more: usize,
}

/// Maximum number of pointers kept of one difference.
const MOST_POINTERS: usize = 20;
/// Maximum length of a kept pointer, in bytes.
const POINTER_BYTES: usize = 256;
/// Fault kind of a call that ran out of time. For a shadow this says little, because shadows run only when no other
/// call needs the processor.
const DEADLINE: &str = "deadline";

// === impl Verdict ===

impl Verdict {
    /// Reduces the result of a call to the parts that are compared. `object` is the object after the call. `secrecy`
    /// says how much of a Secret has been read by this call and the calls before it.
    #[must_use]
    pub fn new(ended: &Result<Ended, Fault>, object: Option<Json>, secrecy: Secrecy) -> Self {
        let (ended, end) = match ended {
            Ok(Ended::Denied(denial)) => {
                let fields = denial.causes.iter();
                let fields = fields.filter_map(|cause| cause.field.clone()).collect();
                ("denied", End::Denies(fields))
            }
            Ok(Ended::Faulted(fault)) => ("fault", End::Fails(fault.kind)),
            Err(fault) => ("fault", End::Fails(fault.kind())),
            Ok(ended) => (ended.as_str(), End::Passes),
        };
        Self {
            ended,
            end,
            object,
            secrecy,
        }
    }

    /// Whether the call ran out of time.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.end == End::Fails(DEADLINE)
    }

    /// How the call ended, as far as a rollout looks at it.
    pub(crate) fn outcome(&self) -> Outcome {
        match self.end {
            End::Passes => Outcome::Passes,
            End::Denies(_) => Outcome::Denies,
            End::Fails(_) => Outcome::Faults,
        }
    }

    /// The kind of the fault, if the call ended in one.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        match self.end {
            End::Fails(kind) => Some(kind),
            _ => None,
        }
    }

    /// Compares this verdict of the plugin with its shadow's verdict; `None` if both are the same.
    ///
    /// Two faults count as the same. Two denials count as the same if they name the same fields, whatever their
    /// messages say. `user` is the object as the user sent it.
    #[must_use]
    pub fn against(&self, shadow: &Self, user: Option<&Json>) -> Option<Difference> {
        let pointers: BTreeSet<String> = match (&self.end, &shadow.end) {
            (End::Passes, End::Passes) => {
                let pointers = self.changes(shadow);
                if pointers.is_empty() {
                    return None;
                }
                pointers
            }
            (End::Denies(one), End::Denies(other)) => {
                if one == other {
                    return None;
                }
                one.symmetric_difference(other).cloned().collect()
            }
            (End::Fails(_), End::Fails(_)) => return None,
            (End::Denies(fields), _) | (_, End::Denies(fields)) => fields.clone(),
            (End::Fails(_), End::Passes) | (End::Passes, End::Fails(_)) => BTreeSet::new(),
        };
        // Use the stricter secrecy for both. A name that one call made from a Secret's content must not appear in the
        // pointers of the other.
        let secrecy = self.secrecy.max(shadow.secrecy);
        let shown: BTreeSet<String> = pointers
            .iter()
            .map(|pointer| one_line(&secrecy.pointer(pointer, user), Limit::Bytes(POINTER_BYTES)))
            .collect();
        let more = shown.len().saturating_sub(MOST_POINTERS);
        Some(Difference {
            live: self.ended,
            shadow: shadow.ended,
            fault: shadow.fault().or(self.fault()),
            pointers: shown.into_iter().take(MOST_POINTERS).collect(),
            more,
        })
    }

    /// The places where the two objects differ; empty if one of the calls has no object.
    fn changes(&self, shadow: &Self) -> BTreeSet<String> {
        let (Some(one), Some(other)) = (&self.object, &shadow.object) else {
            return BTreeSet::new();
        };
        let operations = diff(one, other);
        let pointers = operations.iter();
        pointers
            .map(|operation| operation.path().as_str().to_owned())
            .collect()
    }
}

// === impl Difference ===

impl Difference {
    /// The pointers on one line, for the log.
    pub(crate) fn line(&self) -> String {
        self.pointers.join(" ")
    }

    /// How the plugin's call and the shadow's call ended.
    pub(crate) fn ends(&self) -> (&'static str, &'static str) {
        (self.live, self.shadow)
    }

    fn to_json(&self) -> Value {
        let mut value = json!({
            "live": self.live,
            "shadow": self.shadow,
            "pointers": self.pointers,
        });
        if let Some(fault) = self.fault {
            value["fault"] = fault.into();
        }
        if self.more > 0 {
            value["morePointers"] = self.more.into();
        }
        value
    }
}

#[cfg(test)]
mod tests;
