//! The namespaces of the node.

use crate::pod::Pod;
use crate::violation::{Violation, forbidden};

pub(super) fn check(pod: &Pod) -> Option<Violation> {
    let shared: Vec<_> = [
        ("hostNetwork", pod.host_network),
        ("hostPID", pod.host_pid),
        ("hostIPC", pod.host_ipc),
    ]
    .into_iter()
    .filter_map(|(field, is_shared)| is_shared.then_some(field))
    .collect();
    if shared.is_empty() {
        return None;
    }
    let details: Vec<_> = shared.iter().map(|field| format!("{field}=true")).collect();
    Some(Violation {
        reason: "host namespaces",
        detail: details.join(", "),
        causes: shared
            .into_iter()
            .map(|field| forbidden(pod.spec(field), "must not be true"))
            .collect(),
    })
}
