//! A ConstraintTemplate with CEL, and its constraints.

use serde_json::Value as Json;
use tollgate_cel::policy::{Abilities, Template};
use tollgate_cel::{Value, json};
use tollgate_gatekeeper::{Constraint, Kind, Namespaces, Pointer, Problems, Verdict, Violation};
use tollgate_sdk::SettingsErrors;
use tollgate_sdk::prelude::{Cause, Denial, Review};

use crate::Settings;
use crate::gatekeeper::{Reviewed, report};

/// A compiled template with its constraints.
pub(crate) struct Constraints {
    template: Template,
    constraints: Vec<Prepared>,
    namespaces: Namespaces,
}

struct Prepared {
    constraint: Constraint,
    /// `variables.params`.
    parameters: Value,
}

const TARGET: &str = "admission.k8s.gatekeeper.sh";
const ENGINE: &str = "K8sNativeValidation";
/// The enforcement point whose scoped actions count, if the settings name no other one.
const POINT: &str = "validation.gatekeeper.sh";

// === impl Constraints ===

impl Constraints {
    /// Compiles the template of the settings.
    pub(crate) fn new(template: &Json, settings: &Settings) -> Result<Self, SettingsErrors> {
        let mut errors = SettingsErrors::new();
        let mut problems = Problems::new();
        let at = Pointer::root().child("template");
        let code = code(template, &at, &mut problems);
        let kind = template.pointer("/spec/crd/spec/names/kind");
        let kind = kind.and_then(Json::as_str);
        if kind.is_none() {
            let message = "crd.spec.names.kind is required: the kind of the constraints";
            problems.at(at.child("spec"), message);
        }
        let kind = Kind {
            name: kind.unwrap_or_default(),
            schema: template.pointer("/spec/crd/spec/validation/openAPIV3Schema"),
        };
        let namespaces = Namespaces::read(&settings.namespaces, &mut problems);
        let point = settings.enforcement_point.as_deref().unwrap_or(POINT);
        let constraints = Constraint::read_all(&settings.constraints, kind, point, &mut problems);
        let constraints = constraints.into_iter().map(Prepared::new).collect();
        let template = code.and_then(|(code, at)| {
            let abilities = Abilities {
                namespace: true,
                access: false,
            };
            let compiled = Template::new(kind.name, code, at.as_str(), abilities);
            let problems = compiled.map_err(|problems| {
                for problem in problems {
                    errors.at(problem.pointer, problem.message);
                }
            });
            problems.ok()
        });
        report(problems, &mut errors);
        match template {
            Some(template) => errors.or(Self {
                template,
                constraints,
                namespaces,
            }),
            None => Err(errors),
        }
    }

    /// Evaluates the constraints that match.
    pub(crate) fn validate(&self, review: &Review) -> Result<(), Denial> {
        let reviewed = Reviewed::new(review, &self.namespaces);
        let mut verdict = Verdict::default();
        for Prepared {
            constraint,
            parameters,
        } in &self.constraints
        {
            let messages = match reviewed.is_selected(&constraint.matching) {
                Ok(true) => self.template.violations(&reviewed, parameters),
                Ok(false) => continue,
                // As in Gatekeeper, a constraint that cannot be decided is violated, whatever the template's failurePolicy.
                Err(unknown) => vec![unknown.to_string()],
            };
            let violations = messages.into_iter().map(|message| Violation {
                message,
                details: None,
            });
            verdict.add(constraint, violations.collect());
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

/// Finds the CEL of a template, with its place.
fn code<'a>(
    template: &'a Json,
    at: &Pointer,
    problems: &mut Problems,
) -> Option<(&'a Json, Pointer)> {
    let text = |pointer: &str| template.pointer(pointer).and_then(Json::as_str);
    let is_template = text("/kind") == Some("ConstraintTemplate")
        && text("/apiVersion").is_some_and(|text| text.starts_with("templates.gatekeeper.sh/"));
    if !is_template {
        let message = "is no ConstraintTemplate of templates.gatekeeper.sh";
        problems.at(at.clone(), message);
        return None;
    }
    let at = at.below(&["spec", "targets"]);
    let targets = template.pointer("/spec/targets").and_then(Json::as_array);
    let mut targets = targets.into_iter().flatten().enumerate();
    let Some((index, target)) = targets.find(|(_, target)| target["target"] == TARGET) else {
        problems.at(at, format!("has no target {TARGET}"));
        return None;
    };
    let at = at.child(index);
    let codes = target["code"].as_array().into_iter().flatten().enumerate();
    let code = codes.clone().find(|(_, code)| code["engine"] == ENGINE);
    let Some((index, code)) = code else {
        let message = format!("has no CEL; expected an element of `code` with `engine: {ENGINE}`");
        problems.at(at, message);
        return None;
    };
    let at = at.child("code").child(index).child("source");
    Some((&code["source"], at))
}

// === impl Prepared ===

impl Prepared {
    fn new(constraint: Constraint) -> Self {
        let parameters = match constraint.has_parameters {
            true => json::from_json(&constraint.parameters),
            false => Value::Null,
        };
        Self {
            constraint,
            parameters,
        }
    }
}
