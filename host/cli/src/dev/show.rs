//! Shows a review that was answered: its verdict, the plugins with their cost, the denial, and the changes.

use tollgate_admission::Reply;
use tollgate_gate::decision::Decision;
use tollgate_json::document::{Json, parse_up_to};
use tollgate_json::patch::{ApplyLimits, apply};

use super::playground::Seen;
use super::round::time_of_day;
use crate::called;
use crate::review::examine::Step;
use crate::review::show as shown;
use crate::terminal::{BAD, FAINT, NOTABLE, STRONG, full_name, plain, say, style_of};

/// Limits for the host's own patch, which has already been checked.
const UNLIMITED: ApplyLimits = ApplyLimits {
    max_depth: u32::MAX,
    max_added_nodes: usize::MAX,
    max_added_bytes: usize::MAX,
    max_steps: usize::MAX,
};
/// Maximum nesting depth of a review that is shown. The pipeline has accepted the review already.
const MAX_DEPTH: u32 = 1000;
/// Maximum number of values in a review that is shown.
const MOST_VALUES: u32 = 2_000_000;
const OBJECT: &str = "/request/object";

/// Shows a review. Its lines stay together, whatever else is printed meanwhile.
pub(super) fn seen(seen: &Seen, all: bool) {
    // The lock is reentrant: `say!` takes it again.
    let _together = std::io::stdout().lock();
    let examined = &seen.examined;
    let (Some(decision), Some(outcome)) = (&examined.decision, &examined.outcome) else {
        let why = match &examined.reply {
            Reply::Internal(text) => plain(text),
            _ => "there is no decision".to_owned(),
        };
        say!(
            "{}  {BAD}error  {BAD:#}  {:8}  {why}",
            now(),
            seen.endpoint.name()
        );
        return;
    };
    let step = Step {
        endpoint: seen.endpoint,
        response: serde_json::Value::Null,
        decision: decision.clone(),
        outcome: outcome.clone(),
        reports: Vec::new(),
        audits: examined.audits.clone(),
    };
    head(&step);
    if decision.plugins.is_empty() && step.audits.is_empty() {
        say!("    {NOTABLE}no plugin was called{NOTABLE:#}");
        for other in &decision.not_called {
            say!("    {}", called::not_called(other, 0));
        }
    } else {
        // The cost is shown for calls without an effect, too.
        shown::step(&step, called::width(&[decision]), true, all);
    }
    change(seen, &step);
}

/// Returns the verdict in one word.
fn verdict(step: &Step) -> &'static str {
    match (step.outcome.allowed, step.outcome.patch.is_empty()) {
        (false, _) => "denied",
        (true, false) => "changed",
        (true, true) => "allowed",
    }
}

fn head(step: &Step) {
    let Decision {
        operation,
        kind,
        user,
        namespace,
        name,
        ..
    } = &step.decision;
    let verdict = verdict(step);
    let style = style_of(verdict);
    let dry_run = match step.decision.dry_run {
        true => ", dry run",
        false => "",
    };
    say!(
        "{}  {style}{verdict:7}{style:#}  {:8}  {STRONG}{operation} {} {}{STRONG:#}  {FAINT}by {}{dry_run}{FAINT:#}",
        now(),
        step.endpoint.name(),
        plain(kind),
        full_name(namespace.as_deref(), name),
        plain(user),
    );
}

/// Shows the changes to the object.
fn change(seen: &Seen, step: &Step) {
    if step.outcome.patch.is_empty() {
        return;
    }
    let Some(review) = seen.body.as_ref().and_then(|body| read(body)) else {
        return;
    };
    let Ok(Some(before)) = review.at(OBJECT) else {
        return;
    };
    if let Ok(after) = apply(before, &step.outcome.patch, &UNLIMITED) {
        shown::change(before, &after);
    }
}

fn read(body: &[u8]) -> Option<Json> {
    parse_up_to(body, MAX_DEPTH, MOST_VALUES).ok()
}

/// Returns the time of day.
fn now() -> String {
    format!("{FAINT}{}{FAINT:#}", time_of_day())
}
