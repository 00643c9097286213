//! Finds the part of a request that the standards apply to: a Pod, or a template for Pods.

use tollgate_sdk::prelude::*;

/// Subresources of a Pod that do not have its spec, or cannot change it. Any other subresource counts as a Pod, so that
/// an unknown one cannot bypass the standards.
const WITHOUT_SPEC: [&str; 8] = [
    "attach",
    "binding",
    "eviction",
    "exec",
    "log",
    "portforward",
    "proxy",
    "status",
];

/// The part of the object to check.
pub(crate) enum Subject {
    /// The object is a Pod.
    Pod,
    /// The object has a template for Pods at this place.
    Template(Pointer),
}

// === impl Subject ===

impl Subject {
    /// Returns the subject of a request. None if the standards do not apply.
    pub(crate) fn of(review: &Review, operation: Operation) -> Option<Self> {
        if !matches!(operation, Operation::Create | Operation::Update) {
            return None;
        }
        let resource = review.resource();
        let sub_resource = review.sub_resource();
        let sub_resource = sub_resource.as_deref();
        let template = match (resource.group.as_str(), resource.resource.as_str()) {
            ("", "pods") => {
                let carries_spec = sub_resource.is_none_or(|name| !WITHOUT_SPEC.contains(&name));
                return carries_spec.then_some(Self::Pod);
            }
            ("", "podtemplates") => "/template",
            ("", "replicationcontrollers")
            | ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets")
            | ("batch", "jobs") => "/spec/template",
            ("batch", "cronjobs") => "/spec/jobTemplate/spec/template",
            _ => return None,
        };
        sub_resource
            .is_none()
            .then(|| Self::Template(template.into()))
    }
}
