//! Fills a table from a list, and follows it with a watch.
//!
//! kube's own watcher hides bookmarks, and says nothing when it is connected again. A plugin must not take an old table
//! for a current one, so both matter here.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::io::AsyncBufReadExt as _;
use futures_util::stream::StreamExt as _;
use kube::api::{ListParams, WatchParams};
use kube::core::Request;
use kube::runtime::utils::Backoff as _;
use kube::runtime::watcher::DefaultBackoff;
use kube::{Client, Error};
use tokio::time::{sleep, timeout};
use tollgate_lookups::{Projected, Projection, Writer};

use super::decode::{self, Change};
use crate::watch::words;

/// Objects per page of a list.
const PAGE_SIZE: u32 = 250;
/// Time limit of a request for a page.
const PAGE_LIMIT: Duration = Duration::from_secs(60);
/// Seconds after which kube-apiserver ends a watch, which then begins anew. kube-apiserver sends a bookmark about once
/// a minute. A watch without any line for longer is taken for dead.
const WATCH_SECONDS: u32 = 290;
const SILENCE_LIMIT: Duration = Duration::from_secs(150);

/// Pause before a new list, and between looks at what other namespaces have done.
const RELIST_PAUSE: Duration = Duration::from_millis(100);

/// Follows the objects of a table, or its part in one namespace.
pub(super) struct Follower {
    pub(super) client: Client,
    /// Path of the collection.
    pub(super) path: String,
    pub(super) selector: Option<String>,
    /// Whether metadata is all that the lookup keeps.
    pub(super) is_metadata: bool,
    pub(super) projection: Arc<Projection>,
    pub(super) writer: Arc<Mutex<Writer>>,
    pub(super) part: Option<Part>,
}

/// One of several namespaces that fill a table together.
pub(super) struct Part {
    /// Namespaces that have not been listed yet.
    pub(super) outstanding: Arc<AtomicUsize>,
    /// Names of the objects in this namespace. `None` until they have been listed.
    pub(super) names: Option<BTreeSet<String>>,
    pub(super) namespace: String,
}

/// Why a list or a watch ended.
enum End {
    /// kube-apiserver has forgotten the changes since the resource version: only a new list helps.
    Expired,
    Failed(String),
}

// === impl Follower ===

impl Follower {
    /// Follows for as long as it runs.
    pub(super) async fn run(mut self) {
        let mut backoff = DefaultBackoff::default();
        let mut version = None;
        loop {
            let result = match version.take() {
                None => self.list().await,
                Some(version) => self.watch(version, &mut backoff).await,
            };
            match result {
                Ok(next) => {
                    self.wait_for_other_parts().await;
                    version = Some(next);
                }
                Err((End::Expired, _)) => sleep(RELIST_PAUSE).await,
                Err((End::Failed(reason), last)) => {
                    version = last;
                    self.writer().fail(&reason);
                    tracing::debug!(path = self.path, reason, "cannot follow objects");
                    sleep(backoff.next().unwrap_or(PAGE_LIMIT)).await;
                }
            }
        }
    }

