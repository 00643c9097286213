//! The Namespace of a request: what plugins see of it, and where the host looks it up.
//!
//! A review contains the name of a namespace and none of its labels. The host looks a Namespace up only when a plugin,
//! a selector or a condition asks for it, and at most once in a review that finds it. A namespace that cannot be looked
//! up is a fault of each plugin that needs it. Such a namespace is never "absent": a rule about labels would then fail
//! open.

mod fixed;

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use tollgate_json::document::{Json, Object};

pub use fixed::{FixedNamespaces, FromObjectsError};

use crate::review::request::{AdmissionRequest, Operation};

/// The metadata of a Namespace: the document that plugins read, and nothing more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace(Json);

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The Namespace exists.
    Found(Namespace),
    /// The place, such as "in the cluster", has no such Namespace.
    NotFound {
        /// The place, as part of a sentence.
        place: Arc<str>,
    },
    /// The lookup has no result now.
    Unavailable {
        /// The reason, and what to do about it.
        reason: Arc<str>,
    },
}

/// A lookup that has not ended yet.
pub type Pending<'a> = Pin<Box<dyn Future<Output = Lookup> + Send + 'a>>;

/// Where the host looks namespaces up: a cache of the cluster's, or a list.
///
/// Implementations are called for many requests at once. Two lookups of one name should share one request to
/// kube-apiserver.
pub trait Namespaces: fmt::Debug + Send + Sync {
    /// Returns the result if it is known without waiting. None means that only [`Namespaces::look_up`] can tell.
    fn known(&self, name: &str) -> Option<Lookup>;

    /// Looks a namespace up. A cache asks kube-apiserver for a namespace that it does not have, because the namespace
    /// can be younger than the cache. The host drops the future when the plugin's time is over.
    fn look_up<'a>(&'a self, name: &'a str) -> Pending<'a>;
}

/// No source of namespaces. Every lookup is unavailable.
#[derive(Clone, Debug)]
pub struct NoNamespaces {
    reason: Arc<str>,
}

/// The result of a review's lookup of its Namespace. All plugins of the review see the same result.
#[derive(Clone, Debug, Default)]
pub struct LookedUp(OnceLock<Lookup>);

/// The Namespace of a request, as far as the host knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfRequest<'r> {
    /// The object is cluster-scoped.
    None,
    /// The Namespace is known.
    Known(Namespace),
    /// The host has tried and could not find out. The text says why.
    Failed(String),
    /// The host has to look up this name first.
    Awaited(&'r str),
}

/// Members of a Namespace's metadata that plugins see. Kubernetes shows the same to CEL, as `namespaceObject`.
const METADATA: [&str; 11] = [
    "name",
    "generateName",
    "uid",
    "labels",
    "annotations",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
    "finalizers",
];

// === impl Namespace ===

impl Namespace {
    /// Reduces an object to what plugins see. An object without metadata is a Namespace without a name.
    #[must_use]
    pub fn of(object: &Json) -> Self {
        let metadata = object.member("metadata");
        let members = METADATA.into_iter().filter_map(|name| {
            let value = metadata?.member(name)?;
            Some((Arc::from(name), value.clone()))
        });
        let metadata = Json::Object(Arc::new(members.collect()));
        let mut document = Object::default();
        document.insert(Arc::from("apiVersion"), Json::text("v1"));
        document.insert(Arc::from("kind"), Json::text("Namespace"));
        document.insert(Arc::from("metadata"), metadata);
        Self(Json::from(document))
    }

    /// The document that plugins read.
    #[must_use]
    pub fn document(&self) -> &Json {
        &self.0
    }

    /// The name. None if the object has none.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.member("metadata")?.member("name")?.as_text()
    }
}

// === impl Lookup ===

impl Lookup {
    fn of_request(&self, name: &str) -> OfRequest<'static> {
        match self {
            Self::Found(namespace) => OfRequest::Known(namespace.clone()),
            Self::NotFound { place } => {
                OfRequest::Failed(format!("the namespace `{name}` does not exist {place}"))
            }
            Self::Unavailable { reason } => {
                OfRequest::Failed(format!("cannot look up the namespace `{name}`: {reason}"))
            }
        }
    }
}

// === impl NoNamespaces ===

impl NoNamespaces {
    /// Creates a source that has nothing. `reason` says why, and what to do about it.
    #[must_use]
    pub fn because(reason: &str) -> Self {
        Self {
            reason: Arc::from(reason),
        }
    }
}

impl Namespaces for NoNamespaces {
    fn known(&self, _name: &str) -> Option<Lookup> {
        Some(Lookup::Unavailable {
            reason: self.reason.clone(),
        })
    }

    fn look_up<'a>(&'a self, _name: &'a str) -> Pending<'a> {
        let reason = self.reason.clone();
        Box::pin(std::future::ready(Lookup::Unavailable { reason }))
    }
}

// === impl AdmissionRequest ===

impl AdmissionRequest {
    /// Returns the Namespace of the request, with the object as it is at a plugin's turn.
    ///
    /// kube-apiserver's rule for a namespaceSelector (predicates/namespace/matcher.go) decides which Namespace that is:
    ///
    /// - A Namespace that is created or updated is in itself.
    /// - A Namespace in any other request is in the stored Namespace, which is the old object if there is one.
    /// - Any other object without a namespace is in none.
    #[must_use]
    pub fn namespace_of<'r>(&'r self, object: Option<&Json>) -> OfRequest<'r> {
        let is_namespace = self.is_about_namespaces();
        if is_namespace {
            let is_stored_later = self.sub_resource.is_none()
                && matches!(self.operation, Operation::Create | Operation::Update);
            let itself = if is_stored_later {
                object
            } else {
                self.old_object.as_ref()
            };
            if let Some(itself) = itself {
                return OfRequest::Known(Namespace::of(itself));
            }
        }
        let named = self.namespace.as_deref().filter(|name| !name.is_empty());
        let Some(name) = named.or_else(|| is_namespace.then_some(self.name.as_str())) else {
            return OfRequest::None;
        };
        match self.looked_up.0.get() {
            Some(lookup) => lookup.of_request(name),
            None => OfRequest::Awaited(name),
        }
    }

    /// Records the result of a lookup. The first result counts for the whole review.
    pub fn take_lookup(&self, lookup: Lookup) {
        let _: Result<(), _> = self.looked_up.0.set(lookup);
    }

    /// Whether the request is about a namespaced object of this namespace.
    ///
    /// kube-apiserver sets the namespace of a request about a Namespace to that Namespace's own name. Nevertheless, a
    /// Namespace and its subresources are cluster-scoped. A resource of this name counts as cluster-scoped in any API
    /// group, because kube-apiserver takes the name behind `namespaces/` in a path for a namespace.
    #[must_use]
    pub fn is_in_namespace(&self, name: &str) -> bool {
        let is_namespace = self.resource.resource == "namespaces"
            || (self.kind.group.is_empty() && self.kind.kind == "Namespace");
        !name.is_empty() && self.namespace.as_deref() == Some(name) && !is_namespace
    }

    /// Whether the request is about Namespaces. Their subresources count, too.
    #[must_use]
    pub fn is_about_namespaces(&self) -> bool {
        self.resource.group.is_empty() && self.resource.resource == "namespaces"
    }
}

#[cfg(test)]
mod tests;
