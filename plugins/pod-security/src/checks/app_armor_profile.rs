//! AppArmor profiles that replace the default, in fields and in the older annotations.

use std::collections::BTreeSet;

use crate::pod::{APP_ARMOR, Annotation, Pod, Profile};
use crate::text::{literal, plural, quoted};
use crate::violation::{Offenders, Violation, forbidden};

const FIELD: &str = "appArmorProfile/type";
const ALLOWED: &str = "must be RuntimeDefault or Localhost, or absent";

pub(super) fn check(pod: &Pod) -> Option<Violation> {
    let mut offenders = Offenders::default();
    let mut kinds = BTreeSet::new();
    let mut is_bad_profile = |profile: &Option<Profile>| {
        let kind = profile.as_ref().map(Profile::kind);
        let kind = kind.filter(|kind| !matches!(*kind, "RuntimeDefault" | "Localhost"));
        kinds.extend(kind.map(str::to_owned));
        kind.is_some()
    };
    let is_bad = is_bad_profile(&pod.security_context.app_armor_profile);
    offenders.pod(is_bad.then(|| forbidden(pod.security_context(FIELD), ALLOWED)));
    for container in &pod.containers {
        let is_bad = is_bad_profile(&container.security_context.app_armor_profile);
        let cause = is_bad.then(|| forbidden(container.security_context(FIELD), ALLOWED));
        offenders.container(container, cause);
    }

    let bad: Vec<_> = pod
        .annotations
        .iter()
        .filter(|one| is_bad_annotation(one))
        .collect();
    let pairs: BTreeSet<_> = bad
        .iter()
        .map(|annotation| format!("{}={}", annotation.key, literal(&annotation.value)))
        .collect();
    let annotations = plural("annotation", "annotations", pairs.len());
    let who = match (offenders.is_empty(), pairs.is_empty()) {
        (true, true) => return None,
        (false, true) => offenders.to_string(),
        (true, false) => annotations.to_owned(),
        (false, false) => format!("{offenders} and {annotations}"),
    };
    let mut causes = offenders.into_causes();
    causes.extend(bad.iter().map(|annotation| {
        let field = pod.annotation(&annotation.key);
        forbidden(field, "must be runtime/default, localhost/… or absent")
    }));
    let count = kinds.len() + pairs.len();
    Some(Violation {
        reason: plural(
            "forbidden AppArmor profile",
            "forbidden AppArmor profiles",
            count,
        ),
        detail: format!(
            "{who} must not set AppArmor profile type to {}",
            quoted(kinds.into_iter().chain(pairs))
        ),
        causes,
    })
}

fn is_bad_annotation(annotation: &Annotation) -> bool {
    let value = annotation.value.as_str();
    annotation.key.starts_with(APP_ARMOR)
        && !matches!(value, "" | "runtime/default")
        && !value.starts_with("localhost/")
}
