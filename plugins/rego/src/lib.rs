//! Runs a Gatekeeper ConstraintTemplate with Rego, and its constraints, unchanged.
//!
//! ```text
//! configure  template → Rego parsed and prepared by regorus
//!            constraints → parameters validated and completed by the template's schema, match, action
//! review     match of each constraint, from a few fields          none matches: allowed
//!            → the parts of input.review that the Rego reads, once
//!            → `violation` for each constraint that matches
//!            → deny: a denial with a cause for each violation; warn: warnings; dryrun: the log
//! ```

mod arithmetic;
mod bodies;
mod inventory;
mod negation;
mod numbers;
mod plan;
mod program;
mod reading;
mod sprintf;
mod subject;
mod syntax;
mod template;
mod walk;

#[cfg(test)]
mod tests;

use std::mem::ManuallyDrop;

use regorus::Value as Rego;
use serde_json::{Map, Value as Json};
use tollgate_gatekeeper::{
    Constraint, Kind, Namespaces, Problems, UnknownNamespace, Verdict, Violation,
};
use tollgate_sdk::access;
use tollgate_sdk::prelude::*;

use inventory::Live;
use program::Program;
use subject::{Needs, Subjects};
use template::Template;

/// A template with its constraints.
pub struct Gatekeeper {
    program: Program,
    constraints: Vec<Prepared>,
    namespaces: Namespaces,
    /// What constraints and Rego read of a review.
    needs: Needs,
    /// The objects of the cluster in `data.inventory`.
    live: Vec<Live>,
}

/// The settings.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// The ConstraintTemplate.
    template: Json,
    /// Its constraints.
    constraints: Vec<Json>,
    /// The objects in `data.inventory`.
    #[serde(default)]
    inventory: Vec<Json>,
    /// The lookups whose objects are in `data.inventory`.
    #[serde(default)]
    inventory_from: Vec<Live>,
    /// Namespaces that replace those of the host.
    #[serde(default)]
    namespaces: Vec<Json>,
    /// The enforcement point whose scoped actions count.
    #[serde(default = "validation")]
    enforcement_point: String,
}

struct Prepared {
    constraint: Constraint,
    parameters: Rego,
}

fn validation() -> String {
    "validation.gatekeeper.sh".to_owned()
}

// === impl Gatekeeper ===

impl Policy for Gatekeeper {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        let mut errors = SettingsErrors::new();
        let mut problems = Problems::new();
        let namespaces = Namespaces::read(&settings.namespaces, &mut problems);
        let objects = inventory::build(&settings.inventory, &pointer!["inventory"], &mut errors);
        let template = Template::read(&settings.template, &template::place(), &mut errors);
        let Some(template) = template else {
            return Err(errors);
        };
        let live = settings.inventory_from;
        // The import of `grants` lets the host load the plugin without lookups, for templates that read no other objects.
        std::hint::black_box(access::is_granted());
        let objects = live.is_empty().then_some(objects);
        let program = Program::compile(&template, objects, &mut errors);
        let reads = program
            .as_ref()
            .is_none_or(|program| program.reads_inventory);
        inventory::check(&live, !settings.inventory.is_empty(), reads, &mut errors);
        let kind = Kind {
            name: &template.kind,
            schema: template.schema.as_ref(),
        };
        let point = &settings.enforcement_point;
        let constraints = Constraint::read_all(&settings.constraints, kind, point, &mut problems);
        let constraints = constraints.into_iter().map(|constraint| Prepared {
            parameters: Rego::from(constraint.parameters.clone()),
            constraint,
        });
        let constraints: Vec<Prepared> = constraints.collect();
        for problem in problems {
            errors.at(problem.pointer.as_str(), problem.message);
        }
        match program {
            Some(program) => {
                for prepared in &constraints {
                    program.prepare_parameters(&prepared.parameters);
                }
                errors.or(Self {
                    needs: Needs::new(
                        constraints.iter().map(|prepared| &prepared.constraint),
                        &program.shape,
                    ),
                    program,
                    constraints,
                    namespaces,
                    live,
                })
            }
            None => Err(errors),
        }
    }
}

