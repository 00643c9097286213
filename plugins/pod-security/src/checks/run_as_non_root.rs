//! Containers that may run as root.

use tollgate_sdk::prelude::*;

use crate::pod::Pod;
use crate::violation::{Offenders, Violation, forbidden, required};

pub(super) fn judge(pod: &Pod) -> Option<Violation> {
    let forbid = |setting: Option<bool>, field: Pointer| {
        (setting == Some(false)).then(|| forbidden(field, "must not be false"))
    };
    let pods = pod.security_context.run_as_non_root;
    // Who says that it may, and who does not say that it may not.
    let (mut explicit, mut implicit) = (Offenders::default(), Offenders::default());
    explicit.pod(forbid(pods, pod.security_context("runAsNonRoot")));
    for container in &pod.containers {
        let setting = container.security_context.run_as_non_root;
        let field = container.security_context("runAsNonRoot");
        if setting.is_none() && pods != Some(true) {
            let message = "must be true, here or for the Pod";
            implicit.container(container, [required(field, message)]);
        } else {
            explicit.container(container, forbid(setting, field));
        }
    }
    let reason = "runAsNonRoot != true";
    explicit
        .violation(reason, |who| {
            format!("{who} must not set securityContext.runAsNonRoot=false")
        })
        .or_else(|| {
            implicit.violation(reason, |who| {
                format!("pod or {who} must set securityContext.runAsNonRoot=true")
            })
        })
}
