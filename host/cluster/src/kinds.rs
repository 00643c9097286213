//! The kinds of custom resources, and their objects as they come from kube-apiserver.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{ApiResource, DynamicObject};
use serde_json::Value;

/// The API group of the custom resources.
pub const GROUP: &str = "tollgate.dev";
/// The version of the custom resources.
pub const VERSION: &str = "v1alpha1";

/// The annotation by which an administrator asks something of the rollout of a plugin.
pub const ROLLOUT_ANNOTATION: &str = "tollgate.dev/rollout";

/// A kind of custom resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `ClusterAdmissionPlugin`: an entry under `plugins`. Cluster-scoped.
    Plugin,
    /// `AdmissionPlugin`: a plugin of a namespace. Namespaced.
    TenantPlugin,
    /// `PluginException`: an exception for some plugins. Namespaced.
    Exception,
}

/// A custom resource.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resource {
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    pub(crate) uid: String,
    pub(crate) generation: i64,
    /// The version of the object, its status included.
    pub(crate) version: String,
    /// What an administrator asks of the rollout.
    pub(crate) asked: Option<String>,
    /// The time of its creation, in RFC 3339 and UTC. It sorts as text.
    pub(crate) created: String,
    pub(crate) spec: Value,
    pub(crate) status: Value,
}

// === impl Kind ===

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Plugin, Self::TenantPlugin, Self::Exception];
    /// The kinds that desire plugins.
    pub(crate) const PLUGINS: [Self; 2] = [Self::Plugin, Self::TenantPlugin];

    /// Returns the name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plugin => "ClusterAdmissionPlugin",
            Self::TenantPlugin => "AdmissionPlugin",
            Self::Exception => "PluginException",
        }
    }

    /// Returns the name of the resource, as paths contain it.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::Plugin => "clusteradmissionplugins",
            Self::TenantPlugin => "admissionplugins",
            Self::Exception => "pluginexceptions",
        }
    }

    pub(crate) fn resource(self) -> ApiResource {
        ApiResource {
            group: GROUP.to_owned(),
            version: VERSION.to_owned(),
            api_version: api_version(),
            kind: self.name().to_owned(),
            plural: self.plural().to_owned(),
        }
    }
}

/// Returns the name of a resource among all resources of its kind. `installation` is the namespace of the installation.
pub(crate) fn key(
    kind: Kind,
    namespace: Option<&str>,
    name: &str,
    installation: Option<&str>,
) -> String {
    match (kind, namespace) {
        (Kind::Plugin, _) | (_, None) => name.to_owned(),
        (Kind::Exception, namespace) if namespace == installation => name.to_owned(),
        (_, Some(namespace)) => format!("{namespace}/{name}"),
    }
}

pub(crate) fn api_version() -> String {
    format!("{GROUP}/{VERSION}")
}

// === impl Resource ===

impl Resource {
    pub(crate) fn of(mut object: DynamicObject) -> Self {
        Self {
            name: object.metadata.name.unwrap_or_default(),
            namespace: object.metadata.namespace,
            uid: object.metadata.uid.unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or_default(),
            version: object.metadata.resource_version.unwrap_or_default(),
            asked: object
                .metadata
                .annotations
                .and_then(|mut annotations| annotations.remove(ROLLOUT_ANNOTATION)),
            created: object
                .metadata
                .creation_timestamp
                .map(|time| time.0.to_string())
                .unwrap_or_default(),
            spec: object.data["spec"].take(),
            status: object.data["status"].take(),
        }
    }

    /// Returns the resource's name among all resources of its kind: `NAME` in the namespace of the installation, and
    /// `NAMESPACE/NAME` in others. A plugin has this name in the desired state, too.
    pub(crate) fn key(&self, kind: Kind, installation: Option<&str>) -> String {
        key(kind, self.namespace.as_deref(), &self.name, installation)
    }

    /// Returns the sort key for the age of a resource. Older resources have a smaller key, and each resource has a
    /// different one.
    pub(crate) fn age(&self) -> (&str, &str) {
        (&self.created, &self.uid)
    }

    /// Returns whether both are the same version of the same object. Their status may differ.
    pub(crate) fn is_same_version(&self, other: &Self) -> bool {
        self.uid == other.uid && self.generation == other.generation
    }

    /// Returns whether the resource has a rollout, or its status still has one.
    pub(crate) fn may_have_rollout(&self) -> bool {
        self.spec.get("rollout").is_some() || self.status.get("rollouts").is_some()
    }

    pub(crate) fn reference(&self, kind: Kind) -> ObjectReference {
        ObjectReference {
            api_version: Some(api_version()),
            kind: Some(kind.name().to_owned()),
            name: Some(self.name.clone()),
            namespace: self.namespace.clone(),
            uid: Some(self.uid.clone()),
            ..ObjectReference::default()
        }
    }
}
