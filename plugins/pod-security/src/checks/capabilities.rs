//! Linux capabilities: baseline allows those that a runtime grants anyway, and restricted allows almost none.

use std::collections::BTreeSet;

use crate::pod::Pod;
use crate::text::quoted;
use crate::violation::{Offenders, Violation, forbidden, required};

/// The capabilities that a container has unless it drops them.
const DEFAULT: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
const RESTRICTED: [&str; 1] = ["NET_BIND_SERVICE"];

/// The containers that add capabilities, and these capabilities.
#[derive(Default)]
struct Additions<'p> {
    offenders: Offenders<'p>,
    capabilities: BTreeSet<&'p str>,
}

pub(super) fn baseline(pod: &Pod) -> Option<Violation> {
    let Additions {
        offenders,
        capabilities,
    } = Additions::beyond(&DEFAULT, pod);
    offenders.violation("non-default capabilities", |who| adds(who, capabilities))
}

pub(super) fn restricted(pod: &Pod) -> Option<Violation> {
    let mut keeping = Offenders::default();
    for container in &pod.containers {
        if !container.security_context.drops_capability("ALL") {
            let field = container.security_context("capabilities/drop");
            keeping.container(container, [required(field, "must contain ALL")]);
        }
    }
    let adding = Additions::beyond(&RESTRICTED, pod);
    let mut details = Vec::new();
    if !keeping.is_empty() {
        details.push(format!(
            "{keeping} must set securityContext.capabilities.drop=[\"ALL\"]"
        ));
    }
    if !adding.offenders.is_empty() {
        details.push(adds(&adding.offenders, adding.capabilities));
    }
    if details.is_empty() {
        return None;
    }
    let mut causes = keeping.into_causes();
    causes.extend(adding.offenders.into_causes());
    Some(Violation {
        reason: "unrestricted capabilities",
        detail: details.join("; "),
        causes,
    })
}

fn adds(who: &Offenders, capabilities: BTreeSet<&str>) -> String {
    format!(
        "{who} must not include {} in securityContext.capabilities.add",
        quoted(capabilities)
    )
}

// === impl Additions ===

impl<'p> Additions<'p> {
    fn beyond(allowed: &[&str], pod: &'p Pod) -> Self {
        let mut additions = Self::default();
        for container in &pod.containers {
            let added = container.security_context.added_capabilities().iter();
            let bad = added
                .enumerate()
                .filter(|(_, capability)| !allowed.contains(&capability.as_str()));
            let causes: Vec<_> = bad
                .map(|(index, capability)| {
                    additions.capabilities.insert(capability);
                    let field = container.security_context("capabilities/add").child(index);
                    forbidden(field, "must not be added")
                })
                .collect();
            additions.offenders.container(container, causes);
        }
        additions
    }
}
