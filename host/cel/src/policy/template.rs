//! The CEL of a Gatekeeper ConstraintTemplate: the engine `K8sNativeValidation`.
//!
//! The code has the parts of a ValidatingAdmissionPolicy. Expressions see the parameters of the constraint as
//! `variables.params`, and the object, on DELETE the old one, as `variables.anyObject`.

use serde::Deserialize;

use super::spec::{Expression, FailurePolicy, MatchCondition, MatchResources, PolicySpec};
use super::{Abilities, Body, Compilation, Policy, Problem, validating};
use crate::compile::{ANY_OBJECT, Environment, PARAMS};
use crate::eval::Source;
use crate::plan::Plan;
use crate::value::Value;

/// The compiled CEL of a template.
pub struct Template(Policy);

/// `source` of the code. Gatekeeper's name for the match conditions has no plural.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Code {
    #[serde(default)]
    validations: Vec<Expression>,
    failure_policy: Option<FailurePolicy>,
    #[serde(default, rename = "matchCondition")]
    match_conditions: Vec<MatchCondition>,
    #[serde(default)]
    variables: Vec<MatchCondition>,
    /// Whether Gatekeeper writes a policy of kube-apiserver, which is nothing to this host.
    #[serde(default, rename = "generateVAP")]
    _generates_policy: Option<bool>,
}

/// Names that begin like this are Gatekeeper's own.
const RESERVED: &str = "gatekeeper_internal_";

// === impl Template ===

impl Template {
    /// Compiles the code of a template. `at` is its place in the settings.
    ///
    /// # Errors
    /// All problems, each with its place.
    pub fn new(
        name: &str,
        code: &serde_json::Value,
        at: &str,
        abilities: Abilities,
    ) -> Result<Self, Vec<Problem>> {
        let code: Code = serde_json::from_value(code.clone())
            .map_err(|error| vec![Problem::new(at, error.to_string())])?;
        let mut compilation = Compilation {
            environment: Environment::new()
                .with_namespace(abilities.namespace)
                .with_template(true),
            problems: Vec::new(),
        };
        let names = code.variables.iter().chain(&code.match_conditions);
        for name in names.map(|named| named.name.as_str()) {
            if name == PARAMS || name == ANY_OBJECT || name.starts_with(RESERVED) {
                let message = format!("the name {name:?} is reserved by Gatekeeper");
                compilation.add("/policy/spec", message);
            }
        }
        // Unlike those of a policy, the conditions of a template can use its variables.
        let variables = compilation.variables(&code.variables);
        let conditions = compilation.conditions(&code.match_conditions);
        let spec = PolicySpec {
            validations: code.validations,
            ..PolicySpec::default()
        };
        let body = Body::Validating(validating::compile(&mut compilation, &spec));
        if !compilation.problems.is_empty() {
            let problems = compilation.problems.into_iter();
            return Err(problems.map(|problem| moved(problem, at)).collect());
        }
        Ok(Self(Policy {
            reads: [
                Plan::new(&variables, &conditions),
                Plan::new(&variables, body.programs()),
            ],
            name: name.to_owned(),
            failure_policy: code.failure_policy.unwrap_or_default(),
            constraints: MatchResources::default(),
            conditions,
            variables,
            param_kind: None,
            body,
            bindings: Vec::new(),
            params: Vec::new(),
            has_namespace: abilities.namespace,
            asks_about_rights: false,
            is_template: true,
        }))
    }

    /// Returns the messages of the validations that a review breaks. An expression that fails counts as broken, unless
    /// the failure policy is `Ignore`.
    #[must_use]
    pub fn violations(&self, source: &dyn Source, params: &Value) -> Vec<String> {
        self.0.broken(source, params)
    }
}

