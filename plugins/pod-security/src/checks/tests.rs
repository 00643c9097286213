//! Tests every check at the versions before and after each of its changes.

use std::ops::Range;

use serde_json::{Value as Json, json};
use tollgate_sdk::testing::TestReview;

use crate::PodSecurity;

const BOTH: &[&str] = &["baseline", "restricted"];
const BASELINE: &[&str] = &["baseline"];
const RESTRICTED: &[&str] = &["restricted"];
const ALWAYS: Range<u8> = 0..38;
const NEVER: Range<u8> = 0..0;

/// A Pod that meets every level in every version.
fn good() -> Json {
    let context = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "annotations": {}},
        "spec": {
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "initContainers": [{"name": "init", "securityContext": context}],
            "containers": [{"name": "app", "securityContext": context}],
            "ephemeralContainers": [{"name": "debug", "securityContext": context}],
        }
    })
}

/// Sets a member of an existing value.
fn set(pod: &mut Json, pointer: &str, value: &Json) {
    let (parent, member) = pointer.rsplit_once('/').unwrap();
    let member = member.replace("~1", "/");
    pod.pointer_mut(parent)
        .unwrap_or_else(|| panic!("there is no {parent}"))
        .as_object_mut()
        .unwrap()
        .insert(member, value.clone());
}

/// Asserts the minor versions in which a Pod with these changes is denied, and the only field in that denial.
#[track_caller]
fn refused(levels: &[&str], changes: &[(&str, Json)], versions: Range<u8>, field: &str) {
    let mut pod = good();
    for (pointer, value) in changes {
        set(&mut pod, pointer, value);
    }
    for level in levels {
        for minor in ALWAYS {
            let outcome = TestReview::create(pod.clone())
                .settings(json!({"level": level, "version": format!("v1.{minor}")}))
                .validate::<PodSecurity>();
            let expected: &[&str] = if versions.contains(&minor) {
                &[field]
            } else {
                &[]
            };
            assert_eq!(
                outcome.fields(),
                expected,
                "{level} v1.{minor} of {changes:?}: {:?}",
                outcome.answer()
            );
        }
    }
}

const APP: &str = "/spec/containers/0/securityContext";

/// The place of a field in each kind of container.
fn in_each_container(field: &str) -> [String; 3] {
    ["initContainers", "containers", "ephemeralContainers"]
        .map(|list| format!("/spec/{list}/0/securityContext/{field}"))
}

fn windows() -> (&'static str, Json) {
    ("/spec/os", json!({"name": "windows"}))
}

fn in_user_namespace() -> (&'static str, Json) {
    ("/spec/hostUsers", json!(false))
}

#[test]
fn a_hardened_pod_meets_every_level_in_every_version() {
    refused(&["privileged", "baseline", "restricted"], &[], NEVER, "");
    refused(BOTH, &[windows()], NEVER, "");
    refused(BOTH, &[in_user_namespace()], NEVER, "");
}

#[test]
fn the_privileged_level_lets_everything_pass() {
    let changes = [
        ("/spec/hostNetwork", json!(true)),
        ("/spec/securityContext", json!({"runAsUser": 0})),
        (
            "/spec/volumes",
            json!([{"name": "v", "hostPath": {"path": "/"}}]),
        ),
    ];
    refused(&["privileged"], &changes, NEVER, "");
}

#[test]
fn privileged_containers() {
    for field in in_each_container("privileged") {
        refused(BOTH, &[(&field, json!(true))], ALWAYS, &field);
        refused(BOTH, &[(&field, json!(false))], NEVER, &field);
        refused(BOTH, &[(&field, Json::Null)], NEVER, &field);
    }
}

#[test]
fn host_namespaces() {
    for field in ["/spec/hostNetwork", "/spec/hostPID", "/spec/hostIPC"] {
        refused(BOTH, &[(field, json!(true))], ALWAYS, field);
        refused(BOTH, &[(field, json!(false))], NEVER, field);
    }
}

#[test]
fn host_ports() {
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let ports = format!("/spec/{list}/0/ports");
        let value = json!([{"containerPort": 80}, {"containerPort": 81, "hostPort": 81}]);
        let field = format!("{ports}/1/hostPort");
        refused(BOTH, &[(&ports, value)], ALWAYS, &field);
        let value = json!([{"containerPort": 80, "hostPort": 0}]);
        refused(BOTH, &[(&ports, value)], NEVER, "");
    }
}

