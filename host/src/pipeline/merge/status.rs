//! Refusals into one status.
//!
//! kube-apiserver shows a user one message per webhook, and kubectl shows `details.causes` instead of it when the
//! reason is Invalid. So both name every plugin that refuses, and say what each one said.

mod causes;

use super::Weight;
use crate::document::Json;
use crate::pipeline::outcome::{Cause, Denial, Report, Status, StatusCause, StatusDetails};
use crate::pipeline::text::{Limit, field_path, one_line};
use crate::review::request::AdmissionRequest;

/// The whole message. It travels in an HTTP body and through kubectl to a terminal.
const MAX_MESSAGE_BYTES: usize = 16 * 1024;
/// What one plugin says in it, at least, however many refuse.
const MIN_PART_BYTES: usize = 128;
/// What one plugin says in it, at most.
const MAX_PART_BYTES: usize = 4 * 1024;
/// Causes in all.
const MAX_CAUSES: usize = 100;
/// One cause's message, the plugin's name included.
const MAX_CAUSE: Limit = Limit::Bytes(1024);

/// A policy's refusal, unless it wants otherwise.
const FORBIDDEN: (u16, &str) = (403, "Forbidden");
/// A plugin's failing.
const INTERNAL_ERROR: (u16, &str) = (500, "InternalError");
/// StatusReasons for a refused request, each with the one code that belongs to it. Of those that share a code the
/// first is the one that the code alone stands for.
const STATUS_REASONS: [(u16, &str); 15] = [
    FORBIDDEN,
    (400, "BadRequest"),
    (401, "Unauthorized"),
    (404, "NotFound"),
    (405, "MethodNotAllowed"),
    (406, "NotAcceptable"),
    (409, "Conflict"),
    (409, "AlreadyExists"),
    (410, "Gone"),
    (410, "Expired"),
    (413, "RequestEntityTooLarge"),
    (415, "UnsupportedMediaType"),
    (422, "Invalid"),
    (429, "TooManyRequests"),
    INTERNAL_ERROR,
];
/// The CauseTypes of a policy's refusal.
const CAUSE_TYPES: [&str; 10] = [
    FIELD_FORBIDDEN,
    "FieldValueNotFound",
    "FieldValueRequired",
    "FieldValueDuplicate",
    "FieldValueInvalid",
    "FieldValueNotSupported",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
    "InternalError",
];
/// For a value that is well formed but not permitted, which is what a policy says when it says no more.
const FIELD_FORBIDDEN: &str = "FieldValueForbidden";

/// One plugin that stands in the request's way.
struct Refusal {
    /// Its name and what it says.
    words: String,
    causes: Vec<StatusCause>,
    /// How many causes it has beyond those.
    more_causes: usize,
}

/// The refusal that the reports come to, if they come to one.
pub(super) fn merge(reports: &[&Report], request: &AdmissionRequest) -> Option<Status> {
    let weights = || reports.iter().map(|report| (*report, Weight::of(report)));
    let denials: Vec<&Denial> = weights()
        .filter_map(|(_, weight)| {
            if let Weight::Denies(denial) = weight {
                Some(denial)
            } else {
                None
            }
        })
        .collect();
    let refusing: Vec<&str> = weights()
        .filter(|(_, weight)| matches!(weight, Weight::Denies(_) | Weight::FailsClosed(_)))
        .map(|(report, _)| report.plugin.as_str())
        .collect();
    if refusing.is_empty() {
        return None;
    }
    let part = part(&refusing);
    let refusing = refusing.len();
    let refusals = weights().filter_map(|(report, weight)| Refusal::of(report, &weight, part));
    // More than these do not come into the message or the causes.
    let refusals: Vec<Refusal> = refusals.take(MAX_MESSAGE_BYTES / MIN_PART_BYTES).collect();
    let (code, reason) = if denials.is_empty() {
        INTERNAL_ERROR
    } else {
        agreed(&denials)
    };
    Some(Status {
        code,
        reason,
        message: message(&refusals, refusing, denials.len()),
        details: Some(StatusDetails {
            name: name(request),
            group: request.kind.group.clone(),
            kind: request.kind.kind.clone(),
            uid: metadata(request, "uid").unwrap_or_default().to_owned(),
            causes: causes(refusals, refusing),
        }),
    })
}

