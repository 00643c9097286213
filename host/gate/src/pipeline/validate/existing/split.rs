//! Splits a denial into new and existing violations.

use std::collections::HashMap;

use tollgate_admission::{Cause, Denial};
use tollgate_json::document::Json;

use super::Objects;
use super::places::Places;
use super::steps::Steps;

/// A denial, split by whether its reasons are new.
#[derive(Debug)]
pub(in crate::pipeline::validate) struct Split {
    /// Reasons that this request brings in.
    pub(in crate::pipeline::validate) new: Option<Denial>,
    /// Reasons that existed before.
    pub(in crate::pipeline::validate) existing: Option<Denial>,
}

/// Splits a plugin's denial by comparing it with the denial of the old object. Returns none if the steps run out.
/// `only_collects` says that the request only does garbage collection, so a reason without a place cannot be about
/// it.
pub(super) fn split(
    denial: Denial,
    old: &Denial,
    objects: Objects<'_>,
    only_collects: bool,
    steps: &mut Steps,
) -> Option<Split> {
    let mut without_place = None;
    let mut is_excused_without_place = |steps: &mut Steps| {
        if let Some(known) = without_place {
            return Some(known);
        }
        let found = only_collects || differs_in_metadata_only(objects, steps)?;
        without_place = Some(found);
        Some(found)
    };
    if denial.causes.is_empty() {
        let is_known = old.causes.is_empty() && denial.message == old.message;
        return Some(if is_known && is_excused_without_place(steps)? {
            Split::existing(denial)
        } else {
            Split::new(denial)
        });
    }
    let mut places = Places::new(objects.old);
    let mut known: HashMap<(String, &str), Option<&Json>> = HashMap::new();
    for cause in &old.causes {
        let place = places.of(cause, steps)?;
        known.insert((place.path, cause.message.as_str()), place.value);
    }
    let mut places = Places::new(objects.new);
    // Many reasons can be about one place.
    let mut unchanged: HashMap<String, bool> = HashMap::new();
    let (mut existing, mut new) = (Vec::new(), Vec::new());
    for cause in &denial.causes {
        let place = places.of(cause, steps)?;
        let key = (place.path, cause.message.as_str());
        let is_known = match known.get(&key) {
            None => false,
            Some(_) if !place.is_within => is_excused_without_place(steps)?,
            Some(old) => match unchanged.get(&key.0) {
                Some(is_unchanged) => *is_unchanged,
                None => {
                    let is_unchanged = match (*old, place.value) {
                        (Some(old), Some(value)) => steps.is_equal(old, value)?,
                        (old, value) => old.is_none() && value.is_none(),
                    };
                    unchanged.insert(key.0, is_unchanged);
                    is_unchanged
                }
            },
        };
        let side: &mut Vec<Cause> = if is_known { &mut existing } else { &mut new };
        side.push(cause.clone());
    }
    Some(if existing.is_empty() {
        Split::new(denial)
    } else if new.is_empty() {
        Split::existing(denial)
    } else {
        // The message is about all reasons together, so it is dropped. The causes of each part stay.
        let about = |causes: Vec<Cause>| Denial {
            message: String::new(),
            causes,
            ..denial.clone()
        };
        Split {
            new: Some(about(new)),
            existing: Some(about(existing)),
        }
    })
}

/// Whether the objects differ only in the metadata, and in what the request's subresource exists to change.
pub(super) fn differs_in_metadata_only(objects: Objects<'_>, steps: &mut Steps) -> Option<bool> {
    let but: &[&str] = match objects.request.sub_resource.as_deref() {
        Some("status") => &["metadata", "status"],
        _ if objects.is_finalizing_namespace() => &["metadata", "spec"],
        _ => &["metadata"],
    };
    steps.is_equal_but(objects.new, objects.old, but)
}

// === impl Split ===

impl Split {
    /// All reasons are new.
    pub(super) fn new(denial: Denial) -> Self {
        Self {
            new: Some(denial),
            existing: None,
        }
    }

    /// All reasons existed before.
    pub(super) fn existing(denial: Denial) -> Self {
        Self {
            new: None,
            existing: Some(denial),
        }
    }
}
