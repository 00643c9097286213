//! Violations that were there before: an UPDATE that adds none is not the moment to refuse them.
//!
//! A validator that denies an UPDATE is asked a second time, with the old object in the place of the new one and
//! everything else as it was. What it denies there too, for the same reason in the same place, is not this request's
//! doing.
//!
//! That is done with `existingViolations: allow`, and always for an object that is being deleted: its finalizers are
//! removed by UPDATEs, and nobody can mend it any more.

use std::collections::HashSet;
use std::time::Instant;

use crate::config::ExistingViolations;
use crate::document::{ArrayIndex, Json, Pointer, array_index};
use crate::engine::{Answer, Engine, Overload, Subject};
use crate::pipeline::outcome::{Cause, Denial};
use crate::pipeline::turn::{Called, Turn};
use crate::review::request::{AdmissionRequest, Operation};

/// A denial, apart by when the reason for it arose.
#[derive(Debug)]
pub(super) struct Split {
    /// What this request brings in.
    pub(super) new: Option<Denial>,
    /// What was there before.
    pub(super) existing: Option<Denial>,
}

/// What the plugin says of the old object, when that can excuse anything. The cost is added to `called`.
pub(super) async fn old_denial(
    turn: &Turn<'_>,
    engine: &Engine,
    request: &std::sync::Arc<AdmissionRequest>,
    deadline: Instant,
    called: &mut Called,
) -> Result<Option<Denial>, Overload> {
    let Some(old_object) = excusing(turn, request) else {
        return Ok(None);
    };
    // Once the content of a Secret has been read, all texts are the same.
    if called.secrecy.withholds() {
        return Ok(None);
    }
    let subject = Subject {
        request: request.clone(),
        object: Some(old_object.clone()),
    };
    let (answer, again) = turn.call(engine, subject, deadline).await?;
    called.add_cost(&again);
    Ok(match answer {
        Ok(Answer::Deny(denial)) if !again.secrecy.withholds() => Some(denial),
        _ => None,
    })
}

/// The old object, where what is wrong with it counts.
fn excusing<'r>(turn: &Turn<'_>, request: &'r AdmissionRequest) -> Option<&'r Json> {
    if request.operation != Operation::Update {
        return None;
    }
    let old_object = request.old_object.as_ref()?;
    let allows = turn.plugin.config.existing_violations == ExistingViolations::Allow;
    (allows || is_being_deleted(old_object)).then_some(old_object)
}

/// The stored object says so, and not the one that the user sends.
fn is_being_deleted(old_object: &Json) -> bool {
    let metadata = old_object.member("metadata");
    metadata
        .and_then(|metadata| metadata.member("deletionTimestamp"))
        .is_some_and(|timestamp| !timestamp.is_null())
}

/// Takes apart what a plugin denies, by what it says of the old object.
pub(super) fn split(denial: Denial, old: &Denial, request: &AdmissionRequest) -> Split {
    if denial.causes.is_empty() {
        return if old.causes.is_empty() && denial.message == old.message {
            Split {
                new: None,
                existing: Some(denial),
            }
        } else {
            Split::new(denial)
        };
    }
    let known: HashSet<(String, &str)> = old
        .causes
        .iter()
        .map(|cause| {
            (
                place(cause, request.old_object.as_ref()),
                cause.message.as_str(),
            )
        })
        .collect();
    let (existing, new): (Vec<Cause>, Vec<Cause>) =
        denial.causes.iter().cloned().partition(|cause| {
            known.contains(&(
                place(cause, request.object.as_ref()),
                cause.message.as_str(),
            ))
        });
    if existing.is_empty() {
        return Split::new(denial);
    }
    if new.is_empty() {
        return Split {
            new: None,
            existing: Some(denial),
        };
    }
    // The message is about all of them: what is said of some are the causes.
    let about = |causes: Vec<Cause>| Denial {
        message: String::new(),
        causes,
        ..denial.clone()
    };
    Split {
        new: Some(about(new)),
        existing: Some(about(existing)),
    }
}

/// Where a cause is, as long as the object changes elsewhere: elements with a name are known by it, as a container
/// put before others moves them.
fn place(cause: &Cause, object: Option<&Json>) -> String {
    let field = cause.field.as_deref().unwrap_or_default();
    let Ok(pointer) = Pointer::parse(field) else {
        return field.to_owned();
    };
    let mut here = object;
    let mut place = String::new();
    for token in pointer.tokens() {
        let elements = here.and_then(Json::as_array);
        here = here.and_then(|json| json.child(&token));
        let name = here
            .and_then(|json| json.member("name"))
            .and_then(Json::as_text);
        place.push('/');
        match (elements, name, array_index(&token)) {
            (Some(elements), Some(name), Some(ArrayIndex::At(_))) if is_unique(elements, name) => {
                place.push_str(&format!("[name={name:?}]"));
            }
            _ => place.push_str(&token),
        }
    }
    place
}

/// Whether one element alone has this name.
fn is_unique(elements: &[Json], name: &str) -> bool {
    let named = elements
        .iter()
        .filter(|element| element.member("name").and_then(Json::as_text) == Some(name));
    named.count() == 1
}

// === impl Split ===

impl Split {
    /// All of it is this request's doing.
    pub(super) fn new(denial: Denial) -> Self {
        Self {
            new: Some(denial),
            existing: None,
        }
    }
}

#[cfg(test)]
mod tests;
