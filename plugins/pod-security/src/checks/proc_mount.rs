//! Mounts of /proc without the masks that hide parts of the node's /proc.

use std::collections::BTreeSet;

use crate::pod::Pod;
use crate::text::quoted;
use crate::violation::{Offenders, Violation, forbidden};

pub(super) fn check(pod: &Pod) -> Option<Violation> {
    let mut offenders = Offenders::default();
    let mut kinds = BTreeSet::new();
    for container in &pod.containers {
        let kind = container.security_context.proc_mount.as_deref();
        if let Some(kind) = kind.filter(|kind| *kind != "Default") {
            kinds.insert(kind);
            let field = container.security_context("procMount");
            offenders.container(container, [forbidden(field, "must be Default or absent")]);
        }
    }
    offenders.violation("procMount", |who| {
        format!(
            "{who} must not set securityContext.procMount to {}",
            quoted(kinds)
        )
    })
}
