//! Denies requests in namespaces that do not exist, like the admission plugin NamespaceExists of kube-apiserver.
//!
//! The plugin asks for the Namespace of the object. The host looks in its cache, and asks kube-apiserver about a
//! namespace that is not there. If there is none, the host ends the call as the fault `namespace-unavailable`, because
//! the contract has no Namespace that is absent. So `failurePolicy` decides, and under `Fail` the request is denied.

use tollgate_sdk::prelude::*;

/// The policy, which has no settings.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceExists {}

// === impl NamespaceExists ===

impl Policy for NamespaceExists {
    type Settings = Self;

    fn configure(settings: Self) -> Result<Self, SettingsErrors> {
        Ok(settings)
    }
}

impl Validate for NamespaceExists {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        let kind = review.kind();
        if kind.group.is_empty() && kind.kind == "Namespace" {
            return Ok(());
        }
        let namespace = review.request_document().text("/namespace");
        let Some(namespace) = namespace.filter(|name| !name.is_empty()) else {
            return Ok(());
        };
        // Without a Namespace of this name, the call ends here.
        if review.namespace().exists() {
            return Ok(());
        }
        Err(Denial::new(format!("namespaces \"{namespace}\" not found"))
            .code(404)
            .reason("NotFound"))
    }
}

tollgate_sdk::validator! {
    NamespaceExists,
    rules: [Rule::on(
        [Operation::Create, Operation::Update, Operation::Delete], "*", "*", ["*/*"],
    ).scope("Namespaced")],
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};
    use tollgate_sdk::testing::{TestReview, manifest};

    use super::*;

    /// The Pod of kube-apiserver's own test.
    fn pod() -> Json {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "123", "namespace": "test"},
            "spec": {"volumes": [{"name": "vol"}], "containers": [{"name": "ctr", "image": "image"}]}})
    }

    /// `TestAdmissionNamespaceExists` in plugin/pkg/admission/namespace/exists/admission_test.go of Kubernetes.
    #[test]
    fn allows_a_pod_in_a_namespace_that_exists() {
        let namespace = json!({"metadata": {"name": "test"}});
        for review in [
            TestReview::create(pod()),
            TestReview::update(pod(), pod()),
            TestReview::update(pod(), pod()).sub_resource("status"),
            TestReview::delete(pod()),
        ] {
            let review = review.namespace_object(namespace.clone());
            assert!(review.validate::<NamespaceExists>().is_allowed());
        }
    }

    /// `TestAdmissionNamespaceDoesNotExist` in the same file. The test review ends the call like the host.
    #[test]
    #[should_panic(expected = "namespace_object")]
    fn ends_the_call_in_a_namespace_that_does_not_exist() {
        drop(TestReview::create(pod()).validate::<NamespaceExists>());
    }

    #[test]
    fn allows_namespaces_and_cluster_scoped_objects() {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}});
        for review in [
            TestReview::create(namespace.clone()).namespace("new"),
            TestReview::delete(namespace.clone()).namespace("new"),
            TestReview::update(namespace.clone(), namespace)
                .namespace("new")
                .sub_resource("finalize"),
            TestReview::create(node),
        ] {
            assert!(review.validate::<NamespaceExists>().is_allowed());
        }
    }

    #[test]
    fn settings_schema_is_json() {
        let schema: Json =
            serde_json::from_str(&manifest::<NamespaceExists>().settings_schema.unwrap()).unwrap();
        assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
    }
}
