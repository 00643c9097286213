//! Containers of Windows that are processes of the node.

use tollgate_sdk::prelude::*;

use crate::pod::{Pod, SecurityContext};
use crate::violation::{Offenders, Violation, forbidden};

pub(super) fn judge(pod: &Pod) -> Option<Violation> {
    let check = |context: &SecurityContext, field: Pointer| {
        let is_bad = context.is_host_process();
        is_bad.then(|| forbidden(field, "must not be true"))
    };
    let mut offenders = Offenders::default();
    let field = "windowsOptions/hostProcess";
    offenders.pod(check(&pod.security_context, pod.security_context(field)));
    for container in &pod.containers {
        let context = &container.security_context;
        offenders.container(container, check(context, container.security_context(field)));
    }
    offenders.violation("hostProcess", |who| {
        format!("{who} must not set securityContext.windowsOptions.hostProcess=true")
    })
}
