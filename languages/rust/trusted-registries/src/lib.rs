//! Allows only images from certain registries in Pods, and adds a tag to images without one.

mod image;

use tollgate_sdk::prelude::*;

use self::image::{Image, looks_like_host};

/// The policy, which consists of its settings.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct TrustedRegistries {
    #[serde(default)]
    allowed: Vec<String>,
    #[serde(default)]
    default_tag: String,
    #[serde(default = "default_message")]
    message: String,
}

const PLACES: [&str; 4] = [
    at!("/spec/initContainers/*/image"),
    at!("/spec/containers/*/image"),
    at!("/spec/ephemeralContainers/*/image"),
    at!("/spec/volumes/*/image/reference"),
];

fn default_message() -> String {
    "images must come from trusted registries".to_owned()
}

// === impl TrustedRegistries ===

impl Policy for TrustedRegistries {
    type Settings = Self;

    fn configure(mut settings: Self) -> Result<Self, SettingsErrors> {
        let mut errors = SettingsErrors::new();
        if settings.allowed.is_empty() {
            errors.at(
                "/allowed",
                "name at least one registry, such as registry.example.com",
            );
        }
        for (index, prefix) in settings.allowed.iter_mut().enumerate() {
            let text = prefix.strip_suffix('/').unwrap_or(prefix);
            let (host, path) = text.split_at(text.find('/').unwrap_or(text.len()));
            if !looks_like_host(host) || path == "/" || path.starts_with("//") {
                errors.at(
                    pointer!["allowed", index],
                    "begins with no registry, such as registry.example.com or localhost:5000",
                );
            }
            *prefix = format!("{}{path}", host.to_ascii_lowercase());
        }
        if !settings.default_tag.is_empty() && !is_tag(&settings.default_tag) {
            errors.at("/defaultTag", "is no tag");
        }
        errors.or(settings)
    }
}

impl Validate for TrustedRegistries {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        let mut findings = Findings::new(self.message.as_str());
        let images = images(review);
        for Node { pointer, value } in &images {
            let Some(text) = value.as_text() else {
                findings.at(pointer, "must be a string");
                continue;
            };
            let image = Image::parse(text);
            if !self.allowed.iter().any(|prefix| image.is_within(prefix)) {
                findings.at(
                    pointer,
                    format!("must be from one of: {}", self.allowed.join(", ")),
                );
            } else if !self.default_tag.is_empty() && !image.is_pinned {
                findings.at(pointer, "must have a tag or a digest");
            } else if image.tag.as_deref() == Some("latest") {
                review.warn(format!(
                    "{pointer}: the tag latest may stand for another image tomorrow"
                ));
            }
        }
        review.annotate("images", images.len().to_string());
        findings.verdict()
    }
}

impl Mutate for TrustedRegistries {
    fn mutate(&self, review: &Review) -> Result<Mutation, Denial> {
        let mut patch = Patch::new();
        if self.default_tag.is_empty() {
            return Ok(patch.into());
        }
        for Node { pointer, value } in images(review) {
            if let Some(text) = value.as_text()
                && !text.is_empty()
                && !Image::parse(text).is_pinned
            {
                patch = patch.replace(pointer, format!("{text}:{}", self.default_tag));
            }
        }
        if !patch.is_empty() {
            review.annotate("pinned", patch.operations().len().to_string());
        }
        Ok(patch.into())
    }
}

fn images(review: &Review) -> Vec<Node> {
    let nodes = PLACES.iter().map(|place| review.object().select(place));
    nodes.flatten().collect()
}

fn is_tag(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= 128
        && text.starts_with(is_word)
        && text.chars().all(|c| is_word(c) || c == '.' || c == '-')
}

tollgate_sdk::plugin! {
    TrustedRegistries,
    name: "trusted-registries",
    rules: [
        Rule::on([Operation::Create, Operation::Update], "", "v1", ["pods", "pods/ephemeralcontainers"]),
    ],
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tollgate_sdk::testing::TestReview;

    use super::*;

    #[test]
    fn every_offending_image_is_blamed() {
        let outcome = TestReview::create(json!({"apiVersion": "v1", "kind": "Pod", "spec": {
            "initContainers": [{"image": "nginx"}],
            "containers": [{"image": "registry.example.com/team/app:1"}, {"image": "registry.example.com/teams/app:1"}],
        }}))
        .settings(json!({"allowed": ["registry.example.com/team/"]}))
        .validate::<TrustedRegistries>();
        assert_eq!(
            outcome.fields(),
            ["/spec/initContainers/0/image", "/spec/containers/1/image"]
        );
    }
}
