//! SELinux: custom users and roles, and types other than those for containers.

use std::collections::BTreeSet;

use tollgate_sdk::prelude::*;

use crate::pod::{Pod, SeLinuxOptions};
use crate::text::{plural, quoted};
use crate::violation::{Offenders, Violation, forbidden};

const TYPES_SINCE_0: [&str; 4] = ["", "container_t", "container_init_t", "container_kvm_t"];
const TYPES_SINCE_31: [&str; 5] = [
    "",
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
];

/// The problems of the options in all places.
#[derive(Default)]
struct Wrong<'p> {
    types: BTreeSet<&'p str>,
    has_user: bool,
    has_role: bool,
}

pub(super) fn since_0(pod: &Pod) -> Option<Violation> {
    check(pod, &TYPES_SINCE_0)
}

pub(super) fn since_31(pod: &Pod) -> Option<Violation> {
    check(pod, &TYPES_SINCE_31)
}

fn check(pod: &Pod, allowed: &[&str]) -> Option<Violation> {
    let mut offenders = Offenders::default();
    let mut wrong = Wrong::default();
    let at = "seLinuxOptions";
    if let Some(options) = &pod.security_context.se_linux_options {
        offenders.pod(wrong.check(options, allowed, &pod.security_context(at)));
    }
    for container in &pod.containers {
        if let Some(options) = &container.security_context.se_linux_options {
            let at = container.security_context(at);
            offenders.container(container, wrong.check(options, allowed, &at));
        }
    }
    offenders.violation("seLinuxOptions", |who| {
        format!(
            "{who} set forbidden securityContext.seLinuxOptions: {}",
            wrong.words()
        )
    })
}

// === impl Wrong ===

impl<'p> Wrong<'p> {
    fn check(&mut self, options: &'p SeLinuxOptions, allowed: &[&str], at: &Pointer) -> Vec<Cause> {
        let mut causes = Vec::new();
        if !allowed.contains(&options.kind()) {
            self.types.insert(options.kind());
            let message = "must be one of the types for containers, or absent";
            causes.push(forbidden(at.child("type"), message));
        }
        if !options.user().is_empty() {
            self.has_user = true;
            causes.push(forbidden(at.child("user"), "must be empty or absent"));
        }
        if !options.role().is_empty() {
            self.has_role = true;
            causes.push(forbidden(at.child("role"), "must be empty or absent"));
        }
        causes
    }

    fn words(self) -> String {
        let mut words = Vec::new();
        if !self.types.is_empty() {
            let word = plural("type", "types", self.types.len());
            words.push(format!("{word} {}", quoted(self.types)));
        }
        if self.has_user {
            words.push("user may not be set".to_owned());
        }
        if self.has_role {
            words.push("role may not be set".to_owned());
        }
        words.join("; ")
    }
}
