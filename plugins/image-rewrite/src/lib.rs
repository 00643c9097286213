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

/// The lists of containers of a Pod.
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The policy.
pub struct ImageRewrite {
    rewrites: Rewrites,
    annotate_original: bool,
    /// The lists of containers, and the annotation of a mirror Pod.
    pod: Pointers,
    /// Patterns for the images of each list.
    images: [Pointer; 3],
    /// The operation and the subresource.
    request: Pointers,
}

/// An image that the rules change.
struct Change {
    list: &'static str,
    at: Pointer,
    image: String,
    rewritten: String,
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
        let lists = LISTS.iter().map(|list| pointer!["spec", list]);
        let mirror = pointer!["metadata", "annotations", "kubernetes.io/config.mirror"];
        Ok(Self {
            rewrites,
            annotate_original: settings.annotate_original,
            pod: Pointers::new(lists.chain([mirror])),
            images: LISTS.map(|list| pointer!["spec", list, "*", "image"]),
            request: Pointers::new(["/operation", "/subResource"]),
        })
    }
}

impl Mutate for ImageRewrite {
    fn mutate(&self, review: &Review) -> Result<Mutation, Denial> {
        let changes = self.changes(review.object());
        // Most Pods have no image to rewrite, and then nothing else is read.
        if changes.is_empty() {
            return Ok(Mutation::Unchanged);
        }
        let mut request = review.request_document().get_all(&self.request).into_iter();
        let mut text = || request.next().flatten().and_then(Value::into_text);
        let is_update = text().as_deref() == Some("UPDATE");
        let sub_resource = text().filter(|name| !name.is_empty());
        let is_subresource = sub_resource.is_some();
        // The lists that kube-apiserver lets this request change.
        let lists: &[_] = match sub_resource.as_deref() {
            None if is_update => &["initContainers", "containers"],
            None => &LISTS,
            Some("ephemeralcontainers") if is_update => &["ephemeralContainers"],
            Some(_) => &[],
        };
        let pod = review.object();
        let mut patch = Patch::new();
        for change in changes {
            let Change {
                list,
                at,
                image,
                rewritten,
            } = change;
            if !lists.contains(&list) {
                continue;
            }
            // A subresource cannot change the metadata.
            let annotates = self.annotate_original && !is_subresource;
            let name = if is_update || annotates {
                let container = at.parent().unwrap_or_default();
                pod.text(container.child("name"))
            } else {
                None
            };
            if is_update
                && image_before(review.old_object(), list, name.as_deref()).as_ref() == Some(&image)
            {
                // A rewritten image would restart a container that this request does not change.
                continue;
            }
            patch = patch.replace(at, rewritten);
            if let Some(name) = name.filter(|_| annotates) {
                let key = format!("{ORIGINAL}/{name}");
                patch = patch.set(pod, pointer!["metadata", "annotations", key], image);
            }
        }
        Ok(patch.into())
    }
}

impl ImageRewrite {
    /// Finds the images that the rules change. A mirror Pod is the kubelet's copy of a static Pod. Changing it has no effect on
    /// the node.
    fn changes(&self, pod: Document) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut found = pod.get_all(&self.pod);
        if found.pop().flatten().is_some() {
            return changes;
        }
        for ((list, images), found) in LISTS.into_iter().zip(&self.images).zip(found) {
            if !matches!(found, Some(Value::Array(1..) | Value::Object(1..))) {
                continue;
            }
            // One question for all images of the list.
            for node in pod.select(images) {
                let Some(image) = node.value.into_text() else {
                    continue;
                };
                if !self.rewrites.may_apply(&image) {
                    continue;
                }
                // An invalid reference cannot be pulled either, and the kubelet reports it.
                let Ok(reference) = image.parse::<ImageReference>() else {
                    continue;
                };
                if let Some(rewritten) = self.rewrites.apply(&reference) {
                    changes.push(Change {
                        list,
                        at: Pointer::from(node.pointer),
                        rewritten: rewritten.to_string(),
                        image,
                    });
                }
            }
        }
        changes
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
