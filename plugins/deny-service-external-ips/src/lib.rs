//! Denies new external IPs of Services, like the admission plugin DenyServiceExternalIPs of kube-apiserver.

use tollgate_sdk::prelude::*;

/// The policy, which has no settings.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DenyServiceExternalIps {}

// === impl DenyServiceExternalIps ===

impl Policy for DenyServiceExternalIps {
    type Settings = Self;

    fn configure(settings: Self) -> Result<Self, SettingsErrors> {
        Ok(settings)
    }
}

impl Validate for DenyServiceExternalIps {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        if review.sub_resource().is_some() {
            return Ok(());
        }
        let old = addresses(review.old_object());
        let is_subset = addresses(review.object())
            .iter()
            .all(|address| old.contains(address));
        if is_subset {
            return Ok(());
        }
        Err(Denial::new(
            "Use of external IPs is denied by admission control",
        ))
    }
}

fn addresses(service: Document) -> Vec<Value> {
    let nodes = service.select("/spec/externalIPs/*");
    nodes.into_iter().map(|node| node.value).collect()
}

tollgate_sdk::validator! {
    DenyServiceExternalIps,
    rules: [Rule::on([Operation::Create, Operation::Update], "", "v1", ["services"])],
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};
    use tollgate_sdk::testing::{TestReview, manifest};

    use super::*;

    fn service(addresses: &[&str]) -> Json {
        let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "b"},
            "spec": {}});
        if !addresses.is_empty() {
            service["spec"]["externalIPs"] = json!(addresses);
        }
        service
    }

    /// The table of kube-apiserver's own test.
    #[test]
    fn answers_like_kube_apiserver() {
        for (name, new, old, fails) in [
            ("create: without externalIPs", &[][..], None, false),
            ("create: with externalIPs", &["1.1.1.1"], None, true),
            (
                "update: same externalIPs",
                &["1.1.1.1", "2.2.2.2"],
                Some(&["1.1.1.1", "2.2.2.2"][..]),
                false,
            ),
            (
                "update: reorder externalIPs",
                &["1.1.1.1", "2.2.2.2"],
                Some(&["2.2.2.2", "1.1.1.1"]),
                false,
            ),
            (
                "update: change externalIPs",
                &["1.1.1.1", "2.2.2.2"],
                Some(&["1.1.1.1", "3.3.3.3"]),
                true,
            ),
            (
                "update: add externalIPs",
                &["1.1.1.1", "2.2.2.2"],
                Some(&["1.1.1.1"]),
                true,
            ),
            (
                "update: erase externalIPs",
                &[],
                Some(&["1.1.1.1", "2.2.2.2"]),
                false,
            ),
            (
                "update: reduce externalIPs from back",
                &["1.1.1.1"],
                Some(&["1.1.1.1", "2.2.2.2"]),
                false,
            ),
            (
                "update: reduce externalIPs from front",
                &["2.2.2.2"],
                Some(&["1.1.1.1", "2.2.2.2"]),
                false,
            ),
        ] {
            let review = match old {
                None => TestReview::create(service(new)),
                Some(old) => TestReview::update(service(old), service(new)),
            };
            let outcome = review.validate::<DenyServiceExternalIps>();
            assert_eq!(outcome.is_allowed(), !fails, "{name}");
            if fails {
                assert_eq!(
                    outcome.denial().message,
                    "Use of external IPs is denied by admission control"
                );
            }
        }
    }

    #[test]
    fn allows_subresources() {
        let review = TestReview::update(service(&[]), service(&["1.1.1.1"])).sub_resource("status");
        assert!(review.validate::<DenyServiceExternalIps>().is_allowed());
    }

    #[test]
    fn settings_schema_is_json() {
        let schema: Json = serde_json::from_str(
            &manifest::<DenyServiceExternalIps>()
                .settings_schema
                .unwrap(),
        )
        .unwrap();
        assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
    }
}