/// What a denial says on one line: its message, and what its causes add to it.
pub(super) fn words(denial: &Denial, limit: Limit) -> String {
    let message = one_line(&denial.message, limit);
    let added = causes::words(&message, &denial.causes);
    match (message.is_empty(), added.is_empty()) {
        (true, true) => "gives no reason".to_owned(),
        (true, false) => one_line(&added, limit),
        (false, true) => message,
        (false, false) => one_line(&format!("{message} ({added})"), limit),
    }
}

/// How long one plugin's words can be, so that all of them fit.
fn part(refusing: &[&str]) -> Limit {
    /// Room for the words at the beginning and the end.
    const FRAME_BYTES: usize = 128;
    /// `; ` and ` failed (output-too-large, failurePolicy Fail): `
    const SEPARATORS_BYTES: usize = 50;
    let names: usize = refusing
        .iter()
        .map(|name| name.len() + SEPARATORS_BYTES)
        .sum();
    let words = MAX_MESSAGE_BYTES.saturating_sub(names + FRAME_BYTES);
    Limit::Bytes((words / refusing.len()).clamp(MIN_PART_BYTES, MAX_PART_BYTES))
}

/// Read behind `admission webhook "x" denied the request: `.
fn message(refusals: &[Refusal], refusing: usize, denials: usize) -> String {
    /// Room for `; and 18446744073709551615 more`.
    const REST_BYTES: usize = 32;
    let mut message = match (denials, refusing - denials) {
        (1, 0) | (0, 1) => String::new(),
        (_, 0) => format!("{denials} plugins refuse: "),
        (0, faults) => format!("{faults} plugins failed: "),
        (1, faults) => format!("1 plugin refuses, {faults} failed: "),
        (_, faults) => format!("{denials} plugins refuse, {faults} failed: "),
    };
    for (index, refusal) in refusals.iter().enumerate() {
        let separator = if index == 0 { "" } else { "; " };
        let part = format!("{separator}{}", refusal.words);
        if message.len() + part.len() + REST_BYTES > MAX_MESSAGE_BYTES {
            return format!("{message}; and {} more", refusing - index);
        }
        message.push_str(&part);
    }
    if refusals.len() < refusing {
        message.push_str(&format!("; and {} more", refusing - refusals.len()));
    }
    message
}

/// Every plugin's causes as long as there is room, but of every plugin at least one.
fn causes(refusals: Vec<Refusal>, refusing: usize) -> Vec<StatusCause> {
    let mut all: Vec<StatusCause> = Vec::new();
    let shown = refusals.len().min(MAX_CAUSES);
    for (index, refusal) in refusals.into_iter().take(shown).enumerate() {
        let for_later = shown - index - 1;
        let room = (MAX_CAUSES - all.len()).saturating_sub(for_later).max(1);
        let missing = refusal.causes.len().saturating_sub(room) + refusal.more_causes;
        all.extend(refusal.causes.into_iter().take(room));
        if let (Some(last), true) = (all.last_mut(), missing > 0) {
            last.message.push_str(&format!(" (and {missing} more)"));
        }
    }
    if let (Some(last), true) = (all.last_mut(), shown < refusing) {
        let missing = refusing - shown;
        let plugins = if missing == 1 { "plugin" } else { "plugins" };
        last.message
            .push_str(&format!(" (and {missing} more {plugins})"));
    }
    all
}

