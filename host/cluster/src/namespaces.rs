//! The Namespaces of the cluster, for plugins and selectors that ask for them.
//!
//! A watch keeps the metadata of all Namespaces. A Namespace can be younger than what the watch has seen, as when a
//! manifest creates a Namespace and a Pod in it. If a name is missing, the host therefore asks kube-apiserver, and
//! only kube-apiserver can answer that the Namespace does not exist.

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, Shared};
use futures_util::stream::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace as Object;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tollgate_admission::namespaces::{Lookup, Namespace, Namespaces, Pending};
use tollgate_json::document::parse;

use crate::api::words;

/// A Namespace without `spec` and `status`. kube-apiserver sends no more.
type Meta = PartialObjectMeta<Object>;

/// The Namespaces of the cluster. Dropping it ends the watch.
pub struct ClusterNamespaces {
    api: Api<Meta>,
    known: Arc<RwLock<HashMap<String, Namespace>>>,
    /// Requests to kube-apiserver that are under way, by the name that they ask for.
    asked: Arc<Mutex<HashMap<String, Shared<BoxFuture<'static, Lookup>>>>>,
    _watch: AbortOnDropHandle<()>,
}

/// Time limit of a request to kube-apiserver. The plugin's own time limit applies, too.
const LIMIT: Duration = Duration::from_secs(5);
/// How deep the metadata of a Namespace may be nested. Kubernetes' own metadata has five levels.
const MAX_DEPTH: u32 = 20;

// === impl ClusterNamespaces ===

impl ClusterNamespaces {
    /// Begins to watch. kube-apiserver may be away meanwhile: every name is then looked up.
    #[must_use]
    pub fn start(client: Client) -> Self {
        let api: Api<Meta> = Api::all(client);
        let known = Arc::new(RwLock::new(HashMap::new()));
        let watch = tokio::spawn(follow(api.clone(), known.clone()));
        Self {
            api,
            known,
            asked: Arc::default(),
            _watch: AbortOnDropHandle::new(watch),
        }
    }

    /// Returns the Namespaces that the watch has seen, by name. Empty before the first list.
    pub(crate) fn all(&self) -> Vec<(String, Namespace)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let all = known.iter();
        let mut all: Vec<_> = all.map(|(name, one)| (name.clone(), one.clone())).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    fn find(&self, name: &str) -> Option<Lookup> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(name).cloned().map(Lookup::Found)
    }

    /// Returns the request that asks for a name. Callers that ask at the same time share it.
    fn request(&self, name: &str) -> Shared<BoxFuture<'static, Lookup>> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        // A request that all callers gave up on does not go on, and must not be found by the next caller.
        asked.retain(|_, request| request.strong_count().is_some_and(|count| count > 1));
        let begin = || {
            let (api, all, name) = (self.api.clone(), self.asked.clone(), name.to_owned());
            let request = async move {
                let lookup = get(&api, &name).await;
                all.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(&name);
                lookup
            };
            request.boxed().shared()
        };
        asked.entry(name.to_owned()).or_insert_with(begin).clone()
    }
}

impl Namespaces for ClusterNamespaces {
    fn known(&self, name: &str) -> Option<Lookup> {
        self.find(name)
    }

    fn look_up<'a>(&'a self, name: &'a str) -> Pending<'a> {
        match self.find(name) {
            Some(lookup) => Box::pin(std::future::ready(lookup)),
            None => Box::pin(self.request(name)),
        }
    }
}

impl fmt::Debug for ClusterNamespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterNamespaces").finish_non_exhaustive()
    }
}

async fn follow(api: Api<Meta>, known: Arc<RwLock<HashMap<String, Namespace>>>) {
    let write = || known.write().unwrap_or_else(PoisonError::into_inner);
    let events = watcher(api, watcher::Config::default()).default_backoff();
    let mut events = pin!(events);
    let mut listed = HashMap::new();
    let mut fails = false;
    while let Some(event) = events.next().await {
        let failed = event.is_err();
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => listed.extend(read(&object)),
            Ok(Event::InitDone) => *write() = std::mem::take(&mut listed),
            Ok(Event::Apply(object)) => write().extend(read(&object)),
            Ok(Event::Delete(object)) => {
                let name = object.metadata.name.unwrap_or_default();
                write().remove(&name);
            }
            Err(error) if !fails => {
                let reason = words(&error);
                tracing::warn!(
                    reason,
                    "cannot watch Namespaces; their labels stay as they were seen last"
                );
            }
            Err(_) => {}
        }
        fails = failed;
    }
}

/// Asks kube-apiserver.
async fn get(api: &Api<Meta>, name: &str) -> Lookup {
    let unavailable = |reason: &str| Lookup::Unavailable {
        reason: Arc::from(reason),
    };
    match timeout(LIMIT, api.get_opt(name)).await {
        Ok(Ok(Some(object))) => match read(&object) {
            Some((_, namespace)) => Lookup::Found(namespace),
            None => unavailable("kube-apiserver's answer is not a Namespace"),
        },
        Ok(Ok(None)) => Lookup::NotFound {
            place: Arc::from("in the cluster"),
        },
        Ok(Err(error)) => unavailable(&words(&error)),
        Err(_) => unavailable("kube-apiserver does not answer"),
    }
}

/// Reduces an object to what plugins see, with its name.
fn read(object: &Meta) -> Option<(String, Namespace)> {
    let name = object.metadata.name.clone()?;
    let text = serde_json::json!({ "metadata": object.metadata }).to_string();
    let document = parse(text.as_bytes(), MAX_DEPTH).ok()?;
    Some((name, Namespace::of(&document)))
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectMeta;

    use super::*;

    #[test]
    fn reads_metadata_that_plugins_see() {
        let object = PartialObjectMeta {
            metadata: ObjectMeta {
                name: Some("team-a".to_owned()),
                labels: Some([("tier".to_owned(), "1".to_owned())].into()),
                ..ObjectMeta::default()
            },
            ..PartialObjectMeta::default()
        };
        let (name, namespace) = read(&object).expect("it has a name");
        assert_eq!(name, "team-a");
        assert_eq!(namespace.name(), Some("team-a"));
        let labels = namespace.document().member("metadata");
        let labels = labels.and_then(|metadata| metadata.member("labels"));
        let tier = labels.and_then(|labels| labels.member("tier"));
        assert_eq!(tier.and_then(|tier| tier.as_text()), Some("1"));
        assert!(read(&PartialObjectMeta::default()).is_none());
    }
}
