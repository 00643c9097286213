//! Maps a kind to its resource and scope, without a cluster.

use std::collections::HashMap;

use tollgate_json::document::Json;

use super::resource_of;

/// The properties of a resource that a review needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceOfKind {
    /// The plural name, such as `pods`.
    pub plural: String,
    /// Whether the resource's objects are in namespaces.
    pub namespaced: bool,
    /// The source of this information.
    pub known: Known,
}

/// The source of information about a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The resource is built into Kubernetes.
    BuiltIn,
    /// A CustomResourceDefinition among the documents defines the resource, or kube-apiserver serves it.
    Defined,
    /// The resource is guessed from the kind's name.
    Guessed,
}

/// The known kinds.
#[derive(Debug, Default)]
pub struct Kinds {
    defined: HashMap<(String, String), ResourceOfKind>,
}

/// The only ending of a kind that is already plural.
const ENDPOINTS: &str = "endpoints";

// === impl Kinds ===

impl Kinds {
    /// Records the kind that a CustomResourceDefinition defines. Other documents are ignored.
    pub fn learn(&mut self, document: &Json) {
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
        self.define(group, kind, plural, text("scope") != Some("Cluster"));
    }

    /// Records a kind that kube-apiserver serves.
    pub fn define(&mut self, group: &str, kind: &str, plural: &str, namespaced: bool) {
        let resource = ResourceOfKind {
            plural: plural.to_owned(),
            namespaced,
            known: Known::Defined,
        };
        self.defined
            .insert((group.to_owned(), kind.to_owned()), resource);
    }

    /// Returns the resource of a kind. An unknown resource is assumed to be in namespaces.
    pub fn resource(&self, group: &str, kind: &str) -> ResourceOfKind {
        if let Some(resource) = self.defined.get(&(group.to_owned(), kind.to_owned())) {
            return resource.clone();
        }
        match resource_of(group, kind) {
            Some(built_in) => ResourceOfKind {
                plural: built_in.name.to_owned(),
                namespaced: built_in.namespaced,
                known: Known::BuiltIn,
            },
            None => ResourceOfKind {
                plural: plural(kind),
                namespaced: true,
                known: Known::Guessed,
            },
        }
    }
}

/// Forms the plural by the rule that Kubernetes used for its own kinds.
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
    fn knows_plural_and_scope_of_built_in_kinds() {
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
            let expected = ResourceOfKind {
                plural: plural.to_owned(),
                namespaced,
                known: Known::BuiltIn,
            };
            assert_eq!(Kinds::default().resource(group, kind), expected);
        }
    }

    #[test]
    fn guesses_resource_of_unknown_kind() {
        let resource = Kinds::default().resource("serving.knative.dev", "Service");
        assert_eq!(resource.known, Known::Guessed);
        assert_eq!(
            (resource.plural.as_str(), resource.namespaced),
            ("services", true)
        );
    }

    #[test]
    fn uses_custom_resource_definition_among_documents() {
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
