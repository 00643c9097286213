//! The AdmissionRequest, decoded: what matching and plugins ask of it.

use std::fmt;

use crate::document::{Account, Json};

/// What the user asks the cluster to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// An object is to be created.
    Create,
    /// An object is to be changed.
    Update,
    /// An object, or a collection of them, is to be deleted.
    Delete,
    /// A connection to a subresource, such as `pods/exec`, is to be opened.
    Connect,
}

/// A kind with its group and version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupVersionKind {
    /// Empty for the core group.
    pub group: String,
    /// Such as `v1`.
    pub version: String,
    /// Such as `Pod`.
    pub kind: String,
}

/// A resource with its group and version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupVersionResource {
    /// Empty for the core group.
    pub group: String,
    /// Such as `v1`.
    pub version: String,
    /// In the plural, such as `pods`.
    pub resource: String,
}

/// What kube-apiserver says of the request.
#[derive(Clone, Debug)]
pub struct AdmissionRequest {
    /// Identifies the call of the webhook, not the user's request.
    pub uid: String,
    /// What is asked.
    pub operation: Operation,
    /// The kind of `object`, after any conversion.
    pub kind: GroupVersionKind,
    /// The resource, after any conversion.
    pub resource: GroupVersionResource,
    /// Such as `status`; none for the resource itself.
    pub sub_resource: Option<String>,
    /// Empty on CREATE with generateName and on deletecollection.
    pub name: String,
    /// None for cluster-scoped resources; a Namespace object's own name for itself.
    pub namespace: Option<String>,
    /// Nothing will be stored.
    pub dry_run: bool,
    /// The object; none on DELETE.
    pub object: Option<Json>,
    /// The object before the request; none on CREATE and CONNECT.
    pub old_object: Option<Json>,
    /// The operation's options.
    pub options: Option<Json>,
    /// The whole AdmissionRequest without `object`, `oldObject` and `options`.
    pub document: Json,
    /// The memory that its documents take, and what is made of them.
    pub memory: Account,
}

// === impl Operation ===

impl Operation {
    /// As Kubernetes writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }

    /// Reads Kubernetes' spelling.
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
    /// Whether the request is about a core Secret: its values must reach no log, metric, annotation or text.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        self.resource.group.is_empty() && self.resource.resource == "secrets"
            || self.kind.group.is_empty() && self.kind.kind == "Secret"
    }

    /// Who asks; empty for somebody without a name.
    #[must_use]
    pub fn username(&self) -> &str {
        self.user("username").and_then(Json::as_text).unwrap_or("")
    }

    /// The groups of who asks.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        let groups = self.user("groups").and_then(Json::as_array);
        groups.unwrap_or_default().iter().filter_map(Json::as_text)
    }

    /// The object's name. Where a collection is deleted only the old object has it; with generateName there is none yet.
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
