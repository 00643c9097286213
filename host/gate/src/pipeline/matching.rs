//! Decides whether a plugin is called for a request.
//!
//! Rules, selectors and conditions work exactly as kube-apiserver's do for a webhook, so they mean the same here as
//! in a webhook configuration. Cheap checks that often exclude a plugin come first:
//!
//! ```text
//! namespace of a namespace's plugin → rules → namespaces → users → labels → conditions → exceptions
//! ```
//!
//! Matching allocates nothing before the conditions, because the host checks every plugin for every request.
//!
//! A `namespaceSelector` needs the labels of a namespace, which the review does not contain. If the host does not have
//! them, it finds the standing again after the lookup.
//!
//! The cost of a condition depends on the object, which the user chooses. If the conditions take more than a
//! millisecond, the host evaluates them on another thread. The plugin's standing is then found in two steps.

use std::time::SystemTime;

use tollgate_admission::Phase;
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_config::Exception;
use tollgate_config::condition::{Condition, ConditionError, Decision};
use tollgate_config::matching::{Decided, Mismatch};
use tollgate_json::document::Json;

use crate::plugin::{Plugin, RequestFilter};

/// How a plugin stands towards a request.
#[derive(Debug)]
pub enum Standing<'p> {
    /// The plugin does not match the request.
    NotCalled(Mismatch),
    /// The plugin is called.
    Called,
    /// The plugin matches, but an exception covers the request.
    Excepted(&'p Exception),
    /// The host cannot tell whether the plugin matches.
    Unclear(ConditionError),
    /// The host has to look up the Namespace of the request first.
    AwaitsNamespace,
    /// The host cannot tell whether the plugin matches, because it cannot find out about the namespace.
    NoNamespace(String),
    /// The plugin's conditions have to be evaluated on another thread: all of them, and one that costs too much here.
    Costly(&'p [Condition], &'p Condition),
}

// === impl Plugin ===

impl Plugin {
    /// Finds the plugin's standing, with the object as it is at the plugin's turn.
    pub(crate) fn standing(
        &self,
        phase: Phase,
        request: &AdmissionRequest,
        object: Option<&Json>,
    ) -> Standing<'_> {
        let decided = match self.request_filter(phase) {
            _ if !self.config.sees(request) => Decided::Fails(Mismatch::Tenant),
            RequestFilter::Nothing => Decided::Fails(Mismatch::Phase),
            RequestFilter::Everything => Decided::Holds,
            RequestFilter::Matching(matching) => matching.decide(request, object),
        };
        self.standing_after(decided, request)
    }

    /// Whether the plugin gets the pod templates of workloads, as Pods.
    pub(crate) fn gets_templates(&self, phase: Phase) -> bool {
        match self.request_filter(phase) {
            RequestFilter::Matching(matching) => matching.pod_templates,
            RequestFilter::Nothing | RequestFilter::Everything => false,
        }
    }

    /// Whether a review to this path runs the plugin. `only` is the plugin that the path names. A plugin of a namespace
    /// has a separate path and webhook, so that its rules do not affect the rest of the cluster.
    pub(crate) fn is_asked_by(&self, only: Option<&str>) -> bool {
        match only {
            Some(name) => self.config.name.as_str() == name,
            None => self.config.name.namespace().is_none(),
        }
    }

    /// Finds the plugin's standing after its conditions have been decided.
    pub(crate) fn standing_by(
        &self,
        decision: Decision,
        request: &AdmissionRequest,
    ) -> Standing<'_> {
        self.standing_after(decision.into(), request)
    }

    fn standing_after<'p>(
        &'p self,
        decided: Decided<'p>,
        request: &AdmissionRequest,
    ) -> Standing<'p> {
        match decided {
            Decided::Fails(mismatch) => return Standing::NotCalled(mismatch),
            Decided::Costly(conditions, condition) => {
                return Standing::Costly(conditions, condition);
            }
            Decided::AwaitsNamespace => return Standing::AwaitsNamespace,
            Decided::Holds | Decided::Unclear(_) | Decided::NoNamespace(_) => {}
        }
        if let Some(exception) = self.exception(request) {
            return Standing::Excepted(exception);
        }
        match decided {
            Decided::Unclear(error) => Standing::Unclear(error),
            Decided::NoNamespace(what) => Standing::NoNamespace(what),
            _ => Standing::Called,
        }
    }

    /// Whether the plugin could be called for a request whose object is not known. Labels and conditions count as
    /// met.
    pub(crate) fn could_be_asked(&self, phase: Phase, request: &AdmissionRequest) -> bool {
        let matches = match self.request_filter(phase) {
            RequestFilter::Nothing => false,
            RequestFilter::Everything => true,
            RequestFilter::Matching(matching) => matching.matches(request).is_some(),
        };
        matches && self.config.sees(request) && self.exception(request).is_none()
    }

    fn exception(&self, request: &AdmissionRequest) -> Option<&Exception> {
        let exceptions = &self.config.exceptions;
        if exceptions.is_empty() {
            return None;
        }
        let now = SystemTime::now();
        exceptions
            .iter()
            .find(|exception| exception.covers(request) && exception.is_active(now))
    }
}

#[cfg(test)]
mod tests;
