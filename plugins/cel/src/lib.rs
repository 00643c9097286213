//! Evaluates a ValidatingAdmissionPolicy or a MutatingAdmissionPolicy of Kubernetes, with its bindings and parameters.
//!
//! The settings hold the objects as they are in the cluster. They are compiled once, when the plugin is loaded. The
//! messages, reasons, warnings and audit annotations are those of kube-apiserver.

mod review;

use tollgate_cel::policy::{self, Abilities, Mutated};
use tollgate_sdk::prelude::*;

use review::HostReview;

/// The policy.
pub struct CelPolicy(policy::Policy);

impl Policy for CelPolicy {
    type Settings = policy::Settings;

    fn configure(settings: policy::Settings) -> Result<Self, SettingsErrors> {
        let abilities = Abilities { namespace: true };
        policy::Policy::new(settings, abilities)
            .map(Self)
            .map_err(|problems| {
                let mut errors = SettingsErrors::new();
                for problem in problems {
                    errors.at(problem.pointer, problem.message);
                }
                errors
            })
    }
}

impl Validate for CelPolicy {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        let verdict = self.0.validate(&HostReview(review));
        for (key, value) in &verdict.annotations {
            review.annotate(key, value);
        }
        for warning in &verdict.warnings {
            review.warn(warning);
        }
        match verdict.denial {
            None => Ok(()),
            Some(denial) => Err(denied(denial)),
        }
    }
}

impl Mutate for CelPolicy {
    fn mutate(&self, review: &Review) -> Result<Mutation, Denial> {
        match self.0.mutate(&HostReview(review)) {
            Mutated::Unchanged => Ok(Mutation::Unchanged),
            Mutated::Denied(denial) => Err(denied(denial)),
            Mutated::Patch(operations) => {
                let mut patch = Patch::new();
                for operation in &operations {
                    patch = review::append(patch, operation);
                }
                Ok(patch.into())
            }
        }
    }
}

fn denied(denial: policy::Denial) -> Denial {
    Denial::new(denial.message)
        .code(denial.code)
        .reason(denial.reason)
}

tollgate_sdk::plugin! {
    CelPolicy,
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests;
