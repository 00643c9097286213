//! What a user may do in the cluster: the question, the answer, and who answers.
//!
//! kube-apiserver answers with a SubjectAccessReview. Nobody else can, because rights come from several authorizers, and
//! some of them are outside of the cluster. A question without an answer is [`Unavailable`]. It never counts as
//! "allowed".

mod fixed;

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tollgate_json::document::Json;

pub use fixed::{FixedRights, On, Rule, Subject};

use crate::review::request::AdmissionRequest;

/// A user, as an authorizer sees it.
///
/// `Debug` shows nothing of it, so that no user's name gets into a log by mistake.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct User {
    /// The name.
    pub name: String,
    /// The uid. Empty if the user has none.
    pub uid: String,
    /// The groups, in their order.
    pub groups: Vec<String>,
    /// Further fields that an authenticator has added.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What the user would do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// An action on a resource. An empty text is "not set".
    Resource {
        /// The verb, such as `delete`.
        verb: String,
        /// The API group; empty for the core group.
        group: String,
        /// The resource in the plural, such as `pods`.
        resource: String,
        /// The subresource, such as `exec`.
        subresource: String,
        /// The namespace. Empty for a cluster-scoped resource and for "in all namespaces".
        namespace: String,
        /// The name of the object. Empty for "all objects".
        name: String,
    },
    /// An action on a path that is no resource.
    Path {
        /// The HTTP method in lower case.
        verb: String,
        /// The path, such as `/metrics`.
        path: String,
    },
}

/// Whether a user may do something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Question {
    /// The user. Shared, because a plugin may ask several questions about the same one.
    pub user: Arc<User>,
    /// The action.
    pub action: Action,
}

/// The answer of an authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the user may do it.
    pub allowed: bool,
    /// Why. May be empty.
    pub reason: Arc<str>,
    /// What the authorizer failed at. `allowed` counts all the same.
    pub error: Option<Arc<str>>,
}

/// Nobody can tell now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unavailable {
    /// The reason, and what to do about it. It names no user.
    pub reason: Arc<str>,
}

/// The answer to a question.
pub type Answer = Result<Decision, Unavailable>;

/// A question that has no answer yet.
pub type Pending<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// Who answers: kube-apiserver, or a list of rules.
///
/// Implementations are called for many requests at once. Equal questions should share one request to kube-apiserver.
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Returns the answer if it is known without waiting. None means that only [`Authorizer::ask`] can tell.
    fn known(&self, question: &Question) -> Option<Answer>;

    /// Asks. The host drops the future when the plugin's time is over.
    fn ask<'a>(&'a self, question: &'a Question) -> Pending<'a>;
}

/// No authorizer. Every answer is [`Unavailable`].
#[derive(Clone, Debug)]
pub struct NoAuthorizer {
    reason: Arc<str>,
}

/// The longest text of an authorizer that plugins get, in bytes.
const LONGEST_TEXT: usize = 1024;

// === impl User ===

impl User {
    /// Returns the user of a request.
    #[must_use]
    pub fn of_request(request: &AdmissionRequest) -> Self {
        let info = request.document.user_info();
        let member = |name| info.and_then(|info| info.member(name));
        let text = |name| member(name).and_then(Json::as_text).unwrap_or_default();
        let extra = member("extra").and_then(Json::as_object);
        let extra = extra.into_iter().flatten();
        Self {
            name: text("username").to_owned(),
            uid: text("uid").to_owned(),
            groups: texts(member("groups")),
            extra: extra
                .map(|(key, values)| (key.to_string(), texts(Some(values))))
                .collect(),
        }
    }

    /// Returns a service account, as Kubernetes' CEL asks about one: with the groups of all service accounts and of
    /// those of its namespace.
    #[must_use]
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ],
            ..Self::default()
        }
    }
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("User")
    }
}

fn texts(list: Option<&Json>) -> Vec<String> {
    let elements = list.and_then(Json::as_array).into_iter().flatten();
    let texts = elements.filter_map(Json::as_text);
    texts.map(str::to_owned).collect()
}

// === impl Action ===

impl Action {
    /// Returns the namespace of an action on a resource in a namespace.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Resource { namespace, .. } if !namespace.is_empty() => Some(namespace),
            _ => None,
        }
    }

    /// Returns all texts, to bound and to charge them.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let texts = match self {
            Self::Resource {
                verb,
                group,
                resource,
                subresource,
                namespace,
                name,
            } => [verb, group, resource, subresource, namespace, name].map(Some),
            Self::Path { verb, path } => [Some(verb), Some(path), None, None, None, None],
        };
        texts.into_iter().flatten().map(String::as_str)
    }

    /// Returns what is wrong with an action that no authorizer could answer.
    ///
    /// # Errors
    /// When the verb, the resource or the path is empty.
    pub fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Resource { verb, .. } | Self::Path { verb, .. } if verb.is_empty() => {
                Err("the verb is empty")
            }
            Self::Resource { resource, .. } if resource.is_empty() => Err("the resource is empty"),
            Self::Path { path, .. } if path.is_empty() => Err("the path is empty"),
            _ => Ok(()),
        }
    }
}

// === impl Decision ===

impl Decision {
    /// Creates a decision. Texts of more than 1 KiB are cut.
    #[must_use]
    pub fn new(allowed: bool, reason: &str, error: Option<&str>) -> Self {
        Self {
            allowed,
            reason: cut(reason),
            error: error.filter(|error| !error.is_empty()).map(cut),
        }
    }

    /// The bytes of its texts.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        self.reason.len() + self.error.as_ref().map_or(0, |error| error.len())
    }
}

fn cut(text: &str) -> Arc<str> {
    Arc::from(&text[..text.floor_char_boundary(LONGEST_TEXT)])
}

// === impl Unavailable ===

impl Unavailable {
    /// Creates the answer. `reason` says why, and what to do about it.
    #[must_use]
    pub fn because(reason: &str) -> Self {
        Self {
            reason: Arc::from(reason),
        }
    }
}

// === impl NoAuthorizer ===

impl NoAuthorizer {
    /// Creates an authorizer that never answers. `reason` says why, and what to do about it.
    #[must_use]
    pub fn because(reason: &str) -> Self {
        Self {
            reason: Arc::from(reason),
        }
    }

    fn answer(&self) -> Answer {
        Err(Unavailable {
            reason: self.reason.clone(),
        })
    }
}

impl Authorizer for NoAuthorizer {
    fn known(&self, _question: &Question) -> Option<Answer> {
        Some(self.answer())
    }

    fn ask<'a>(&'a self, _question: &'a Question) -> Pending<'a> {
        Box::pin(std::future::ready(self.answer()))
    }
}

#[cfg(test)]
mod tests;