/// Moves a problem from the place in a policy to that in a template.
fn moved(problem: Problem, at: &str) -> Problem {
    let place = problem.pointer.strip_prefix("/policy/spec");
    let place = place.unwrap_or_default();
    let place = match place.strip_prefix("/matchConditions") {
        Some(rest) => format!("{at}/matchCondition{rest}"),
        None => format!("{at}{place}"),
    };
    Problem {
        pointer: place,
        ..problem
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::Tree;
    use crate::json::from_json;

    fn compiled(code: Json) -> Result<Template, Vec<Problem>> {
        Template::new("demo", &code, "/source", Abilities::default())
    }

    fn violations(code: Json, review: &Tree, params: Json) -> Vec<String> {
        let template = compiled(code).map_err(|problems| problems[0].to_string());
        template.unwrap().violations(review, &from_json(&params))
    }

    fn create(object: Json) -> Tree {
        let request = json!({ "operation": "CREATE" });
        Tree::new().object(&object).request(&request)
    }

    fn pod() -> Json {
        json!({ "metadata": { "name": "web", "labels": { "app": "web" } } })
    }

    #[test]
    fn parameters_and_object_are_variables() {
        let code = json!({
            "variables": [{ "name": "missing", "expression":
                "variables.params.labels.filter(key, !(key in variables.anyObject.metadata.labels))" }],
            "validations": [{
                "expression": "variables.missing.size() == 0",
                "messageExpression": "'missing: ' + variables.missing.join(', ')",
            }],
        });
        let params = json!({ "labels": ["app", "owner", "team"] });
        let messages = violations(code.clone(), &create(pod()), params);
        assert_eq!(messages, ["missing: owner, team"]);
        assert!(violations(code, &create(pod()), json!({ "labels": ["app"] })).is_empty());
    }

    #[test]
    fn any_object_is_the_old_object_of_a_deletion() {
        let code = json!({ "validations": [{
            "expression": "!has(variables.anyObject.metadata.labels.app) && object == null",
            "message": "has the label",
        }] });
        let request = json!({ "operation": "DELETE" });
        let review = Tree::new().old_object(&pod()).request(&request);
        assert_eq!(violations(code, &review, json!(null)), ["has the label"]);
    }

    #[test]
    fn every_broken_validation_counts() {
        let code = json!({ "validations": [
            { "expression": "false", "message": "one" },
            { "expression": "true", "message": "two" },
            { "expression": "object.spec.x == 1" },
        ] });
        assert_eq!(
            violations(code.clone(), &create(pod()), json!(null)),
            [
                "one",
                "expression 'object.spec.x == 1' resulted in error: no such key: spec"
            ]
        );
        let mut ignoring = code;
        ignoring["failurePolicy"] = json!("Ignore");
        assert_eq!(violations(ignoring, &create(pod()), json!(null)), ["one"]);
    }

    #[test]
    fn condition_can_use_a_variable() {
        let code = json!({
            "variables": [{ "name": "is_web", "expression": "object.metadata.name == 'web'" }],
            "matchCondition": [{ "name": "web", "expression": "!variables.is_web" }],
            "validations": [{ "expression": "false" }],
        });
        assert!(violations(code, &create(pod()), json!(null)).is_empty());
    }

    #[test]
    fn problems_name_the_place_in_the_template() {
        for (code, expected) in [
            (
                json!({ "validations": [{ "expression": "params.x" }] }),
                "/source/validations/0/expression: line 1, column 1: undeclared reference to 'params'",
            ),
            (
                json!({ "matchCondition": [{ "name": "a", "expression": "1" }], "validations": [{ "expression": "true" }] }),
                "/source/matchCondition/0/expression: must evaluate to bool but got int",
            ),
            (
                json!({ "variables": [{ "name": "params", "expression": "1" }], "validations": [{ "expression": "true" }] }),
                "/source: the name \"params\" is reserved by Gatekeeper",
            ),
            (
                json!({ "validation": [] }),
                "/source: unknown field `validation`",
            ),
        ] {
            let problem = compiled(code).err().unwrap().remove(0).to_string();
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
