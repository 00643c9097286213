//! Windows containers that run as processes of the node.

use crate::pod::Pod;
use crate::violation::{Offenders, Violation, forbidden};

const FIELD: &str = "windowsOptions/hostProcess";
const MESSAGE: &str = "must not be true";

pub(super) fn check(pod: &Pod) -> Option<Violation> {
    let mut offenders = Offenders::default();
    let is_bad = pod.security_context.is_host_process();
    offenders.pod(is_bad.then(|| forbidden(pod.security_context(FIELD), MESSAGE)));
    for container in &pod.containers {
        let is_bad = container.security_context.is_host_process();
        let cause = is_bad.then(|| forbidden(container.security_context(FIELD), MESSAGE));
        offenders.container(container, cause);
    }
    offenders.violation("hostProcess", |who| {
        format!("{who} must not set securityContext.windowsOptions.hostProcess=true")
    })
}
