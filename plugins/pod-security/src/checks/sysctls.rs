//! Sysctls with effects beyond the Pod.

use crate::pod::Pod;
use crate::violation::{Violation, forbidden};

/// The safe sysctls, each with the minor version of Kubernetes that made it safe.
const SAFE: [(&str, u8); 14] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
    ("net.ipv4.tcp_notsent_lowat", 37),
    ("net.ipv4.tcp_slow_start_after_idle", 37),
];

pub(super) fn since_0(pod: &Pod) -> Option<Violation> {
    check(pod, 0)
}

pub(super) fn since_27(pod: &Pod) -> Option<Violation> {
    check(pod, 27)
}

pub(super) fn since_29(pod: &Pod) -> Option<Violation> {
    check(pod, 29)
}

pub(super) fn since_32(pod: &Pod) -> Option<Violation> {
    check(pod, 32)
}

pub(super) fn since_37(pod: &Pod) -> Option<Violation> {
    check(pod, 37)
}

fn check(pod: &Pod, minor: u8) -> Option<Violation> {
    let is_safe = |name: &str| {
        let safe = SAFE.iter().find(|(safe, _)| *safe == name);
        safe.is_some_and(|(_, since)| *since <= minor)
    };
    let bad: Vec<_> = pod
        .security_context
        .sysctls()
        .iter()
        .enumerate()
        .filter(|(_, sysctl)| !is_safe(sysctl.name()))
        .collect();
    if bad.is_empty() {
        return None;
    }
    let names: Vec<_> = bad.iter().map(|(_, sysctl)| sysctl.name()).collect();
    Some(Violation {
        reason: "forbidden sysctls",
        detail: names.join(", "),
        causes: bad
            .iter()
            .map(|(index, _)| {
                let field = pod.security_context("sysctls").child(index).child("name");
                forbidden(field, "must be one of the safe sysctls")
            })
            .collect(),
    })
}
