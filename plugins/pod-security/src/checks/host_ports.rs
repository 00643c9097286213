//! Ports of the node.

use std::collections::BTreeSet;

use crate::pod::Pod;
use crate::text::plural;
use crate::violation::{Offenders, Violation, forbidden};

pub(super) fn check(pod: &Pod) -> Option<Violation> {
    let mut offenders = Offenders::default();
    // Texts, because they are sorted as texts.
    let mut ports = BTreeSet::new();
    for container in &pod.containers {
        let causes: Vec<_> = container
            .host_ports
            .iter()
            .map(|(index, port)| {
                ports.insert(port.to_string());
                forbidden(container.host_port(*index), "must be 0 or absent")
            })
            .collect();
        offenders.container(container, causes);
    }
    offenders.violation("hostPort", |who| {
        format!(
            "{who} {} {} {}",
            plural("uses", "use", who.count()),
            plural("hostPort", "hostPorts", ports.len()),
            ports.into_iter().collect::<Vec<_>>().join(", ")
        )
    })
}
