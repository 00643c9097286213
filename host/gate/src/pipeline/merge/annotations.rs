//! Builds the audit annotations: the host's own record of each plugin's actions, and the annotations that plugins ask
//! for.
//!
//! kube-apiserver knows only one webhook. In the audit log, only these annotations tell which plugin changed
//! something, denied the request or failed open. kube-apiserver drops an annotation with an invalid key, so the host
//! makes every key valid.

use tollgate_admission::text::{Limit, annotation_key, joined, joined_parts, one_line};
use tollgate_config::Mode;

use super::{Weight, status};
use crate::pipeline::outcome::{Ended, Report};

/// Most bytes of one value. An audit event is one line of a log, which has a limit too: 100 KiB by default in the
/// truncating backend.
const MAX_VALUE_BYTES: usize = 1024;
/// Digits of a digest that are shown, after `sha256:`: enough to tell two versions of a plugin apart.
const DIGEST_DIGITS: usize = 12;
/// Most annotations that one plugin can add.
const MAX_PER_PLUGIN: usize = 32;

/// Key for the called plugins and their versions. No plugin's key is the same, because those start with the plugin's
/// name and a dot.
const PLUGINS: &str = "plugins";
/// Key for the places that a plugin changed.
const PATCHED: &str = "patched";
/// Key for the places where a plugin changed another plugin's earlier write.
const CONFLICTS: &str = "conflicts";
/// Key for a plugin's reason to deny the request.
const DENIED: &str = "denied";
/// Key for a denial by a plugin in warn mode.
const WOULD_DENY: &str = "would-deny";
/// Key for a plugin's fault.
const FAULT: &str = "fault";
/// Key for the fault of a plugin that failed open.
const FAILED_OPEN: &str = "failed-open";
/// Key for the exception because of which a plugin was not called.
const EXCEPTED: &str = "excepted";
/// Key for violations that the old object already had, so that they were not denied.
const EXISTING_VIOLATIONS: &str = "existing-violations";
/// Key for the result of a plugin's second call.
const REINVOKED: &str = "reinvoked";
/// Key for the places that a plugin would change again in the final object.
const NOT_CONVERGING: &str = "not-converging";
/// Key for the number of a plugin's own annotations that were left out.
const LEFT_OUT: &str = "left-out";
/// Keys that a plugin's own annotations cannot have.
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

/// Returns the annotations to send, in plugin order, with the host's own first.
pub(super) fn merge(reports: &[&Report], allowed: bool) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    let called = reports.iter();
    let called = called.filter(|report| !matches!(report.ended, Ended::Excepted(_)));
    let called: Vec<[&str; 3]> = called.map(|report| versioned(report)).collect();
    if !called.is_empty() {
        let called = joined_parts(called.into_iter(), ",", MAX_VALUE_BYTES);
        all.push((PLUGINS.to_owned(), called));
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
    // A denied request leaves nothing changed.
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

/// Adds a plugin's own annotations. If the plugin gave a key twice, the last value wins.
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

/// Returns the parts of the plugin's name and version: `name`, `@` and `0123456789ab`. Without a digest, nothing follows
/// the `@`.
fn versioned(report: &Report) -> [&str; 3] {
    let digest = report.digest.as_deref().unwrap_or_default();
    let digest = digest.strip_prefix("sha256:").unwrap_or(digest);
    let digits = digest.get(..DIGEST_DIGITS).unwrap_or(digest);
    [report.plugin.as_str(), "@", digits]
}
