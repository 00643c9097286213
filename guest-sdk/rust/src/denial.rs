//! Denials: what the user reads, and every field that is to blame.

use crate::{Cause, Denial, Pointer};

/// Collects what speaks against a request; nothing found means that it is allowed.
///
/// ```
/// use tollgate_sdk::{Denial, Findings, Review};
///
/// fn judge(review: &Review) -> Result<(), Denial> {
///     let mut findings = Findings::new("images must carry a digest");
///     for node in review.object().select("/spec/containers/*/image") {
///         if !node.value.as_text().is_some_and(|image| image.contains("@sha256:")) {
///             findings.at(node.pointer, "has no digest");
///         }
///     }
///     findings.verdict()
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Findings(Denial);

// === impl Findings ===

impl Findings {
    /// Nothing found yet; the message is that of the denial, should there be one.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self(Denial::new(message))
    }

    /// Adds a finding about one field.
    pub fn at(&mut self, field: impl Into<Pointer>, message: impl Into<String>) {
        self.push(Cause::at(field, message));
    }

    /// Adds a finding.
    pub fn push(&mut self, cause: Cause) {
        self.0.causes.push(cause);
    }

    /// Whether nothing was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.causes.is_empty()
    }

    /// Allows when nothing was found.
    ///
    /// # Errors
    /// The denial with all findings, when there are any.
    pub fn verdict(self) -> Result<(), Denial> {
        if self.is_empty() { Ok(()) } else { Err(self.0) }
    }
}

// === impl Denial ===

impl Denial {
    /// A denial: HTTP status 403, no causes.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: None,
            reason: None,
            causes: Vec::new(),
        }
    }

    /// Another HTTP status, 400 to 499.
    #[must_use]
    pub fn code(mut self, code: u16) -> Self {
        self.code = Some(code);
        self
    }

    /// A Kubernetes StatusReason such as `Invalid`.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Blames a field.
    #[must_use]
    pub fn at(self, field: impl Into<Pointer>, message: impl Into<String>) -> Self {
        self.cause(Cause::at(field, message))
    }

    /// Adds a cause.
    #[must_use]
    pub fn cause(mut self, cause: Cause) -> Self {
        self.causes.push(cause);
        self
    }
}

// === impl Cause ===

impl Cause {
    /// The CauseType of a field that has to be there and is not.
    pub const VALUE_REQUIRED: &'static str = "FieldValueRequired";
    /// The CauseType of a field whose value is malformed or out of range.
    pub const VALUE_INVALID: &'static str = "FieldValueInvalid";
    /// The CauseType of a field whose value is not one of those that are possible.
    pub const VALUE_NOT_SUPPORTED: &'static str = "FieldValueNotSupported";
    /// The CauseType of a field whose value is well formed and not permitted.
    pub const VALUE_FORBIDDEN: &'static str = "FieldValueForbidden";

    /// A cause that blames a field.
    #[must_use]
    pub fn at(field: impl Into<Pointer>, message: impl Into<String>) -> Self {
        Self {
            field: Some(field.into().into()),
            message: message.into(),
            reason: None,
        }
    }

    /// A cause that blames no single field.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            field: None,
            message: message.into(),
            reason: None,
        }
    }

    /// A Kubernetes CauseType, such as [`Cause::VALUE_INVALID`].
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
}
