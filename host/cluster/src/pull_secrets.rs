//! The `imagePullSecrets` of Pods, for the verification of their images: kube-apiserver hands them out.
//!
//! Nothing is read before a plugin asks about an image in a namespace that its configuration lists. Equal reads share one
//! request, and results count for some seconds. Nothing here logs the content of a Secret.

mod cache;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, Shared, join_all};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::{Api, Client};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tollgate_admission::images::{
    PendingSecrets, PullSecret, PullSecretKind, PullSecrets, Puller, Secrets, Unreadable, checked,
};

use self::cache::Cache;
use crate::api::words;

/// Reads Secrets and service accounts from kube-apiserver, and remembers them for half a minute.
pub struct ClusterPullSecrets {
    shared: Arc<Parts>,
    /// Requests to kube-apiserver that are under way.
    asked: Arc<Mutex<HashMap<Key, Request>>>,
}

type Request = Shared<BoxFuture<'static, Fetched>>;

/// What a request needs.
struct Parts {
    source: Box<dyn Source>,
    cache: Mutex<Cache>,
    /// Many Pods at the same time must not occupy kube-apiserver.
    turns: Semaphore,
}

/// An object in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    kind: Kind,
    namespace: Arc<str>,
    name: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Secret,
    ServiceAccount,
}

/// What is kept of an object.
#[derive(Clone, Debug)]
enum Object {
    /// The object does not exist, or is not of use.
    Nothing,
    Secret(Arc<PullSecret>),
    /// The names of the Secrets of a service account.
    Names(Arc<[Box<str>]>),
}

type Fetched = Result<Object, Unreadable>;

/// Where objects come from. A test has others.
trait Source: Send + Sync {
    fn fetch<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Fetched>;
}

/// Requests that are under way at the same time.
const CONCURRENT: usize = 8;
/// Time limit of one request, the wait for a turn included. The plugin's own time limit applies, too.
const LIMIT: Duration = Duration::from_secs(5);

const CONFIG_JSON: (&str, &str) = ("kubernetes.io/dockerconfigjson", ".dockerconfigjson");
const CONFIG: (&str, &str) = ("kubernetes.io/dockercfg", ".dockercfg");

// === impl ClusterPullSecrets ===

impl ClusterPullSecrets {
    /// Creates a reader. It reads nothing before a plugin asks.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self::with(Box::new(client))
    }

    fn with(source: Box<dyn Source>) -> Self {
        let parts = Parts {
            source,
            cache: Mutex::default(),
            turns: Semaphore::new(CONCURRENT),
        };
        Self {
            shared: Arc::new(parts),
            asked: Arc::default(),
        }
    }

    fn remembered(&self, key: &Key) -> Option<Fetched> {
        let cache = &self.shared.cache;
        let cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(key, Instant::now())
    }

    /// Returns the request for an object. Callers that need the same at the same time share it.
    fn request(&self, key: &Key) -> Request {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        // A request that all callers gave up on does not go on, and must not be found by the next caller.
        asked.retain(|_, request| request.strong_count().is_some_and(|count| count > 1));
        let begin = || {
            let (parts, all, key) = (self.shared.clone(), self.asked.clone(), key.clone());
            let request = async move {
                let fetched = parts.fetch(&key).await;
                all.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(&key);
                fetched
            };
            request.boxed().shared()
        };
        asked.entry(key.clone()).or_insert_with(begin).clone()
    }

    async fn object(&self, key: &Key) -> Fetched {
        match self.remembered(key) {
            Some(fetched) => fetched,
            None => self.request(key).await,
        }
    }

    async fn secrets(&self, puller: &Puller) -> Secrets {
        let names = match account(puller) {
            Some(key) => names_of(self.object(&key).await?),
            None => puller.secrets.clone(),
        };
        let keys = secrets(puller, &names);
        let objects = join_all(keys.iter().map(|key| self.object(key))).await;
        collected(objects.into_iter())
    }
}

impl PullSecrets for ClusterPullSecrets {
    fn known(&self, puller: &Puller) -> Option<Secrets> {
        let names = match account(puller) {
            Some(key) => match self.remembered(&key)? {
                Ok(object) => names_of(object),
                Err(unreadable) => return Some(Err(unreadable)),
            },
            None => puller.secrets.clone(),
        };
        let keys = secrets(puller, &names);
        let objects: Option<Vec<Fetched>> = keys.iter().map(|key| self.remembered(key)).collect();
        Some(collected(objects?.into_iter()))
    }

