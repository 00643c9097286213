//! Finds violations that the old object already had. An UPDATE that adds none should not be denied for them.
//!
//! When a validator denies an UPDATE, the host calls it a second time. The old object then takes the place of the new
//! one, and everything else is unchanged. A reason is excused if both conditions hold:
//!
//! - The validator gives the same reason for the same place in both calls.
//! - The value at that place has not changed. A reason's text holds no values, so the same text can be about
//!   something worse.
//!
//! A reason without a place is excused only if the request changes little that the reason could be about.
//!
//! The second call stays an UPDATE, with the old object as both objects. A CREATE would excuse denials by a rule
//! about changes. For example, a rule that denies every change of `spec` outside working hours would then deny every
//! object.
//!
//! The exception are pod templates. The plugin got the creation of a Pod, so the second call is the creation of the
//! old template's Pod. No rule about changes can have denied it.
//!
//! **Rules about user or time.** A rule about who may change an object denies the old object as well, and so does a
//! rule about the time. The host tells such rules apart from a rule about the object by what the plugin asked for
//! ([`Grounds`]). A plugin cannot deny by something that it has not asked for. So `existingViolations: allow` excuses
//! nothing if the plugin asked who or when, or if it did not look at the object at all.
//!
//! **Deletion.** Whatever the setting is, an object that is being deleted can lose finalizers and owners, in a
//! request that does nothing else ([`only_removes`]). Such an object can no longer be repaired, and garbage
//! collection must not get stuck. For the same reason, kube-apiserver allows such requests without asking what a role
//! allows (registry/rbac/helpers.go, `IsOnlyMutatingGCFields`).
//!
//! No other change is excused. Otherwise a user could keep a finalizer in place, and so get past every plugin that
//! denies by user (as in CVE-2023-34091). A plugin that asks who or when, and also looks at finalizers or owners, has
//! the removal itself as its subject. Its denial stands.
//!
//! **Cost.** The user chooses both objects. The host therefore counts the steps of comparing them ([`Steps`]), and
//! compares large objects on another thread. If comparing costs too much or takes too long, the denial stands.

#[doc(hidden)]
pub mod fuzzing;
mod places;
mod removal;
mod split;
mod steps;

use std::sync::Arc;
use std::time::Instant;

use crate::pipeline::turn::{Called, Turn};
use crate::plugin::Plugin;
use removal::only_removes;
use split::{Split, split};
use steps::Steps;
use tollgate_admission::Denial;
use tollgate_admission::review::request::{AdmissionRequest, Operation};
use tollgate_config::ExistingViolations;
use tollgate_engine::{Answer, Engine, Grounds, Overload, Subject};
use tollgate_json::document::Json;

/// An UPDATE that may be allowed because its violations existed before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Excusing<'r> {
    request: &'r Arc<AdmissionRequest>,
    objects: Objects<'r>,
    /// Whether `existingViolations` is `allow`.
    allows: bool,
    is_being_deleted: bool,
}

/// The two objects of an UPDATE, with the request.
#[derive(Clone, Copy, Debug)]
struct Objects<'r> {
    request: &'r AdmissionRequest,
    new: &'r Json,
    old: &'r Json,
}

/// If the two objects have fewer values together, they are compared on this thread. This takes a millisecond at most.
const INLINE_NODES: usize = 1_000;

// === impl Excusing ===

impl<'r> Excusing<'r> {
    /// Returns none if nothing in the request can be excused.
    pub(super) fn of(plugin: &Plugin, request: &'r Arc<AdmissionRequest>) -> Option<Self> {
        Self::with(plugin.config.existing_violations, request)
    }

    fn with(setting: ExistingViolations, request: &'r Arc<AdmissionRequest>) -> Option<Self> {
        // Of a workload's UPDATE, the plugin gets the creation of a Pod.
        if request.received().operation != Operation::Update {
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

    /// Separates new violations from existing ones. The cost of the second call is added to `called`.
    pub(super) async fn split_existing(
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
            // Once the plugin has read a Secret's content, the host withholds all its texts, so they are all equal.
            // Old reasons cannot be told from new ones then. Only garbage collection is excused, because the reasons
            // do not matter for it.
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
        let (answer, again) = turn.call(engine, &subject, deadline).await?;
        called.add_cost(&again);
        let Ok(Answer::Deny(old)) = answer else {
            return Ok(Split::new(denial));
        };
        let is_withheld_again = again.secrecy.withholds();
        if !is_excusable(called.grounds.and(again.grounds), is_withheld_again) {
            return Ok(Split::new(denial));
        }
        if is_withheld || is_withheld_again {
            // If only the second call's texts are withheld, they do not match the first call's.
            return Ok(if is_withheld {
                Split::existing(denial)
            } else {
                Split::new(denial)
            });
        }
        let copy = denial.clone();
        let comparison = self.compare(engine, deadline, move |objects, steps| {
            split(copy, &old, objects, only_collects, steps)
        });
        Ok(comparison.await.unwrap_or_else(|| {
            tracing::info!(
                plugin = turn.plugin.config.name.as_str(),
                uid = self.request.uid,
                "cannot tell existing violations from new ones, so all count as new: comparing the objects costs too \
                 much"
            );
            Split::new(denial)
        }))
    }

    /// Whether a plugin that asked for `grounds` can have denied something that existed before.
    fn is_excusable(&self, only_collects: bool, grounds: Grounds) -> bool {
        let asked_who_or_when = grounds.who || grounds.when;
        if only_collects {
            return !(asked_who_or_when && grounds.collection);
        }
        self.allows && grounds.object && !asked_who_or_when
    }

    /// Compares the objects within the limit of steps. Returns none if the steps or the time run out.
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
            old: match &request.template {
                Some(template) => template.old_pod.as_ref()?,
                None => request.old_object.as_ref()?,
            },
        })
    }

    /// Whether the request finalizes a Namespace. A Namespace has its finalizers in its spec, and loses them by such
    /// a request.
    fn is_finalizing_namespace(&self) -> bool {
        self.request.sub_resource.as_deref() == Some("finalize")
            && self.request.resource.group.is_empty()
            && self.request.resource.resource == "namespaces"
    }
}

/// Whether the object is being deleted. The stored object decides this, not the one that the user sends.
fn is_being_deleted(old_object: &Json) -> bool {
    let metadata = old_object.member("metadata");
    metadata
        .and_then(|metadata| metadata.member("deletionTimestamp"))
        .is_some_and(|timestamp| !timestamp.is_null())
}

#[cfg(test)]
mod tests;
