//! Limits required anti-affinity of Pods to the topology of single nodes, like the admission plugin
//! LimitPodHardAntiAffinityTopology of kube-apiserver.

use tollgate_sdk::prelude::*;

const HOSTNAME: &str = "kubernetes.io/hostname";
const TERMS: &str =
    "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/*";

/// The policy, which has no settings.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitPodHardAntiAffinityTopology {}

// === impl LimitPodHardAntiAffinityTopology ===

impl Policy for LimitPodHardAntiAffinityTopology {
    type Settings = Self;

    fn configure(settings: Self) -> Result<Self, SettingsErrors> {
        Ok(settings)
    }
}

impl Validate for LimitPodHardAntiAffinityTopology {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        let pod = review.object();
        if review.sub_resource().is_some() {
            return Ok(());
        }
        for term in pod.select(TERMS) {
            let key = pod
                .text(format!("{}/topologyKey", term.pointer))
                .unwrap_or_default();
            if key != HOSTNAME {
                return Err(Denial::new(format!(
                    "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is \
                     allowed"
                )));
            }
        }
        Ok(())
    }
}

tollgate_sdk::validator! {
    LimitPodHardAntiAffinityTopology,
    rules: [Rule::on([Operation::Create, Operation::Update], "", "v1", ["pods"])],
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};
    use tollgate_sdk::testing::{TestReview, manifest};

    use super::*;

    fn term(key: &str) -> Json {
        let selector =
            json!({"matchExpressions": [{"key": "security", "operator": "In", "values": ["S2"]}]});
        json!({"labelSelector": selector, "topologyKey": key})
    }

    fn pod(affinity: &Json) -> Json {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"},
            "spec": {"affinity": affinity}})
    }

    fn required(keys: &[&str]) -> Json {
        let terms: Vec<Json> = keys.iter().map(|key| term(key)).collect();
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
    }

    /// The table of kube-apiserver's own test.
    #[test]
    fn answers_like_kube_apiserver() {
        let preferred = json!([{"weight": 5, "podAffinityTerm": term("az")}]);
        let mut both = required(&[HOSTNAME]);
        both["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
            preferred.clone();
        for (affinity, fails) in [
            (json!({}), false),
            (
                json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}),
                false,
            ),
            (both, false),
            (required(&[HOSTNAME]), false),
            (required(&[" zone "]), true),
            (required(&[HOSTNAME, " zone ", HOSTNAME]), true),
        ] {
            let outcome =
                TestReview::create(pod(&affinity)).validate::<LimitPodHardAntiAffinityTopology>();
            assert_eq!(outcome.is_allowed(), !fails, "{affinity}");
            if fails {
                assert_eq!(
                    outcome.denial().message,
                    "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey  zone  but only key \
                     kubernetes.io/hostname is allowed"
                );
            }
        }
    }

    #[test]
    fn allows_subresources() {
        let pod = pod(&required(&["zone"]));
        let review = TestReview::update(pod.clone(), pod).sub_resource("status");
        assert!(
            review
                .validate::<LimitPodHardAntiAffinityTopology>()
                .is_allowed()
        );
    }

    #[test]
    fn settings_schema_is_json() {
        let schema: Json = serde_json::from_str(
            &manifest::<LimitPodHardAntiAffinityTopology>()
                .settings_schema
                .unwrap(),
        )
        .unwrap();
        assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
    }
}
