//! What a request brings that the standards speak of: a Pod, or a template for Pods.

use tollgate_sdk::AdmissionRequest;
use tollgate_sdk::prelude::*;

/// Subresources of a Pod that do not carry its spec, or cannot change it. Any other one is taken to be a Pod: one that
/// is not known here must not be a way around the standards.
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

/// What has to be judged.
pub(crate) enum Subject {
    /// The object is a Pod.
    Pod,
    /// A template for Pods stands there in the object.
    Template(Pointer),
}

// === impl Subject ===

impl Subject {
    /// None when the request brings nothing of the kind.
    pub(crate) fn of(request: &AdmissionRequest) -> Option<Self> {
        if !matches!(request.operation, Operation::Create | Operation::Update) {
            return None;
        }
        let resource = &request.resource;
        let sub_resource = request.sub_resource.as_deref();
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
