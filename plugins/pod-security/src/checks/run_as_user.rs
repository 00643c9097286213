//! Containers that run as user 0.

use crate::pod::Pod;
use crate::violation::{Offenders, Violation, forbidden};

const FIELD: &str = "runAsUser";
const MESSAGE: &str = "must not be 0";

pub(super) fn check(pod: &Pod) -> Option<Violation> {
    let mut offenders = Offenders::default();
    let is_root = pod.security_context.run_as_user == Some(0);
    offenders.pod(is_root.then(|| forbidden(pod.security_context(FIELD), MESSAGE)));
    for container in &pod.containers {
        let is_root = container.security_context.run_as_user == Some(0);
        let cause = is_root.then(|| forbidden(container.security_context(FIELD), MESSAGE));
        offenders.container(container, cause);
    }
    offenders.violation("runAsUser=0", |who| {
        format!("{who} must not set runAsUser=0")
    })
}
