//! What users may do in the cluster, for plugins that ask: kube-apiserver says it in a SubjectAccessReview.
//!
//! Equal questions share one request, and answers count for some seconds. Nothing here logs a user or an answer.

mod cache;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, Shared};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tollgate_admission::access::{
    Action, Answer, Authorizer, Decision, Pending, Question, Unavailable,
};

use self::cache::{Cache, Key};
use tollgate_telemetry::metrics::Metrics;

use crate::api::words;

/// Asks kube-apiserver about rights, and remembers answers for ten seconds.
pub struct ClusterAuthorizer {
    shared: Arc<Parts>,
    /// Requests to kube-apiserver that are under way.
    asked: Arc<Mutex<HashMap<Key, Request>>>,
}

type Request = Shared<BoxFuture<'static, Answer>>;

/// What a request needs.
struct Parts {
    client: Client,
    cache: Mutex<Cache>,
    /// Many users at the same time must not occupy kube-apiserver.
    turns: Semaphore,
    metrics: OnceLock<Arc<Metrics>>,
}

/// Reviews that are under way at the same time.
const CONCURRENT: usize = 16;
/// Time limit of one review, the wait for a turn included. The plugin's own time limit applies, too.
const LIMIT: Duration = Duration::from_secs(5);
/// All versions of a resource. An authorizer that distinguishes them is not known.
const EVERY_VERSION: &str = "*";

// === impl ClusterAuthorizer ===

impl ClusterAuthorizer {
    /// Creates an authorizer. It asks nothing before a plugin does.
    #[must_use]
    pub fn new(client: Client) -> Self {
        let parts = Parts {
            client,
            cache: Mutex::default(),
            turns: Semaphore::new(CONCURRENT),
            metrics: OnceLock::new(),
        };
        Self {
            shared: Arc::new(parts),
            asked: Arc::default(),
        }
    }

    /// Counts the requests to kube-apiserver from now on. Only the first metrics count.
    pub fn count_in(&self, metrics: Arc<Metrics>) {
        self.shared.metrics.get_or_init(|| metrics);
    }

    /// Returns the request that asks a question. Callers that ask the same at the same time share it.
    fn request(&self, question: &Question) -> Request {
        let key = Key::of(question);
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        // A request that all callers gave up on does not go on, and must not be found by the next caller.
        asked.retain(|_, request| request.strong_count().is_some_and(|count| count > 1));
        let begin = || {
            let (parts, all) = (self.shared.clone(), self.asked.clone());
            let (question, key) = (question.clone(), key.clone());
            let request = async move {
                let answer = parts.answer(&question, &key).await;
                all.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(&key);
                answer
            };
            request.boxed().shared()
        };
        asked.entry(key.clone()).or_insert_with(begin).clone()
    }
}

impl Authorizer for ClusterAuthorizer {
    fn known(&self, question: &Question) -> Option<Answer> {
        self.shared
            .remembered(&Key::of(question), Instant::now())
            .map(Ok)
    }

    fn ask<'a>(&'a self, question: &'a Question) -> Pending<'a> {
        match self.known(question) {
            Some(answer) => Box::pin(std::future::ready(answer)),
            None => Box::pin(self.request(question)),
        }
    }
}

impl fmt::Debug for ClusterAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterAuthorizer").finish_non_exhaustive()
    }
}

// === impl Parts ===

impl Parts {
    fn remembered(&self, key: &Key, now: Instant) -> Option<Decision> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(key, now)
    }

    async fn answer(&self, question: &Question, key: &Key) -> Answer {
        let review = async {
            // The semaphore is never closed.
            let _turn = self.turns.acquire().await;
            let began = Instant::now();
            let decision = self.ask(question).await?;
            let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.remember(key.clone(), decision.clone(), began);
            Ok::<_, Unavailable>(decision)
        };
        let answer = timeout(LIMIT, review)
            .await
            .unwrap_or_else(|_elapsed| Err(Unavailable::because("kube-apiserver does not answer")));
        if let Some(metrics) = self.metrics.get() {
            metrics.access_reviewed(answer.is_ok());
        }
        answer
    }

    async fn ask(&self, question: &Question) -> Answer {
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let reviewed = api.create(&PostParams::default(), &review(question)).await;
        let reviewed = reviewed.map_err(|error| Unavailable::because(&reason(&error)))?;
        read(reviewed)
    }
}

/// Returns why kube-apiserver has not answered, and what to do about it. An error of kube-apiserver about a
/// SubjectAccessReview can quote the review, so only its kind is told.
fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            "kube-apiserver forbids the host to create subjectaccessreviews: `tollgate check` prints the ClusterRole \
             that it needs"
                .to_owned()
        }
        kube::Error::Api(status) => format!(
            "kube-apiserver refuses the SubjectAccessReview with status {} ({})",
            status.code, status.reason
        ),
        error => words(error),
    }
}

fn review(question: &Question) -> SubjectAccessReview {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let user = &question.user;
    let (resource, path) = match &question.action {
        Action::Resource {
            verb,
            group,
            resource,
            subresource,
            namespace,
            name,
        } => {
            let attributes = ResourceAttributes {
                verb: some(verb),
                group: some(group),
                version: some(EVERY_VERSION),
                resource: some(resource),
                subresource: some(subresource),
                namespace: some(namespace),
                name: some(name),
                ..ResourceAttributes::default()
            };
            (Some(attributes), None)
        }
        Action::Path { verb, path } => {
            let attributes = NonResourceAttributes {
                verb: some(verb),
                path: some(path),
            };
            (None, Some(attributes))
        }
    };
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: some(&user.name),
            uid: some(&user.uid),
            groups: Some(user.groups.clone()).filter(|groups| !groups.is_empty()),
            extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
            resource_attributes: resource,
            non_resource_attributes: path,
        },
        ..SubjectAccessReview::default()
    }
}

/// Reads an answer. One without a status says nothing.
fn read(review: SubjectAccessReview) -> Answer {
    let Some(status) = review.status else {
        return Err(Unavailable::because(
            "kube-apiserver's answer has no status",
        ));
    };
    // `denied` is stronger than `allowed`.
    let allowed = status.allowed && !status.denied.unwrap_or(false);
    let reason = status.reason.unwrap_or_default();
    let error = status.evaluation_error;
    Ok(Decision::new(allowed, &reason, error.as_deref()))
}

#[cfg(test)]
mod tests;
