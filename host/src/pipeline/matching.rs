//! Whether a plugin is called for a request.
//!
//! Rules decide exactly as kube-apiserver's do for a webhook, so that a plugin's rule means what the same
//! rule means in a webhook configuration. Nothing is allocated: every plugin is asked about every request.

use crate::config::{Match, Rule, Scope};
use crate::review::request::AdmissionRequest;

// === impl Match ===

impl Match {
    /// The index of the first rule that the request matches; none when the plugin is not for it.
    ///
    /// Namespaces are compared by name. A Namespace object counts as being in itself, as it does for a
    /// namespaceSelector. Any other cluster-scoped object is in no namespace, and neither `namespaces` nor
    /// `excludeNamespaces` ever keeps a plugin from it, again as a namespaceSelector: use `scope` for that.
    #[must_use]
    pub fn matches(&self, request: &AdmissionRequest) -> Option<usize> {
        if !self.covers_namespace(request) {
            return None;
        }
        self.rules.iter().position(|rule| rule.matches(request))
    }

    /// The index of the first rule that the request matches, whatever else the plugin is kept from.
    pub(crate) fn matching_rule(&self, request: &AdmissionRequest) -> Option<usize> {
        self.rules.iter().position(|rule| rule.matches(request))
    }

    fn covers_namespace(&self, request: &AdmissionRequest) -> bool {
        if self.namespaces.is_empty() && self.exclude_namespaces.is_empty() {
            return true;
        }
        let name = match namespace(request) {
            Some(name) => name,
            // With generateName a Namespace has no name yet: it is neither an included one nor an excluded one.
            None if is_about_namespaces(request) => request.name.as_str(),
            None => return true,
        };
        let contains = |list: &[Box<str>]| list.iter().any(|one| **one == *name);
        (self.namespaces.is_empty() || contains(&self.namespaces))
            && !contains(&self.exclude_namespaces)
    }
}

// === impl Rule ===

impl Rule {
    fn matches(&self, request: &AdmissionRequest) -> bool {
        self.matches_scope(request)
            && self.operations.contains(request.operation)
            && self
                .api_groups
                .iter()
                .any(|group| group.matches(&request.resource.group))
            && self
                .api_versions
                .iter()
                .any(|version| version.matches(&request.resource.version))
            && self.matches_resource(request)
    }

    fn matches_scope(&self, request: &AdmissionRequest) -> bool {
        // kube-apiserver gives a Namespace object its own name for a namespace, yet it is cluster-scoped.
        let namespaced = || {
            let is_namespace = is_about_namespaces(request) && request.resource.version == "v1";
            !is_namespace && namespace(request).is_some()
        };
        match self.scope {
            Scope::All => true,
            Scope::Cluster => !namespaced(),
            Scope::Namespaced => namespaced(),
        }
    }

    fn matches_resource(&self, request: &AdmissionRequest) -> bool {
        let resource = request.resource.resource.as_str();
        let sub_resource = request.sub_resource.as_deref().unwrap_or_default();
        let mut patterns = self.resources.iter();
        patterns.any(|pattern| {
            pattern.resource.matches(resource) && pattern.sub_resource.matches(sub_resource)
        })
    }
}

/// An empty namespace is none.
fn namespace(request: &AdmissionRequest) -> Option<&str> {
    request.namespace.as_deref().filter(|name| !name.is_empty())
}

