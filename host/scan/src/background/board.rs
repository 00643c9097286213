//! What readers of the admin listener learn about the background scan: when it ran, what it could not read, and its
//! counts. The thread of the scan writes, and requests read. Neither waits for the other for longer than a copy.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tollgate_admission::scan::{ScanSearch, Scans};
use tollgate_admission::text::{Limit, one_line};
use tollgate_cluster::Members;
use tollgate_config::Scan;
use tollgate_telemetry::metrics::Scanned;

use super::counts::Counts;
use super::share::Share;
use crate::exceptions::{Row, State};
use crate::finding::Verdict;

/// The state of the background scan of this replica.
#[derive(Debug)]
pub struct Board {
    interval: Duration,
    members: OnceLock<Members>,
    state: Mutex<Known>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    /// When the scan under way began.
    scanning: Option<SystemTime>,
    last: Option<Arc<Last>>,
    counted: Option<Arc<Counted>>,
}

/// What the scan says about exceptions.
#[derive(Debug)]
pub(crate) struct Exceptions {
    pub(crate) rows: Vec<Row>,
    /// Whether the results are those of all objects in this replica's part.
    pub(crate) is_whole: bool,
}

/// The last scan that ended.
#[derive(Debug)]
struct Last {
    began: SystemTime,
    took: Duration,
    end: End,
}

#[derive(Debug)]
enum End {
    /// The scan counted results. What could not be read keeps its earlier ones.
    Counted {
        scanned: Scanned,
        not_scanned: Vec<String>,
        more_not_scanned: usize,
    },
    /// The results are those of an earlier scan, or not written.
    Failed,
}

/// The counts, and what they are of.
#[derive(Debug)]
struct Counted {
    began: SystemTime,
    /// This replica, and all those that shared the namespaces.
    own: String,
    replicas: BTreeSet<String>,
    counts: Counts,
    exceptions: Exceptions,
}

/// Maximum number of names in the list of what could not be scanned.
const MOST_NOT_SCANNED: usize = 100;
/// Maximum length of one of them.
const LONGEST_NOT_SCANNED: Limit = Limit::Bytes(256);

// === impl Board ===

