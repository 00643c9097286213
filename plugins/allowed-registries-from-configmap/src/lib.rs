//! Allows only images from the registries that a ConfigMap lists, so that the list can change without a new
//! configuration.
//!
//! The lookup `registries` of the configuration has the ConfigMap. If the list cannot be read, the call ends as a
//! fault, and the failure policy decides: a missing list is neither "all" nor "none".

use tollgate_sdk::cluster::{self, OrFault as _};
use tollgate_sdk::image::{ImagePrefix, ImageReference};
use tollgate_sdk::prelude::*;

const LOOKUP: &str = "registries";

/// The places of images in a Pod.
const IMAGES: [&str; 4] = [
    "/spec/initContainers/*/image",
    "/spec/containers/*/image",
    "/spec/ephemeralContainers/*/image",
    "/spec/volumes/*/image/reference",
];

/// The policy, which consists of its settings.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowedRegistries {
    namespace: String,
    name: String,
    #[serde(default = "registries")]
    key: String,
}

fn registries() -> String {
    "registries".to_owned()
}

// === impl AllowedRegistries ===

impl Policy for AllowedRegistries {
    type Settings = Self;

    fn configure(settings: Self) -> Result<Self, SettingsErrors> {
        let mut errors = SettingsErrors::new();
        for (setting, value) in [
            ("/namespace", &settings.namespace),
            ("/name", &settings.name),
            ("/key", &settings.key),
        ] {
            if value.is_empty() {
                errors.at(setting, "must not be empty");
            }
        }
        errors.or(settings)
    }
}

impl Validate for AllowedRegistries {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        let images: Vec<Node> = IMAGES
            .iter()
            .flat_map(|place| review.object().select(place))
            .collect();
        if images.is_empty() {
            return Ok(());
        }
        let allowed = self.allowed();
        let mut findings = Findings::new("images must come from an allowed registry");
        for Node { pointer, value } in images {
            let image = value.as_text().and_then(|text| text.parse().ok());
            let is_allowed =
                |image: &ImageReference| allowed.iter().any(|prefix| prefix.matches(image));
            match image {
                None => findings.at(pointer, "is no image reference"),
                Some(image) if !is_allowed(&image) => {
                    findings.at(pointer, format!("is not in the list of {}", self.place()));
                }
                Some(_) => {}
            }
        }
        findings.verdict()
    }
}

impl AllowedRegistries {
    /// Reads the list.
    #[expect(
        clippy::panic,
        reason = "without a list, the call ends as a fault with this text"
    )]
    fn allowed(&self) -> Vec<ImagePrefix> {
        let map = cluster::get(LOOKUP, Some(&self.namespace), &self.name).or_fault();
        let Some(map) = map else {
            panic!(
                "{} does not exist; create it, or change the settings",
                self.place()
            );
        };
        let Some(list) = map.text(pointer!["data", &self.key]) else {
            panic!(
                "{} has no key `{}`, or the lookup does not keep it",
                self.place(),
                self.key
            );
        };
        let lines = list.lines().map(str::trim).enumerate();
        lines
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
            .map(|(index, line)| {
                line.parse().unwrap_or_else(|error| {
                    panic!(
                        "{}, key `{}`, line {}: {error}",
                        self.place(),
                        self.key,
                        index + 1
                    )
                })
            })
            .collect()
    }

    fn place(&self) -> String {
        format!("ConfigMap {}/{}", self.namespace, self.name)
    }
}

tollgate_sdk::validator! {
    AllowedRegistries,
    rules: [
        Rule::on([Operation::Create, Operation::Update], "", "v1", ["pods", "pods/ephemeralcontainers"]),
    ],
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};
    use tollgate_sdk::testing::{Outcome, TestReview, configure, manifest};

    use super::*;

    fn lookup() -> Json {
        json!({
            "name": "registries",
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "namespaces": ["policies"],
            "fields": ["/data/registries"],
        })
    }

    fn pod(images: &[&str]) -> Json {
        let containers: Vec<Json> = images.iter().map(|image| json!({"image": image})).collect();
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "shop"},
            "spec": {"containers": containers}})
    }

    fn evaluate(list: &str, images: &[&str]) -> Outcome<()> {
        let map = json!({"metadata": {"namespace": "policies", "name": "images"}, "data": {"registries": list}});
        TestReview::create(pod(images))
            .settings(json!({"namespace": "policies", "name": "images"}))
            .lookup(lookup(), [map])
            .validate::<AllowedRegistries>()
    }

    const LIST: &str = "# the company's own\nregistry.example.com\n\n  ghcr.io/example/  \n";

    #[test]
    fn denies_images_that_are_not_in_the_list() {
        let outcome = evaluate(
            LIST,
            &[
                "registry.example.com/app:1",
                "nginx",
                "ghcr.io/example/app",
                "ghcr.io/examples/app",
                "A B",
            ],
        );
        assert_eq!(
            outcome.causes(),
            [
                (
                    "/spec/containers/1/image",
                    "is not in the list of ConfigMap policies/images"
                ),
                (
                    "/spec/containers/3/image",
                    "is not in the list of ConfigMap policies/images"
                ),
                ("/spec/containers/4/image", "is no image reference"),
            ]
        );
        assert!(evaluate(LIST, &["registry.example.com/app:1"]).is_allowed());
    }

    #[test]
    fn empty_list_allows_no_image() {
        assert!(!evaluate("# none\n", &["registry.example.com/app:1"]).is_allowed());
        assert!(evaluate("", &[]).is_allowed());
    }

    #[test]
    #[should_panic(expected = "ConfigMap policies/images, key `registries`, line 2: ")]
    fn malformed_line_is_a_fault() {
        drop(evaluate("registry.example.com\nnot a registry", &["nginx"]));
    }

    fn without_list(review: TestReview, settings: Json) {
        drop(review.settings(settings).validate::<AllowedRegistries>());
    }

    #[test]
    #[should_panic(expected = "ConfigMap policies/images does not exist")]
    fn missing_map_is_a_fault() {
        let review = TestReview::create(pod(&["nginx"])).lookup(lookup(), []);
        without_list(review, json!({"namespace": "policies", "name": "images"}));
    }

    #[test]
    #[should_panic(expected = "has no key `others`, or the lookup does not keep it")]
    fn missing_key_is_a_fault() {
        let map = json!({"metadata": {"namespace": "policies", "name": "images"}, "data": {"others": ""}});
        let review = TestReview::create(pod(&["nginx"])).lookup(lookup(), [map]);
        without_list(
            review,
            json!({"namespace": "policies", "name": "images", "key": "others"}),
        );
    }

    #[test]
    #[should_panic(expected = "not synchronised: the lookup `registries`")]
    fn says_so_when_not_synchronised() {
        let review = TestReview::create(pod(&["nginx"])).not_synchronised("registries");
        without_list(review, json!({"namespace": "policies", "name": "images"}));
    }

    #[test]
    fn settings_name_the_map() {
        let errors = configure::<AllowedRegistries>(json!({"namespace": "", "name": "images"}));
        assert_eq!(
            errors.err().unwrap().to_string(),
            "/namespace: must not be empty"
        );
        assert!(configure::<AllowedRegistries>(json!({"name": "images"})).is_err());
    }

    #[test]
    fn settings_schema_is_json() {
        let schema: Json =
            serde_json::from_str(&manifest::<AllowedRegistries>().settings_schema.unwrap())
                .unwrap();
        assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
    }
}
