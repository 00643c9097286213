//! Merges denials and faults into one status.
//!
//! kube-apiserver shows a user one message per webhook. When the reason is Invalid, kubectl shows `details.causes`
//! instead of the message. So both name every plugin that denies the request, with its reason.

mod causes;

use tollgate_admission::review::request::AdmissionRequest;
use tollgate_admission::text::{Limit, field_path, one_line};
use tollgate_admission::{Cause, Denial};
use tollgate_json::document::Json;

use super::Weight;
use crate::pipeline::outcome::{Report, Status, StatusCause, StatusDetails};

/// Most bytes of the message, which travels in an HTTP body and through kubectl to a terminal.
const MAX_MESSAGE_BYTES: usize = 16 * 1024;
/// Bytes of the message that each plugin gets at least, however many deny the request.
const MIN_PART_BYTES: usize = 128;
/// Bytes of the message that each plugin gets at most.
const MAX_PART_BYTES: usize = 4 * 1024;
/// Most causes in one status.
const MAX_CAUSES: usize = 100;
/// Longest message of one cause, including the plugin's name.
const MAX_CAUSE: Limit = Limit::Bytes(1024);

/// The code and reason of a denial that asks for no other.
const FORBIDDEN: (u16, &str) = (403, "Forbidden");
/// The code and reason of a fault.
const INTERNAL_ERROR: (u16, &str) = (500, "InternalError");
/// StatusReasons for a denied request, each with its HTTP code. When two reasons share a code, the first is used for
/// a denial that gives only the code.
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
/// CauseTypes that a denial can use.
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
/// CauseType of a value that is well formed but not permitted, and the default for a policy's denial.
const FIELD_FORBIDDEN: &str = "FieldValueForbidden";

/// The contribution of one plugin that denies the request or failed closed.
struct Refusal {
    /// The plugin's name and its reason.
    words: String,
    causes: Vec<StatusCause>,
    /// Number of further causes.
    more_causes: usize,
}

/// Returns the status of a denied request, or none if no report denies it.
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
    // No more than these fit into the message or the causes.
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

/// Returns a denial on one line: its message, with the causes that the message does not contain.
pub(super) fn words(denial: &Denial, limit: Limit) -> String {
    let message = one_line(&denial.message, limit);
    let added = causes::words(&message, &denial.causes);
    match (message.is_empty(), added.is_empty()) {
        (true, true) => "no reason given".to_owned(),
        (true, false) => one_line(&added, limit),
        (false, true) => message,
        (false, false) => one_line(&format!("{message} ({added})"), limit),
    }
}

/// Returns the longest text that each plugin may have so that all of them fit.
fn part(refusing: &[&str]) -> Limit {
    /// Room for the words at the beginning and the end.
    const FRAME_BYTES: usize = 128;
    /// Room for `; ` and ` failed (output-too-large, failurePolicy Fail): `.
    const SEPARATORS_BYTES: usize = 50;
    let names: usize = refusing
        .iter()
        .map(|name| name.len() + SEPARATORS_BYTES)
        .sum();
    let words = MAX_MESSAGE_BYTES.saturating_sub(names + FRAME_BYTES);
    Limit::Bytes((words / refusing.len()).clamp(MIN_PART_BYTES, MAX_PART_BYTES))
}

/// Builds the message, which users read after `admission webhook "x" denied the request: `.
fn message(refusals: &[Refusal], refusing: usize, denials: usize) -> String {
    /// Room for `; and 18446744073709551615 more`.
    const REST_BYTES: usize = 32;
    let mut message = match (denials, refusing - denials) {
        (1, 0) | (0, 1) => String::new(),
        (_, 0) => format!("denied by {denials} plugins: "),
        (0, faults) => format!("{faults} plugins failed: "),
        (1, faults) => format!("denied by 1 plugin, {faults} failed: "),
        (_, faults) => format!("denied by {denials} plugins, {faults} failed: "),
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

/// Collects the causes of all plugins while there is room, with at least one cause per plugin.
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

/// Returns the code and reason that all denials ask for, or Forbidden if their codes differ.
fn agreed(denials: &[&Denial]) -> (u16, &'static str) {
    let mut statuses = denials.iter().map(|denial| status_of(denial));
    let Some(first) = statuses.next() else {
        return FORBIDDEN;
    };
    let mut reasons_agree = true;
    for other in statuses {
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

/// Returns the code and reason that one denial asks for. A reason counts if it fits the given code, or if no code is
/// given.
fn status_of(denial: &Denial) -> (u16, &'static str) {
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
        text = "no reason given".to_owned();
    }
    StatusCause {
        reason,
        message: one_line(&format!("{plugin}: {text}"), MAX_CAUSE),
        field: cause.field.as_deref().and_then(field_path),
    }
}
