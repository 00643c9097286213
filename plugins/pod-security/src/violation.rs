//! The result of a check: a text, and the single fields.

use std::fmt;

use tollgate_sdk::prelude::*;

use crate::pod::Container;
use crate::text::{plural, quoted};

/// A check that a Pod does not pass.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) reason: &'static str,
    pub(crate) detail: String,
    pub(crate) causes: Vec<Cause>,
}

/// The origin of a violation: fields of the Pod, and containers by name.
#[derive(Default)]
pub(crate) struct Offenders<'p> {
    is_pod: bool,
    containers: Vec<&'p str>,
    causes: Vec<Cause>,
}

/// Creates a cause for a field with a forbidden value.
pub(crate) fn forbidden(field: impl Into<Pointer>, message: impl Into<String>) -> Cause {
    Cause::at(field, message).reason(Cause::VALUE_FORBIDDEN)
}

/// Creates a cause for a required field that is missing.
pub(crate) fn required(field: impl Into<Pointer>, message: impl Into<String>) -> Cause {
    Cause::at(field, message).reason(Cause::VALUE_REQUIRED)
}

// === impl Violation ===

/// Writes the violation like Kubernetes: `hostPort (container "a" uses hostPort 80)`.
impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        Ok(())
    }
}

// === impl Offenders ===

impl<'p> Offenders<'p> {
    /// Adds the Pod. Does nothing without causes.
    pub(crate) fn pod(&mut self, causes: impl IntoIterator<Item = Cause>) {
        let before = self.causes.len();
        self.causes.extend(causes);
        self.is_pod |= self.causes.len() > before;
    }

    /// Adds a container, once for all of its causes. Does nothing without causes.
    pub(crate) fn container(
        &mut self,
        container: &'p Container,
        causes: impl IntoIterator<Item = Cause>,
    ) {
        let before = self.causes.len();
        self.causes.extend(causes);
        if self.causes.len() > before {
            self.containers.push(&container.name);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.causes.is_empty()
    }

    /// Returns the number of containers.
    pub(crate) fn count(&self) -> usize {
        self.containers.len()
    }

    /// Returns the violation, if there are any offenders. The detail is a text about them.
    pub(crate) fn violation(
        self,
        reason: &'static str,
        detail: impl FnOnce(&Self) -> String,
    ) -> Option<Violation> {
        if self.is_empty() {
            return None;
        }
        Some(Violation {
            reason,
            detail: detail(&self),
            causes: self.causes,
        })
    }

    pub(crate) fn into_causes(self) -> Vec<Cause> {
        self.causes
    }
}

/// Writes the offenders as `pod and containers "a", "b"`.
impl fmt::Display for Offenders<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_pod {
            f.write_str("pod")?;
        }
        if self.containers.is_empty() {
            return Ok(());
        }
        if self.is_pod {
            f.write_str(" and ")?;
        }
        let word = plural("container", "containers", self.containers.len());
        write!(f, "{word} {}", quoted(self.containers.iter().copied()))
    }
}
