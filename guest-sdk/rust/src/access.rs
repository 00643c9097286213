//! The `access` capability: whether the user of the request may do something in the cluster. The host does not load a
//! plugin that uses [`Action::check`] unless its configuration has `capabilities: [access]`, or the plugin also uses
//! [`is_granted`].
//!
//! ```
//! use tollgate_sdk::access::{Action, OrFault as _};
//! use tollgate_sdk::prelude::*;
//!
//! fn validate(review: &Review) -> Result<(), Denial> {
//!     let namespace = review.request().namespace.clone().unwrap_or_default();
//!     let may_delete = Action::resource("delete", "apps", "deployments").namespace(namespace);
//!     if !may_delete.check().or_fault().allowed {
//!         return Err(Denial::new("only those who may delete the Deployment may do this"));
//!     }
//!     Ok(())
//! }
//! ```
//!
//! kube-apiserver answers, and the host remembers an answer for at most ten seconds. A question that the host has to
//! pass on starts the call anew, so a plugin asks late and seldom.

use std::fmt;

use crate::bindings::access::tollgate::admission::access as contract;
use crate::host;

/// Something that a user would do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an action does nothing before it is checked"]
pub struct Action(contract::Action);

/// The answer of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the user may do it.
    pub allowed: bool,
    /// Why. May be empty, and may name roles and bindings.
    pub reason: String,
    /// What an authorizer of kube-apiserver failed at. `allowed` counts all the same.
    pub error: Option<String>,
}

/// Why there is no answer. The text is for the operator, and names no user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The configuration does not let the plugin ask this.
    NotGranted(String),
    /// kube-apiserver has not answered, or the host has no authorizer. It must not count as "allowed": a plugin that
    /// enforces ends the call with [`OrFault::or_fault`], and its failure policy decides.
    Unavailable(String),
}

/// Ends the call if there is no answer.
pub trait OrFault<T> {
    /// Returns the answer.
    ///
    /// # Panics
    /// If there is none. That is a fault of the plugin, so its failure policy decides about the request, and the
    /// operator reads the reason.
    #[track_caller]
    fn or_fault(self) -> T;
}

/// Whether the configuration grants the capability. A plugin that calls this is loaded without it, too. It may be called
/// in `configure`.
#[must_use]
pub fn is_granted() -> bool {
    host::has_access()
}

// === impl Action ===

impl Action {
    /// An action on a resource, such as `delete` on `deployments` in the group `apps`. The core group is `""`. Without
    /// more, it is about all objects in all namespaces, or about all objects of a cluster-scoped resource.
    pub fn resource(
        verb: impl Into<String>,
        group: impl Into<String>,
        resource: impl Into<String>,
    ) -> Self {
        Self(contract::Action::Resource(contract::ResourceAction {
            verb: verb.into(),
            group: group.into(),
            resource: resource.into(),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
        }))
    }

    /// An action on a path that is no resource, such as `get` on `/metrics`.
    pub fn path(verb: impl Into<String>, path: impl Into<String>) -> Self {
        Self(contract::Action::Path(contract::PathAction {
            verb: verb.into(),
            path: path.into(),
        }))
    }

    /// Sets the subresource, such as `exec`. Does nothing for a path.
    pub fn subresource(mut self, subresource: impl Into<String>) -> Self {
        if let contract::Action::Resource(action) = &mut self.0 {
            action.subresource = subresource.into();
        }
        self
    }

    /// Sets the namespace. Does nothing for a path.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        if let contract::Action::Resource(action) = &mut self.0 {
            action.namespace = namespace.into();
        }
        self
    }

    /// Sets the name of the object. Does nothing for a path.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        if let contract::Action::Resource(action) = &mut self.0 {
            action.name = name.into();
        }
        self
    }

    /// Whether the user of the request may do it.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn check(&self) -> Result<Decision, Failure> {
        answer(host::check_access(&self.0, None))
    }

    /// Whether a service account may do it. The configuration has to grant `access: { serviceAccounts: true }`.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn check_service_account(&self, namespace: &str, name: &str) -> Result<Decision, Failure> {
        let account = contract::ServiceAccount {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        answer(host::check_access(&self.0, Some(&account)))
    }
}

fn answer(answer: Result<contract::Decision, contract::Failure>) -> Result<Decision, Failure> {
    match answer {
        Ok(decision) => Ok(Decision {
            allowed: decision.allowed,
            reason: decision.reason,
            error: decision.error,
        }),
        Err(contract::Failure::NotGranted(text)) => Err(Failure::NotGranted(text)),
        Err(contract::Failure::Unavailable(text)) => Err(Failure::Unavailable(text)),
    }
}

// === impl Failure ===

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotGranted(text) => write!(f, "access not granted: {text}"),
            Self::Unavailable(text) => write!(f, "access unavailable: {text}"),
        }
    }
}

impl std::error::Error for Failure {}

// === impl OrFault ===

impl<T> OrFault<T> for Result<T, Failure> {
    #[expect(
        clippy::panic,
        reason = "a panic is how a plugin ends its call as a fault"
    )]
    fn or_fault(self) -> T {
        match self {
            Ok(answer) => answer,
            Err(failure) => panic!("{failure}"),
        }
    }
}