impl Validate for Gatekeeper {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        let mut verdict = Verdict::default();
        let subjects = self.needs.subjects(review);
        let matching = self.matching(review, &subjects, &mut verdict);
        if matching.is_empty() && verdict.is_empty() {
            return Ok(());
        }
        let namespace = self.needs.namespace.then(|| self.namespace(review));
        // The instance ends with the review, and its memory with it.
        let input = self.needs.input(review, &subjects, namespace.flatten());
        let input = ManuallyDrop::new(input);
        let inventory = match self.live.is_empty() || matching.is_empty() {
            true => None,
            false => Some(inventory::read(&self.live, review, &subjects)),
        };
        let inventory = ManuallyDrop::new(inventory);
        for Prepared {
            constraint,
            parameters,
        } in matching
        {
            let violations = self
                .program
                .violations(&input, parameters, inventory.as_ref());
            // As in Gatekeeper, a constraint that cannot be evaluated is violated.
            let violations = violations.unwrap_or_else(|error| {
                vec![undecided(format!(
                    "the template cannot be evaluated: {error}"
                ))]
            });
            verdict.add(constraint, violations);
        }
        if verdict.reported() > 0 {
            tollgate_sdk::info!("{} violations of dry-run constraints", verdict.reported());
        }
        for (key, value) in verdict.annotations() {
            review.annotate(key, value);
        }
        for warning in verdict.warnings() {
            review.warn(warning);
        }
        match verdict.denial() {
            None => Ok(()),
            Some(denied) => {
                let causes = denied.causes.into_iter().map(Cause::new);
                Err(causes.fold(Denial::new(denied.message), Denial::cause))
            }
        }
    }
}

/// The violation of a constraint that cannot be decided.
fn undecided(message: String) -> Violation {
    Violation {
        message,
        details: None,
    }
}

impl Gatekeeper {
    /// Returns the constraints that the review is about. As in Gatekeeper, a constraint is violated if the labels that
    /// its selector needs are unknown.
    fn matching(
        &self,
        review: &Review,
        subjects: &Subjects,
        verdict: &mut Verdict,
    ) -> Vec<&Prepared> {
        let labels_of = |name: &str| self.labels_of(review, name);
        let selects = |constraint: &Constraint| -> Result<bool, UnknownNamespace> {
            for subject in subjects.iter() {
                if constraint.matching.selects(subject, &labels_of)? {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        let mut matching = Vec::new();
        for prepared in &self.constraints {
            let constraint = &prepared.constraint;
            match selects(constraint) {
                Ok(true) => matching.push(prepared),
                Ok(false) => {}
                Err(unknown) => {
                    verdict.add(constraint, vec![undecided(unknown.to_string())]);
                }
            }
        }
        matching
    }

    /// Returns the labels of the object's Namespace. The settings go first, then the Namespace in the cluster.
    fn labels_of(&self, review: &Review, name: &str) -> Option<Map<String, Json>> {
        self.namespaces.labels(name, || {
            let namespace = review.namespace();
            if namespace.text("/metadata/name").as_deref() != Some(name) {
                return None;
            }
            let labels = namespace.read("/metadata/labels").ok().flatten();
            Some(labels.unwrap_or_default())
        })
    }

    /// Returns the object's Namespace for the Rego. None for a cluster-scoped object, which a Namespace is, too.
    fn namespace(&self, review: &Review) -> Option<Rego> {
        let kind = review.request_document().text("/kind/kind");
        if kind.as_deref() == Some("Namespace") {
            return None;
        }
        let name = review.request_document().text("/namespace");
        let of_settings = name.and_then(|name| self.namespaces.get(&name));
        match of_settings {
            Some(namespace) => Some(Rego::from(namespace.clone())),
            None => subject::parse(review.namespace()),
        }
    }
}

tollgate_sdk::validator! {
    Gatekeeper,
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}
