//! Prints the findings for a person.

use std::collections::BTreeMap;

use tollgate_gate::decision::{Called, Decision};
use tollgate_gate::pipeline::outcome::Ended;
use tollgate_json::document::Json;

use super::difference;
use super::examine::{Finding, Step, Verdict};
use crate::called;
use crate::terminal::{
    BAD, FAINT, NOTABLE, STRONG, full_name, grouped, milliseconds, plain, say, style_of,
};

/// The totals of one plugin over all documents.
#[derive(Default)]
struct Total {
    calls: u64,
    patched: u64,
    denied: u64,
    faults: u64,
    fuel: u64,
    milliseconds: f64,
    slowest: f64,
}

/// Prints the assumptions about all manifests.
pub(super) fn assumptions(assumptions: &[String]) {
    say!(
        "{FAINT}assumed for manifests: {}{FAINT:#}\n",
        assumptions.join("; ")
    );
}

/// Prints one document: one line if nothing happened, unless `all` is set.
pub(crate) fn finding(finding: &Finding, all: bool) {
    let verdict = finding.verdict();
    let style = style_of(verdict.as_str());
    let word = format!("{:7}", verdict.as_str());
    let place = format!(
        "{}, document {}",
        plain(&finding.document.file),
        finding.document.number
    );
    say!(
        "{style}{word}{style:#}  {STRONG}{}{STRONG:#}  {FAINT}({place}){FAINT:#}",
        about(finding)
    );
    if let Some(prepared) = &finding.prepared {
        for assumed in &prepared.assumed {
            say!("    {FAINT}assumed: {}{FAINT:#}", plain(assumed));
        }
    }
    if let Some(error) = &finding.error {
        say!("    {BAD}{}{BAD:#}", plain(error));
    }
    let decisions: Vec<&Decision> = finding.steps.iter().map(|step| &step.decision).collect();
    let width = called::width(&decisions);
    for step in &finding.steps {
        self::step(step, width, all, all);
    }
    if verdict == Verdict::Denied && finding.steps.len() == 1 {
        say!(
            "    {FAINT}validators were not called, because the mutators denied the request{FAINT:#}"
        );
    }
    if let (Some(before), Some(after)) = (finding.before(), &finding.after)
        && !before.is_same(after)
    {
        change(before, after);
    }
}

/// Prints one endpoint: the plugins, the denial, the warnings, the annotations, and what plugins in mode audit said. Calls without an
/// effect are left out unless `all_calls` is set, and plugins that were not called unless `all` is.
pub(crate) fn step(step: &Step, width: usize, all_calls: bool, all: bool) {
    plugins(step, width, all_calls, all);
    refusal(step);
    for warning in &step.outcome.warnings {
        say!("    {NOTABLE}warning:{NOTABLE:#} {}", plain(warning));
    }
    for report in &step.reports {
        for (key, value) in &report.annotations {
            say!(
                "    audit annotation of {}: {}: {}",
                report.plugin,
                plain(key),
                plain(value)
            );
        }
    }
    for (plugin, said) in step.objections() {
        say!(
            "    {NOTABLE}in mode audit, {plugin}:{NOTABLE:#} {}",
            plain(said)
        );
    }
}

/// Prints the changes to an object.
pub(crate) fn change(before: &Json, after: &Json) {
    for line in difference::lines(before, after, is_secret(before)) {
        say!("      {line}");
    }
}

fn plugins(step: &Step, width: usize, all_calls: bool, all: bool) {
    let endpoint = step.endpoint.name();
    for called in &step.decision.plugins {
        if !all_calls && matches!(&*called.ended, "allowed" | "unchanged") {
            continue;
        }
        say!("    {endpoint:8}  {}", called::line(called, width));
        // `refusal` prints a fault that denies the request.
        if called.ends_chain() {
            continue;
        }
        for line in called::details(called) {
            say!("              {line}");
        }
    }
    if all {
        for other in &step.decision.not_called {
            say!("    {endpoint:8}  {}", called::not_called(other, width));
        }
    }
}

fn refusal(step: &Step) {
    let Some(status) = &step.outcome.status else {
        return;
    };
    say!(
        "    {BAD}denied ({}):{BAD:#} {}",
        status.code,
        plain(&status.message)
    );
    let causes = status.details.iter().flat_map(|details| &details.causes);
    for cause in causes {
        let message = plain(&cause.message);
        if cause.field.is_none() && cause.message == status.message {
            continue;
        }
        match &cause.field {
            Some(field) => {
                say!("      {STRONG}{}{STRONG:#}: {message}", plain(field))
            }
            None => say!("      {message}"),
        }
    }
}

