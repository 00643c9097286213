//! Reviews for unit tests. Policies run natively, without WebAssembly and without a host.
//!
//! [`TestReview`] stands in for the host. It reads pointers as strictly as the host, applies patches under strict RFC
//! 6902, and keeps the warnings, annotations and log of the policy. It has no budgets. It sorts the members of an
//! object by name, and the host keeps document order.
//!
//! ```
//! # use tollgate_sdk::prelude::*;
//! # #[derive(serde::Deserialize)]
//! # struct Owner { team: String }
//! # impl Policy for Owner {
//! #     type Settings = Self;
//! #     fn configure(settings: Self) -> Result<Self, SettingsErrors> { Ok(settings) }
//! # }
//! # impl Mutate for Owner {
//! #     fn mutate(&self, review: &Review) -> Result<Mutation, Denial> {
//! #         Ok(Patch::new().set(review.object(), "/metadata/labels/team", self.team.as_str()).into())
//! #     }
//! # }
//! use serde_json::json;
//! use tollgate_sdk::testing::TestReview;
//!
//! let outcome = TestReview::create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}))
//!     .settings(json!({"team": "blue"}))
//!     .mutate::<Owner>();
//! assert_eq!(outcome.object()["metadata"]["labels"], json!({"team": "blue"}));
//! ```

#[cfg(feature = "access")]
pub(crate) mod access;
pub(crate) mod host;
#[cfg(feature = "images")]
pub(crate) mod images;
#[cfg(feature = "cluster")]
pub(crate) mod lookups;
mod namespace;
mod outcome;
mod patch;
mod request;

use serde_json::{Value as Json, json};

use crate::{
    AdmissionRequest, Manifest, Mutate, Operation, Plugin, Policy, Review, SettingsErrors,
    Validate, settings,
};

pub use outcome::{Effects, Mutated, Outcome};

/// An admission review under construction, with the settings of the policy.
///
/// The request's kind, resource, name and namespace are derived from the object. The other functions override them.
#[derive(Clone, Debug)]
pub struct TestReview {
    pub(crate) request: AdmissionRequest,
    pub(crate) document: Json,
    pub(crate) object: Option<Json>,
    pub(crate) old_object: Option<Json>,
    pub(crate) options: Option<Json>,
    pub(crate) namespace: Option<Json>,
    pub(crate) now: Option<std::time::SystemTime>,
    #[cfg(feature = "access")]
    pub(crate) access: access::Access,
    #[cfg(feature = "images")]
    pub(crate) images: images::Images,
    #[cfg(feature = "cluster")]
    pub(crate) lookups: lookups::Lookups,
    settings: Json,
}

/// Configures a policy like the host.
///
/// # Errors
/// The errors that the host would report.
pub fn configure<P: Policy>(settings: Json) -> Result<P, SettingsErrors> {
    settings::configure(&settings.to_string())
}

/// Returns the manifest of an exported policy.
#[must_use]
pub fn manifest<P: Plugin>() -> Manifest {
    P::manifest()
}

// === impl TestReview ===

impl TestReview {
    /// A review of the creation of an object.
    #[must_use]
    pub fn create(object: Json) -> Self {
        Self::new(Operation::Create, Some(object), None)
    }

    /// A review of the replacement of an object.
    #[must_use]
    pub fn update(old_object: Json, object: Json) -> Self {
        Self::new(Operation::Update, Some(object), Some(old_object))
    }

    /// A review of the deletion of an object.
    #[must_use]
    pub fn delete(old_object: Json) -> Self {
        Self::new(Operation::Delete, None, Some(old_object))
    }

    /// A review of a new connection. The object is the connection's options, such as PodExecOptions.
    #[must_use]
    pub fn connect(object: Json) -> Self {
        Self::new(Operation::Connect, Some(object), None)
    }

    /// A review from a whole AdmissionReview, as kube-apiserver sends it.
    ///
    /// # Panics
    /// If the review has no request or no known operation.
    #[must_use]
    pub fn from_review(review: Json) -> Self {
        request::from_review(review)
    }

    fn new(operation: Operation, object: Option<Json>, old_object: Option<Json>) -> Self {
        let (request, document) =
            request::derive(operation, object.as_ref().or(old_object.as_ref()));
        Self {
            request,
            document,
            object,
            old_object,
            options: None,
            namespace: None,
            now: None,
            #[cfg(feature = "access")]
            access: access::Access::default(),
            #[cfg(feature = "images")]
            images: images::Images::default(),
            #[cfg(feature = "cluster")]
            lookups: lookups::Lookups::default(),
            settings: json!({}),
        }
    }

    /// Sets the settings of the policy. The default is `{}`.
    #[must_use]
    pub fn settings(mut self, settings: Json) -> Self {
        self.settings = settings;
        self
    }

    /// Replaces the object.
    #[must_use]
    pub fn object(mut self, object: Json) -> Self {
        self.object = Some(object);
        self
    }

    /// Replaces the old object.
    #[must_use]
    pub fn old(mut self, old_object: Json) -> Self {
        self.old_object = Some(old_object);
        self
    }

    /// Replaces the operation. The objects stay unchanged.
    #[must_use]
    pub fn operation(mut self, operation: Operation) -> Self {
        self.request.operation = operation;
        self.document["operation"] = json!(operation.as_str());
        self
    }

