//! The resource that an empty policy is for.

use std::str::FromStr;

use tollgate_config::kubernetes::{check_rules, kind_of};
use tollgate_config::{ManifestRule, Match};

/// A resource of an API, such as `apps/v1/deployments`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    /// The API group. It is empty for the core group.
    pub(crate) group: String,
    /// The version, such as `v1`.
    pub(crate) version: String,
    /// The plural name, such as `deployments`.
    pub(crate) name: String,
    /// The kind, such as `Deployment`.
    pub(crate) kind: String,
    /// Whether the kind is guessed from the name, because Kubernetes does not have the resource.
    pub(crate) is_guessed: bool,
}

const EXPECTED: &str = "expected GROUP/VERSION/RESOURCE such as apps/v1/deployments, or VERSION/RESOURCE for the core group, \
     such as v1/pods";

// === impl Resource ===

impl Resource {
    /// Returns the `apiVersion` of its objects.
    pub(crate) fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }
}

impl Default for Resource {
    fn default() -> Self {
        Self {
            group: String::new(),
            version: "v1".to_owned(),
            name: "pods".to_owned(),
            kind: "Pod".to_owned(),
            is_guessed: false,
        }
    }
}

impl FromStr for Resource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let (group, version, name) = match parts[..] {
            [version, name] => ("", version, name),
            [group, version, name] if !group.is_empty() => (group, version, name),
            _ => return Err(EXPECTED.to_owned()),
        };
        let is_word = |text: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
        };
        if !is_version(version) || !is_word(name) {
            return Err(EXPECTED.to_owned());
        }
        check(group, version, name)?;
        let known = kind_of(group, name);
        Ok(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            name: name.to_owned(),
            kind: known.map_or_else(|| guess(name), ToOwned::to_owned),
            is_guessed: known.is_none(),
        })
    }
}

/// Whether a text is a version of an API as Kubernetes writes them: `v1`, `v2beta1`.
fn is_version(text: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(rest) = text.strip_prefix('v') else {
        return false;
    };
    let stage = ["alpha", "beta"]
        .into_iter()
        .find_map(|stage| rest.split_once(stage));
    match stage {
        Some((major, minor)) => is_number(major) && is_number(minor),
        None => is_number(rest),
    }
}

/// Checks that a rule with the resource can match a request.
fn check(group: &str, version: &str, name: &str) -> Result<(), String> {
    let one = |text: &str| vec![text.to_owned()];
    let rule = ManifestRule {
        operations: one("CREATE"),
        api_groups: one(group),
        api_versions: one(version),
        resources: one(name),
        scope: None,
    };
    let rules = Match::from_manifest_rules(&[rule]).map_err(|problems| {
        let problems: Vec<&str> = problems
            .iter()
            .map(|problem| problem.message.as_str())
            .collect();
        problems.join("; ")
    })?;
    let mut findings = check_rules(&rules, true).into_iter();
    match findings.find(|finding| finding.is_certain) {
        Some(finding) => Err(finding.text),
        None => Ok(()),
    }
}

/// Returns the kind that Kubernetes' rule for plurals leads back to.
fn guess(name: &str) -> String {
    let singular = match (name.strip_suffix("ies"), name.strip_suffix("sses")) {
        (Some(stem), _) => format!("{stem}y"),
        (None, Some(stem)) => format!("{stem}ss"),
        (None, None) => name.strip_suffix('s').unwrap_or(name).to_owned(),
    };
    let mut characters = singular.chars();
    let first = characters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(characters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Resource {
        text.parse().unwrap()
    }

    #[test]
    fn reads_resources_of_kubernetes_with_their_kind() {
        for (text, api_version, name, kind) in [
            (
                "apps/v1/deployments",
                "apps/v1",
                "deployments",
                "Deployment",
            ),
            ("v1/pods", "v1", "pods", "Pod"),
            (
                "networking.k8s.io/v1/ingresses",
                "networking.k8s.io/v1",
                "ingresses",
                "Ingress",
            ),
        ] {
            let resource = read(text);
            assert_eq!(resource.api_version(), api_version);
            assert_eq!(
                (resource.name.as_str(), resource.kind.as_str()),
                (name, kind)
            );
            assert!(!resource.is_guessed);
        }
        assert_eq!(read("v1/pods"), Resource::default());
    }

    #[test]
    fn guesses_kinds_of_other_resources() {
        for (text, kind) in [
            ("example.com/v1/widgets", "Widget"),
            ("example.com/v1alpha1/policies", "Policy"),
            ("example.com/v1/accesses", "Access"),
        ] {
            let resource = read(text);
            assert_eq!(resource.kind, kind);
            assert!(resource.is_guessed);
        }
    }

    #[test]
    fn rejects_resources_that_do_not_exist() {
        for text in [
            "pods",
            "",
            "/v1/pods",
            "v1/",
            "apps/v1/deployments/scale",
            "v1/po ds",
            "apps/v1",
            "apps/1/deployments",
            "example.com/v1gamma1/widgets",
        ] {
            let error = text.parse::<Resource>().unwrap_err();
            assert!(error.contains("apps/v1/deployments"), "{text}: {error}");
        }
        let error = "apps/v1/deployment".parse::<Resource>().unwrap_err();
        assert!(error.contains("deployments"), "{error}");
        let error = "v1/deployments".parse::<Resource>().unwrap_err();
        assert!(error.contains("apps"), "{error}");
    }
}
