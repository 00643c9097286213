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
//! **Who and when.** A rule about who may change an object denies the old one as well, and so does one about the time.
//! What a plugin asked for tells them apart from a rule about the object ([`Grounds`]): it cannot deny by what it has not
//! asked. So nothing is excused with `existingViolations: allow` that a plugin denies after it asked who or when, or
//! without having looked at the object at all.
//!
//! **Deletion.** Whatever the setting, an object that is being deleted can lose finalizers and owners, in a request that
//! does nothing else ([`only_removes`]): nobody can mend it any more, and garbage collection must not come to a halt. So
//! much kube-apiserver lets through without asking what a role allows (registry/rbac/helpers.go,
//! `IsOnlyMutatingGCFields`). Nothing more is excused: who keeps a finalizer in place would get past every plugin that
//! denies by user (as in CVE-2023-34091). A plugin that asks who or when, and looks at finalizers or owners, is about
//! just that, and its denial stands.
//!
//! **Cost.** Both objects are the user's to choose. Comparing them is counted ([`Steps`]), happens on another thread where
//! they are large, and ends in the denial where it costs too much or takes too long.

#[doc(hidden)]
pub mod fuzzing;
mod places;
mod removal;
mod split;
mod steps;

use std::sync::Arc;
use std::time::Instant;

use crate::config::ExistingViolations;
use crate::document::Json;
use crate::engine::{Answer, Engine, Grounds, Overload, Subject};
use crate::pipeline::outcome::Denial;
use crate::pipeline::turn::{Called, Turn};
use crate::plugin::Plugin;
use crate::review::request::{AdmissionRequest, Operation};
use removal::only_removes;
use split::{Split, split};
use steps::Steps;

/// An UPDATE that may be let through for what was there before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Excusing<'r> {
    request: &'r Arc<AdmissionRequest>,
    objects: Objects<'r>,
    /// `existingViolations: allow`
    allows: bool,
    is_being_deleted: bool,
}

/// What an UPDATE makes of an object.
#[derive(Clone, Copy, Debug)]
struct Objects<'r> {
    request: &'r AdmissionRequest,
    new: &'r Json,
    old: &'r Json,
}

/// Objects of fewer values are compared on the spot, in a millisecond at most.
const INLINE_NODES: usize = 1_000;

// === impl Excusing ===

impl<'r> Excusing<'r> {
    /// None where nothing of a request can be excused.
    pub(super) fn of(plugin: &Plugin, request: &'r Arc<AdmissionRequest>) -> Option<Self> {
        Self::with(plugin.config.existing_violations, request)
    }

    fn with(setting: ExistingViolations, request: &'r Arc<AdmissionRequest>) -> Option<Self> {
        if request.operation != Operation::Update {
            return None;
        }
        let objects = Objects::of(request)?;
        let allows = setting == ExistingViolations::Allow;
        let is_being_deleted = is_being_deleted(objects.old);
        (allows || is_being_deleted).then_some(Self {
            request,
            objects,
            allows,
            is_being_deleted,
        })
    }

    /// Tells what a request brings in from what was there before. What asking again costs is added to `called`.
    pub(super) async fn told_apart(
        self,
        turn: &Turn<'_>,
        engine: &Engine,
        denial: Denial,
        deadline: Instant,
        called: &mut Called,
    ) -> Result<Split, Overload> {
        let only_collects = self.is_being_deleted
            && self
                .compare(engine, deadline, |objects, steps| {
                    only_removes(objects, steps)
                })
                .await
                .unwrap_or(false);
        let is_excusable = |grounds: Grounds, is_withheld: bool| {
            // Once the content of a Secret has been read, all texts are the same: whether a reason is an old one nobody
            // can tell, and only what is excused whatever the reason is can be.
            self.is_excusable(only_collects, grounds) && (only_collects || !is_withheld)
        };
        let is_withheld = called.secrecy.withholds();
        if !is_excusable(called.grounds, is_withheld) {
            return Ok(Split::new(denial));
        }
        let subject = Subject {
            request: self.request.clone(),
            object: Some(self.objects.old.clone()),
        };
        let (answer, again) = turn.call(engine, subject, deadline).await?;
        called.add_cost(&again);
        let Ok(Answer::Deny(old)) = answer else {
            return Ok(Split::new(denial));
        };
        let is_withheld_again = again.secrecy.withholds();
        if !is_excusable(called.grounds.and(again.grounds), is_withheld_again) {
            return Ok(Split::new(denial));
        }
        if is_withheld || is_withheld_again {
            // Where the first call could not be withheld and the second one is, their texts differ.
            return Ok(if is_withheld {
                Split::existing(denial)
            } else {
                Split::new(denial)
            });
        }
        let copy = denial.clone();
        let told = self.compare(engine, deadline, move |objects, steps| {
            split(copy, &old, objects, only_collects, steps)
        });
        Ok(told.await.unwrap_or_else(|| {
            tracing::info!(
                plugin = turn.plugin.config.name.as_str(),
                uid = self.request.uid,
                "existing violations are not told from new ones: comparing the objects costs too much"
            );
            Split::new(denial)
        }))
    }

    /// Whether a plugin that has asked for this can have denied what was there before.
    fn is_excusable(&self, only_collects: bool, grounds: Grounds) -> bool {
        let asked_who_or_when = grounds.who || grounds.when;
        if only_collects {
            return !(asked_who_or_when && grounds.collection);
        }
        self.allows && grounds.object && !asked_who_or_when
    }

    /// Compares the objects within a bound of steps; none where that or the time does not suffice.
    async fn compare<T: Send + 'static>(
        &self,
        engine: &Engine,
        deadline: Instant,
        work: impl FnOnce(Objects<'_>, &mut Steps) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        if Instant::now() >= deadline {
            return None;
        }
        let count = |object: &Json| object.count_nodes(INLINE_NODES);
        if count(self.objects.new) + count(self.objects.old) < INLINE_NODES {
            return work(self.objects, &mut Steps::default());
        }
        let request = self.request.clone();
        let work = move || work(Objects::of(&request)?, &mut Steps::default());
        engine.offload().run(deadline, work).await.flatten()
    }
}

// === impl Objects ===

impl<'r> Objects<'r> {
    fn of(request: &'r AdmissionRequest) -> Option<Self> {
        Some(Self {
            request,
            new: request.object.as_ref()?,
            old: request.old_object.as_ref()?,
        })
    }

    /// Whether the request is the one by which a Namespace, whose finalizers are in its spec, loses them.
    fn is_finalizing_namespace(&self) -> bool {
        self.request.sub_resource.as_deref() == Some("finalize")
            && self.request.resource.group.is_empty()
            && self.request.resource.resource == "namespaces"
    }
}

/// The stored object says so, and not the one that the user sends.
fn is_being_deleted(old_object: &Json) -> bool {
    let metadata = old_object.member("metadata");
    metadata
        .and_then(|metadata| metadata.member("deletionTimestamp"))
        .is_some_and(|timestamp| !timestamp.is_null())
}

#[cfg(test)]
mod tests;
