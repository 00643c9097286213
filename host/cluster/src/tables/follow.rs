//! Fills a table from a list, and follows it with a watch.
//!
//! kube's own watcher hides bookmarks, and says nothing when it is connected again. A plugin must not take an old table
//! for a current one, so both matter here.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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
use crate::api::words;

/// Objects per page of a list.
const PAGE_SIZE: u32 = 250;
/// Time limit of a request for a page.
const PAGE_LIMIT: Duration = Duration::from_secs(60);
/// Seconds after which kube-apiserver ends a watch, which then begins anew.
const WATCH_SECONDS: u32 = 290;
/// Time without any line after which a watch counts as cut. kube-apiserver sends a bookmark about once a minute.
const SILENCE_LIMIT: Duration = Duration::from_secs(100);

/// Pause between looks at what other namespaces have done.
const RELIST_PAUSE: Duration = Duration::from_millis(100);

/// Time for which a watch must stay open, or say something, before it counts as open.
const SETTLING: Duration = Duration::from_secs(2);
/// Attempts to go on with a watch, after which the objects are listed again.
const MOST_ATTEMPTS: u32 = 3;
/// Age at which the first list of a namespace is too old to begin the table with.
const LONGEST_FIRST: Duration = Duration::from_secs(30);

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
    pub(super) health: Health,
    pub(super) part: Option<Part>,
}

/// Whether a follower has failed, and how many of its table have. The table follows when none has.
pub(super) struct Health {
    failing: Arc<AtomicUsize>,
    is_failing: bool,
}

/// One of several namespaces that fill a table together.
pub(super) struct Part {
    pub(super) lists: Arc<FirstLists>,
    /// Names of the objects in this namespace. `None` until the table has begun.
    pub(super) names: Option<BTreeSet<String>>,
    pub(super) namespace: String,
}

/// The objects of each namespace, and when they were listed.
type Lists = BTreeMap<String, (Instant, Vec<Projected>)>;

/// The first lists of all namespaces. The table begins when all of them have arrived and are recent.
pub(super) struct FirstLists {
    namespaces: usize,
    /// `None` after the table has begun.
    lists: Mutex<Option<Lists>>,
}

/// Why a list or a watch ended.
enum End {
    /// kube-apiserver has forgotten the changes since the resource version: only a new list helps.
    Expired,
    Failed(String),
}

/// Ends the table when its follower ends, also by a panic.
struct Ends(Arc<Mutex<Writer>>);

impl Drop for Ends {
    fn drop(&mut self) {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writer.end("the task that follows the objects has ended");
    }
}

// === impl Health ===

impl Health {
    /// Creates the health of a follower. All followers of a table share the counter.
    pub(super) fn new(failing: &Arc<AtomicUsize>) -> Self {
        Self {
            failing: failing.clone(),
            is_failing: false,
        }
    }

    pub(super) fn fails(&mut self, writer: &mut Writer, reason: &str) {
        if !std::mem::replace(&mut self.is_failing, true) {
            self.failing.fetch_add(1, Ordering::Relaxed);
        }
        writer.fail(reason);
    }

    pub(super) fn recovers(&mut self, writer: &mut Writer) {
        let was_failing = std::mem::take(&mut self.is_failing);
        if was_failing && self.failing.fetch_sub(1, Ordering::Relaxed) == 1 {
            writer.recover();
        }
    }
}

// === impl FirstLists ===

impl FirstLists {
    pub(super) fn of(namespaces: usize) -> Self {
        Self {
            namespaces,
            lists: Mutex::new(Some(BTreeMap::new())),
        }
    }

