//! Enforces the Pod Security Standards of Kubernetes.
//!
//! ```text
//! request → subject: a Pod, or an object with a template for Pods?       else: allowed
//!         → update:  did anything change that the standards look at?     else: allowed
//!         → pod:     the fields that the checks look at, and no others
//!         → checks:  those of the level and version                      → violations
//!         → a denial, or a warning about a template
//! ```
//!
//! The plugin decides like the PodSecurity admission controller of Kubernetes, and has the same texts. It never reads
//! fields that no check needs.

mod checks;
mod pod;
mod settings;
mod subject;
mod text;
mod update;
mod violation;

use tollgate_sdk::ReadError;
use tollgate_sdk::prelude::*;

use checks::CheckFn;
use pod::Pod;
pub use settings::Settings;
use settings::{Standard, Templates};
use subject::Subject;
use violation::Violation;

/// The audit annotation with the standard that applied to a Pod.
const ENFORCE_POLICY: &str = "enforce-policy";
/// The audit annotation with the violations that a template was warned about.
const AUDIT_VIOLATIONS: &str = "audit-violations";

/// The length up to which all violations go into one warning. kube-apiserver may cut a warning after 256 characters,
/// including the plugin's name. Longer texts are split into one warning per violation.
const LONG_WARNING: usize = 200;

/// The policy, with the checks of its level and version.
pub struct PodSecurity {
    standard: Standard,
    templates: Templates,
    checks: Vec<CheckFn>,
}

// === impl PodSecurity ===

impl Policy for PodSecurity {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        let standard = settings.standard();
        Ok(Self {
            checks: checks::of(&standard),
            standard,
            templates: settings.templates,
        })
    }
}

impl Validate for PodSecurity {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        if self.checks.is_empty() {
            return Ok(());
        }
        let operation = review.operation();
        let is_update = operation == Operation::Update;
        match Subject::of(review, operation) {
            None => Ok(()),
            Some(Subject::Pod) => {
                if is_update && !update::is_significant(review.object(), review.old_object()) {
                    return Ok(());
                }
                review.annotate(ENFORCE_POLICY, self.standard.to_string());
                self.denial(self.evaluate(review.object(), Pointer::root()))
            }
            Some(Subject::Template(at)) => {
                let result = self.evaluate(review.object(), at.clone());
                if result.as_ref().is_ok_and(Vec::is_empty) {
                    return Ok(());
                }
                // Checked last, because this compares both templates as a whole.
                let is_denied = self.templates == Templates::Deny
                    && !(is_update && update::is_unchanged(review, &at));
                if is_denied {
                    return self.denial(result);
                }
                self.warn(review, result);
                Ok(())
            }
        }
    }
}

impl PodSecurity {
    fn evaluate(&self, object: Document, at: Pointer) -> Result<Vec<Violation>, ReadError> {
        let pod = Pod::read(object, at)?;
        Ok(self.checks.iter().filter_map(|check| check(&pod)).collect())
    }

    fn denial(&self, result: Result<Vec<Violation>, ReadError>) -> Result<(), Denial> {
        let violations = result.map_err(|error| Denial::new(unreadable(&error)).code(400))?;
        if violations.is_empty() {
            return Ok(());
        }
        let mut findings = Findings::new(format!("violates {}", self.summary(&violations)));
        for cause in violations
            .into_iter()
            .flat_map(|violation| violation.causes)
        {
            findings.push(cause);
        }
        findings.verdict()
    }

    fn warn(&self, review: &Review, result: Result<Vec<Violation>, ReadError>) {
        let would_violate =
            |violations: &[Violation]| format!("would violate {}", self.summary(violations));
        let all = match &result {
            Ok(violations) => would_violate(violations),
            Err(error) => unreadable(error),
        };
        match &result {
            Ok(violations) if all.len() > LONG_WARNING => {
                for violation in violations {
                    review.warn(would_violate(std::slice::from_ref(violation)));
                }
            }
            _ => review.warn(&all),
        }
        review.annotate(AUDIT_VIOLATIONS, all);
    }

    fn summary(&self, violations: &[Violation]) -> String {
        let violations: Vec<_> = violations.iter().map(Violation::to_string).collect();
        format!(
            "PodSecurity \"{}\": {}",
            self.standard,
            violations.join(", ")
        )
    }
}

/// The message for a malformed object. kube-apiserver decodes its objects, so only other clients can send one.
fn unreadable(error: &ReadError) -> String {
    format!("the Pod cannot be judged: {error}")
}

tollgate_sdk::validator! {
    PodSecurity,
    rules: [
        Rule::on(
            [Operation::Create, Operation::Update],
            "",
            "v1",
            ["pods", "podtemplates", "replicationcontrollers"],
        ),
        Rule::on([Operation::Update], "", "v1", ["pods/ephemeralcontainers"]),
        Rule::on(
            [Operation::Create, Operation::Update],
            "apps",
            "v1",
            ["daemonsets", "deployments", "replicasets", "statefulsets"],
        ),
        Rule::on([Operation::Create, Operation::Update], "batch", "v1", ["cronjobs", "jobs"]),
    ],
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests;
