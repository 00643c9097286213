//! Containers that run as root by its number.

use tollgate_sdk::prelude::*;

use crate::pod::Pod;
use crate::violation::{Offenders, Violation, forbidden};

pub(super) fn judge(pod: &Pod) -> Option<Violation> {
    let check = |user: Option<i64>, field: Pointer| {
        (user == Some(0)).then(|| forbidden(field, "must not be 0"))
    };
    let mut offenders = Offenders::default();
    offenders.pod(check(
        pod.security_context.run_as_user,
        pod.security_context("runAsUser"),
    ));
    for container in &pod.containers {
        let user = container.security_context.run_as_user;
        offenders.container(
            container,
            check(user, container.security_context("runAsUser")),
        );
    }
    offenders.violation("runAsUser=0", |who| {
        format!("{who} must not set runAsUser=0")
    })
}