    /// Waits until all namespaces of the table have been listed. A change that comes before would be lost, because the
    /// table begins with the lists.
    async fn wait_for_other_parts(&self) {
        let Some(part) = &self.part else {
            return;
        };
        while part.outstanding.load(Ordering::Relaxed) > 0 {
            sleep(RELIST_PAUSE).await;
        }
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists all objects, and returns the resource version to watch from.
    async fn list(&mut self) -> Result<String, (End, Option<String>)> {
        let is_whole = self.part.is_none();
        if is_whole {
            self.writer().begin();
        }
        let mut objects = Vec::new();
        let mut next = None;
        let version = loop {
            let page = self.page(next).await.map_err(|end| (end, None))?;
            if is_whole {
                let mut writer = self.writer();
                page.objects
                    .into_iter()
                    .for_each(|object| writer.add(object));
            } else {
                objects.extend(page.objects);
            }
            if page.next.is_none() {
                break page.resource_version;
            }
            next = page.next;
        };
        match &mut self.part {
            None => self.writer().finish(&version),
            Some(part) => {
                let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
                part.replace(&mut writer, objects, &version);
            }
        }
        Ok(version)
    }

    async fn page(&self, next: Option<String>) -> Result<decode::List, End> {
        let params = ListParams {
            label_selector: self.selector.clone(),
            limit: Some(PAGE_SIZE),
            continue_token: next,
            ..ListParams::default()
        };
        let request = Request::new(self.path.as_str());
        let request = match self.is_metadata {
            true => request.list_metadata(&params),
            false => request.list(&params),
        };
        let request = request.map_err(|error| End::Failed(words(&error)))?;
        let text = match timeout(PAGE_LIMIT, self.client.request_text(request)).await {
            Ok(text) => text.map_err(|error| self.end(&error))?,
            Err(_) => return Err(End::Failed("kube-apiserver does not answer".to_owned())),
        };
        decode::list(&self.projection, &text)
            .map_err(|error| End::Failed(format!("kube-apiserver's list cannot be read: {error}")))
    }

    /// Watches from a resource version until kube-apiserver ends the watch. Returns the version to watch from next.
    async fn watch(
        &mut self,
        mut version: String,
        backoff: &mut DefaultBackoff,
    ) -> Result<String, (End, Option<String>)> {
        let params = WatchParams {
            label_selector: self.selector.clone(),
            timeout: Some(WATCH_SECONDS),
            ..WatchParams::default()
        };
        let request = Request::new(self.path.as_str());
        let request = match self.is_metadata {
            true => request.watch_metadata(&params, &version),
            false => request.watch(&params, &version),
        };
        let failed =
            |reason: String, version: &str| (End::Failed(reason), Some(version.to_owned()));
        let mut request = request.map_err(|error| failed(words(&error), &version))?;
        // The decompression of kube reads only the first of the parts that kube-apiserver compresses.
        request.headers_mut().insert(
            "accept-encoding",
            "identity".parse().expect("it is a header"),
        );
        let stream = match timeout(PAGE_LIMIT, self.client.request_stream(request)).await {
            Ok(stream) => stream.map_err(|error| (self.end(&error), Some(version.clone())))?,
            Err(_) => {
                let reason = "kube-apiserver does not answer".to_owned();
                return Err(failed(reason, &version));
            }
        };
        self.writer().progress(&version);
        let stream = pin!(stream);
        let mut lines = stream.lines();
        loop {
            let line = match timeout(SILENCE_LIMIT, lines.next()).await {
                Ok(None) => return Ok(version),
                Ok(Some(Ok(line))) => line,
                Ok(Some(Err(error))) => return Err(failed(words(&error), &version)),
                Err(_) => {
                    let reason = "the watch has been silent for too long".to_owned();
                    return Err(failed(reason, &version));
                }
            };
            let change = decode::change(&self.projection, &line).map_err(|error| {
                let reason = format!("an event of the watch cannot be read: {error}");
                (End::Failed(reason), None)
            })?;
            if let Change::Failed(status) = &change {
                if status.code == 410 {
                    return Err((End::Expired, None));
                }
                return Err(failed(status.message.clone(), &version));
            }
            version = self.take(change, version);
            backoff.reset();
        }
    }

    /// Puts a change into the table, and returns its resource version.
    fn take(&mut self, change: Change, before: String) -> String {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let names = self.part.as_mut().and_then(|part| part.names.as_mut());
        match change {
            Change::Applied(object, version) => {
                names.map(|names| names.insert(object.name().to_owned()));
                writer.apply(object, &version);
                version
            }
            Change::Deleted(object, version) => {
                names.map(|names| names.remove(object.name()));
                writer.delete(object.namespace(), object.name(), &version);
                version
            }
            Change::Bookmark(version) => {
                writer.progress(&version);
                version
            }
            Change::Failed(_) => before,
        }
    }

    fn end(&self, error: &Error) -> End {
        match error {
            Error::Api(status) if status.code == 410 => End::Expired,
            Error::Api(status) if status.code == 403 => End::Failed(format!(
                "forbidden: Tollgate's ServiceAccount needs the verbs list and watch on {}: {}",
                self.path, status.message
            )),
            error => End::Failed(words(error)),
        }
    }
}

// === impl Part ===

impl Part {
    /// Replaces what the table has of this namespace.
    fn replace(&mut self, writer: &mut Writer, objects: Vec<Projected>, version: &str) {
        let names: BTreeSet<String> = objects
            .iter()
            .map(|object| object.name().to_owned())
            .collect();
        match self.names.replace(names.clone()) {
            None => {
                objects.into_iter().for_each(|object| writer.add(object));
                if self.outstanding.fetch_sub(1, Ordering::Relaxed) == 1 {
                    writer.finish(version);
                }
            }
            Some(before) => {
                objects
                    .into_iter()
                    .for_each(|object| writer.apply(object, version));
                for gone in before.difference(&names) {
                    writer.delete(Some(&self.namespace), gone, version);
                }
            }
        }
    }
}
