//! Evaluates a ValidatingAdmissionPolicy or a MutatingAdmissionPolicy of Kubernetes, with its bindings and parameters, or
//! a ConstraintTemplate of Gatekeeper with CEL, with its constraints, or Gatekeeper's mutators.
//!
//! The settings hold the objects as they are in the cluster. They are compiled once, when the plugin is loaded. The
//! messages, reasons, warnings and audit annotations are those of kube-apiserver and of Gatekeeper.

mod gatekeeper;
mod mutators;
mod review;
mod template;

use serde_json::Value as Json;
use tollgate_cel::policy::{self, Abilities, Binding, Mutated, WrittenPolicy};
use tollgate_sdk::access;
use tollgate_sdk::prelude::*;

use mutators::HostMutators;
use review::HostReview;
use template::Constraints;

/// The policy.
pub struct CelPolicy(Body);

enum Body {
    InTree(Box<policy::Policy>),
    Constraints(Box<Constraints>),
    Mutators(Box<HostMutators>),
}

/// The settings: a policy with its bindings, a template with its constraints, or mutators.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// The policy of Kubernetes.
    policy: Option<WrittenPolicy>,
    /// The bindings of the policy.
    #[serde(default)]
    bindings: Vec<Binding>,
    /// The parameters of the policy.
    #[serde(default)]
    params: Vec<Json>,
    /// The ConstraintTemplate.
    template: Option<Json>,
    /// The constraints of the template.
    #[serde(default)]
    constraints: Vec<Json>,
    /// The mutators of Gatekeeper.
    #[serde(default)]
    mutators: Vec<Json>,
    /// Namespaces that replace those of the host.
    #[serde(default)]
    namespaces: Vec<Json>,
    /// The enforcement point whose scoped actions count.
    enforcement_point: Option<String>,
}

// === impl CelPolicy ===

impl Policy for CelPolicy {
    type Settings = Settings;

    fn configure(mut settings: Settings) -> Result<Self, SettingsErrors> {
        settings.check()?;
        if let Some(template) = settings.template.take() {
            let constraints = Constraints::new(&template, &settings)?;
            return Ok(Self(Body::Constraints(Box::new(constraints))));
        }
        if !settings.mutators.is_empty() {
            let mutators = HostMutators::new(&settings)?;
            return Ok(Self(Body::Mutators(Box::new(mutators))));
        }
        let Some(policy) = settings.policy else {
            return Err(Settings::without_policy());
        };
        let settings = policy::Settings {
            policy,
            bindings: settings.bindings,
            params: settings.params,
        };
        let abilities = Abilities {
            namespace: true,
            access: access::is_granted(),
        };
        match policy::Policy::new(settings, abilities) {
            Ok(policy) => Ok(Self(Body::InTree(Box::new(policy)))),
            Err(problems) => {
                let mut errors = SettingsErrors::new();
                for problem in problems {
                    errors.at(problem.pointer, problem.message);
                }
                Err(errors)
            }
        }
    }
}

impl Validate for CelPolicy {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        let verdict = match &self.0 {
            Body::InTree(policy) => policy.validate(&HostReview(review)),
            Body::Constraints(constraints) => return constraints.validate(review),
            Body::Mutators(_) => return Ok(()),
        };
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
        let mutated = match &self.0 {
            Body::InTree(policy) => policy.mutate(&HostReview(review)),
            Body::Constraints(_) => Mutated::Unchanged,
            Body::Mutators(mutators) => mutators.mutate(review),
        };
        match mutated {
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

// === impl Settings ===

impl Settings {
    fn without_policy() -> SettingsErrors {
        SettingsErrors::whole(
            "expected one of `policy` with `bindings`, `template` with `constraints`, and `mutators`",
        )
    }

    /// Refuses settings for several policies, and settings that the policy does not use.
    fn check(&self) -> Result<(), SettingsErrors> {
        let kinds = [
            self.policy.is_some(),
            self.template.is_some(),
            !self.mutators.is_empty(),
        ];
        if kinds.iter().filter(|is_given| **is_given).count() != 1 {
            return Err(Self::without_policy());
        }
        let (policy, template) = (self.policy.is_some(), self.template.is_some());
        let unused = [
            ("bindings", !self.bindings.is_empty() && !policy),
            ("params", !self.params.is_empty() && !policy),
            ("constraints", !self.constraints.is_empty() && !template),
            (
                "enforcementPoint",
                self.enforcement_point.is_some() && !template,
            ),
            ("namespaces", !self.namespaces.is_empty() && policy),
        ];
        let mut errors = SettingsErrors::new();
        for (key, _) in unused.iter().filter(|(_, is_unused)| *is_unused) {
            errors.at(pointer![key], "does not belong to this kind of policy");
        }
        errors.or(())
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
