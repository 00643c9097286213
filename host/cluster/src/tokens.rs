//! Tokens of the cluster for the admin listener. kube-apiserver verifies a token with a TokenReview, and its user's
//! right with a SubjectAccessReview.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tollgate_admission::tokens::{PendingVerdict, Right, TokenReviewer, TokenVerdict};

use self::cache::{Cache, Key};

use crate::api::words;

mod cache;

/// Asks kube-apiserver about tokens, and remembers verdicts for ten seconds.
pub struct ClusterTokens {
    client: Client,
    /// The audiences that a token must have one of. Empty means kube-apiserver's own.
    audiences: Vec<String>,
    cache: Mutex<Cache>,
    /// A stranger with many wrong tokens must not occupy kube-apiserver.
    turns: Semaphore,
}

/// Reviews that are under way at the same time.
const CONCURRENT: usize = 4;
/// Time limit of one review, the wait for a turn included.
const LIMIT: Duration = Duration::from_secs(5);

// === impl ClusterTokens ===

impl ClusterTokens {
    /// Creates a reviewer. With `audiences`, a token must be for one of them.
    #[must_use]
    pub fn new(client: Client, audiences: Vec<String>) -> Self {
        Self {
            client,
            audiences,
            cache: Mutex::default(),
            turns: Semaphore::new(CONCURRENT),
        }
    }

    async fn verdict(&self, token: &str, right: Right) -> TokenVerdict {
        let key = Key::of(token, right);
        if let Some(verdict) = self.remembered(&key, Instant::now()) {
            return verdict;
        }
        let review = async {
            // The semaphore is never closed.
            let _turn = self.turns.acquire().await;
            let began = Instant::now();
            // Another request with this token may have waited for the same.
            if let Some(verdict) = self.remembered(&key, began) {
                return Ok(verdict);
            }
            let verdict = self.ask(token, right).await?;
            let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.remember(key.clone(), verdict.clone(), began);
            Ok::<_, kube::Error>(verdict)
        };
        let reason = match timeout(LIMIT, review).await {
            Ok(Ok(verdict)) => return verdict,
            Ok(Err(error)) => words(&error),
            Err(_elapsed) => format!("no answer within {} s", LIMIT.as_secs()),
        };
        TokenVerdict::Unavailable {
            reason: reason.into(),
        }
    }

    fn remembered(&self, key: &Key, now: Instant) -> Option<TokenVerdict> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(key, now)
    }

    async fn ask(&self, token: &str, right: Right) -> Result<TokenVerdict, kube::Error> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                audiences: Some(self.audiences.clone()).filter(|audiences| !audiences.is_empty()),
            },
            ..TokenReview::default()
        };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let reviewed = api.create(&PostParams::default(), &review).await?;
        let Some(user) = user(reviewed, &self.audiences) else {
            return Ok(TokenVerdict::NotAuthenticated);
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(right.path.to_owned()),
                    verb: Some(right.verb.to_owned()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let reviewed = api.create(&PostParams::default(), &review).await?;
        Ok(match reviewed.status {
            Some(status) if status.allowed && !status.denied.unwrap_or(false) => {
                TokenVerdict::Allowed
            }
            _ => TokenVerdict::Forbidden,
        })
    }
}

/// Returns the user of a token that kube-apiserver has accepted for one of the audiences.
fn user(review: TokenReview, audiences: &[String]) -> Option<UserInfo> {
    let status = review.status?;
    if status.authenticated != Some(true) || status.error.is_some_and(|error| !error.is_empty()) {
        return None;
    }
    // An authenticator that does not know about audiences returns none. Then the token counts for nobody but
    // kube-apiserver.
    let accepted = status.audiences.unwrap_or_default();
    let is_for_us = audiences.is_empty() || accepted.iter().any(|one| audiences.contains(one));
    let user = status.user.filter(|_| is_for_us)?;
    let is_named = user.username.as_ref().is_some_and(|name| !name.is_empty());
    is_named.then_some(user)
}

impl TokenReviewer for ClusterTokens {
    fn review<'a>(&'a self, token: &'a str, right: Right) -> PendingVerdict<'a> {
        Box::pin(self.verdict(token, right))
    }
}

impl fmt::Debug for ClusterTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterTokens")
            .field("audiences", &self.audiences)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authentication::v1::TokenReviewStatus;

    use super::*;

    fn reviewed(status: TokenReviewStatus) -> TokenReview {
        TokenReview {
            status: Some(status),
            ..TokenReview::default()
        }
    }

    fn accepted(audiences: &[&str]) -> TokenReviewStatus {
        TokenReviewStatus {
            authenticated: Some(true),
            user: Some(UserInfo {
                username: Some("anna".to_owned()),
                ..UserInfo::default()
            }),
            audiences: Some(audiences.iter().map(|&one| one.to_owned()).collect()),
            error: None,
        }
    }

    #[test]
    fn accepts_only_what_kube_apiserver_authenticates_for_an_audience() {
        let own = ["tollgate".to_owned()];
        let name = |status, audiences: &[String]| user(reviewed(status), audiences)?.username;
        let anna = Some("anna".to_owned());
        assert_eq!(name(accepted(&["https://kubernetes"]), &[]), anna);
        assert_eq!(name(accepted(&["other", "tollgate"]), &own), anna);
        assert_eq!(name(accepted(&["other"]), &own), None);
        assert_eq!(name(accepted(&[]), &own), None);
        for authenticated in [Some(false), None] {
            let refused = TokenReviewStatus {
                authenticated,
                ..accepted(&["tollgate"])
            };
            assert_eq!(name(refused, &own), None);
        }
        let broken = TokenReviewStatus {
            error: Some("an authenticator failed".to_owned()),
            ..accepted(&["tollgate"])
        };
        assert_eq!(name(broken, &own), None);
        let nameless = TokenReviewStatus {
            user: Some(UserInfo::default()),
            ..accepted(&["tollgate"])
        };
        assert_eq!(name(nameless, &own), None);
        assert_eq!(user(TokenReview::default(), &own), None);
    }
}
