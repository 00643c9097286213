//! The decoded AdmissionRequest, for matching and for plugins.

use std::fmt;
use std::sync::Arc;

use tollgate_json::document::{Account, Json};

use super::template::Template;
use crate::namespaces::LookedUp;
use crate::trace::Observed;

/// The operation that the user requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// Create an object.
    Create,
    /// Change an object.
    Update,
    /// Delete an object or a collection of objects.
    Delete,
    /// Open a connection to a subresource, such as `pods/exec`.
    Connect,
}

/// A kind with its group and version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupVersionKind {
    /// The API group. Empty for the core group.
    pub group: String,
    /// The API version, such as `v1`.
    pub version: String,
    /// The kind, such as `Pod`.
    pub kind: String,
}

/// A resource with its group and version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupVersionResource {
    /// The API group. Empty for the core group.
    pub group: String,
    /// The API version, such as `v1`.
    pub version: String,
    /// The resource in the plural, such as `pods`.
    pub resource: String,
}

/// The request as kube-apiserver describes it.
#[derive(Clone, Debug)]
pub struct AdmissionRequest {
    /// Identifies the call of the webhook, not the user's request.
    pub uid: String,
    /// The requested operation.
    pub operation: Operation,
    /// The kind of `object`, after any conversion.
    pub kind: GroupVersionKind,
    /// The resource, after any conversion.
    pub resource: GroupVersionResource,
    /// The subresource, such as `status`. None for the resource itself.
    pub sub_resource: Option<String>,
    /// The object's name. Empty on CREATE with generateName, and when a collection is deleted.
    pub name: String,
    /// The namespace. None for cluster-scoped resources. For a Namespace object, its own name.
    pub namespace: Option<String>,
    /// Whether this is a dry run, which stores nothing.
    pub dry_run: bool,
    /// The object. None on DELETE.
    pub object: Option<Json>,
    /// The object before the request. None on CREATE and CONNECT.
    pub old_object: Option<Json>,
    /// The options of the operation.
    pub options: Option<Json>,
    /// The whole AdmissionRequest without `object`, `oldObject` and `options`.
    pub document: Json,
    /// The memory of the request's documents and of the values that the host makes from them.
    pub memory: Account,
    /// The Namespace, once somebody has looked it up.
    pub looked_up: LookedUp,
    /// The observer of the calls of plugins.
    pub observed: Observed,
    /// The workload whose pod template this request would create. None for a request of kube-apiserver.
    pub template: Option<Arc<Template>>,
}

// === impl Operation ===

impl Operation {
    /// Returns the operation's name in Kubernetes.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }

    /// Parses the operation's name in Kubernetes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "CREATE" => Some(Self::Create),
            "UPDATE" => Some(Self::Update),
            "DELETE" => Some(Self::Delete),
            "CONNECT" => Some(Self::Connect),
            _ => None,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl AdmissionRequest ===

impl AdmissionRequest {
    /// Whether the request is about a core Secret. Its values must reach no log, metric, annotation or text.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        self.resource.group.is_empty() && self.resource.resource == "secrets"
            || self.kind.group.is_empty() && self.kind.kind == "Secret"
    }

    /// Returns the user's name. Empty if the user has none.
    #[must_use]
    pub fn username(&self) -> &str {
        self.user("username").and_then(Json::as_text).unwrap_or("")
    }

    /// Returns the user's groups.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        let groups = self.user("groups").and_then(Json::as_array);
        groups.unwrap_or_default().iter().filter_map(Json::as_text)
    }

    /// Returns the object's name. When a collection is deleted, it comes from the old object. With generateName, the
    /// object has no name yet.
    #[must_use]
    pub fn object_name(&self) -> Option<&str> {
        if !self.name.is_empty() {
            return Some(&self.name);
        }
        let object = self.object.as_ref().or(self.old_object.as_ref())?;
        object.member("metadata")?.member("name")?.as_text()
    }

    fn user(&self, member: &str) -> Option<&Json> {
        self.document.member("userInfo")?.member(member)
    }
}
