//! Runs a Gatekeeper ConstraintTemplate with Rego, and its constraints, unchanged.
//!
//! ```text
//! configure  template → Rego parsed and prepared by regorus
//!            constraints → parameters validated and completed by the template's schema, match, action
//! review     match of each constraint, from a few fields          none matches: allowed
//!            → input.review, once → `violation` for each constraint that matches
//!            → deny: a denial with a cause for each violation; warn: warnings; dryrun: the log
//! ```

mod constraint;
mod inventory;
mod matching;
mod program;
mod schema;
mod selector;
mod sprintf;
mod subject;
mod syntax;
mod template;

#[cfg(test)]
mod tests;

use regorus::Value as Rego;
use serde_json::{Map, Value as Json};
use tollgate_sdk::prelude::*;

use constraint::{Action, Constraint};
use matching::UnknownNamespace;
use program::{Program, Violation};
use template::Template;

/// A template with its constraints.
pub struct Gatekeeper {
    program: Program,
    constraints: Vec<Prepared>,
    namespaces: Option<Map<String, Json>>,
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
    /// Namespaces with their labels, for `namespaceSelector`.
    namespaces: Option<Vec<Json>>,
    /// The enforcement point whose scoped actions count.
    #[serde(default = "validation")]
    enforcement_point: String,
}

struct Prepared {
    constraint: Constraint,
    parameters: Rego,
}

const NEEDS_NAMESPACES: &str = "not available: a review does not contain the labels of the object's namespace; list \
    the Namespaces under `namespaces`, or select by kubernetes.io/metadata.name alone";

/// The audit annotation with the details of violations.
const DETAILS: &str = "details";
/// The audit annotation with the violations of constraints that only report.
const DRY_RUN: &str = "dryrun";

fn validation() -> String {
    "validation.gatekeeper.sh".to_owned()
}

// === impl Gatekeeper ===

impl Policy for Gatekeeper {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        let mut errors = SettingsErrors::new();
        let namespaces = settings
            .namespaces
            .as_ref()
            .map(|list| namespaces(list, &mut errors));
        let objects = inventory::build(&settings.inventory, &pointer!["inventory"], &mut errors);
        let template = Template::read(&settings.template, &template::place(), &mut errors);
        let Some(template) = template else {
            return Err(errors);
        };
        let program = Program::compile(&template, objects, &mut errors);
        let mut constraints = Vec::new();
        for (index, constraint) in settings.constraints.iter().enumerate() {
            let place = pointer!["constraints", index];
            let point = &settings.enforcement_point;
            let read = Constraint::read(constraint, &place, &template, point, &mut errors);
            let Some(constraint) = read else { continue };
            if namespaces.is_none() && constraint.matching.needs_namespace_labels() {
                let place = pointer!["constraints", index, "spec", "match", "namespaceSelector"];
                errors.at(place, NEEDS_NAMESPACES);
            }
            constraints.push(Prepared {
                parameters: Rego::from(constraint.parameters.clone()),
                constraint,
            });
        }
        match program {
            Some(program) => errors.or(Self {
                program,
                constraints,
                namespaces,
            }),
            None => Err(errors),
        }
    }
}

impl Validate for Gatekeeper {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        let matching = self.matching(review);
        if matching.is_empty() {
            return Ok(());
        }
        let input = subject::input(review, self.namespaces.as_ref());
        let mut denied: Vec<(&str, Violation)> = Vec::new();
        let mut reported = Vec::new();
        for prepared in matching {
            let Constraint { name, action, .. } = &prepared.constraint;
            let violations = match self.program.violations(&input, &prepared.parameters) {
                Ok(violations) => violations,
                Err(error) => panic!("constraint {name}: {error}"),
            };
            for violation in violations {
                match action {
                    Action::Deny => denied.push((name.as_str(), violation)),
                    Action::Warn => review.warn(format!("[{name}] {}", violation.message)),
                    Action::DryRun => reported.push(format!("[{name}] {}", violation.message)),
                }
            }
        }
        if !reported.is_empty() {
            tollgate_sdk::info!("{} violations of dry-run constraints", reported.len());
            review.annotate(DRY_RUN, reported.join("\n"));
        }
        let details: Vec<Json> = denied
            .iter()
            .filter_map(|(_, violation)| violation.details.clone())
            .collect();
        if !details.is_empty() {
            review.annotate(DETAILS, Json::Array(details).to_string());
        }
        denial(&denied).map_or(Ok(()), Err)
    }
}

impl Gatekeeper {
    /// Returns the constraints that the review is about.
    fn matching(&self, review: &Review) -> Vec<&Prepared> {
        let subjects = subject::subjects(review);
        let labels_of = |name: &str| self.labels_of(name);
        let selects = |prepared: &&Prepared| {
            subjects.iter().any(|subject| {
                let Constraint { name, matching, .. } = &prepared.constraint;
                match matching.selects(subject, &labels_of) {
                    Ok(selects) => selects,
                    Err(UnknownNamespace(namespace)) => panic!(
                        "constraint {name}: namespaceSelector: the settings have no Namespace {namespace} under \
                         `namespaces`"
                    ),
                }
            })
        };
        self.constraints.iter().filter(selects).collect()
    }

    fn labels_of(&self, namespace: &str) -> Option<Map<String, Json>> {
        let object = self.namespaces.as_ref()?.get(namespace)?;
        let labels = object.pointer("/metadata/labels").and_then(Json::as_object);
        let mut labels = labels.cloned().unwrap_or_default();
        labels.insert("kubernetes.io/metadata.name".to_owned(), namespace.into());
        Some(labels)
    }
}

/// Makes a denial of violations, which name their constraint where there is more than one.
fn denial(violations: &[(&str, Violation)]) -> Option<Denial> {
    let (first, violation) = violations.first()?;
    let is_one = violations.iter().all(|(name, _)| name == first);
    let message = match violations.len() {
        1 => format!("[{first}] {}", violation.message),
        count if is_one => format!("[{first}] {count} violations"),
        count => format!("{count} violations"),
    };
    let causes = violations.iter().map(|(name, violation)| match is_one {
        true => Cause::new(violation.message.clone()),
        false => Cause::new(format!("[{name}] {}", violation.message)),
    });
    Some(causes.fold(Denial::new(message), Denial::cause))
}

/// Reads the Namespaces of the settings, by name.
fn namespaces(list: &[Json], errors: &mut SettingsErrors) -> Map<String, Json> {
    let mut namespaces = Map::new();
    for (index, namespace) in list.iter().enumerate() {
        match namespace.pointer("/metadata/name").and_then(Json::as_str) {
            Some(name) => {
                namespaces.insert(name.to_owned(), namespace.clone());
            }
            None => {
                errors.at(
                    pointer!["namespaces", index],
                    "is no Namespace with metadata.name",
                );
            }
        }
    }
    namespaces
}

tollgate_sdk::validator! {
    Gatekeeper,
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}
