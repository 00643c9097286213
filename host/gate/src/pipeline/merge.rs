//! Merges the reports of all plugins into one outcome.
//!
//! Merging is a pure function, so the effect of a denial, a fault, a mode and a failure policy can be read and tested
//! in one place. The output keeps the order of the reports, which is the configured order.

mod annotations;
mod status;
mod warnings;

use tollgate_admission::Denial;
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_config::{FailurePolicy, Mode};
use tollgate_json::patch::Operation;

use crate::pipeline::outcome::{Ended, FaultReport, Outcome, Report};

/// The effect of a report on the request.
enum Weight<'r> {
    /// The plugin denies the request.
    Denies(&'r Denial),
    /// The plugin failed, and the request must not pass without it.
    FailsClosed(&'r FaultReport),
    /// The plugin failed, and the request passes without it.
    FailsOpen(&'r FaultReport),
    /// The plugin is in mode warn and would deny the request. The user gets a warning.
    Warns(&'r Denial),
    /// The plugin is in mode warn and failed, which has no effect on the request.
    FailsUnheard(&'r FaultReport),
    /// The report has nothing against the request.
    Agrees,
}

/// Merges all reports, in plugin order, into one outcome. `patch` turns the request's object into the mutators'
/// result, and is dropped when the request is denied.
///
/// Reports in audit mode have no effect and leave no trace.
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
