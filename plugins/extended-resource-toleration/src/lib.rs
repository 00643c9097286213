//! Adds a toleration to Pods for each extended resource that they request, like the admission plugin
//! ExtendedResourceToleration of kube-apiserver.
//!
//! A cluster taints nodes with special hardware by the name of the resource, such as `example.com/device`. Only the
//! Pods that request the resource then run there.

use std::collections::BTreeSet;

use serde_json::json;
use tollgate_sdk::prelude::*;

const REQUESTS: [&str; 2] = [
    "/spec/containers/*/resources/requests",
    "/spec/initContainers/*/resources/requests",
];

/// The policy, which has no settings.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtendedResourceToleration {}

// === impl ExtendedResourceToleration ===

impl Policy for ExtendedResourceToleration {
    type Settings = Self;

    fn configure(settings: Self) -> Result<Self, SettingsErrors> {
        Ok(settings)
    }
}

impl Mutate for ExtendedResourceToleration {
    fn mutate(&self, review: &Review) -> Result<Mutation, Denial> {
        let pod = review.object();
        if review.sub_resource().is_some() {
            return Ok(Mutation::Unchanged);
        }
        let resources: BTreeSet<String> = REQUESTS
            .iter()
            .flat_map(|place| pod.select(place))
            .flat_map(|node| pod.keys(node.pointer).unwrap_or_default())
            .filter(|name| is_extended(name))
            .collect();
        let patch = resources
            .iter()
            .filter(|resource| !is_tolerated(pod, resource))
            .fold(Patch::new(), |patch, resource| {
                let toleration =
                    json!({"key": resource, "operator": "Exists", "effect": "NoSchedule"});
                patch.append(pod, "/spec/tolerations", toleration)
            });
        Ok(patch.into())
    }
}

/// Whether a resource is neither one of Kubernetes' own nor the name of a quota.
fn is_extended(name: &str) -> bool {
    name.contains('/')
        && !name.contains("kubernetes.io/")
        && !name.starts_with("requests.")
        && format!("requests.{name}").parse::<QualifiedName>().is_ok()
}

/// Whether the Pod has exactly the toleration that the plugin would add.
fn is_tolerated(pod: Document, resource: &str) -> bool {
    pod.select("/spec/tolerations/*").iter().any(|toleration| {
        let text = |member: &str| {
            pod.text(format!("{}/{member}", toleration.pointer))
                .unwrap_or_default()
        };
        text("key") == resource
            && text("operator") == "Exists"
            && text("effect") == "NoSchedule"
            && text("value").is_empty()
    })
}

tollgate_sdk::mutator! {
    ExtendedResourceToleration,
    rules: [Rule::on([Operation::Create, Operation::Update], "", "v1", ["pods"])],
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;
    use tollgate_sdk::testing::{TestReview, manifest};

    use super::*;

    const ONE: &str = "example.com/device-ek";
    const TWO: &str = "example.com/device-do";

    /// A container for each list of requests.
    fn containers(all: &[&str]) -> Json {
        let container = |resource: &&str| json!({"resources": {"requests": {*resource: "1"}}});
        all.iter().map(container).collect()
    }

    fn added(resource: &str) -> Json {
        json!({"key": resource, "operator": "Exists", "effect": "NoSchedule"})
    }

    /// The table of kube-apiserver's own test.
    #[test]
    fn answers_like_kube_apiserver() {
        let foo =
            json!({"key": "foo", "operator": "Equal", "value": "bar", "effect": "NoSchedule"});
        let other = json!({"key": ONE, "operator": "Equal", "value": "foo", "effect": "NoExecute"});
        let wildcard = json!({"operator": "Exists"});
        for (name, of_containers, of_init_containers, before, after) in [
            ("empty pod", &[][..], &[][..], json!([]), json!([])),
            ("container without", &["cpu"], &[], json!([]), json!([])),
            (
                "init container without",
                &[],
                &["memory"],
                json!([]),
                json!([]),
            ),
            (
                "container with",
                &[ONE],
                &[],
                json!([]),
                json!([added(ONE)]),
            ),
            (
                "init container with",
                &[],
                &[TWO],
                json!([]),
                json!([added(TWO)]),
            ),
            (
                "existing tolerations are preserved",
                &["cpu", ONE],
                &[],
                json!([foo]),
                json!([foo, added(ONE)]),
            ),
            (
                "multiple, sorted by the key",
                &["memory", ONE],
                &["cpu", TWO],
                json!([]),
                json!([added(TWO), added(ONE)]),
            ),
            (
                "existing correct toleration",
                &["cpu", "memory", ONE],
                &[],
                json!([added(ONE)]),
                json!([added(ONE)]),
            ),
            (
                "same key but different effect and value",
                &["cpu", "memory", ONE],
                &[],
                json!([other]),
                json!([other, added(ONE)]),
            ),
            (
                "wildcard toleration",
                &["cpu", "memory", ONE],
                &[],
                json!([wildcard]),
                json!([wildcard, added(ONE)]),
            ),
        ] {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"},
                "spec": {
                    "containers": containers(of_containers),
                    "initContainers": containers(of_init_containers),
                    "tolerations": before,
                },
            });
            let outcome = TestReview::create(pod).mutate::<ExtendedResourceToleration>();
            assert_eq!(outcome.object()["spec"]["tolerations"], after, "{name}");
            let again = TestReview::create(outcome.object().clone());
            assert!(!again.mutate::<ExtendedResourceToleration>().is_changed());
        }
    }

    #[test]
    fn list_of_tolerations_is_made() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers(&[ONE, TWO])}});
        let outcome = TestReview::create(pod.clone()).mutate::<ExtendedResourceToleration>();
        assert_eq!(
            outcome.object()["spec"]["tolerations"],
            json!([added(TWO), added(ONE)])
        );
        let status = TestReview::update(pod.clone(), pod).sub_resource("status");
        assert!(!status.mutate::<ExtendedResourceToleration>().is_changed());
    }

    #[test]
    fn only_names_of_extended_resources_count() {
        for (name, is) in [
            ("example.com/gpu", true),
            ("cpu", false),
            ("hugepages-2Mi", false),
            ("kubernetes.io/batch", false),
            ("pods.kubernetes.io/a", false),
            ("requests.example.com/gpu", false),
            ("example.com/a b", false),
            ("a/b/c", false),
        ] {
            assert_eq!(is_extended(name), is, "{name}");
        }
    }

    #[test]
    fn settings_schema_is_json() {
        let schema: Json = serde_json::from_str(
            &manifest::<ExtendedResourceToleration>()
                .settings_schema
                .unwrap(),
        )
        .unwrap();
        assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
    }
}
