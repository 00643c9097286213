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
//! Decides as the PodSecurity admission controller of Kubernetes does, and says it in the same words. What no check of
//! the standards looks at is never read.

mod checks;
mod pod;
mod settings;
mod subject;
mod text;
mod update;
mod violation;

use tollgate_sdk::ReadError;
use tollgate_sdk::prelude::*;

use checks::Judge;
use pod::Pod;
pub use settings::Settings;
use settings::{Standard, Templates};
use subject::Subject;
use violation::Violation;

/// The audit annotation with the standard that a Pod was judged by.
const ENFORCE_POLICY: &str = "enforce-policy";
/// The audit annotation with what a template was warned about.
const AUDIT_VIOLATIONS: &str = "audit-violations";

/// A warning may be cut off at 256 characters, the plugin's name included. Where all violations do not fit into one, each
/// gets its own.
const LONG_WARNING: usize = 200;

/// The policy, with the checks of its level and version picked out.
pub struct PodSecurity {
    standard: Standard,
    templates: Templates,
    checks: Vec<Judge>,
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
        let request = review.request();
        let is_update = request.operation == Operation::Update;
        match Subject::of(&request) {
            None => Ok(()),
            Some(Subject::Pod) => {
                if is_update && !update::is_significant(review.object(), review.old_object()) {
                    return Ok(());
                }
                review.annotate(ENFORCE_POLICY, self.standard.to_string());
                self.denial(self.judge(review.object(), Pointer::root()))
            }
            Some(Subject::Template(at)) => {
                let judged = self.judge(review.object(), at.clone());
                if judged.as_ref().is_ok_and(Vec::is_empty) {
                    return Ok(());
                }
                // Looked at last: it takes both templates as a whole.
                let is_denied = self.templates == Templates::Deny
                    && !(is_update && update::is_unchanged(review, &at));
                if is_denied {
                    return self.denial(judged);
                }
                self.warn(review, judged);
                Ok(())
            }
        }
    }
}

impl PodSecurity {
    fn judge(&self, object: Document, at: Pointer) -> Result<Vec<Violation>, ReadError> {
        let pod = Pod::read(object, at)?;
        Ok(self.checks.iter().filter_map(|check| check(&pod)).collect())
    }

    fn denial(&self, judged: Result<Vec<Violation>, ReadError>) -> Result<(), Denial> {
        let violations = judged.map_err(|error| Denial::new(unreadable(&error)).code(400))?;
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

    fn warn(&self, review: &Review, judged: Result<Vec<Violation>, ReadError>) {
        let would_violate =
            |violations: &[Violation]| format!("would violate {}", self.summary(violations));
        let all = match &judged {
            Ok(violations) => would_violate(violations),
            Err(error) => unreadable(error),
        };
        match &judged {
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

/// kube-apiserver decodes what it sends, so this is for whoever sends something else.
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
