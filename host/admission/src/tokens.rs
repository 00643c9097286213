//! Tokens of the cluster: what a client of the admin listener may do, and who says so.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

/// A right that a request needs, as RBAC grants it with `nonResourceURLs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Right {
    /// The verb, such as `get`.
    pub verb: &'static str,
    /// The path, such as `/tollgate/decisions`.
    pub path: &'static str,
}

/// The verdict about a token and a right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenVerdict {
    /// The token is valid, and its user has the right.
    Allowed,
    /// The token is not valid, or it is for another audience.
    NotAuthenticated,
    /// The token is valid, and its user lacks the right.
    Forbidden,
    /// The verification has no result now.
    Unavailable {
        /// The reason.
        reason: Arc<str>,
    },
}

/// A review that has not ended yet.
pub type PendingVerdict<'a> = Pin<Box<dyn Future<Output = TokenVerdict> + Send + 'a>>;

/// Verifies tokens. Every verdict except [`TokenVerdict::Allowed`] refuses the request.
pub trait TokenReviewer: fmt::Debug + Send + Sync {
    /// Reviews a token. The server drops the future when the request's time is over.
    fn review<'a>(&'a self, token: &'a str, right: Right) -> PendingVerdict<'a>;
}
