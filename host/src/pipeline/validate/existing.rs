//! Violations that were there before: an UPDATE that adds none is not the moment to refuse them.
//!
//! A validator that denies an UPDATE is asked a second time, with the old object in the place of the new one and
//! everything else as it was. What it denies there too, for the same reason in the same place, is not this request's
//! doing – as long as what stands in that place is what stood there: a reason's words hold no values, so that the same
//! words can be about something worse. A reason without a place is excused only where the request changes little that
//! it could be about.
//!
//! The second call stays an UPDATE, with the old object as both objects. As a CREATE it would excuse what a rule about
//! changes denies: who refuses every change of `spec` outside of hours refuses every object then, too.
//!
//! That is done with `existingViolations: allow`, and always for an object that is being deleted: its finalizers are
//! removed by UPDATEs, and nobody can mend it any more. No more than its metadata has to change for that, and nothing
//! is excused where more does: who keeps a finalizer in place would get past every plugin that denies by user, by time
//! or by operation. Where such a denial names no place, finalizers and owners are all that may change.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::config::ExistingViolations;
use crate::document::{ArrayIndex, Json, Pointer, array_index};
use crate::engine::{Answer, Engine, Overload, Subject};
use crate::pipeline::outcome::{Cause, Denial};
use crate::pipeline::turn::{Called, Turn};
use crate::review::request::{AdmissionRequest, Operation};

/// What garbage collection goes by, and what is kept about a write. kube-apiserver's own rules for roles let an update
/// of these through without asking what the role allows (registry/rbac/helpers.go, IsOnlyMutatingGCFields).
const OF_COLLECTION: &[&str] = &["finalizers", "ownerReferences", "managedFields"];

/// A denial, apart by when the reason for it arose.
#[derive(Debug)]
pub(super) struct Split {
    /// What this request brings in.
    pub(super) new: Option<Denial>,
    /// What was there before.
    pub(super) existing: Option<Denial>,
}

/// The objects of an UPDATE that may be let through for what was there before.
#[derive(Clone, Copy, Debug)]
struct Excusing<'r> {
    object: &'r Json,
    old_object: &'r Json,
    /// Whether a reason that names no place is excused.
    without_place: bool,
}

/// Where a cause is, and what stands there.
struct Place<'o> {
    path: String,
    /// Whether it is one within the object.
    is_within: bool,
    value: Option<&'o Json>,
}

/// Tells what a request brings in from what was there before. What asking again costs is added to `called`.
pub(super) async fn told_apart(
    turn: &Turn<'_>,
    engine: &Engine,
    request: &Arc<AdmissionRequest>,
    denial: Denial,
    deadline: Instant,
    called: &mut Called,
) -> Result<Split, Overload> {
    let setting = turn.plugin.config.existing_violations;
    let Some(excusing) = Excusing::of(setting, request) else {
        return Ok(Split::new(denial));
    };
    // Once the content of a Secret has been read, all texts are the same: whether a reason is an old one nobody can
    // tell, and only what is excused whatever the reason is can be.
    let is_withheld = called.secrecy.withholds();
    if is_withheld && !excusing.is_only_collected(request) {
        return Ok(Split::new(denial));
    }
    let subject = Subject {
        request: request.clone(),
        object: Some(excusing.old_object.clone()),
    };
    let (answer, again) = turn.call(engine, subject, deadline).await?;
    called.add_cost(&again);
    Ok(match answer {
        Ok(Answer::Deny(_)) if is_withheld => Split {
            new: None,
            existing: Some(denial),
        },
        Ok(Answer::Deny(old)) if !again.secrecy.withholds() => split(denial, &old, excusing),
        _ => Split::new(denial),
    })
}

/// The stored object says so, and not the one that the user sends.
fn is_being_deleted(old_object: &Json) -> bool {
    let metadata = old_object.member("metadata");
    metadata
        .and_then(|metadata| metadata.member("deletionTimestamp"))
        .is_some_and(|timestamp| !timestamp.is_null())
}

/// Whether nothing but the metadata differs, and what the request's subresource is there to change.
fn differs_in_metadata_only(request: &AdmissionRequest, object: &Json, old_object: &Json) -> bool {
    let is_namespace =
        request.resource.group.is_empty() && request.resource.resource == "namespaces";
    let but: &[&str] = match request.sub_resource.as_deref() {
        Some("status") => &["metadata", "status"],
        // A Namespace's finalizers are in its spec, alone.
        Some("finalize") if is_namespace => &["metadata", "spec"],
        _ => &["metadata"],
    };
    is_same_but(object, old_object, but)
}