impl Board {
    /// The state before the first scan.
    #[must_use]
    pub fn new(scan: &Scan) -> Self {
        Self {
            interval: scan.interval,
            members: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// Lets the answers say which namespaces belong to this replica by now.
    pub(crate) fn follow(&self, members: Members) {
        // A second scan of the same server has the same members.
        let _ = self.members.set(members);
    }

    /// Takes note that a scan begins.
    pub(crate) fn begins(&self, now: SystemTime) {
        self.lock().scanning = Some(now);
    }

    /// Takes note of the counts of the scan under way.
    pub(crate) fn counted(
        &self,
        own: &str,
        replicas: BTreeSet<String>,
        mut counts: Counts,
        exceptions: Exceptions,
    ) {
        counts.sort();
        let mut state = self.lock();
        let Some(began) = state.scanning else {
            return;
        };
        state.counted = Some(Arc::new(Counted {
            began,
            own: own.to_owned(),
            replicas,
            counts,
            exceptions,
        }));
    }

    /// Takes note that the scan under way has ended. `not_scanned` names what could not be read.
    pub(crate) fn ended(&self, scanned: Scanned, not_scanned: &[String]) {
        let names = not_scanned.iter().take(MOST_NOT_SCANNED);
        let names: Vec<String> = names
            .map(|name| one_line(name, LONGEST_NOT_SCANNED))
            .collect();
        let took = scanned.duration;
        let more_not_scanned = not_scanned.len() - names.len();
        let end = End::Counted {
            scanned,
            not_scanned: names,
            more_not_scanned,
        };
        self.end(took, end);
    }

    /// Takes note that the scan under way failed.
    pub(crate) fn failed(&self, took: Duration) {
        self.end(took, End::Failed);
    }

    fn end(&self, took: Duration, end: End) {
        let mut state = self.lock();
        if let Some(began) = state.scanning.take() {
            state.last = Some(Arc::new(Last { began, took, end }));
        }
    }

    /// `ready` are the replicas that share the namespaces now. None if they are not known.
    fn page_of(&self, search: &ScanSearch, ready: Option<BTreeSet<String>>) -> Value {
        let state = self.lock().clone();
        let mut page = match &state.counted {
            Some(counted) => counted.page(search, ready.as_ref()),
            None => Counts::default().select(search, |_| true),
        };
        page["enabled"] = json!(true);
        page["intervalSeconds"] = json!(self.interval.as_secs());
        page["replicas"] = json!(ready.map(|ready| ready.len()));
        page["scanning"] = json!(state.scanning.map(timestamp));
        let next = state.last.as_ref().map(|last| last.began + self.interval);
        let next = next.filter(|_| state.scanning.is_none());
        page["nextScan"] = json!(next.map(timestamp));
        page["last"] = json!(state.last.as_deref().map(Last::to_json));
        page
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scans for Board {
    fn page(&self, search: &ScanSearch) -> Value {
        let ready = self.members.get().and_then(Members::ready);
        self.page_of(search, ready)
    }

    fn add_to_exceptions(&self, plugins: &mut Value) {
        let counted = self.lock().counted.clone();
        let plugins = plugins.get_mut("plugins").and_then(Value::as_array_mut);
        let (Some(counted), Some(plugins)) = (counted, plugins) else {
            return;
        };
        let rows = counted.exceptions.rows.iter();
        let rows: BTreeMap<_, _> = rows
            .map(|row| ((row.plugin.as_str(), row.index), row))
            .collect();
        for plugin in plugins {
            let name = plugin["name"].as_str().unwrap_or_default().to_owned();
            let exceptions = plugin.get_mut("exceptions");
            let exceptions = exceptions.and_then(Value::as_array_mut);
            for (index, shown) in exceptions.into_iter().flatten().enumerate() {
                let row = rows.get(&(name.as_str(), index));
                // The exceptions may have changed since the scan.
                let row =
                    row.filter(|row| shown["until"] == row.until && shown["reason"] == row.reason);
                if let Some(row) = row {
                    shown["scan"] = counted.exceptions.to_json(row);
                }
            }
        }
    }
}

// === impl Exceptions ===

impl Exceptions {
    fn to_json(&self, row: &Row) -> Value {
        let state = match row.state {
            // An object that was not read may need it.
            State::Unused | State::NotNeeded if !self.is_whole => "not-known",
            state => state.key(),
        };
        let of = |verdict| row.without.count(verdict);
        json!({
            "state": state,
            "objects": row.objects,
            "refused": of(Verdict::Fail) + of(Verdict::Error),
            "warned": of(Verdict::Warn),
        })
    }
}

// === impl Counted ===

impl Counted {
    fn page(&self, search: &ScanSearch, ready: Option<&BTreeSet<String>>) -> Value {
        // The owners are computed only while namespaces change hands.
        let changed = ready.filter(|ready| **ready != self.replicas);
        let share = changed.map(|ready| RefCell::new(Share::new(&self.own, ready.clone())));
        let owns = |namespace: Option<&str>| {
            let share = share.as_ref();
            share.is_none_or(|share| share.borrow_mut().owns(namespace))
        };
        let mut page = self.counts.select(search, owns);
        page["countedIn"] = json!(timestamp(self.began));
        page["changesHands"] = json!(changed.is_some());
        page
    }
}

// === impl Last ===

impl Last {
    fn to_json(&self) -> Value {
        let mut last = json!({
            "began": timestamp(self.began),
            "seconds": seconds(self.took),
            "end": self.word(),
        });
        if let End::Counted {
            scanned,
            not_scanned,
            more_not_scanned,
        } = &self.end
        {
            last["objects"] = json!(scanned.objects);
            last["calls"] = json!(scanned.calls);
            last["reportsWritten"] = json!(scanned.reports);
            last["notInReports"] = json!(scanned.omitted);
            last["notScanned"] = json!(not_scanned);
            last["moreNotScanned"] = json!(more_not_scanned);
        }
        last
    }

    /// How the scan ended, in the words of the metric `tollgate_scans_total`.
    fn word(&self) -> &'static str {
        match &self.end {
            End::Counted { scanned, .. } if scanned.is_complete => "complete",
            End::Counted { .. } => "incomplete",
            End::Failed => "failed",
        }
    }
}

/// Returns seconds with one digit after the point.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10.0).round() / 10.0
}

/// Formats a time as RFC 3339, to the second.
fn timestamp(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    let time = time.replace_nanosecond(0).unwrap_or(time);
    time.format(&Rfc3339).unwrap_or_default()
}
