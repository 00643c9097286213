//! Privileged containers, which have almost no restrictions.

use crate::pod::Pod;
use crate::violation::{Offenders, Violation, forbidden};

pub(super) fn check(pod: &Pod) -> Option<Violation> {
    let mut offenders = Offenders::default();
    for container in &pod.containers {
        if container.security_context.privileged == Some(true) {
            let field = container.security_context("privileged");
            offenders.container(container, [forbidden(field, "must not be true")]);
        }
    }
    offenders.violation("privileged", |who| {
        format!("{who} must not set securityContext.privileged=true")
    })
}
