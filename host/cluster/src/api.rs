//! Small helpers for requests to kube-apiserver.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;

use kube::core::Status;
use tollgate_admission::text::{Limit, one_line};

use crate::Installation;
use crate::lease::INSTALLATION_LABEL;

/// Maximum length of the message of kube-apiserver in an error. A proxy may answer with a page of HTML.
const LONGEST_MESSAGE: Limit = Limit::Bytes(1000);

/// Whether somebody else wrote the object first.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    has_code(error, 409)
}

/// Whether the object does not exist.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    has_code(error, 404)
}

/// Whether the right to do that is missing.
pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    has_code(error, 403)
}

/// Whether kube-apiserver refused the content of the object.
pub(crate) fn is_invalid(error: &kube::Error) -> bool {
    has_code(error, 422)
}

/// Whether kube-apiserver no longer has what the request continues.
pub(crate) fn is_gone(error: &kube::Error) -> bool {
    has_code(error, 410)
}

fn has_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// The labels of every object that the installation creates.
pub(crate) fn labels(installation: &Installation) -> BTreeMap<String, String> {
    [
        ("app.kubernetes.io/name", "tollgate"),
        ("app.kubernetes.io/instance", &installation.name),
        ("app.kubernetes.io/managed-by", "tollgate"),
        (INSTALLATION_LABEL, &installation.name),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// Returns an error with its causes in one line.
///
/// kube writes a refusal of kube-apiserver with the whole `Status` in the form of Rust. This function writes the message,
/// the reason and the code in its place.
pub(crate) fn words(error: &(dyn Error + 'static)) -> String {
    if let Some(status) = refusal(error) {
        return sentence(status);
    }
    let text = error.to_string();
    let Some(cause) = error.source() else {
        return text;
    };
    let (raw, cause) = (cause.to_string(), words(cause));
    match text.contains(&raw) {
        true if raw.is_empty() => text,
        true => text.replace(&raw, &cause),
        false => format!("{text}: {cause}"),
    }
}

/// Returns what kube-apiserver answered, if the error is a refusal. A source in a box is known by the type of the box.
fn refusal<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e Status> {
    if let Some(status) = error.downcast_ref::<Status>() {
        return Some(status);
    }
    if let Some(status) = error.downcast_ref::<Box<Status>>() {
        return Some(status);
    }
    let boxed = error.downcast_ref::<Box<kube::Error>>();
    let unboxed = boxed.map(|error| &**error);
    match unboxed.or_else(|| error.downcast_ref::<kube::Error>())? {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

/// Writes a refusal as people read it, such as `pods is forbidden: … (Forbidden, 403)`.
fn sentence(status: &Status) -> String {
    let mut text = match one_line(&status.message, LONGEST_MESSAGE) {
        empty if empty.is_empty() => "kube-apiserver refuses the request".to_owned(),
        message => message,
    };
    // A reason of Kubernetes is one word. kube writes a sentence where the answer is no `Status`.
    let reason = one_line(&status.reason, LONGEST_MESSAGE);
    let is_word = !reason.is_empty() && !reason.contains(' ');
    let _ = match (is_word, status.code) {
        (true, 0) => write!(text, " ({reason})"),
        (true, code) => write!(text, " ({reason}, {code})"),
        (false, 0) => Ok(()),
        (false, code) => write!(text, " ({code})"),
    };
    text
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher;

    use super::*;
    use crate::inventory::InventoryError;

    const MESSAGE: &str = "pods is forbidden: User \"jane\" cannot list resource \"pods\"";

    fn forbidden() -> kube::Error {
        let status = Status::failure(MESSAGE, "Forbidden").with_code(403);
        kube::Error::Api(status.boxed())
    }

    /// An error that holds another one in a box, as some errors of this crate do.
    #[derive(Debug, thiserror::Error)]
    #[error("cannot write")]
    struct Outer(#[source] Box<kube::Error>);

    #[test]
    fn refusal_is_written_with_message_reason_and_code_alone() {
        let expected = format!("{MESSAGE} (Forbidden, 403)");
        assert_eq!(words(&forbidden()), expected);
        let outer = Outer(Box::new(forbidden()));
        assert_eq!(words(&outer), format!("cannot write: {expected}"));
        let error = watcher::Error::InitialListFailed(forbidden());
        assert_eq!(
            words(&error),
            format!("failed to perform initial object list: {expected}")
        );
        let status = Status::failure(MESSAGE, "Forbidden").with_code(403);
        let error = watcher::Error::WatchError(status.boxed());
        assert_eq!(
            words(&error),
            format!("error returned by apiserver during watch: {expected}")
        );
        let error = InventoryError::of("list pods", &forbidden());
        assert_eq!(error.to_string(), format!("cannot list pods: {expected}"));
    }

    #[test]
    fn answer_that_is_no_status_is_one_short_line() {
        let page = format!("<html>\n  {}", "<p>503</p>\n".repeat(1000));
        let status = Status::failure(&page, "Failed to parse error data").with_code(503);
        let text = words(&kube::Error::Api(status.boxed()));
        assert!(text.starts_with("<html> <p>503</p> <p>"), "{text}");
        assert!(text.ends_with("… (503)"), "{text}");
        assert!(text.len() < 1100 && !text.contains('\n'));
        let nothing = kube::Error::Api(Status::default().boxed());
        assert_eq!(words(&nothing), "kube-apiserver refuses the request");
    }

    #[test]
    fn causes_of_other_errors_are_written_once() {
        let cause = std::io::Error::other("connection refused");
        let error = kube::Error::ReadEvents(cause);
        assert_eq!(
            words(&error),
            "Error reading events stream: connection refused"
        );
    }
}
