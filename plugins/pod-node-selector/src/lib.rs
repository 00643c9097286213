//! Gives Pods the node selector of their namespace, like the admission plugin PodNodeSelector of kube-apiserver.

mod selector;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tollgate_sdk::prelude::*;

use selector::Labels;

/// The annotation of a Namespace with the node selector for its Pods.
const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
/// The setting for namespaces without the annotation. No namespace can have this name.
const DEFAULT: &str = "clusterDefaultNodeSelector";

/// The policy: the default, and the labels that each namespace may use.
pub struct PodNodeSelector {
    selectors: BTreeMap<String, Labels>,
}

/// The settings. kube-apiserver's configuration file of the plugin has the same content.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    pod_node_selector_plugin_config: BTreeMap<String, String>,
}

// === impl PodNodeSelector ===

impl Policy for PodNodeSelector {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        let mut errors = SettingsErrors::new();
        let mut selectors = BTreeMap::new();
        for (name, text) in settings.pod_node_selector_plugin_config {
            match selector::parse(&text) {
                Ok(labels) => {
                    selectors.insert(name, labels);
                }
                Err(error) => {
                    errors.at(pointer!["podNodeSelectorPluginConfig", name], error);
                }
            }
        }
        errors.or(Self { selectors })
    }
}

impl Mutate for PodNodeSelector {
    fn mutate(&self, review: &Review) -> Result<Mutation, Denial> {
        if !is_new_pod(review) {
            return Ok(Mutation::Unchanged);
        }
        let wanted = self.selector_of_namespace(review)?;
        let mut merged = node_selector(review);
        refuse_conflict(&wanted, &merged)?;
        let mut patch = Patch::new();
        for (key, value) in wanted {
            if let Entry::Vacant(vacant) = merged.entry(key) {
                let place = pointer!["spec", "nodeSelector", vacant.key()];
                patch = patch.set(review.object(), place, value.as_str());
                vacant.insert(value);
            }
        }
        self.refuse_foreign(review, &merged)?;
        Ok(patch.into())
    }
}

impl Validate for PodNodeSelector {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        if !is_new_pod(review) {
            return Ok(());
        }
        let labels = node_selector(review);
        refuse_conflict(&self.selector_of_namespace(review)?, &labels)?;
        self.refuse_foreign(review, &labels)
    }
}

impl PodNodeSelector {
    /// Returns the labels that every Pod of the namespace gets. An empty annotation overrides the default.
    fn selector_of_namespace(&self, review: &Review) -> Result<Labels, Denial> {
        let at = pointer!["metadata", "annotations", ANNOTATION];
        match review.namespace().text(at) {
            Some(text) => selector::parse(&text).map_err(Denial::new),
            None => Ok(self.selectors.get(DEFAULT).cloned().unwrap_or_default()),
        }
    }

    /// Denies labels that the settings do not list for the namespace. Without such a list, all are allowed.
    fn refuse_foreign(&self, review: &Review, labels: &Labels) -> Result<(), Denial> {
        let namespace = review.request_document().text("/namespace");
        let namespace = namespace.unwrap_or_default();
        let Some(whitelist) = self.selectors.get(&namespace) else {
            return Ok(());
        };
        let is_listed = |(key, value): (&String, &String)| whitelist.get(key) == Some(value);
        if whitelist.is_empty() || labels.iter().all(is_listed) {
            return Ok(());
        }
        Err(Denial::new(
            "pod node label selector labels conflict with its namespace whitelist",
        ))
    }
}

/// Denies a Pod that has another value for a label of its namespace.
fn refuse_conflict(wanted: &Labels, labels: &Labels) -> Result<(), Denial> {
    let conflicts = |(key, value): (&String, &String)| {
        let other = labels.get(key);
        other.is_some_and(|other| other != value)
    };
    if wanted.iter().any(conflicts) {
        return Err(Denial::new(
            "pod node label selector conflicts with its namespace node label selector",
        ));
    }
    Ok(())
}

fn is_new_pod(review: &Review) -> bool {
    let resource = review.request_document().text("/resource/resource");
    review.operation() == Operation::Create
        && review.sub_resource().is_none()
        && resource.as_deref() == Some("pods")
}

fn node_selector(review: &Review) -> Labels {
    let pod = review.object();
    let value_of = |key: &String| pod.text(pointer!["spec", "nodeSelector", key]);
    let keys = pod.keys("/spec/nodeSelector").unwrap_or_default();
    keys.into_iter()
        .map(|key| {
            let value = value_of(&key).unwrap_or_default();
            (key, value)
        })
        .collect()
}

tollgate_sdk::plugin! {
    PodNodeSelector,
    rules: [Rule::on([Operation::Create], "", "v1", ["pods"])],
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests;
