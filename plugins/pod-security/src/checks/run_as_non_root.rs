//! Containers that may run as root.

use crate::pod::Pod;
use crate::violation::{Offenders, Violation, forbidden, required};

const FIELD: &str = "runAsNonRoot";
const FORBIDDEN: &str = "must not be false";
const REQUIRED: &str = "must be true, here or for the Pod";

pub(super) fn check(pod: &Pod) -> Option<Violation> {
    let pods = pod.security_context.run_as_non_root;
    // Fields that allow root explicitly, and fields that do not forbid it.
    let (mut explicit, mut implicit) = (Offenders::default(), Offenders::default());
    explicit.pod((pods == Some(false)).then(|| forbidden(pod.security_context(FIELD), FORBIDDEN)));
    for container in &pod.containers {
        let field = || container.security_context(FIELD);
        match container.security_context.run_as_non_root {
            Some(false) => explicit.container(container, [forbidden(field(), FORBIDDEN)]),
            None if pods != Some(true) => {
                implicit.container(container, [required(field(), REQUIRED)]);
            }
            _ => {}
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