    fn lists(&self) -> MutexGuard<'_, Option<Lists>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn have_begun(&self) -> bool {
        self.lists().is_none()
    }

    /// Takes the list of a namespace. Returns the objects of all namespaces, once, when the table can begin.
    pub(super) fn put(
        &self,
        namespace: &str,
        objects: Vec<Projected>,
        now: Instant,
    ) -> Option<Vec<Projected>> {
        let mut lists = self.lists();
        let known = lists.as_mut()?;
        known.insert(namespace.to_owned(), (now, objects));
        let is_young = |(at, _): &(Instant, Vec<Projected>)| *at + LONGEST_FIRST > now;
        if known.len() < self.namespaces || !known.values().all(is_young) {
            return None;
        }
        let all = lists.take()?.into_values();
        Some(all.flat_map(|(_, objects)| objects).collect())
    }
}

// === impl Follower ===

impl Follower {
    /// Follows for as long as it runs.
    pub(super) async fn run(mut self) {
        let _ends = Ends(self.writer.clone());
        let mut backoff = DefaultBackoff::default();
        let mut version = None;
        let mut attempts = 0;
        loop {
            let result = match version.take() {
                None => self.list().await,
                Some(version) => self.watch(version, &mut backoff, &mut attempts).await,
            };
            let reason = match result {
                Ok(next) => {
                    version = next;
                    continue;
                }
                Err((End::Expired, _)) => "kube-apiserver has forgotten the changes".to_owned(),
                Err((End::Failed(reason), last)) => {
                    attempts += 1;
                    version = last.filter(|_| attempts < MOST_ATTEMPTS);
                    reason
                }
            };
            self.fails(&reason);
            tracing::debug!(path = self.path, reason, "cannot follow objects");
            sleep(backoff.next().unwrap_or(PAGE_LIMIT)).await;
        }
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fails(&mut self, reason: &str) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.health.fails(&mut writer, reason);
    }

    fn recovers(&mut self) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.health.recovers(&mut writer);
    }

    /// Lists all objects, and returns the resource version to watch from. Returns none if the list must be repeated.
    async fn list(&mut self) -> Result<Option<String>, (End, Option<String>)> {
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
        self.take_list(objects, &version);
        Ok(self.have_all_begun().await.then_some(version))
    }

    /// Puts a list into the table. The objects of a whole table have been added already.
    fn take_list(&mut self, objects: Vec<Projected>, version: &str) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut self.part {
            None => writer.finish(version),
            Some(part) => part.replace(&mut writer, objects, version),
        }
        self.health.recovers(&mut writer);
    }

    /// Waits until the table has begun. Returns false if the list has become old meanwhile.
    async fn have_all_begun(&self) -> bool {
        let Some(part) = &self.part else {
            return true;
        };
        let listed = Instant::now();
        while !part.lists.have_begun() {
            if listed.elapsed() > LONGEST_FIRST / 2 {
                return false;
            }
            sleep(RELIST_PAUSE).await;
        }
        true
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
        attempts: &mut u32,
    ) -> Result<Option<String>, (End, Option<String>)> {
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
        let stream = pin!(stream);
        let mut lines = stream.lines();
        let mut is_open = false;
        loop {
            let limit = if is_open { SILENCE_LIMIT } else { SETTLING };
            let line = match timeout(limit, lines.next()).await {
                Ok(None) if is_open => return Ok(Some(version)),
                Ok(None) => {
                    let reason = "kube-apiserver ended the watch at once".to_owned();
                    return Err(failed(reason, &version));
                }
                Ok(Some(Ok(line))) => line,
                Ok(Some(Err(error))) => return Err(failed(words(&error), &version)),
                Err(_) if !is_open => {
                    is_open = true;
                    self.recovers();
                    continue;
                }
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
            is_open = true;
            self.recovers();
            backoff.reset();
            *attempts = 0;
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
        if !self.lists.have_begun() {
            self.names = Some(names);
            let all = self.lists.put(&self.namespace, objects, Instant::now());
            if let Some(all) = all {
                all.into_iter().for_each(|object| writer.add(object));
                writer.finish(version);
            }
            return;
        }
        let before = self.names.replace(names.clone()).unwrap_or_default();
        objects
            .into_iter()
            .for_each(|object| writer.apply(object, version));
        for gone in before.difference(&names) {
            writer.delete(Some(&self.namespace), gone, version);
        }
    }
}
