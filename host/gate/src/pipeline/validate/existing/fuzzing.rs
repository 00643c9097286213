//! Entry point for fuzzing: tells existing reasons of a denial from new ones.

use tollgate_admission::review::request::AdmissionRequest;
use tollgate_admission::{Cause, Denial};
use tollgate_json::document::Json;

use super::Objects;
use super::removal::only_removes;
use super::split::split;
use super::steps::Steps;

/// A reason: the field, and the description of the problem.
pub type Reason = (Option<String>, String);

/// Returns the reasons that an UPDATE brings in, and those that existed before. None if telling them apart takes too
/// long.
#[must_use]
pub fn split_existing(
    request: &AdmissionRequest,
    (old, new): (&Json, &Json),
    (before, now): (&[Reason], &[Reason]),
) -> Option<(Vec<Reason>, Vec<Reason>)> {
    let objects = Objects { request, new, old };
    let reasons = |denial: Option<Denial>| -> Vec<Reason> {
        let causes = denial.into_iter().flat_map(|denial| denial.causes);
        causes.map(|cause| (cause.field, cause.message)).collect()
    };
    let mut steps = Steps::default();
    let only_collects = only_removes(objects, &mut steps).unwrap_or(false);
    let parts = split(
        denial(now),
        &denial(before),
        objects,
        only_collects,
        &mut steps,
    )?;
    Some((reasons(parts.new), reasons(parts.existing)))
}

fn denial(reasons: &[Reason]) -> Denial {
    let cause = |(field, message): &Reason| Cause {
        field: field.clone(),
        message: message.clone(),
        reason: None,
    };
    Denial {
        message: "denied".to_owned(),
        code: None,
        reason: None,
        causes: reasons.iter().map(cause).collect(),
    }
}