    fn read<'a>(&'a self, puller: &'a Puller) -> PendingSecrets<'a> {
        Box::pin(self.secrets(puller))
    }
}

impl fmt::Debug for ClusterPullSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterPullSecrets").finish_non_exhaustive()
    }
}

/// The service account whose Secrets count. None if the Pod has its own: Kubernetes then adds no others.
fn account(puller: &Puller) -> Option<Key> {
    puller.secrets.is_empty().then(|| Key {
        kind: Kind::ServiceAccount,
        namespace: puller.namespace.clone(),
        name: Box::from(&*puller.service_account),
    })
}

fn secrets(puller: &Puller, names: &[Box<str>]) -> Vec<Key> {
    let keys = names.iter().map(|name| Key {
        kind: Kind::Secret,
        namespace: puller.namespace.clone(),
        name: name.clone(),
    });
    keys.collect()
}

fn names_of(object: Object) -> Arc<[Box<str>]> {
    match object {
        Object::Names(names) => names,
        Object::Nothing | Object::Secret(_) => Arc::default(),
    }
}

fn collected(objects: impl Iterator<Item = Fetched>) -> Secrets {
    let mut secrets = Vec::new();
    for object in objects {
        if let Object::Secret(secret) = object? {
            secrets.push(secret);
        }
    }
    Ok(secrets.into())
}

// === impl Parts ===

impl Parts {
    async fn fetch(&self, key: &Key) -> Fetched {
        let request = async {
            // The semaphore is never closed.
            let _turn = self.turns.acquire().await;
            self.source.fetch(key).await
        };
        let fetched = timeout(LIMIT, request).await.unwrap_or_else(|_elapsed| {
            Err(Unreadable::because(&format!(
                "kube-apiserver does not answer about {key}"
            )))
        });
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.remember(key.clone(), fetched.clone(), Instant::now());
        fetched
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Secret => "Secret",
            Kind::ServiceAccount => "ServiceAccount",
        };
        write!(f, "the {kind} {}/{}", self.namespace, self.name)
    }
}

// === impl Source ===

impl Source for Client {
    fn fetch<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Fetched> {
        let fetch = async {
            let unreadable = |error| Unreadable::because(&reason(key, &error));
            match key.kind {
                Kind::Secret => {
                    let api: Api<Secret> = Api::namespaced(self.clone(), &key.namespace);
                    let found = api.get_opt(&key.name).await.map_err(unreadable)?;
                    Ok(found.map_or(Object::Nothing, |secret| read_secret(key, &secret)))
                }
                Kind::ServiceAccount => {
                    let api: Api<ServiceAccount> = Api::namespaced(self.clone(), &key.namespace);
                    let found = api.get_opt(&key.name).await.map_err(unreadable)?;
                    Ok(found.map_or(Object::Nothing, |account| read_account(&account)))
                }
            }
        };
        fetch.boxed()
    }
}

/// Returns why kube-apiserver has not answered, and what to do about it. An error of the parser can quote a Secret, so only
/// its kind is told.
fn reason(key: &Key, error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => format!(
            "kube-apiserver forbids the host to get {key}: `tollgate check` prints the Roles that it needs"
        ),
        kube::Error::Api(status) => format!(
            "kube-apiserver refuses to hand out {key} with status {} ({})",
            status.code, status.reason
        ),
        kube::Error::SerdeError(_) => format!("kube-apiserver's answer about {key} cannot be read"),
        error => format!("cannot read {key}: {}", words(error)),
    }
}

/// Reads the content of a Secret. The kubelet has no use for other types either.
fn read_secret(key: &Key, secret: &Secret) -> Object {
    let (kind, member) = match secret.type_.as_deref() {
        Some(kind) if kind == CONFIG_JSON.0 => (PullSecretKind::DockerConfigJson, CONFIG_JSON.1),
        Some(kind) if kind == CONFIG.0 => (PullSecretKind::DockerCfg, CONFIG.1),
        _ => return Object::Nothing,
    };
    let content = secret.data.as_ref().and_then(|data| data.get(member));
    let Some(content) = content else {
        return Object::Nothing;
    };
    match PullSecret::read(kind, &content.0) {
        Ok(read) => Object::Secret(Arc::new(read)),
        Err(error) => {
            tracing::warn!(secret = %key, %error, "cannot use the image pull secret; pulling without it");
            Object::Nothing
        }
    }
}

fn read_account(account: &ServiceAccount) -> Object {
    let secrets = account.image_pull_secrets.iter().flatten();
    Object::Names(checked(secrets.map(|secret| secret.name.as_str())).collect())
}

#[cfg(test)]
mod tests;
