//! Hosts that the kubelet connects to. The kubelet is in the node's network, and may reach hosts that a Pod may not.

use std::collections::BTreeSet;

use crate::pod::Pod;
use crate::text::{plural, quoted};
use crate::violation::{Violation, forbidden};

pub(super) fn check(pod: &Pod) -> Option<Violation> {
    let hosts = pod.hosts();
    if hosts.is_empty() {
        return None;
    }
    // In this message, containers are sorted, and containers with equal names are merged.
    let containers: BTreeSet<_> = hosts.iter().map(|host| &*host.container.name).collect();
    let names: BTreeSet<_> = hosts.iter().map(|host| &*host.name).collect();
    let detail = format!(
        "{} {} {} {} {}",
        plural("container", "containers", containers.len()),
        quoted(containers.iter().copied()),
        plural("uses", "use", containers.len()),
        plural(
            "probe or lifecycle host",
            "probe or lifecycle hosts",
            names.len()
        ),
        quoted(names),
    );
    Some(Violation {
        reason: "probe or lifecycle host",
        detail,
        causes: hosts
            .into_iter()
            .map(|host| forbidden(host.at, "must be empty or absent"))
            .collect(),
    })
}