#[test]
fn host_path_volumes() {
    let volumes = json!([{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/"}}]);
    let field = "/spec/volumes/1/hostPath";
    refused(BOTH, &[("/spec/volumes", volumes)], ALWAYS, field);
    let absent = json!([{"name": "a", "hostPath": null, "emptyDir": {}}]);
    refused(BOTH, &[("/spec/volumes", absent)], NEVER, field);
}

#[test]
fn restricted_volumes() {
    for kind in super::volumes::RESTRICTED.into_iter().skip(1) {
        let volumes = [("/spec/volumes", json!([{"name": "a", kind: {}}]))];
        refused(BASELINE, &volumes, NEVER, "");
        let field = format!("/spec/volumes/0/{kind}");
        refused(RESTRICTED, &volumes, ALWAYS, &field);
    }
    for kind in super::volumes::ALLOWED {
        let volumes = json!([{"name": "a", kind: {}}]);
        refused(BOTH, &[("/spec/volumes", volumes)], NEVER, "");
    }
}

#[test]
fn a_volume_made_of_nothing_is_an_empty_dir_and_one_of_the_future_is_not() {
    let nothing = json!([{"name": "a"}, {"name": "b", "nfs": null}]);
    refused(BOTH, &[("/spec/volumes", nothing)], NEVER, "");
    let volumes = [("/spec/volumes", json!([{"name": "a", "ofTheFuture": {}}]))];
    refused(BASELINE, &volumes, NEVER, "");
    refused(RESTRICTED, &volumes, ALWAYS, "/spec/volumes/0");
}

#[test]
fn hosts_of_probes_and_lifecycle_handlers_since_34() {
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for action in ["httpGet", "tcpSocket"] {
            for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
                let at = format!("/spec/{list}/0/{probe}");
                let field = format!("{at}/{action}/host");
                let value = |host| json!({action: {"host": host, "port": 80}});
                refused(BOTH, &[(&at, value("10.0.0.1"))], 34..38, &field);
                refused(BOTH, &[(&at, value(""))], NEVER, "");
            }
            for handler in ["postStart", "preStop"] {
                let at = format!("/spec/{list}/0/lifecycle");
                let field = format!("{at}/{handler}/{action}/host");
                let value = json!({handler: {action: {"host": "10.0.0.1", "port": 80}}});
                refused(BOTH, &[(&at, value)], 34..38, &field);
            }
        }
    }
    let elsewhere = json!([{"name": "host", "value": "10.0.0.1"}]);
    refused(BOTH, &[("/spec/containers/0/env", elsewhere)], NEVER, "");
}

#[test]
fn proc_mounts_may_be_unmasked_in_a_user_namespace_since_35_at_the_baseline() {
    for field in in_each_container("procMount") {
        let unmasked = (field.as_str(), json!("Unmasked"));
        refused(BOTH, std::slice::from_ref(&unmasked), ALWAYS, &field);
        let relaxed = [unmasked, in_user_namespace()];
        refused(BASELINE, &relaxed, 0..35, &field);
        refused(RESTRICTED, &relaxed, ALWAYS, &field);
        refused(BOTH, &[(&field, json!("Default"))], NEVER, "");
    }
}

#[test]
fn se_linux_options() {
    let pods = "/spec/securityContext/seLinuxOptions".to_owned();
    let places = in_each_container("seLinuxOptions")
        .into_iter()
        .chain([pods]);
    for place in places {
        for (member, value, versions) in [
            ("type", "spc_t", ALWAYS),
            ("type", "container_engine_t", 0..31),
            ("type", "container_t", NEVER),
            ("type", "container_init_t", NEVER),
            ("type", "container_kvm_t", NEVER),
            ("type", "", NEVER),
            ("user", "system_u", ALWAYS),
            ("user", "", NEVER),
            ("role", "system_r", ALWAYS),
            ("role", "", NEVER),
            ("level", "s0:c1", NEVER),
        ] {
            let field = format!("{place}/{member}");
            refused(BOTH, &[(&place, json!({member: value}))], versions, &field);
        }
    }
}

#[test]
fn seccomp_profiles_are_annotations_before_19() {
    for key in [
        "seccomp.security.alpha.kubernetes.io~1pod",
        "container.seccomp.security.alpha.kubernetes.io~1app",
    ] {
        let field = format!("/metadata/annotations/{key}");
        for (value, versions) in [
            ("unconfined", 0..19),
            ("", 0..19),
            ("runtime/default", NEVER),
            ("docker/default", NEVER),
            ("localhost/profile.json", NEVER),
        ] {
            refused(BOTH, &[(&field, json!(value))], versions, &field);
        }
    }
    let other = "/metadata/annotations/container.seccomp.security.alpha.kubernetes.io~1other";
    refused(BOTH, &[(other, json!("unconfined"))], NEVER, "");
}

#[test]
fn seccomp_profiles_are_fields_since_19() {
    for place in in_each_container("seccompProfile") {
        let field = format!("{place}/type");
        for (value, versions) in [
            (json!({"type": "Unconfined"}), 19..38),
            (json!({}), 19..38),
            (json!({"type": "Localhost", "localhostProfile": "a"}), NEVER),
        ] {
            refused(
                BASELINE,
                &[(&place, value.clone())],
                versions.clone(),
                &field,
            );
            refused(RESTRICTED, &[(&place, value)], versions, &field);
        }
    }
}

#[test]
fn a_seccomp_profile_is_demanded_since_19_and_of_windows_no_more_since_25() {
    let unset = [
        ("/spec/securityContext/seccompProfile", Json::Null),
        ("/spec/initContainers", json!([])),
        ("/spec/ephemeralContainers", json!([])),
    ];
    let field = "/spec/containers/0/securityContext/seccompProfile/type";
    refused(BASELINE, &unset, NEVER, "");
    refused(RESTRICTED, &unset, 19..38, field);
    let on_windows = [&unset[..], &[windows()]].concat();
    refused(RESTRICTED, &on_windows, 19..25, field);
    let own = format!("{APP}/seccompProfile");
    let set = [&unset[..], &[(&*own, json!({"type": "RuntimeDefault"}))]].concat();
    refused(RESTRICTED, &set, NEVER, "");
}

#[test]
fn sysctls_become_safe_over_time() {
    let at = "/spec/securityContext/sysctls";
    for (name, versions) in [
        ("kernel.msgmax", ALWAYS),
        ("kernel.shm_rmid_forced", NEVER),
        ("net.ipv4.ip_local_port_range", NEVER),
        ("net.ipv4.tcp_syncookies", NEVER),
        ("net.ipv4.ping_group_range", NEVER),
        ("net.ipv4.ip_unprivileged_port_start", NEVER),
        ("net.ipv4.ip_local_reserved_ports", 0..27),
        ("net.ipv4.tcp_keepalive_time", 0..29),
        ("net.ipv4.tcp_fin_timeout", 0..29),
        ("net.ipv4.tcp_keepalive_intvl", 0..29),
        ("net.ipv4.tcp_keepalive_probes", 0..29),
        ("net.ipv4.tcp_rmem", 0..32),
        ("net.ipv4.tcp_wmem", 0..32),
        ("net.ipv4.tcp_slow_start_after_idle", 0..37),
        ("net.ipv4.tcp_notsent_lowat", 0..37),
    ] {
        let sysctls = json!([{"name": name, "value": "1"}]);
        let field = format!("{at}/0/name");
        refused(BOTH, &[(at, sysctls)], versions, &field);
    }
}

#[test]
fn windows_host_processes() {
    let pods = "/spec/securityContext/windowsOptions".to_owned();
    let places = in_each_container("windowsOptions")
        .into_iter()
        .chain([pods]);
    for place in places {
        let field = format!("{place}/hostProcess");
        refused(
            BOTH,
            &[(&place, json!({"hostProcess": true}))],
            ALWAYS,
            &field,
        );
        refused(BOTH, &[(&place, json!({"hostProcess": false}))], NEVER, "");
    }
}

#[test]
fn app_armor_profiles() {
    let pods = "/spec/securityContext/appArmorProfile".to_owned();
    let places = in_each_container("appArmorProfile")
        .into_iter()
        .chain([pods]);
    for place in places {
        let field = format!("{place}/type");
        refused(
            BOTH,
            &[(&place, json!({"type": "Unconfined"}))],
            ALWAYS,
            &field,
        );
        refused(BOTH, &[(&place, json!({}))], ALWAYS, &field);
        refused(BOTH, &[(&place, json!({"type": "Localhost"}))], NEVER, "");
    }
    // The check does not depend on the existence of this container.
    let field = "/metadata/annotations/container.apparmor.security.beta.kubernetes.io~1other";
    for (value, versions) in [
        ("unconfined", ALWAYS),
        ("", NEVER),
        ("runtime/default", NEVER),
        ("localhost/profile", NEVER),
    ] {
        refused(BOTH, &[(field, json!(value))], versions, field);
    }
}

#[test]
fn capabilities_of_the_default_set_may_be_added_at_the_baseline() {
    for place in in_each_container("capabilities") {
        let adding = |name: &str| json!({"add": [name], "drop": ["ALL"]});
        let field = format!("{place}/add/0");
        refused(BOTH, &[(&place, adding("NET_RAW"))], ALWAYS, &field);
        refused(BOTH, &[(&place, adding("chown"))], ALWAYS, &field);
        refused(BASELINE, &[(&place, adding("CHOWN"))], NEVER, "");
        refused(RESTRICTED, &[(&place, adding("CHOWN"))], 22..38, &field);
        refused(BOTH, &[(&place, adding("NET_BIND_SERVICE"))], NEVER, "");
        let on_windows = [(place.as_str(), adding("CHOWN")), windows()];
        refused(RESTRICTED, &on_windows, 22..25, &field);
    }
}

#[test]
fn on_windows_any_capability_may_be_added_in_restricted_since_25() {
    // Restricted replaces the baseline check with one that exempts Windows.
    let field = format!("{APP}/capabilities/add/0");
    let place = format!("{APP}/capabilities");
    let adding = [
        (place.as_str(), json!({"add": ["NET_RAW"], "drop": ["ALL"]})),
        windows(),
    ];
    refused(BASELINE, &adding, ALWAYS, &field);
    refused(RESTRICTED, &adding, 0..25, &field);
}

#[test]
fn all_capabilities_are_dropped_in_restricted_since_22() {
    for place in in_each_container("capabilities") {
        let field = format!("{place}/drop");
        for value in [Json::Null, json!({}), json!({"drop": ["NET_RAW"]})] {
            let changes = [(place.as_str(), value)];
            refused(BASELINE, &changes, NEVER, "");
            refused(RESTRICTED, &changes, 22..38, &field);
            let on_windows = [&changes[..], &[windows()]].concat();
            refused(RESTRICTED, &on_windows, 22..25, &field);
        }
    }
}

#[test]
fn privilege_escalation_is_ruled_out_in_restricted_since_8() {
    for field in in_each_container("allowPrivilegeEscalation") {
        for value in [Json::Null, json!(true)] {
            let changes = [(field.as_str(), value)];
            refused(BASELINE, &changes, NEVER, "");
            refused(RESTRICTED, &changes, 8..38, &field);
            let on_windows = [&changes[..], &[windows()]].concat();
            refused(RESTRICTED, &on_windows, 8..25, &field);
        }
    }
}

#[test]
fn root_is_ruled_out_in_restricted_but_in_a_user_namespace_since_35() {
    for field in in_each_container("runAsNonRoot") {
        let changes = [(field.as_str(), json!(false))];
        refused(BASELINE, &changes, NEVER, "");
        refused(RESTRICTED, &changes, ALWAYS, &field);
        let relaxed = [&changes[..], &[in_user_namespace()]].concat();
        refused(RESTRICTED, &relaxed, 0..35, &field);
    }
    let unset = [
        ("/spec/securityContext/runAsNonRoot", Json::Null),
        ("/spec/initContainers", json!([])),
        ("/spec/ephemeralContainers", json!([])),
    ];
    let field = format!("{APP}/runAsNonRoot");
    refused(RESTRICTED, &unset, ALWAYS, &field);
    let set = [&unset[..], &[(&*field, json!(true))]].concat();
    refused(RESTRICTED, &set, NEVER, "");
}

#[test]
fn user_0_is_ruled_out_in_restricted_since_23_but_in_a_user_namespace_since_35() {
    let pods = "/spec/securityContext/runAsUser".to_owned();
    for field in in_each_container("runAsUser").into_iter().chain([pods]) {
        let changes = [(field.as_str(), json!(0))];
        refused(BASELINE, &changes, NEVER, "");
        refused(RESTRICTED, &changes, 23..38, &field);
        let relaxed = [&changes[..], &[in_user_namespace()]].concat();
        refused(RESTRICTED, &relaxed, 23..35, &field);
        refused(RESTRICTED, &[(&field, json!(1000))], NEVER, "");
    }
}
