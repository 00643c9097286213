//! `trusted-registries` in native Rust: checks the images of all containers and volumes. The control does not resolve
//! images without a registry and does not warn about `latest`, because no image here needs that.

use serde_json::Value;
use tollgate_admission::Denial;
use tollgate_json::document::Json;

/// Allowed sources of images: hosts, with or without a path.
pub(crate) struct TrustedRegistries {
    allowed: Vec<String>,
}

/// Lists of objects that have an image, with the path of the image in each object.
const PLACES: [(&str, &[&str]); 4] = [
    ("initContainers", &["image"]),
    ("containers", &["image"]),
    ("ephemeralContainers", &["image"]),
    ("volumes", &["image", "reference"]),
];

// === impl TrustedRegistries ===

impl TrustedRegistries {
    /// Reads the plugin's settings.
    pub(crate) fn new(settings: &Value) -> Self {
        let allowed = settings["allowed"].as_array().expect("`allowed` is there");
        let allowed = allowed
            .iter()
            .map(|prefix| prefix.as_str().expect("a registry is a string").to_owned());
        Self {
            allowed: allowed.collect(),
        }
    }

    pub(crate) fn validate(&self, object: &Json) -> Result<(), Denial> {
        let spec = object.member("spec");
        let images = PLACES.iter().flat_map(|(list, path)| {
            let list = spec.and_then(|spec| spec.member(list));
            let entries = list.and_then(Json::as_array).unwrap_or_default();
            let image = |entry| path.iter().try_fold(entry, |at: &Json, key| at.member(key));
            entries.iter().filter_map(image)
        });
        for image in images {
            if !image.as_text().is_some_and(|image| self.is_trusted(image)) {
                return Err(Denial {
                    message: "images must come from trusted registries".to_owned(),
                    ..Denial::default()
                });
            }
        }
        Ok(())
    }

    fn is_trusted(&self, image: &str) -> bool {
        let is_within = |prefix: &String| {
            let rest = image.strip_prefix(prefix.as_str());
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        self.allowed.iter().any(is_within)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tollgate_json::document::parse;

    use super::*;

    fn is_denied(spec: &Value) -> bool {
        let settings = json!({"allowed": ["registry.example.com/team"]});
        let object = json!({ "spec": spec }).to_string();
        let object = parse(object.as_bytes(), 16).unwrap();
        TrustedRegistries::new(&settings).validate(&object).is_err()
    }

    #[test]
    fn checks_images_in_all_places() {
        let image = |name: &str| json!([{"image": name}]);
        let volume = |name: &str| json!([{"emptyDir": {}}, {"image": {"reference": name}}]);
        let (good, bad) = (
            "registry.example.com/team/app:1",
            "registry.example.com/teams/app:1",
        );
        for list in ["initContainers", "containers", "ephemeralContainers"] {
            assert!(!is_denied(&json!({list: image(good)})), "{list}");
            assert!(is_denied(&json!({list: image(bad)})), "{list}");
        }
        assert!(!is_denied(&json!({"volumes": volume(good)})));
        assert!(is_denied(&json!({"volumes": volume(bad)})));
    }
}
