//! Rewrites image references: from `k8s.gcr.io/` to `registry.k8s.io/`, from Docker Hub to a mirror.
//!
//! The plugin reads references like container runtimes and compares them by component. So a rule for
//! `registry.example.com` does not match `registry.example.com.evil.io`, and a rule for `docker.io/library` matches
//! `nginx`.

mod rewrite;

use tollgate_sdk::image::ImageReference;
use tollgate_sdk::prelude::*;

pub use rewrite::Rewrite;
use rewrite::Rewrites;

/// The prefix of the annotation. The name of the container follows it, and the value is the image that the user
/// requested.
const ORIGINAL: &str = "original.image-rewrite.tollgate.dev";

/// The policy.
pub struct ImageRewrite {
    rewrites: Rewrites,
    annotate_original: bool,
}

/// The settings as the configuration has them.
#[derive(serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    rewrite: Vec<Rewrite>,
    annotate_original: bool,
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self {
            rewrite: Vec::new(),
            annotate_original: true,
        }
    }
}

// === impl ImageRewrite ===

impl Policy for ImageRewrite {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        let rewrites = Rewrites::read(&settings.rewrite)?;
        Ok(Self {
            rewrites,
            annotate_original: settings.annotate_original,
        })
    }
}

impl Mutate for ImageRewrite {
    fn mutate(&self, review: &Review) -> Result<Mutation, Denial> {
        let sub_resource = review.sub_resource();
        let is_subresource = sub_resource.is_some();
        let is_update = review.operation() == Operation::Update;
        // The lists that kube-apiserver lets this request change.
        let lists: &[_] = match sub_resource.as_deref() {
            None if is_update => &["initContainers", "containers"],
            None => &["initContainers", "containers", "ephemeralContainers"],
            Some("ephemeralcontainers") if is_update => &["ephemeralContainers"],
            Some(_) => &[],
        };
        let pod = review.object();
        // A mirror Pod is the kubelet's copy of a static Pod. Changing it has no effect on the node.
        if lists.is_empty()
            || pod
                .get("/metadata/annotations/kubernetes.io~1config.mirror")
                .is_some()
        {
            return Ok(Mutation::Unchanged);
        }

        let mut patch = Patch::new();
        for list in lists {
            // One question for all images of the list. Most are not rewritten, and then nothing else is read.
            for image in pod.select(pointer!["spec", list].child("*").child("image")) {
                let at = Pointer::from(image.pointer);
                let Some(image) = image.value.into_text() else {
                    continue;
                };
                // An invalid reference cannot be pulled either, and the kubelet reports it.
                let Ok(reference) = image.parse::<ImageReference>() else {
                    continue;
                };
                let Some(rewritten) = self.rewrites.apply(&reference) else {
                    continue;
                };
                // A subresource cannot change the metadata.
                let annotates = self.annotate_original && !is_subresource;
                let name = if is_update || annotates {
                    let container = at.parent().unwrap_or_default();
                    pod.text(container.child("name"))
                } else {
                    None
                };
                if is_update
                    && image_before(review.old_object(), list, name.as_deref()).as_ref()
                        == Some(&image)
                {
                    // A rewritten image would restart a container that this request does not change.
                    continue;
                }
                patch = patch.replace(at, rewritten.to_string());
                if let Some(name) = name.filter(|_| annotates) {
                    let key = format!("{ORIGINAL}/{name}");
                    patch = patch.set(pod, pointer!["metadata", "annotations", key], image);
                }
            }
        }
        Ok(patch.into())
    }
}

/// Returns the image of the container with that name before the update. None for a new container.
fn image_before(old_pod: Document, list: &str, name: Option<&str>) -> Option<String> {
    let length = old_pod.length(pointer!["spec", list])?;
    let at = (0..length)
        .map(|index| pointer!["spec", list, index])
        .find(|at| old_pod.text(at.child("name")).as_deref() == name)?;
    old_pod.text(at.child("image"))
}

tollgate_sdk::mutator! {
    ImageRewrite,
    rules: [
        Rule::on([Operation::Create, Operation::Update], "", "v1", ["pods"]),
        Rule::on([Operation::Update], "", "v1", ["pods/ephemeralcontainers"]),
    ],
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests;