/// Prints the number of documents for each verdict, and the totals and costs of each plugin.
pub(super) fn summary(findings: &[Finding]) {
    let count = |verdict: Verdict| {
        let same = findings
            .iter()
            .filter(|finding| finding.verdict() == verdict);
        same.count()
    };
    let (changed, denied, errors) = (
        count(Verdict::Changed),
        count(Verdict::Denied),
        count(Verdict::Error),
    );
    let allowed = count(Verdict::Allowed) + changed;
    say!(
        "\n{STRONG}{} document(s): {allowed} allowed ({changed} changed), {denied} denied, {errors} in error{STRONG:#}",
        findings.len()
    );
    audited(findings);
    let mut totals: BTreeMap<(&str, &str), Total> = BTreeMap::new();
    let steps = || findings.iter().flat_map(|finding| &finding.steps);
    for step in steps() {
        // A plugin that was skipped by an exception did nothing and cost nothing.
        let plugins = step.decision.plugins.iter();
        for called in plugins.filter(|called| called.excepted.is_none()) {
            let key = (&*called.name, step.endpoint.name());
            totals.entry(key).or_default().add(called);
        }
    }
    let Some(width) = totals.keys().map(|(name, _)| name.len()).max() else {
        if steps().all(|step| step.audits.is_empty()) {
            say!("{NOTABLE}no plugin was called{NOTABLE:#}");
        }
        return;
    };
    let width = width.max("plugin".len());
    say!(
        "{FAINT}{:width$}  {:8}  {:>5}  {:>7}  {:>6}  {:>6}  {:>12}  {:>9}  {:>9}{FAINT:#}",
        "plugin",
        "",
        "calls",
        "patched",
        "denied",
        "faults",
        "fuel/call",
        "time",
        "slowest",
    );
    for ((name, endpoint), total) in &totals {
        #[expect(clippy::cast_precision_loss, reason = "a mean to be looked at")]
        let mean = total.milliseconds / total.calls as f64;
        say!(
            "{name:width$}  {endpoint:8}  {:>5}  {:>7}  {:>6}  {:>6}  {:>12}  {:>9}  {:>9}",
            total.calls,
            total.patched,
            total.denied,
            total.faults,
            grouped(total.fuel / total.calls),
            milliseconds(mean),
            milliseconds(total.slowest),
        );
    }
}

/// Prints the number of documents that each plugin in mode audit would have denied, or failed on.
fn audited(findings: &[Finding]) {
    let mut totals: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for finding in findings {
        let audits = || finding.steps.iter().flat_map(|step| &step.audits);
        let mut plugins: Vec<&str> = audits().map(|report| report.plugin.as_str()).collect();
        plugins.sort_unstable();
        plugins.dedup();
        for plugin in plugins {
            let mut of_plugin = audits().filter(|report| report.plugin.as_str() == plugin);
            let (denied, failed) = totals.entry(plugin).or_default();
            if of_plugin
                .clone()
                .any(|report| matches!(report.ended, Ended::Denied(_)))
            {
                *denied += 1;
            } else if of_plugin.any(|report| matches!(report.ended, Ended::Faulted(_))) {
                *failed += 1;
            }
        }
    }
    for (plugin, (denied, failed)) in totals {
        let failed = match failed {
            0 => String::new(),
            failed => format!(", and failed on {failed}"),
        };
        say!(
            "{NOTABLE}in mode audit, {plugin} would have denied {denied} document(s){failed}{NOTABLE:#}"
        );
    }
}

/// Returns the kind and name of a document's object.
fn about(finding: &Finding) -> String {
    if let Some(step) = finding.steps.first() {
        let decision = &step.decision;
        let name = full_name(decision.namespace.as_deref(), &decision.name);
        return format!("{} {name}", plain(&decision.kind));
    }
    let text = |member: &str| {
        finding
            .document
            .content
            .member(member)
            .and_then(Json::as_text)
    };
    plain(text("kind").unwrap_or("(no kind)"))
}

fn is_secret(object: &Json) -> bool {
    let text = |member: &str| object.member(member).and_then(Json::as_text);
    text("kind") == Some("Secret") && text("apiVersion") == Some("v1")
}

// === impl Total ===

impl Total {
    fn add(&mut self, called: &Called) {
        self.calls += 1;
        self.fuel += called.fuel;
        self.milliseconds += called.milliseconds;
        self.slowest = self.slowest.max(called.milliseconds);
        match &*called.ended {
            "patched" => self.patched += 1,
            "denied" => self.denied += 1,
            "fault" => self.faults += 1,
            _ => {}
        }
    }
}