fn is_about_namespaces(request: &AdmissionRequest) -> bool {
    request.resource.group.is_empty() && request.resource.resource == "namespaces"
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Config, ManifestRule};
    use crate::document::Json;
    use crate::review::request::{GroupVersionKind, GroupVersionResource, Operation};

    /// A request about `g/v r` named `name` in the namespace `ns`.
    fn request(group: &str, version: &str, resource: &str) -> AdmissionRequest {
        let (resource, sub_resource) = match resource.split_once('/') {
            Some((resource, sub_resource)) => (resource, Some(sub_resource.to_owned())),
            None => (resource, None),
        };
        AdmissionRequest {
            uid: "uid".to_owned(),
            operation: Operation::Create,
            kind: GroupVersionKind::default(),
            resource: GroupVersionResource {
                group: group.to_owned(),
                version: version.to_owned(),
                resource: resource.to_owned(),
            },
            sub_resource,
            name: "name".to_owned(),
            namespace: Some("ns".to_owned()),
            dry_run: false,
            object: None,
            old_object: None,
            options: None,
            document: Json::Null,
        }
    }

    fn in_namespace(namespace: Option<&str>, request: AdmissionRequest) -> AdmissionRequest {
        AdmissionRequest {
            namespace: namespace.map(str::to_owned),
            ..request
        }
    }

    fn rule(
        operations: &[&str],
        groups: &[&str],
        versions: &[&str],
        resources: &[&str],
    ) -> ManifestRule {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        ManifestRule {
            operations: texts(operations),
            api_groups: texts(groups),
            api_versions: texts(versions),
            resources: texts(resources),
            scope: None,
        }
    }

    fn one_rule(rule: ManifestRule) -> Match {
        Match::from_manifest_rules(&[rule]).unwrap()
    }

    /// The `match` of a configuration file for everything, with these namespaces.
    fn everything_in(namespaces: &str) -> Match {
        let rule = "{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*']}";
        let plugin =
            format!("{{name: a, source: 'file:a', match: {{rules: [{rule}], {namespaces}}}}}");
        let config = Config::parse(&format!("plugins: [{plugin}]"), Path::new(".")).unwrap();
        config.plugins[0].matching.clone().unwrap()
    }

    #[test]
    fn compares_groups() {
        let any = one_rule(rule(&["*"], &["*"], &["*"], &["*"]));
        assert_eq!(any.matches(&request("g", "v", "r")), Some(0));
        let exact = one_rule(rule(&["*"], &["g1", "g2"], &["*"], &["*"]));
        assert_eq!(exact.matches(&request("g1", "v", "r")), Some(0));
        assert_eq!(exact.matches(&request("g2", "v2", "r3")), Some(0));
        assert_eq!(exact.matches(&request("g3", "v", "r")), None);
        assert_eq!(exact.matches(&request("", "v", "r")), None);
        let core = one_rule(rule(&["*"], &[""], &["*"], &["*"]));
        assert_eq!(core.matches(&request("", "v1", "pods")), Some(0));
        assert_eq!(core.matches(&request("apps", "v1", "deployments")), None);
    }

    #[test]
    fn compares_versions() {
        let exact = one_rule(rule(&["*"], &["*"], &["v1", "v2"], &["*"]));
        assert_eq!(exact.matches(&request("g1", "v1", "r")), Some(0));
        assert_eq!(exact.matches(&request("g2", "v2", "r")), Some(0));
        assert_eq!(exact.matches(&request("g1", "v3", "r")), None);
        assert_eq!(exact.matches(&request("g1", "v", "r")), None);
    }

    #[test]
    fn compares_operations() {
        use Operation::{Connect, Create, Delete, Update};
        for (operations, matching) in [
            (vec!["*"], vec![Create, Update, Delete, Connect]),
            (vec!["CREATE"], vec![Create]),
            (vec!["UPDATE"], vec![Update]),
            (vec!["DELETE"], vec![Delete]),
            (vec!["CONNECT"], vec![Connect]),
            (vec!["UPDATE", "DELETE"], vec![Update, Delete]),
        ] {
            let matcher = one_rule(rule(&operations, &["*"], &["*"], &["*"]));
            for operation in [Create, Update, Delete, Connect] {
                let request = AdmissionRequest {
                    operation,
                    ..request("g", "v", "r")
                };
                let expected = matching.contains(&operation);
                assert_eq!(
                    matcher.matches(&request).is_some(),
                    expected,
                    "{operations:?} {operation}"
                );
            }
        }
    }

    #[test]
    fn compares_resources_and_subresources() {
        for (resources, matching, others) in [
            (vec!["*"], vec!["r", "r2"], vec!["r/exec", "r2/proxy"]),
            (vec!["r"], vec!["r"], vec!["r2", "r/exec", "s"]),
            (vec!["r/*"], vec!["r", "r/exec"], vec!["r2", "r2/proxy"]),
            (
                vec!["r/*", "r2"],
                vec!["r", "r/exec", "r2"],
                vec!["r2/proxy"],
            ),
            (
                vec!["*/proxy", "*/exec"],
                vec!["r/exec", "r2/proxy", "r3/proxy"],
                vec!["r", "r2", "r4/scale"],
            ),
            (vec!["r/log"], vec!["r/log"], vec!["r", "r/exec", "r2/log"]),
            (vec!["*/*"], vec!["r", "r2", "r/exec", "r2/proxy"], vec![]),
            (vec!["*", "*/scale"], vec!["r", "r/scale"], vec!["r/exec"]),
        ] {
            let matcher = one_rule(rule(&["*"], &["*"], &["*"], &resources));
            for resource in matching {
                assert!(
                    matcher.matches(&request("g", "v", resource)).is_some(),
                    "{resources:?} {resource}"
                );
            }
            for resource in others {
                assert!(
                    matcher.matches(&request("g", "v", resource)).is_none(),
                    "{resources:?} {resource}"
                );
            }
        }
    }

    #[test]
    fn an_empty_subresource_is_the_resource_itself() {
        let matcher = one_rule(rule(&["*"], &["*"], &["*"], &["pods"]));
        let request = AdmissionRequest {
            sub_resource: Some(String::new()),
            ..request("", "v1", "pods")
        };
        assert_eq!(matcher.matches(&request), Some(0));
    }

    #[test]
    fn compares_scopes_and_takes_namespace_objects_for_cluster_scoped() {
        let cluster_scoped = [
            in_namespace(None, request("g", "v", "r")),
            in_namespace(Some(""), request("g", "v", "r/exec")),
            in_namespace(None, request("", "v1", "namespaces")),
            in_namespace(None, request("", "v1", "namespaces/finalize")),
            request("", "v1", "namespaces"),
            request("", "v1", "namespaces/finalize"),
        ];
        let namespaced = [
            request("g", "v", "r"),
            request("g", "v", "r/exec"),
            request("g", "v1", "namespaces"),
            request("", "v2", "namespaces"),
        ];
        let scoped = |scope: Option<&str>| {
            let scope = scope.map(str::to_owned);
            one_rule(ManifestRule {
                scope,
                ..rule(&["*"], &["*"], &["*"], &["*/*"])
            })
        };
        for request in &cluster_scoped {
            assert!(
                scoped(Some("Cluster")).matches(request).is_some(),
                "{request:?}"
            );
            assert!(
                scoped(Some("Namespaced")).matches(request).is_none(),
                "{request:?}"
            );
        }
        for request in &namespaced {
            assert!(
                scoped(Some("Cluster")).matches(request).is_none(),
                "{request:?}"
            );
            assert!(
                scoped(Some("Namespaced")).matches(request).is_some(),
                "{request:?}"
            );
        }
        for request in cluster_scoped.iter().chain(&namespaced) {
            assert!(scoped(Some("*")).matches(request).is_some(), "{request:?}");
            assert!(scoped(None).matches(request).is_some(), "{request:?}");
        }
    }

    #[test]
    fn says_which_rule_matched() {
        let rules = [
            rule(&["CREATE"], &[""], &["v1"], &["pods"]),
            rule(&["*"], &["*"], &["*"], &["*"]),
        ];
        let matcher = Match::from_manifest_rules(&rules).unwrap();
        assert_eq!(matcher.matches(&request("", "v1", "pods")), Some(0));
        assert_eq!(matcher.matches(&request("", "v1", "services")), Some(1));
        assert_eq!(matcher.matches(&request("", "v1", "pods/exec")), None);
    }

    #[test]
    fn includes_and_excludes_namespaces_by_name() {
        let pod = |namespace| in_namespace(namespace, request("", "v1", "pods"));
        let included = everything_in("namespaces: [shop, bank]");
        let excluded = everything_in("excludeNamespaces: [kube-system]");
        assert!(included.matches(&pod(Some("bank"))).is_some());
        assert!(included.matches(&pod(Some("ban"))).is_none());
        assert!(excluded.matches(&pod(Some("bank"))).is_some());
        assert!(excluded.matches(&pod(Some("kube-system"))).is_none());
    }

    #[test]
    fn never_excludes_cluster_scoped_objects_by_namespace() {
        for matcher in [
            everything_in("namespaces: [shop]"),
            everything_in("excludeNamespaces: [name]"),
        ] {
            for namespace in [None, Some("")] {
                let node = in_namespace(namespace, request("", "v1", "nodes"));
                assert!(matcher.matches(&node).is_some());
            }
        }
    }

    #[test]
    fn takes_a_namespace_object_to_be_in_itself() {
        let namespace = |namespace: Option<&str>, name: &str| AdmissionRequest {
            name: name.to_owned(),
            ..in_namespace(namespace, request("", "v1", "namespaces"))
        };
        let included = everything_in("namespaces: [shop]");
        let excluded = everything_in("excludeNamespaces: [kube-system]");
        for (request, included_expected, excluded_expected) in [
            (namespace(Some("shop"), "shop"), true, true),
            (namespace(None, "shop"), true, true),
            (namespace(Some("kube-system"), "kube-system"), false, false),
            (namespace(None, "kube-system"), false, false),
            (namespace(None, ""), false, true),
        ] {
            assert_eq!(
                included.matches(&request).is_some(),
                included_expected,
                "{request:?}"
            );
            assert_eq!(
                excluded.matches(&request).is_some(),
                excluded_expected,
                "{request:?}"
            );
        }
    }
}
