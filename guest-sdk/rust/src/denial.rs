//! Denials: the message for the user, and every wrong field.

use std::borrow::Cow;

use crate::{Cause, Denial, Pointer};

/// Collects the causes against a request. Without causes, the request is allowed.
///
/// ```
/// use tollgate_sdk::{Denial, Findings, Review};
///
/// fn validate(review: &Review) -> Result<(), Denial> {
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
pub struct Findings<'m> {
    /// Copied only for a denial. Most requests are allowed.
    message: Cow<'m, str>,
    causes: Vec<Cause>,
}

// === impl Findings ===

impl<'m> Findings<'m> {
    /// Creates an empty collection. If there is a denial, it has this message.
    #[must_use]
    pub fn new(message: impl Into<Cow<'m, str>>) -> Self {
        Self {
            message: message.into(),
            causes: Vec::new(),
        }
    }

    /// Adds a cause for one field.
    pub fn at(&mut self, field: impl Into<Pointer>, message: impl Into<String>) {
        self.push(Cause::at(field, message));
    }

    /// Adds a cause.
    pub fn push(&mut self, cause: Cause) {
        self.causes.push(cause);
    }

    /// Whether there are no causes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.causes.is_empty()
    }

    /// Allows the request if there are no causes.
    ///
    /// # Errors
    /// The denial with all causes, if there are any.
    pub fn verdict(self) -> Result<(), Denial> {
        if self.is_empty() {
            return Ok(());
        }
        Err(Denial {
            causes: self.causes,
            ..Denial::new(self.message)
        })
    }
}

// === impl Denial ===

impl Denial {
    /// Creates a denial with HTTP status 403 and no causes.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: None,
            reason: None,
            causes: Vec::new(),
        }
    }

    /// Sets the HTTP status, 400 to 499.
    #[must_use]
    pub fn code(mut self, code: u16) -> Self {
        self.code = Some(code);
        self
    }

    /// Sets the Kubernetes StatusReason, such as `Invalid`.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Adds a cause for a field.
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
    /// The CauseType for a required field that is missing.
    pub const VALUE_REQUIRED: &'static str = "FieldValueRequired";
    /// The CauseType for a value that is malformed or out of range.
    pub const VALUE_INVALID: &'static str = "FieldValueInvalid";
    /// The CauseType for a value that is not one of the possible ones.
    pub const VALUE_NOT_SUPPORTED: &'static str = "FieldValueNotSupported";
    /// The CauseType for a value that is well formed but not permitted.
    pub const VALUE_FORBIDDEN: &'static str = "FieldValueForbidden";

    /// Creates a cause for a field.
    #[must_use]
    pub fn at(field: impl Into<Pointer>, message: impl Into<String>) -> Self {
        Self {
            field: Some(field.into().into()),
            message: message.into(),
            reason: None,
        }
    }

    /// Creates a cause without a field.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            field: None,
            message: message.into(),
            reason: None,
        }
    }

    /// Sets the Kubernetes CauseType, such as [`Cause::VALUE_INVALID`].
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
}
