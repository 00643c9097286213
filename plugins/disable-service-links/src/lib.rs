//! Sets `enableServiceLinks: false` unless somebody asked for the links.
//!
//! With service links, every container gets a handful of environment variables for each Service of its namespace.
//! Hardly any program reads them. With some thousand Services, containers start slowly or not at all.

use tollgate_sdk::prelude::*;

/// The policy.
pub struct DisableServiceLinks {
    keep_label: QualifiedName,
    override_true: bool,
}

/// The settings as the configuration has them.
#[derive(serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    keep_label: QualifiedName,
    override_true: bool,
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        let keep_label = "disable-service-links.tollgate.dev/keep";
        Self {
            keep_label: keep_label.parse().expect("the default is a key"),
            override_true: false,
        }
    }
}

// === impl DisableServiceLinks ===

impl Policy for DisableServiceLinks {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        Ok(Self {
            keep_label: settings.keep_label,
            override_true: settings.override_true,
        })
    }
}

impl Mutate for DisableServiceLinks {
    fn mutate(&self, review: &Review) -> Result<Mutation, Denial> {
        let object = review.object();
        // The Pod itself, or a template for Pods.
        let pod = if review.kind().kind == "Pod" {
            Pointer::root()
        } else {
            pointer!["spec", "template"]
        };
        let can_change = review.sub_resource().is_none()
            && match review.operation() {
                Operation::Create => true,
                // The links of a Pod are immutable. A new template restarts Pods, so the plugin must not cause one.
                Operation::Update => !pod.is_root() && review.changes(&pod),
                Operation::Delete | Operation::Connect => false,
            };
        if !can_change || !matches!(object.get(pod.child("spec")), Some(Value::Object(_))) {
            return Ok(Mutation::Unchanged);
        }
        let field = pod.child("spec").child("enableServiceLinks");
        let is_as_wanted = match object.boolean(&field) {
            Some(links) => !links || !self.override_true,
            None => false,
        };
        if is_as_wanted
            || self.is_kept(object, &Pointer::root())
            || self.is_kept(object, &pod)
            || is_mirror_pod(object)
        {
            return Ok(Mutation::Unchanged);
        }
        Ok(Patch::new().add(field, false).into())
    }
}

impl DisableServiceLinks {
    /// Whether the label on the object, or on the template at that place, keeps its links.
    fn is_kept(&self, object: Document, at: &Pointer) -> bool {
        let label = at.child("metadata").child("labels").child(&self.keep_label);
        object.text(label).as_deref() == Some("true")
    }
}

/// Whether this is a mirror Pod: the kubelet's copy of a static Pod. Changing it has no effect on the node.
fn is_mirror_pod(object: Document) -> bool {
    object
        .get("/metadata/annotations/kubernetes.io~1config.mirror")
        .is_some()
}

tollgate_sdk::mutator! {
    DisableServiceLinks,
    rules: [
        Rule::on([Operation::Create], "", "v1", ["pods"]),
        Rule::on([Operation::Create], "batch", "v1", ["jobs"]),
        Rule::on([Operation::Create, Operation::Update], "apps", "v1", ["daemonsets", "deployments", "statefulsets"]),
    ],
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests;
