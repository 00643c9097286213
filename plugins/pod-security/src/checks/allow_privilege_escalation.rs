//! Processes that gain more privileges than their parent, for example by set-user-ID.

use crate::pod::Pod;
use crate::violation::{Offenders, Violation, required};

pub(super) fn check(pod: &Pod) -> Option<Violation> {
    let mut offenders = Offenders::default();
    for container in &pod.containers {
        if container.security_context.allow_privilege_escalation != Some(false) {
            let field = container.security_context("allowPrivilegeEscalation");
            offenders.container(container, [required(field, "must be false")]);
        }
    }
    offenders.violation("allowPrivilegeEscalation != false", |who| {
        format!("{who} must set securityContext.allowPrivilegeEscalation=false")
    })
}
