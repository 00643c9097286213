//! The checks, and the versions in which each of their forms applies.
//!
//! The table is that of `k8s.io/pod-security-admission/policy` v0.37.2 (Apache-2.0). Its order is the order in the
//! messages: baseline before restricted, and then by the bytes of the name.

mod allow_privilege_escalation;
mod app_armor_profile;
mod capabilities;
mod host_namespaces;
mod host_ports;
mod host_probes_and_host_lifecycle;
mod privileged;
mod proc_mount;
mod run_as_non_root;
mod run_as_user;
mod se_linux_options;
mod seccomp_profile;
mod sysctls;
mod volumes;
mod windows_host_process;

use crate::pod::Pod;
use crate::settings::{Level, Standard};
use crate::violation::Violation;

/// Checks a Pod. None if the Pod passes.
pub(crate) type CheckFn = fn(&Pod) -> Option<Violation>;

/// A check with all of its revisions.
struct Check {
    name: &'static str,
    level: Level,
    /// The minor versions of Kubernetes in which the check changed, in ascending order.
    revisions: &'static [(u8, CheckFn)],
    /// The check of the level below that this check replaces.
    replaces: Option<&'static str>,
}

const CHECKS: [Check; 19] = [
    Check::baseline("appArmorProfile", &[(0, app_armor_profile::check)]),
    Check::baseline("capabilities_baseline", &[(0, capabilities::baseline)]),
    Check::baseline("hostNamespaces", &[(0, host_namespaces::check)]),
    Check::baseline("hostPathVolumes", &[(0, volumes::host_path)]),
    Check::baseline("hostPorts", &[(0, host_ports::check)]),
    Check::baseline(
        "hostProbesAndHostLifecycle",
        &[(34, host_probes_and_host_lifecycle::check)],
    ),
    Check::baseline("privileged", &[(0, privileged::check)]),
    Check::baseline(
        "procMount",
        &[
            (0, proc_mount::check),
            (35, |pod| unless_in_user_namespace(pod, proc_mount::check)),
        ],
    ),
    Check::baseline(
        "seLinuxOptions",
        &[
            (0, se_linux_options::since_0),
            (31, se_linux_options::since_31),
        ],
    ),
    Check::baseline(
        "seccompProfile_baseline",
        &[
            (0, seccomp_profile::annotations),
            (19, seccomp_profile::baseline),
        ],
    ),
    Check::baseline(
        "sysctls",
        &[
            (0, sysctls::since_0),
            (27, sysctls::since_27),
            (29, sysctls::since_29),
            (32, sysctls::since_32),
            (37, sysctls::since_37),
        ],
    ),
    Check::baseline("windowsHostProcess", &[(0, windows_host_process::check)]),
    Check::restricted(
        "allowPrivilegeEscalation",
        &[
            (8, allow_privilege_escalation::check),
            (25, |pod| {
                unless_windows(pod, allow_privilege_escalation::check)
            }),
        ],
    ),
    Check::restricted(
        "capabilities_restricted",
        &[
            (22, capabilities::restricted),
            (25, |pod| unless_windows(pod, capabilities::restricted)),
        ],
    )
    .in_place_of("capabilities_baseline"),
    Check::restricted("procMount_restricted", &[(35, proc_mount::check)]).in_place_of("procMount"),
    Check::restricted("restrictedVolumes", &[(0, volumes::restricted)])
        .in_place_of("hostPathVolumes"),
    Check::restricted(
        "runAsNonRoot",
        &[
            (0, run_as_non_root::check),
            (35, |pod| {
                unless_in_user_namespace(pod, run_as_non_root::check)
            }),
        ],
    ),
    Check::restricted(
        "runAsUser",
        &[
            (23, run_as_user::check),
            (35, |pod| unless_in_user_namespace(pod, run_as_user::check)),
        ],
    ),
    Check::restricted(
        "seccompProfile_restricted",
        &[
            (19, seccomp_profile::restricted),
            (25, |pod| unless_windows(pod, seccomp_profile::restricted)),
        ],
    )
    .in_place_of("seccompProfile_baseline"),
];

/// Returns the checks of a standard, each in the form of its version.
pub(crate) fn of(standard: &Standard) -> Vec<CheckFn> {
    let applicable: Vec<_> = CHECKS
        .iter()
        .filter(|check| check.level <= standard.level)
        .filter_map(|check| Some((check, check.at(standard.minor())?)))
        .collect();
    let replaced: Vec<_> = applicable
        .iter()
        .filter_map(|(check, _)| check.replaces)
        .collect();
    applicable
        .iter()
        .filter(|(check, _)| !replaced.contains(&check.name))
        .map(|(_, check)| *check)
        .collect()
}

/// Skips the check for Pods in a user namespace, where root has no rights on the node.
fn unless_in_user_namespace(pod: &Pod, check: CheckFn) -> Option<Violation> {
    if pod.has_host_users { check(pod) } else { None }
}

/// Skips the check for Windows, because Kubernetes does not accept these fields in a Pod for Windows.
fn unless_windows(pod: &Pod, check: CheckFn) -> Option<Violation> {
    if pod.is_windows { None } else { check(pod) }
}

// === impl Check ===

impl Check {
    const fn baseline(name: &'static str, revisions: &'static [(u8, CheckFn)]) -> Self {
        Self {
            name,
            level: Level::Baseline,
            revisions,
            replaces: None,
        }
    }

    const fn restricted(name: &'static str, revisions: &'static [(u8, CheckFn)]) -> Self {
        Self {
            name,
            level: Level::Restricted,
            revisions,
            replaces: None,
        }
    }

    const fn in_place_of(mut self, name: &'static str) -> Self {
        self.replaces = Some(name);
        self
    }

    /// Returns the form of the check in a version. None before its first version.
    fn at(&self, minor: u8) -> Option<CheckFn> {
        let revisions = self.revisions.iter();
        let applicable = revisions.take_while(|(since, _)| *since <= minor);
        applicable.last().map(|(_, check)| *check)
    }
}

#[cfg(test)]
mod tests;