    /// Overrides the resource, which is derived from the kind.
    #[must_use]
    pub fn resource(mut self, group: &str, version: &str, resource: &str) -> Self {
        self.request.resource = crate::GroupVersionResource {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        };
        self.document["resource"] =
            json!({"group": group, "version": version, "resource": resource});
        self
    }

    /// Sets the subresource, such as `ephemeralcontainers`.
    #[must_use]
    pub fn sub_resource(mut self, sub_resource: &str) -> Self {
        self.request.sub_resource = Some(sub_resource.to_owned());
        self.document["subResource"] = json!(sub_resource);
        self
    }

    /// Overrides the object's namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.request.namespace = Some(namespace.to_owned());
        self.document["namespace"] = json!(namespace);
        self
    }

    /// Sets the Namespace of the object, and the request's namespace if the object names none. A policy sees only
    /// apiVersion, kind and metadata of it. Not needed for a review of a Namespace, which is in itself.
    #[must_use]
    pub fn namespace_object(self, namespace: Json) -> Self {
        let name = namespace
            .pointer("/metadata/name")
            .and_then(Json::as_str)
            .map(str::to_owned);
        let review = match name {
            Some(name) if self.request.namespace.is_none() => self.namespace(&name),
            _ => self,
        };
        Self {
            namespace: Some(namespace),
            ..review
        }
    }

    /// Overrides the object's name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.request.name);
        self.document["name"] = json!(name);
        self
    }

    /// Makes this a dry run.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.request.dry_run = true;
        self.document["dryRun"] = json!(true);
        self
    }

    /// Sets the user who makes the request.
    #[must_use]
    pub fn user(mut self, username: &str, groups: &[&str]) -> Self {
        self.document["userInfo"] = json!({"username": username, "groups": groups});
        self
    }

    /// Sets the operation's options.
    #[must_use]
    pub fn options(mut self, options: Json) -> Self {
        self.options = Some(options);
        self
    }

    /// Sets the time that `clock::now` returns, for plugins with the capability.
    #[must_use]
    pub fn now(mut self, now: std::time::SystemTime) -> Self {
        self.now = Some(now);
        self
    }

    /// Adds a lookup, as the configuration has it under `lookups`, with the objects that it holds. The policy sees only
    /// the objects' `fields`, and finds them by `indexes`. `resource`, `labelSelector` and `secrets` have no effect here:
    /// give the objects that they select.
    ///
    /// # Panics
    /// If a key of the lookup is unknown, or an object has no name.
    #[cfg(feature = "cluster")]
    #[must_use]
    pub fn lookup(mut self, lookup: Json, objects: impl IntoIterator<Item = Json>) -> Self {
        self.lookups.add(lookup, objects);
        self
    }

    /// Adds a lookup that the host has not read yet. All functions of [`cluster`](crate::cluster) fail for it.
    #[cfg(feature = "cluster")]
    #[must_use]
    pub fn not_synchronised(mut self, lookup: &str) -> Self {
        self.lookups.add_not_synchronised(lookup);
        self
    }

    /// Grants the capability [`access`](crate::access), with rules as in a suite: somebody may do something. Everything
    /// else is denied. A rule has `user` or `group`, `verb`, `apiGroup` (default `""`), `resource` such as `pods` or
    /// `pods/exec`, `namespace` and `name` (default: every one), or `path` instead of these. `*` matches everything.
    ///
    /// # Panics
    /// If a rule is malformed.
    #[cfg(feature = "access")]
    #[must_use]
    pub fn access(mut self, rules: impl IntoIterator<Item = Json>) -> Self {
        self.access = access::Access::of(rules);
        self
    }

    /// Grants the capability [`access`](crate::access). Every question is unavailable.
    #[cfg(feature = "access")]
    #[must_use]
    pub fn access_unavailable(mut self) -> Self {
        self.access = access::Access::Unavailable;
        self
    }

    /// Grants the capability [`images`](crate::images), with the images that registries have, as in a suite. Others are not
    /// found. An entry has `image` and `result`: `verified`, `last-known-good`, `unsigned`, `untrusted`, `not-found`,
    /// `not-granted` or `unavailable`. It may have `policy` (default: every one), `digest`, `signers` and `reason`.
    ///
    /// # Panics
    /// If an entry is malformed.
    #[cfg(feature = "images")]
    #[must_use]
    pub fn images(mut self, images: impl IntoIterator<Item = Json>) -> Self {
        self.images = images::Images::of(images);
        self
    }

    /// Validates the review.
    ///
    /// # Panics
    /// If the policy rejects the settings, or panics itself.
    pub fn validate<P: Validate>(&self) -> Outcome<()> {
        let policy = self.policy::<P>();
        let (answer, effects) =
            host::with_review(self.clone(), || policy.validate(&Review::ambient()));
        Outcome::new(answer, effects)
    }

    /// Mutates the object.
    ///
    /// # Panics
    /// If the policy rejects the settings or panics itself, or if the host would not accept its answer. Examples are a
    /// patch that does not apply, and a change without an object.
    pub fn mutate<P: Mutate>(&self) -> Outcome<Mutated> {
        let policy = self.policy::<P>();
        let (answer, effects) =
            host::with_review(self.clone(), || policy.mutate(&Review::ambient()));
        Outcome::new(
            answer.map(|mutation| patch::apply(self.object.as_ref(), mutation)),
            effects,
        )
    }

    fn policy<P: Policy>(&self) -> P {
        configure(self.settings.clone())
            .unwrap_or_else(|errors| panic!("the policy refuses its settings: {errors}"))
    }
}
