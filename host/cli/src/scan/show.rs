//! Prints the results of a scan.

use serde_json::{Map, Value, json};
use tollgate_cluster::Written;
use tollgate_scan::exceptions::{Row, State};
use tollgate_scan::finding::{Finding, Judged, Place, Results, Verdict};

use crate::terminal::{BAD, FAINT, GOOD, NOTABLE, full_name, grouped, plain, say, tell};

/// Everything that a scan found.
pub(super) struct Shown {
    pub(super) results: Results,
    pub(super) exceptions: Vec<Row>,
    /// Results that have no room in the policy reports.
    pub(super) omitted: u64,
}

/// Prints the results for people: the worst first, and `most` of them.
pub(super) fn text(shown: &Shown, most: usize) {
    let results = &shown.results;
    let mut notable: Vec<_> = results
        .findings()
        .filter(|(_, _, finding)| finding.verdict != Verdict::Pass)
        .collect();
    notable.sort_by_key(|(place, _, finding)| {
        (finding.verdict, &finding.plugin, *place, &finding.phase)
    });
    for (place, _, finding) in notable.iter().take(most) {
        let verdict = finding.verdict;
        let style = match verdict {
            Verdict::Error | Verdict::Fail => BAD,
            Verdict::Warn | Verdict::Skip => NOTABLE,
            Verdict::Pass => GOOD,
        };
        say!(
            "{style}{}{style:#} {} {} ({}, {})",
            verdict.as_str(),
            plain(&place.full_kind()),
            full_name(place.namespace.as_deref(), &place.name),
            finding.plugin,
            finding.phase
        );
        say!("  {}", plain(&finding.message));
    }
    if notable.len() > most {
        let more = grouped((notable.len() - most) as u64);
        say!("{FAINT}and {more} more; -o json prints all{FAINT:#}");
    }
    exceptions(&shown.exceptions);
    for reason in &results.unread {
        say!("{BAD}not judged:{BAD:#} {}", plain(reason));
    }
    summary(shown);
}

fn exceptions(rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    say!("exceptions");
    for row in rows {
        let style = match row.state {
            State::Expired | State::Unused | State::NotNeeded => NOTABLE,
            State::Needed | State::NotJudged => FAINT,
        };
        say!(
            "  {} {} ({}, until {})",
            row.plugin,
            plain(&row.label),
            plain(&row.reason),
            row.until
        );
        say!("    {style}{}{style:#}", row.advice());
    }
}

fn summary(shown: &Shown) {
    let results = &shown.results;
    let summary = results.summary();
    let counts = Verdict::ALL.map(|verdict| {
        let count = grouped(summary.count(verdict));
        format!("{count} {}", verdict.as_str())
    });
    say!(
        "{} objects, {} results: {}",
        grouped(results.objects),
        grouped(summary.total()),
        counts.join(", ")
    );
    if results.deleted > 0 {
        let deleted = grouped(results.deleted);
        say!("{deleted} objects are being deleted and were left out");
    }
    if results.reused > 0 {
        let (calls, reused) = (grouped(results.calls), grouped(results.reused));
        say!("{calls} calls of plugins; {reused} results from the state file");
    }
}

/// Prints all results as JSON, but for those that pass.
pub(super) fn json(shown: &Shown) {
    let results = &shown.results;
    let findings = results
        .findings()
        .filter(|(_, _, finding)| finding.verdict != Verdict::Pass)
        .map(|(place, judged, finding)| result(place, judged, finding));
    let findings: Vec<Value> = findings.collect();
    let plugins = results.by_plugin().into_iter();
    let plugins = plugins.map(|(name, summary)| (name.to_owned(), summary.to_json()));
    let plugins: Map<String, Value> = plugins.collect();
    let exceptions: Vec<Value> = shown.exceptions.iter().map(Row::to_json).collect();
    say!(
        "{:#}",
        json!({
            "objects": results.objects,
            "beingDeleted": results.deleted,
            "summary": results.summary().to_json(),
            "plugins": plugins,
            "results": findings,
            "exceptions": exceptions,
            "unread": results.unread,
            "calls": results.calls,
            "reused": results.reused,
        })
    );
}

fn result(place: &Place, judged: &Judged, finding: &Finding) -> Value {
    let mut value = json!({
        "apiVersion": judged.api_version,
        "kind": place.kind,
        "namespace": place.namespace,
        "name": place.name,
        "plugin": finding.plugin,
        "phase": finding.phase,
        "mode": finding.mode,
        "result": finding.verdict.as_str(),
        "message": finding.message,
    });
    if let Some(fault) = &finding.fault {
        value["fault"] = fault.clone().into();
    }
    if let Some(exception) = &finding.exception {
        value["exception"] = exception.clone().into();
    }
    if let Some(without) = finding.without {
        value["without"] = without.as_str().into();
    }
    value
}

/// Prints policy reports as YAML documents, and everything else on standard error.
pub(super) fn reports(shown: &Shown, reports: &[Value]) -> anyhow::Result<()> {
    for report in reports {
        say!("---\n{}", serde_saphyr::to_string(report)?.trim_end());
    }
    for reason in &shown.results.unread {
        tell!("tollgate: not judged: {}", plain(reason));
    }
    tell_omitted(shown.omitted);
    Ok(())
}

fn tell_omitted(omitted: u64) {
    if omitted > 0 {
        let omitted = grouped(omitted);
        tell!(
            "tollgate: {omitted} results have no room in the reports and are only counted; raise --max-report-size"
        );
    }
}

/// Prints the number of reports that were written to the cluster.
pub(super) fn written(written: &Written, omitted: u64) {
    tell_omitted(omitted);
    for failed in &written.failed {
        tell!("tollgate: {}", plain(failed));
    }
    tell!(
        "tollgate: {} reports written, {} deleted, {} unchanged",
        written.applied,
        written.deleted,
        written.unchanged
    );
}
