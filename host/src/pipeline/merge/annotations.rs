//! Audit annotations that kube-apiserver keeps: what each plugin did, recorded by the host, and what each plugin
//! wants recorded.
//!
//! kube-apiserver knows one webhook; which plugin changed what, refused or failed open stands here alone. It drops
//! an annotation with an invalid key, so there is none.

use super::{Weight, status};
use crate::config::Mode;
use crate::pipeline::outcome::{Ended, Report};
use crate::pipeline::text::{Limit, annotation_key, joined, one_line};

/// One value. An audit event is one line of a log with a limit of its own, 100 KiB by default in the truncating
/// backend.
const MAX_VALUE_BYTES: usize = 1024;
/// Of a digest, behind `sha256:`: as much as tells two versions of a plugin apart.
const DIGEST_DIGITS: usize = 12;
/// Annotations of one plugin's own.
const MAX_PER_PLUGIN: usize = 32;

/// Which plugins ran, and in which version. Not a plugin's key: those have the plugin's name and a dot before them.
const PLUGINS: &str = "plugins";
/// The places that a plugin changed.
const PATCHED: &str = "patched";
/// The places where a plugin changed what an earlier one wrote.
const CONFLICTS: &str = "conflicts";
/// Why a plugin refused the request.
const DENIED: &str = "denied";
/// Why a plugin in warn mode would have refused it.
const WOULD_DENY: &str = "would-deny";
/// How a plugin failed.
const FAULT: &str = "fault";
/// How a plugin failed without which the request passed.
const FAILED_OPEN: &str = "failed-open";
/// Why a plugin was not asked.
const EXCEPTED: &str = "excepted";
/// What a plugin would have refused, were it not as bad in the old object.
const EXISTING_VIOLATIONS: &str = "existing-violations";
/// How a plugin's second call ended.
const REINVOKED: &str = "reinvoked";
/// The places that a plugin would change once more in the final object.
const NOT_CONVERGING: &str = "not-converging";
/// How many of a plugin's own annotations are not there.
const LEFT_OUT: &str = "left-out";
/// What no plugin's own key can be.
const RESERVED: [&str; 11] = [
    PATCHED,
    CONFLICTS,
    DENIED,
    WOULD_DENY,
    FAULT,
    FAILED_OPEN,
    EXCEPTED,
    EXISTING_VIOLATIONS,
    REINVOKED,
    NOT_CONVERGING,
    LEFT_OUT,
];

/// Annotations ready to be sent, in plugin order, the host's own first.
pub(super) fn merge(reports: &[&Report], allowed: bool) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    let asked: Vec<String> = reports
        .iter()
        .filter(|report| !matches!(report.ended, Ended::Excepted(_)))
        .map(|report| versioned(report))
        .collect();
    if !asked.is_empty() {
        let asked = joined(asked.iter(), ",", MAX_VALUE_BYTES);
        all.push((PLUGINS.to_owned(), asked));
    }
    for report in reports {
        hosts_own(report, allowed, |key, value| {
            all.push((annotation_key(report.plugin.as_str(), key, &[]), value))
        });
    }
    for report in reports {
        plugins_own(report, &mut all);
    }
    all
}

fn hosts_own(report: &Report, allowed: bool, mut record: impl FnMut(&'static str, String)) {
    let value = Limit::Bytes(MAX_VALUE_BYTES);
    match Weight::of(report) {
        Weight::Denies(denial) => record(DENIED, status::words(denial, value)),
        Weight::Warns(denial) => record(WOULD_DENY, status::words(denial, value)),
        Weight::FailsClosed(fault) | Weight::FailsUnheard(fault) => {
            record(FAULT, fault.kind.to_owned())
        }
        Weight::FailsOpen(fault) => record(FAILED_OPEN, fault.kind.to_owned()),
        Weight::Agrees => {}
    }
    if let Ended::Excepted(why) = &report.ended {
        record(EXCEPTED, one_line(why, value));
    }
    if let Some(existing) = &report.existing {
        record(EXISTING_VIOLATIONS, status::words(existing, value));
    }
    if report.mode != Mode::Enforce {
        return;
    }
    // A refused request leaves nothing changed.
    if allowed && !report.changed.is_empty() {
        let places = report.changed.iter().map(|place| one_line(place, value));
        record(PATCHED, joined(places, ",", MAX_VALUE_BYTES));
    }
    if !report.conflicts.is_empty() {
        let places = report
            .conflicts
            .iter()
            .map(|(place, whose)| format!("{} (over {whose})", one_line(place, value)));
        record(CONFLICTS, joined(places, ", ", MAX_VALUE_BYTES));
    }
    if let Some(ended) = report.reinvoked {
        record(REINVOKED, ended.to_owned());
    }
    if !report.unsettled.is_empty() {
        let places = report.unsettled.iter().map(|place| one_line(place, value));
        record(NOT_CONVERGING, joined(places, ",", MAX_VALUE_BYTES));
    }
}

/// A key that a plugin gave twice has the value that it gave last.
fn plugins_own(report: &Report, all: &mut Vec<(String, String)>) {
    let plugin = report.plugin.as_str();
    let first = all.len();
    for (key, value) in report.annotations.iter().take(MAX_PER_PLUGIN) {
        let key = annotation_key(plugin, key, &RESERVED);
        let value = one_line(value, Limit::Bytes(MAX_VALUE_BYTES));
        match all[first..].iter_mut().find(|known| known.0 == key) {
            Some(known) => known.1 = value,
            None => all.push((key, value)),
        }
    }
    let left_out = report.annotations.len().saturating_sub(MAX_PER_PLUGIN);
    if left_out > 0 {
        all.push((
            annotation_key(plugin, LEFT_OUT, &[]),
            format!("{left_out} annotations"),
        ));
    }
}

/// `name@0123456789ab`.
fn versioned(report: &Report) -> String {
    let digest = report
        .digest
        .strip_prefix("sha256:")
        .unwrap_or(&report.digest);
    let digits = digest.get(..DIGEST_DIGITS).unwrap_or(digest);
    format!("{}@{digits}", report.plugin)
}
