//! Gives plugins for Pods the pod templates of workloads (`match.podTemplates`).
//!
//! The host derives the creation of a Pod once for each state of the object, and all plugins share it. From then on the
//! derived request takes the way of any other: selectors, conditions, exceptions, the call, audits, shadows. Two places
//! know more: [`Turn::report`] maps a denial to the workload, and [`into_workload`] a mutation.
//!
//! Two requests for workloads have no template to show:
//!
//! - A controller made the workload from a template of its own. Plugins get that template, and each Pod.
//! - An UPDATE leaves the template as it is. A mutator that was added later must not begin a rollout when somebody
//!   scales a Deployment, and must not keep garbage collection from a Job, whose template cannot change.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tollgate_admission::review::request::{AdmissionRequest, Operation};
use tollgate_admission::review::template::Workload;
use tollgate_config::matching::Mismatch;
use tollgate_engine::{Engine, Fault, Subject};
use tollgate_json::document::Json;

use super::blocking::blocking_if;
use super::turn::{Beginning, Called, Turn};

/// The pod template of a review's workload, derived on demand.
pub(super) struct Templates<'r> {
    request: &'r Arc<AdmissionRequest>,
    /// None if the review is not about a workload.
    workload: Option<&'static Workload>,
    /// The last result, with the object that it is for.
    last: Mutex<Option<(Json, Derived)>>,
}

/// What a plugin for Pods gets of a workload.
#[derive(Clone)]
enum Derived {
    /// The creation of this Pod.
    Pod(Arc<Subject>),
    /// Nothing, for this reason.
    Nothing(Mismatch),
    /// The template cannot be read, for this reason.
    Unreadable(Arc<str>),
}

/// What a plugin is called with, before its standing is known.
#[derive(Default)]
pub(super) struct Shown {
    /// The template as a Pod. None if the plugin gets the request itself.
    pub(super) pod: Option<Arc<Subject>>,
    /// The beginning of the turn, if there is nothing to call the plugin with.
    pub(super) settled: Option<Beginning>,
}

/// Pods with this many JSON values, or more, are compared where other requests can continue meanwhile.
const HEAVY_NODES: usize = 5_000;

// === impl Templates ===

impl<'r> Templates<'r> {
    pub(super) fn of(request: &'r Arc<AdmissionRequest>) -> Self {
        Self {
            request,
            workload: Workload::of(request),
            last: Mutex::default(),
        }
    }

    /// Returns what the plugin gets, with the object as it is at the plugin's turn.
    pub(super) fn show(&self, turn: &Turn<'_>, object: Option<&Json>) -> Shown {
        let (Some(workload), Some(object)) = (self.workload, object) else {
            return Shown::default();
        };
        if !turn.plugin.gets_templates(turn.phase) {
            return Shown::default();
        }
        let settled = match self.derived(workload, object) {
            Derived::Pod(subject) => {
                return Shown {
                    pod: Some(subject),
                    settled: None,
                };
            }
            Derived::Nothing(mismatch) => Beginning::NotCalled(mismatch),
            Derived::Unreadable(what) if turn.plugin.could_be_asked(turn.phase, self.request) => {
                let fault = Fault::Unreadable {
                    what: what.to_string(),
                };
                let called = Called::nothing(self.request);
                Beginning::Report(Box::new(turn.report(self.request, called, Err(fault))))
            }
            Derived::Unreadable(_) => Beginning::NotCalled(Mismatch::Rules),
        };
        Shown {
            pod: None,
            settled: Some(settled),
        }
    }

    /// Finds out whether the plugin is to be called, and with what: a Pod, or none for the request itself.
    pub(super) async fn begin(
        &self,
        turn: &Turn<'_>,
        engine: &Engine,
        object: Option<&Json>,
        deadline: Instant,
    ) -> (Beginning, Option<Arc<Subject>>) {
        let Shown { pod, settled } = self.show(turn, object);
        let beginning = match (settled, &pod) {
            (Some(settled), _) => settled,
            (None, Some(pod)) => {
                let object = pod.object.as_ref();
                turn.begin(engine, &pod.request, object, deadline).await
            }
            (None, None) => turn.begin(engine, self.request, object, deadline).await,
        };
        (beginning, pod)
    }

    fn derived(&self, workload: &'static Workload, object: &Json) -> Derived {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, derived)) = &*last
            && known.is_same(object)
        {
            return derived.clone();
        }
        // Plugins of one review share the derived request, and what it looks up.
        let request = last.as_ref().and_then(|(_, derived)| match derived {
            Derived::Pod(subject) => Some(subject.request.clone()),
            _ => None,
        });
        let derived = derive(workload, self.request, request, object);
        *last = Some((object.clone(), derived.clone()));
        derived
    }
}

/// Derives the Pod. `known` is the derived request, if an earlier state of the object had one.
fn derive(
    workload: &'static Workload,
    request: &Arc<AdmissionRequest>,
    known: Option<Arc<AdmissionRequest>>,
    object: &Json,
) -> Derived {
    if workload.is_made_by_controller(object) {
        return Derived::Nothing(Mismatch::MadeByController);
    }
    let pod = match workload.pod(object, request.namespace.as_deref()) {
        Ok(pod) => pod,
        Err(error) => return Derived::Unreadable(error.to_string().into()),
    };
    let derived = match known {
        Some(known) => known,
        None => match workload.derive(request) {
            Ok(derived) => Arc::new(derived),
            Err(error) => return Derived::Unreadable(error.to_string().into()),
        },
    };
    let old_pod = derived.template.as_ref();
    let old_pod = old_pod.and_then(|template| template.old_pod.as_ref());
    if let (Some(old_pod), Operation::Update) = (old_pod, request.operation) {
        let heavy = pod.count_nodes(HEAVY_NODES) >= HEAVY_NODES;
        if blocking_if(heavy, || old_pod.equivalent(&pod)) {
            return Derived::Nothing(Mismatch::SameTemplate);
        }
    }
    Derived::Pod(Arc::new(Subject {
        request: derived,
        object: Some(pod),
    }))
}

#[cfg(test)]
mod tests;
