//! Sets and requires `imagePullPolicy: Always`.
//!
//! Suppose that many tenants share a node, and one of them has pulled an image with credentials. Then every tenant that
//! knows the name can use the image, unless each start of a container asks the registry again. The plugin decides like
//! the AlwaysPullImages admission controller of Kubernetes, adds exemptions, and covers `pods/ephemeralcontainers`.

mod containers;

use std::collections::BTreeSet;

use tollgate_sdk::image::{ImagePrefix, ImageReference};
use tollgate_sdk::prelude::*;

use containers::Container;

/// The policy, with its parsed exemptions.
pub struct AlwaysPullImages {
    exempt: Vec<ImagePrefix>,
}

/// The settings as the configuration has them.
#[derive(serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[derive(Default)]
pub struct Settings {
    exempt_images: Vec<String>,
}

// === impl AlwaysPullImages ===

impl Policy for AlwaysPullImages {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        let mut errors = SettingsErrors::new();
        let mut exempt = Vec::new();
        for (index, text) in settings.exempt_images.iter().enumerate() {
            match text.parse() {
                Ok(prefix) => exempt.push(prefix),
                Err(error) => {
                    errors.at(
                        pointer!["exemptImages", index],
                        format!("is no image prefix: {error}"),
                    );
                }
            }
        }
        errors.or(Self { exempt })
    }
}

impl Mutate for AlwaysPullImages {
    fn mutate(&self, review: &Review) -> Result<Mutation, Denial> {
        let patch = self
            .offenders(review)
            .into_iter()
            .fold(Patch::new(), |patch, container| {
                patch.add(container.pull_policy, "Always")
            });
        Ok(patch.into())
    }
}

impl Validate for AlwaysPullImages {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        let mut findings = Findings::new("images must be pulled each time that a container starts");
        for container in self.offenders(review) {
            findings.push(
                Cause::at(container.pull_policy, "must be Always")
                    .reason(Cause::VALUE_NOT_SUPPORTED),
            );
        }
        findings.verdict()
    }
}

impl AlwaysPullImages {
    /// Returns the containers and image volumes with a wrong pull policy.
    fn offenders(&self, review: &Review) -> Vec<Container> {
        let operation = review.operation();
        let is_update = operation == Operation::Update;
        let sub_resource = review.sub_resource();
        let is_covered = match sub_resource.as_deref() {
            None => is_update || operation == Operation::Create,
            Some("ephemeralcontainers") => is_update,
            Some(_) => false,
        };
        if !is_covered {
            return Vec::new();
        }
        let resource = review.resource();
        if resource.resource != "pods" || !resource.group.is_empty() {
            return Vec::new();
        }
        if review
            .object()
            .get("/metadata/annotations/kubernetes.io~1config.mirror")
            .is_some()
        {
            // A mirror Pod is the kubelet's copy of a static Pod. Changing or denying it has no effect on the node.
            return Vec::new();
        }

        let mut containers = containers::all(review.object());
        if is_update {
            let old = containers::all(review.old_object());
            let old_images: BTreeSet<_> = old.iter().map(|container| &container.image).collect();
            if containers
                .iter()
                .all(|container| old_images.contains(&container.image))
            {
                return Vec::new();
            }
            if sub_resource.is_some() {
                // This subresource can only add ephemeral containers. All others are immutable.
                let old_names: BTreeSet<_> = old.iter().map(|container| &container.name).collect();
                containers.retain(|container| {
                    container.is_ephemeral && !old_names.contains(&container.name)
                });
            }
        }
        containers.retain(|container| {
            container.policy.as_deref() != Some("Always") && !self.is_exempt(container)
        });
        containers
    }

    fn is_exempt(&self, container: &Container) -> bool {
        if self.exempt.is_empty() {
            return false;
        }
        let image = container
            .image
            .as_deref()
            .and_then(|image| image.parse::<ImageReference>().ok());
        image.is_some_and(|image| self.exempt.iter().any(|prefix| prefix.matches(&image)))
    }
}

tollgate_sdk::plugin! {
    AlwaysPullImages,
    rules: [
        Rule::on([Operation::Create, Operation::Update], "", "v1", ["pods"]),
        Rule::on([Operation::Update], "", "v1", ["pods/ephemeralcontainers"]),
    ],
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests;
