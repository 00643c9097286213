//! All plugins' reports into one outcome.
//!
//! A pure function, so that what a denial, a fault, a mode and a failure policy come to can be read and tested in
//! one place. The order of the reports, which is the configured one, is the order of everything that comes out.

mod annotations;
mod status;
mod warnings;

use crate::config::{FailurePolicy, Mode};
use crate::patch::Operation;
use crate::pipeline::outcome::{Denial, Ended, FaultReport, Outcome, Report};
use crate::review::request::AdmissionRequest;

/// What a report comes to.
enum Weight<'r> {
    /// It refuses the request.
    Denies(&'r Denial),
    /// Its plugin failed, and the request must not pass without it.
    FailsClosed(&'r FaultReport),
    /// Its plugin failed, and the request passes without it.
    FailsOpen(&'r FaultReport),
    /// It would refuse the request if it were in earnest: the user is told.
    Warns(&'r Denial),
    /// Its plugin failed where nothing depends on it.
    FailsUnheard(&'r FaultReport),
    /// Nothing against the request.
    Agrees,
}

/// Makes one outcome of all reports, in plugin order. `patch` is what turns the request's object into what the
/// mutators left; it is dropped when the request is refused.
///
/// Reports in audit mode count for nothing and leave no trace.
#[must_use]
pub fn merge(reports: &[Report], patch: Vec<Operation>, request: &AdmissionRequest) -> Outcome {
    let reports: Vec<&Report> = reports
        .iter()
        .filter(|report| report.mode != Mode::Audit)
        .collect();
    let status = status::merge(&reports, request);
    let allowed = status.is_none();
    Outcome {
        allowed,
        patch: if allowed { patch } else { Vec::new() },
        warnings: warnings::merge(&reports),
        audit_annotations: annotations::merge(&reports, allowed),
        status,
    }
}

// === impl Weight ===

impl<'r> Weight<'r> {
    fn of(report: &'r Report) -> Self {
        match (&report.ended, report.mode, report.failure_policy) {
            (Ended::Denied(denial), Mode::Enforce, _) => Self::Denies(denial),
            (Ended::Denied(denial), Mode::Warn, _) => Self::Warns(denial),
            (Ended::Faulted(fault), Mode::Enforce, FailurePolicy::Fail) => Self::FailsClosed(fault),
            (Ended::Faulted(fault), Mode::Enforce, FailurePolicy::Ignore) => Self::FailsOpen(fault),
            (Ended::Faulted(fault), Mode::Warn, _) => Self::FailsUnheard(fault),
            (Ended::Allowed | Ended::Unchanged | Ended::Patched | Ended::Excepted(_), ..)
            | (_, Mode::Audit, _) => Self::Agrees,
        }
    }
}

#[cfg(test)]
mod tests;
