//! From a kind to its resource and scope, without a cluster to ask.

use std::collections::HashMap;

use crate::document::Json;
use crate::kubernetes::resource_of;

/// A resource as far as a review needs to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    /// In the plural, such as `pods`.
    pub(super) plural: String,
    /// Whether its objects are in namespaces.
    pub(super) namespaced: bool,
    /// How it is known.
    pub(super) known: Known,
}

/// How a resource is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It is one of Kubernetes' own.
    BuiltIn,
    /// A CustomResourceDefinition among the documents says so.
    Defined,
    /// From the kind's name.
    Guessed,
}

/// The kinds that are known.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    defined: HashMap<(String, String), Resource>,
}

/// The one kind that is a plural already.
const ENDPOINTS: &str = "endpoints";

// === impl Kinds ===

impl Kinds {
    /// Takes note of a CustomResourceDefinition; other documents tell nothing of kinds.
    pub(super) fn learn(&mut self, document: &Json) {
        if document.member("kind").and_then(Json::as_text) != Some("CustomResourceDefinition") {
            return;
        }
        let Some(spec) = document.member("spec") else {
            return;
        };
        let names = spec.member("names");
        let name = |member: &str| names?.member(member)?.as_text();
        let text = |member: &str| spec.member(member).and_then(Json::as_text);
        let (Some(group), Some(kind), Some(plural)) = (text("group"), name("kind"), name("plural"))
        else {
            return;
        };
        let resource = Resource {
            plural: plural.to_owned(),
            namespaced: text("scope") != Some("Cluster"),
            known: Known::Defined,
        };
        self.defined
            .insert((group.to_owned(), kind.to_owned()), resource);
    }

    /// The resource of a kind. One that is not known is taken to be in namespaces.
    pub(super) fn resource(&self, group: &str, kind: &str) -> Resource {
        if let Some(resource) = self.defined.get(&(group.to_owned(), kind.to_owned())) {
            return resource.clone();
        }
        match resource_of(group, kind) {
            Some(built_in) => Resource {
                plural: built_in.name.to_owned(),
                namespaced: built_in.namespaced,
                known: Known::BuiltIn,
            },
            None => Resource {
                plural: plural(kind),
                namespaced: true,
                known: Known::Guessed,
            },
        }
    }
}

/// The rule by which Kubernetes' own kinds got their resources.
fn plural(kind: &str) -> String {
    let singular = kind.to_lowercase();
    if singular.ends_with(ENDPOINTS) {
        return singular;
    }
    match singular.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if singular.ends_with('s') => format!("{singular}es"),
        None => format!("{singular}s"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn built_in_kinds_have_their_plural_and_scope() {
        for (group, kind, plural, namespaced) in [
            ("", "Pod", "pods", true),
            ("", "Endpoints", "endpoints", true),
            ("", "Namespace", "namespaces", false),
            ("", "ComponentStatus", "componentstatuses", false),
            ("networking.k8s.io", "Ingress", "ingresses", true),
            (
                "networking.k8s.io",
                "NetworkPolicy",
                "networkpolicies",
                true,
            ),
            ("networking.k8s.io", "IngressClass", "ingressclasses", false),
            (
                "storage.k8s.io",
                "CSIStorageCapacity",
                "csistoragecapacities",
                true,
            ),
            (
                "rbac.authorization.k8s.io",
                "ClusterRole",
                "clusterroles",
                false,
            ),
        ] {
            let expected = Resource {
                plural: plural.to_owned(),
                namespaced,
                known: Known::BuiltIn,
            };
            assert_eq!(Kinds::default().resource(group, kind), expected);
        }
    }

    #[test]
    fn a_kind_of_another_group_is_guessed() {
        let resource = Kinds::default().resource("serving.knative.dev", "Service");
        assert_eq!(resource.known, Known::Guessed);
        assert_eq!(
            (resource.plural.as_str(), resource.namespaced),
            ("services", true)
        );
    }

    #[test]
    fn a_definition_among_the_documents_is_believed() {
        let mut kinds = Kinds::default();
        kinds.learn(&Json::from(json!({
            "kind": "CustomResourceDefinition",
            "spec": {"group": "example.com", "scope": "Cluster", "names": {"kind": "Mouse", "plural": "mice"}},
        })));
        let resource = kinds.resource("example.com", "Mouse");
        assert_eq!(resource.known, Known::Defined);
        assert_eq!(
            (resource.plural.as_str(), resource.namespaced),
            ("mice", false)
        );
    }
}