/// Whether, of two that differ in no more than that, the metadata differs in nothing but what garbage collection goes
/// by, and the status not at all: labels hand out roles, and a Service's status draws its traffic.
fn is_only_collected(object: &Json, old_object: &Json) -> bool {
    match (object.member("metadata"), old_object.member("metadata")) {
        (Some(metadata), Some(old)) => {
            is_same_but(metadata, old, OF_COLLECTION)
                && object.member("status") == old_object.member("status")
        }
        _ => false,
    }
}

/// Whether two objects have the same members, except for some.
fn is_same_but(one: &Json, other: &Json, but: &[&str]) -> bool {
    let (Some(members), Some(others)) = (one.as_object(), other.as_object()) else {
        return false;
    };
    let counts = |name: &str| !but.contains(&name);
    let compared = members.iter().filter(|(name, _)| counts(name));
    compared
        .clone()
        .all(|(name, value)| others.get(name) == Some(value))
        && compared.count() == others.keys().filter(|name| counts(name)).count()
}

/// Takes apart what a plugin denies, by what it says of the old object.
fn split(denial: Denial, old: &Denial, excusing: Excusing<'_>) -> Split {
    if denial.causes.is_empty() {
        let is_known = old.causes.is_empty() && denial.message == old.message;
        return if is_known && excusing.without_place {
            Split {
                new: None,
                existing: Some(denial),
            }
        } else {
            Split::new(denial)
        };
    }
    let known: HashMap<(String, &str), Option<&Json>> = old
        .causes
        .iter()
        .map(|cause| {
            let place = Place::of(cause, excusing.old_object);
            ((place.path, cause.message.as_str()), place.value)
        })
        .collect();
    let is_known = |cause: &Cause| {
        let place = Place::of(cause, excusing.object);
        let old = known.get(&(place.path, cause.message.as_str()));
        old.is_some_and(|old| {
            if place.is_within {
                *old == place.value
            } else {
                excusing.without_place
            }
        })
    };
    let (existing, new): (Vec<Cause>, Vec<Cause>) =
        denial.causes.iter().cloned().partition(is_known);
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

/// Whether one element alone has this name.
fn is_unique(elements: &[Json], name: &str) -> bool {
    let named = elements
        .iter()
        .filter(|element| element.member("name").and_then(Json::as_text) == Some(name));
    named.count() == 1
}

// === impl Excusing ===

impl<'r> Excusing<'r> {
    /// What is excused of a request at all; none when nothing is.
    fn of(setting: ExistingViolations, request: &'r AdmissionRequest) -> Option<Self> {
        if request.operation != Operation::Update {
            return None;
        }
        let (object, old_object) = (request.object.as_ref()?, request.old_object.as_ref()?);
        let excusing = |without_place| Self {
            object,
            old_object,
            without_place,
        };
        let metadata_only = || differs_in_metadata_only(request, object, old_object);
        match setting {
            ExistingViolations::Allow => Some(excusing(metadata_only())),
            ExistingViolations::Deny => (is_being_deleted(old_object) && metadata_only())
                .then(|| excusing(is_only_collected(object, old_object))),
        }
    }

    /// Whether nothing differs but what garbage collection goes by.
    fn is_only_collected(self, request: &AdmissionRequest) -> bool {
        differs_in_metadata_only(request, self.object, self.old_object)
            && is_only_collected(self.object, self.old_object)
    }
}

// === impl Place ===

impl<'o> Place<'o> {
    /// A place stays the same as long as the object changes elsewhere: elements with a name are known by it, as a
    /// container put before others moves them. The whole object is no place in it, and neither is what is no pointer.
    fn of(cause: &Cause, object: &'o Json) -> Self {
        let field = cause.field.as_deref().unwrap_or_default();
        let pointer = match Pointer::parse(field) {
            Ok(pointer) if !pointer.is_root() => pointer,
            _ => {
                return Self {
                    path: field.to_owned(),
                    is_within: false,
                    value: None,
                };
            }
        };
        let mut here = Some(object);
        let mut path = String::new();
        for token in pointer.tokens() {
            let elements = here.and_then(Json::as_array);
            here = here.and_then(|json| json.child(&token));
            let name = here
                .and_then(|json| json.member("name"))
                .and_then(Json::as_text);
            path.push('/');
            match (elements, name, array_index(&token)) {
                (Some(elements), Some(name), Some(ArrayIndex::At(_)))
                    if is_unique(elements, name) =>
                {
                    path.push_str(&format!("[name={name:?}]"));
                }
                _ => path.push_str(&token),
            }
        }
        Self {
            path,
            is_within: true,
            value: here,
        }
    }
}

// === impl Split ===

impl Split {
    /// All of it is this request's doing.
    fn new(denial: Denial) -> Self {
        Self {
            new: Some(denial),
            existing: None,
        }
    }
}

#[cfg(test)]
mod tests;
