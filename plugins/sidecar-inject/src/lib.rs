//! Injects the containers, init containers and volumes from the settings into Pods.
//!
//! The plugin recognises an injected item by its name and by an annotation with the hash of its settings. So a second
//! run changes nothing, even if kube-apiserver and other plugins have changed the item in between. A container of the
//! user with the same name does not count as injected.

mod item;

use serde_json::Value as Json;
use tollgate_sdk::prelude::*;

use item::{Item, List, State};

/// The policy, with the items to inject.
pub struct SidecarInject {
    items: Vec<Item>,
    key: QualifiedName,
    inject_by_default: bool,
    on_conflict: OnConflict,
}

/// The settings as the configuration has them.
#[derive(serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    volumes: Vec<Json>,
    init_containers: Vec<Json>,
    containers: Vec<Json>,
    key: QualifiedName,
    inject_by_default: bool,
    on_conflict: OnConflict,
}

/// The action for a Pod whose own container or volume has the name of an item to inject.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// Denies the Pod.
    Deny,
    /// Injects nothing, and warns the user.
    Skip,
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        let key = "sidecar-inject.tollgate.dev/inject";
        Self {
            volumes: Vec::new(),
            init_containers: Vec::new(),
            containers: Vec::new(),
            key: key.parse().expect("the default is a key"),
            inject_by_default: false,
            on_conflict: OnConflict::Deny,
        }
    }
}

// === impl SidecarInject ===

impl Policy for SidecarInject {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        let items = item::read([
            (List::Volumes, &settings.volumes),
            (List::InitContainers, &settings.init_containers),
            (List::Containers, &settings.containers),
        ])?;
        Ok(Self {
            items,
            key: settings.key,
            inject_by_default: settings.inject_by_default,
            on_conflict: settings.on_conflict,
        })
    }
}

impl Mutate for SidecarInject {
    fn mutate(&self, review: &Review) -> Result<Mutation, Denial> {
        let pod = review.object();
        // The containers of a Pod cannot change after its creation.
        let is_new_pod = review.operation() == Operation::Create
            && review.sub_resource().is_none()
            && review.kind().kind == "Pod";
        if !is_new_pod || is_mirror_pod(pod) || !self.is_wanted(review) {
            return Ok(Mutation::Unchanged);
        }

        let mut patch = Patch::new();
        let mut missing = Vec::new();
        let mut conflicts = Findings::new("sidecars cannot be injected");
        for item in &self.items {
            match item.state(pod) {
                State::Injected => {}
                State::Missing => missing.push(item),
                State::Outdated(at) => patch = item.annotate(pod, patch.replace(at, item.value())),
                State::Conflict(name) => conflicts.at(name, self.advice()),
            }
        }
        match self.on_conflict {
            OnConflict::Deny => conflicts.verdict()?,
            OnConflict::Skip if conflicts.is_empty() => {}
            OnConflict::Skip => {
                review.warn("no sidecars are injected: the Pod uses the name of one itself");
                return Ok(Mutation::Unchanged);
            }
        }
        // Inserts come after the replacements, because they move the later elements.
        let mut in_front = 0;
        for item in missing {
            let list = item.list().place();
            if item.list() == List::InitContainers {
                // A proxy should run before the Pod's own init containers.
                patch = patch.insert(pod, list, in_front, item.value());
                in_front += 1;
            } else {
                patch = patch.append(pod, list, item.value());
            }
            patch = item.annotate(pod, patch);
        }
        Ok(patch.into())
    }
}

impl SidecarInject {
    /// Whether the Pod asks for sidecars, by a label or otherwise by an annotation.
    fn is_wanted(&self, review: &Review) -> bool {
        for list in ["labels", "annotations"] {
            let value = review.object().text(pointer!["metadata", list, self.key]);
            match value.as_deref() {
                None => {}
                Some("true") => return true,
                Some("false") => return false,
                Some(_) => review.warn(format!(
                    "metadata.{list}[{}] is neither \"true\" nor \"false\" and is ignored",
                    self.key
                )),
            }
        }
        self.inject_by_default
    }

    fn advice(&self) -> String {
        format!(
            "is the name of one that is to be injected: choose another, or go without by the label {}: \"false\"",
            self.key
        )
    }
}

/// Whether this is a mirror Pod: the kubelet's copy of a static Pod. Changing it has no effect on the node.
fn is_mirror_pod(pod: Document) -> bool {
    pod.get("/metadata/annotations/kubernetes.io~1config.mirror")
        .is_some()
}

tollgate_sdk::mutator! {
    SidecarInject,
    rules: [Rule::on([Operation::Create], "", "v1", ["pods"])],
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests;
