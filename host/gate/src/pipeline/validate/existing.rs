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
//! **Groups.** The reasons of each member are compared on their own, and members are asked that the expression has not
//! needed so far (`members`).
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
mod members;
mod places;
mod removal;
mod split;
mod steps;

use std::sync::Arc;
use std::time::Instant;

use crate::pipeline::turn::{Called, Statement, Turn, verdict};
use crate::plugin::Plugin;
use members::split_members;
use removal::only_removes;
use split::{Split, split};
use steps::Steps;
use tollgate_admission::Denial;
use tollgate_admission::review::request::{AdmissionRequest, Operation};
use tollgate_config::{ExistingViolations, MemberVerdict};
use tollgate_engine::{Engine, Grounds, Overload, Subject};
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

/// One look at whether a denial existed before.
struct Look<'l> {
    excusing: Excusing<'l>,
    plugin: &'l Plugin,
    engine: &'l Engine,
    deadline: Instant,
    /// Whether the request only removes finalizers and owners of an object that is being deleted.
    only_collects: bool,
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
        let look = Look {
            excusing: self,
            plugin: turn.plugin,
            engine,
            deadline,
            only_collects,
        };
        if let Some(group) = &turn.plugin.group {
            return split_members(&look, group, denial, called).await;
        }
        let denied = Statement {
            verdict: MemberVerdict::Denied,
            denial: None,
            grounds: called.grounds,
            secrecy: called.secrecy,
        };
        if !look.is_excusable(&denied) {
            return Ok(Split::new(denial));
        }
        let subject = Subject {
            request: self.request.clone(),
            object: Some(self.objects.old.clone()),
        };
        let (answer, again) = turn.call(engine, &subject, deadline).await?;
        called.add_cost(&again);
        let before = Statement::of(&verdict(answer), &again);
        Ok(look.split(denial, &denied, &before).await)
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

// === impl Look ===

impl Look<'_> {
    /// Whether a plugin with this statement can have denied something that existed before.
    ///
    /// Once the plugin has read a Secret's content, the host withholds all its texts, so they are all equal. Old reasons
    /// cannot be told from new ones then. Only garbage collection is excused, because the reasons do not matter for it.
    fn is_excusable(&self, statement: &Statement) -> bool {
        let is_known = self.only_collects || !statement.secrecy.withholds();
        is_known
            && self
                .excusing
                .is_excusable(self.only_collects, statement.grounds)
    }

    /// Separates the new reasons of a denial from existing ones. `new` is the statement with this denial, and `old` is
    /// what the plugin says about the old object.
    async fn split(&self, denial: Denial, new: &Statement, old: &Statement) -> Split {
        let Some(before) = old.denial.clone() else {
            return Split::new(denial);
        };
        let both = Statement {
            denial: None,
            grounds: new.grounds.and(old.grounds),
            ..*old
        };
        if !self.is_excusable(&both) {
            return Split::new(denial);
        }
        if new.secrecy.withholds() {
            return Split::existing(denial);
        }
        if old.secrecy.withholds() {
            // If only the second call's texts are withheld, they do not match the first call's.
            return Split::new(denial);
        }
        let (copy, only_collects) = (denial.clone(), self.only_collects);
        let comparison =
            self.compare(move |objects, steps| split(copy, &before, objects, only_collects, steps));
        comparison.await.unwrap_or_else(|| {
            tracing::info!(
                plugin = self.plugin.config.name.as_str(),
                uid = self.excusing.request.uid,
                "cannot tell existing violations from new ones, so all count as new: comparing the objects costs too \
                 much"
            );
            Split::new(denial)
        })
    }

    /// Compares the objects within the limit of steps. Returns none if the steps or the time run out.
    async fn compare<T: Send + 'static>(
        &self,
        work: impl FnOnce(Objects<'_>, &mut Steps) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        let excusing = &self.excusing;
        excusing.compare(self.engine, self.deadline, work).await
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