/// The code and reason that all denials want, or Forbidden.
fn agreed(denials: &[&Denial]) -> (u16, &'static str) {
    let mut wanted = denials.iter().map(|denial| wanted(denial));
    let Some(first) = wanted.next() else {
        return FORBIDDEN;
    };
    let mut reasons_agree = true;
    for other in wanted {
        if other.0 != first.0 {
            return FORBIDDEN;
        }
        reasons_agree &= other.1 == first.1;
    }
    if reasons_agree {
        first
    } else {
        (first.0, reason_for(first.0))
    }
}

/// What one denial wants: a reason counts where it belongs to the code, or stands for one.
fn wanted(denial: &Denial) -> (u16, &'static str) {
    let by_reason = STATUS_REASONS
        .into_iter()
        .find(|(code, reason)| *code < 500 && denial.reason.as_deref() == Some(*reason));
    match (denial.code, by_reason) {
        (None, Some(known)) => known,
        (Some(code), Some(known)) if code == known.0 => known,
        (Some(code @ 400..=499), _) => (code, reason_for(code)),
        _ => FORBIDDEN,
    }
}

fn reason_for(code: u16) -> &'static str {
    STATUS_REASONS
        .into_iter()
        .find(|known| known.0 == code)
        .unwrap_or(FORBIDDEN)
        .1
}

fn name(request: &AdmissionRequest) -> String {
    let name = request
        .object_name()
        .or_else(|| metadata(request, "generateName"));
    name.unwrap_or_default().to_owned()
}

fn metadata<'r>(request: &'r AdmissionRequest, name: &str) -> Option<&'r str> {
    let object = request.object.as_ref().or(request.old_object.as_ref())?;
    object
        .member("metadata")?
        .member(name)
        .and_then(Json::as_text)
}

// === impl Refusal ===

impl Refusal {
    fn of(report: &Report, weight: &Weight<'_>, limit: Limit) -> Option<Self> {
        let plugin = report.plugin.as_str();
        match weight {
            Weight::Denies(denial) => Some(Self::denial(plugin, denial, limit)),
            Weight::FailsClosed(fault) => {
                let text = one_line(&fault.message, limit);
                let separator = if text.is_empty() { "" } else { ": " };
                let words = format!(
                    "{plugin} failed ({}, failurePolicy Fail){separator}{text}",
                    fault.kind
                );
                let message = one_line(&words, MAX_CAUSE);
                let causes = vec![StatusCause {
                    reason: INTERNAL_ERROR.1,
                    message,
                    field: None,
                }];
                Some(Self {
                    words,
                    causes,
                    more_causes: 0,
                })
            }
            _ => None,
        }
    }

    fn denial(plugin: &str, denial: &Denial, limit: Limit) -> Self {
        let words = format!("{plugin}: {}", words(denial, limit));
        let mut causes: Vec<StatusCause> = denial
            .causes
            .iter()
            .take(MAX_CAUSES)
            .map(|cause| status_cause(plugin, cause, denial))
            .collect();
        if causes.is_empty() {
            causes.push(StatusCause {
                reason: FIELD_FORBIDDEN,
                message: one_line(&words, MAX_CAUSE),
                field: None,
            });
        }
        Self {
            words,
            causes,
            more_causes: denial.causes.len().saturating_sub(MAX_CAUSES),
        }
    }
}

fn status_cause(plugin: &str, cause: &Cause, denial: &Denial) -> StatusCause {
    let reason = CAUSE_TYPES
        .into_iter()
        .find(|known| cause.reason.as_deref() == Some(*known))
        .unwrap_or(FIELD_FORBIDDEN);
    let mut text = one_line(&cause.message, MAX_CAUSE);
    if text.is_empty() {
        text = one_line(&denial.message, MAX_CAUSE);
    }
    if text.is_empty() {
        text = "gives no reason".to_owned();
    }
    StatusCause {
        reason,
        message: one_line(&format!("{plugin}: {text}"), MAX_CAUSE),
        field: cause.field.as_deref().and_then(field_path),
    }
}
