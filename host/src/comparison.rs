//! What a plugin and its candidate make of the same requests, and where that differs.
//!
//! ```text
//! the plugin's call  → Verdict ┐
//! the candidate's    → Verdict ┴→ Difference → Tally: counted, and the last ones kept, for `/candidates`
//! ```
//!
//! Pure but for the tally's lock. Holds uids, pointers and numbers; nothing of an object, and no words of a plugin.

mod tally;

use std::collections::BTreeSet;

use serde_json::{Value, json};

pub use tally::{Call, Compared, Tally};

use crate::document::Json;
use crate::engine::{Fault, Secrecy};
use crate::patch::diff;
use crate::pipeline::outcome::Ended;
use crate::pipeline::text::{Limit, one_line};

/// What one of the two made of a request, as far as it is compared.
#[derive(Clone, Debug)]
pub struct Verdict {
    ended: &'static str,
    end: End,
    /// The object as it leaves it; none where it changed none.
    object: Option<Json>,
    secrecy: Secrecy,
}

/// What it means for the request.
#[derive(Clone, Debug, PartialEq)]
enum End {
    Passes,
    /// With the fields that it names.
    Denies(BTreeSet<String>),
    /// With the fault's name.
    Fails(&'static str),
}

/// Where the two did not come to the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    live: &'static str,
    candidate: &'static str,
    /// The candidate's, where it has one; else the plugin's.
    fault: Option<&'static str>,
    pointers: Vec<String>,
    /// Pointers that are not kept.
    more: usize,
}

/// Pointers that are kept of one difference.
const MOST_POINTERS: usize = 20;
/// Of one of them.
const POINTER_BYTES: usize = 256;
/// The fault of a call that the clock ended, which says little of a candidate: it runs when nobody else does.
const DEADLINE: &str = "deadline";

// === impl Verdict ===

impl Verdict {
    /// What a call came to. `object` is as it leaves it, and `secrecy` what it and those before it have read.
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

    /// Whether the clock ended the call.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.end == End::Fails(DEADLINE)
    }

    /// The fault's name, where it failed.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        match self.end {
            End::Fails(kind) => Some(kind),
            _ => None,
        }
    }

    /// Where the candidate comes to something else; none where it comes to the same. Two faults are the same, as is
    /// a denial in other words. `user` is the object as the user sent it.
    #[must_use]
    pub fn against(&self, candidate: &Self, user: Option<&Json>) -> Option<Difference> {
        let pointers: BTreeSet<String> = match (&self.end, &candidate.end) {
            (End::Passes, End::Passes) => {
                let pointers = self.changes(candidate);
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
        // Names that one has made of a Secret's content are the other's to be kept, too.
        let secrecy = self.secrecy.max(candidate.secrecy);
        let shown: BTreeSet<String> = pointers
            .iter()
            .map(|pointer| one_line(&secrecy.pointer(pointer, user), Limit::Bytes(POINTER_BYTES)))
            .collect();
        let more = shown.len().saturating_sub(MOST_POINTERS);
        Some(Difference {
            live: self.ended,
            candidate: candidate.ended,
            fault: candidate.fault().or(self.fault()),
            pointers: shown.into_iter().take(MOST_POINTERS).collect(),
            more,
        })
    }

    /// The places where the object that the candidate leaves is another.
    fn changes(&self, candidate: &Self) -> BTreeSet<String> {
        let (Some(one), Some(other)) = (&self.object, &candidate.object) else {
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

    /// How the two ended.
    pub(crate) fn ends(&self) -> (&'static str, &'static str) {
        (self.live, self.candidate)
    }

    fn tell(&self) -> Value {
        let mut told = json!({
            "live": self.live,
            "candidate": self.candidate,
            "pointers": self.pointers,
        });
        if let Some(fault) = self.fault {
            told["fault"] = fault.into();
        }
        if self.more > 0 {
            told["morePointers"] = self.more.into();
        }
        told
    }
}

#[cfg(test)]
mod tests;
