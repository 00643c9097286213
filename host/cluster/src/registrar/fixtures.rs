//! Plugins and announcements for tests.

use std::time::Duration;

use tollgate_config::{
    ExistingViolations, FailurePolicy, ManifestRule, Match, Mode, ReinvocationPolicy, Rule,
};

use crate::lease::{Announced, Announcement};
use crate::plugin::Plugin;

/// A rule for creations and updates in a group. `resources` are separated by spaces.
pub(super) fn rule(group: &str, resources: &str) -> ManifestRule {
    let texts = |text: &str| text.split(' ').map(str::to_owned).collect();
    ManifestRule {
        operations: texts("CREATE UPDATE"),
        api_groups: vec![group.to_owned()],
        api_versions: texts("v1"),
        resources: texts(resources),
        scope: None,
    }
}

/// The requests of a plugin with these rules.
pub(super) fn matching(rules: &[ManifestRule]) -> Match {
    match Match::from_manifest_rules(rules) {
        Ok(matching) => matching,
        Err(problems) => panic!("{problems}"),
    }
}

/// A validating plugin in mode `enforce`.
pub(super) fn plugin(name: &str, matching: Match) -> Plugin {
    Plugin {
        name: name.to_owned(),
        digest: "sha256:0".to_owned(),
        mutates: false,
        validates: true,
        matching,
        mode: Mode::Enforce,
        failure_policy: FailurePolicy::Fail,
        reinvocation_policy: ReinvocationPolicy::Never,
        existing_violations: ExistingViolations::Deny,
        timeout: Duration::from_millis(500),
    }
}

/// The announcement of a ready replica that serves these plugins.
pub(super) fn serving<'a>(plugins: impl IntoIterator<Item = &'a Plugin>) -> Announcement {
    let announced = |plugin: &Plugin| {
        let announced = Announced {
            digest: None,
            rules: plugin.rules_digest(),
        };
        (plugin.name.clone(), announced)
    };
    Announcement {
        ready: true,
        plugins: plugins.into_iter().map(announced).collect(),
        canary: None,
    }
}

/// Whether a rule matches creations of a resource.
pub(super) fn matches(rule: &Rule, (group, resource): (&str, &str)) -> bool {
    let (name, sub) = resource.split_once('/').unwrap_or((resource, ""));
    rule.api_groups.iter().any(|pattern| pattern.matches(group))
        && rule
            .resources
            .iter()
            .any(|pattern| pattern.resource.matches(name) && pattern.sub_resource.matches(sub))
}
