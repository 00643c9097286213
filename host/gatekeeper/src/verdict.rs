//! The result of several constraints: a denial, warnings and reports.

use serde_json::Value as Json;

use crate::{Action, Constraint};

/// The audit annotation with the details of violations.
const DETAILS: &str = "details";
/// The audit annotation with the violations of constraints that only report.
const DRY_RUN: &str = "dryrun";

/// A violation, as a template reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// The message for the user.
    pub message: String,
    /// Further facts. None if the template gives none.
    pub details: Option<Json>,
}

/// The violations of a review, by their effect.
#[derive(Debug, Default)]
pub struct Verdict {
    denied: Vec<(String, Violation)>,
    warnings: Vec<String>,
    reported: Vec<String>,
}

/// A denial: the message, and a cause for each violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The message for the user.
    pub message: String,
    /// The messages of the violations. They name their constraint where there is more than one.
    pub causes: Vec<String>,
}

// === impl Verdict ===

impl Verdict {
    /// Adds the violations of a constraint.
    pub fn add(&mut self, constraint: &Constraint, violations: Vec<Violation>) {
        let name = &constraint.name;
        for violation in violations {
            let text = format!("[{name}] {}", violation.message);
            match constraint.action {
                Action::Deny => self.denied.push((name.clone(), violation)),
                Action::Warn => self.warnings.push(text),
                Action::DryRun => self.reported.push(text),
            }
        }
    }

    /// Whether there is no violation.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.denied.is_empty() && self.warnings.is_empty() && self.reported.is_empty()
    }

    /// Returns the warnings for the user.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the number of violations of constraints that only report.
    #[must_use]
    pub const fn reported(&self) -> usize {
        self.reported.len()
    }

    /// Returns the audit annotations.
    #[must_use]
    pub fn annotations(&self) -> Vec<(&'static str, String)> {
        let mut annotations = Vec::new();
        if !self.reported.is_empty() {
            annotations.push((DRY_RUN, self.reported.join("\n")));
        }
        let details = self.denied.iter();
        let details: Vec<Json> = details
            .filter_map(|(_, violation)| violation.details.clone())
            .collect();
        if !details.is_empty() {
            annotations.push((DETAILS, Json::Array(details).to_string()));
        }
        annotations
    }

    /// Returns the denial, if a constraint denies.
    #[must_use]
    pub fn denial(&self) -> Option<Denied> {
        let (first, violation) = self.denied.first()?;
        let is_one = self.denied.iter().all(|(name, _)| name == first);
        let message = match self.denied.len() {
            1 => format!("[{first}] {}", violation.message),
            count if is_one => format!("[{first}] {count} violations"),
            count => format!("{count} violations"),
        };
        let causes = self.denied.iter().map(|(name, violation)| match is_one {
            true => violation.message.clone(),
            false => format!("[{name}] {}", violation.message),
        });
        Some(Denied {
            message,
            causes: causes.collect(),
        })
    }
}
