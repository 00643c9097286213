//! The kinds of custom resources, and their objects as they come from kube-apiserver.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{ApiResource, DynamicObject};
use serde_json::Value;

/// The API group of the custom resources.
pub const GROUP: &str = "tollgate.dev";
/// The version of the custom resources.
pub const VERSION: &str = "v1alpha1";

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
            created: object
                .metadata
                .creation_timestamp
                .map(|time| time.0.to_string())
                .unwrap_or_default(),
            spec: object.data["spec"].take(),
            status: object.data["status"].take(),
        }
    }

    /// Returns the resource's name among all resources of its kind: the name, with the namespace and a slash before it
    /// unless that is the namespace of the installation. A plugin has this name in the desired state, too.
    pub(crate) fn key(&self, kind: Kind, installation: Option<&str>) -> String {
        key(kind, self.namespace.as_deref(), &self.name, installation)
    }

    /// Returns what older resources have a smaller value of. No two resources have the same.
    pub(crate) fn age(&self) -> (&str, &str) {
        (&self.created, &self.uid)
    }

    /// Returns whether both are the same version of the same object. Their status may differ.
    pub(crate) fn is_same_version(&self, other: &Self) -> bool {
        self.uid == other.uid && self.generation == other.generation
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
