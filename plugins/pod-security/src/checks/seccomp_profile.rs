//! Seccomp profiles. Baseline forbids turning seccomp off. Restricted also forbids leaving the choice to the node. Up
//! to 1.18, profiles were annotations.

use std::collections::BTreeSet;

use crate::pod::{Annotation, Pod, Profile, SECCOMP_CONTAINER, SECCOMP_POD};
use crate::text::{literal, plural, quoted};
use crate::violation::{Offenders, Violation, forbidden, required};

const REASON: &str = "seccompProfile";
const FIELD: &str = "seccompProfile/type";
const FORBIDDEN: &str = "must be RuntimeDefault or Localhost";
const REQUIRED: &str = "must be RuntimeDefault or Localhost, here or for the Pod";

/// The containers and annotations that turn seccomp off.
#[derive(Default)]
struct Unconfined<'p> {
    offenders: Offenders<'p>,
    kinds: BTreeSet<&'p str>,
}

/// The form before 1.19, with annotations.
pub(super) fn annotations(pod: &Pod) -> Option<Violation> {
    let is_of_container = |annotation: &Annotation| {
        let name = annotation.key.strip_prefix(SECCOMP_CONTAINER);
        name.is_some_and(|name| pod.containers.iter().any(|one| one.name == name))
    };
    let bad: Vec<_> = pod
        .annotations
        .iter()
        .filter(|one| one.key == SECCOMP_POD || is_of_container(one))
        .filter(|one| {
            !matches!(one.value.as_str(), "runtime/default" | "docker/default")
                && !one.value.starts_with("localhost/")
        })
        .collect();
    if bad.is_empty() {
        return None;
    }
    let pairs: BTreeSet<_> = bad
        .iter()
        .map(|annotation| format!("{}={}", annotation.key, literal(&annotation.value)))
        .collect();
    Some(Violation {
        reason: REASON,
        detail: format!(
            "forbidden {} {}",
            plural("annotation", "annotations", pairs.len()),
            pairs.into_iter().collect::<Vec<_>>().join(", ")
        ),
        causes: bad
            .into_iter()
            .map(|annotation| {
                let field = pod.annotation(&annotation.key);
                forbidden(field, "must be runtime/default, localhost/… or absent")
            })
            .collect(),
    })
}

pub(super) fn baseline(pod: &Pod) -> Option<Violation> {
    Unconfined::of(pod).violation()
}

pub(super) fn restricted(pod: &Pod) -> Option<Violation> {
    let mut implicit = Offenders::default();
    let is_set = |profile: &Option<Profile>| profile.as_ref().is_some_and(is_allowed);
    if !is_set(&pod.security_context.seccomp_profile) {
        for container in &pod.containers {
            if container.security_context.seccomp_profile.is_none() {
                let field = container.security_context(FIELD);
                implicit.container(container, [required(field, REQUIRED)]);
            }
        }
    }
    Unconfined::of(pod).violation().or_else(|| {
        implicit.violation(REASON, |who| {
            format!(
                "pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""
            )
        })
    })
}

fn is_allowed(profile: &Profile) -> bool {
    matches!(profile.kind(), "Localhost" | "RuntimeDefault")
}

// === impl Unconfined ===

impl<'p> Unconfined<'p> {
    fn of(pod: &'p Pod) -> Self {
        let mut kinds = BTreeSet::new();
        let mut is_bad_profile = |profile: &'p Option<Profile>| {
            let bad = profile.as_ref().filter(|profile| !is_allowed(profile));
            kinds.extend(bad.map(Profile::kind));
            bad.is_some()
        };
        let mut offenders = Offenders::default();
        let is_bad = is_bad_profile(&pod.security_context.seccomp_profile);
        offenders.pod(is_bad.then(|| forbidden(pod.security_context(FIELD), FORBIDDEN)));
        for container in &pod.containers {
            let is_bad = is_bad_profile(&container.security_context.seccomp_profile);
            let cause = is_bad.then(|| forbidden(container.security_context(FIELD), FORBIDDEN));
            offenders.container(container, cause);
        }
        Self { offenders, kinds }
    }

    fn violation(self) -> Option<Violation> {
        self.offenders.violation(REASON, |who| {
            format!(
                "{who} must not set securityContext.seccompProfile.type to {}",
                quoted(self.kinds)
            )
        })
    }
}
