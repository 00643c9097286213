//! Kubernetes' admission policies: ValidatingAdmissionPolicy and MutatingAdmissionPolicy with their bindings.
//!
//! [`Settings`] hold the objects as they are in the cluster. [`Policy::new`] compiles them once. [`Policy::validate`] and
//! [`Policy::mutate`] evaluate a review, with the messages of kube-apiserver.

pub mod import;
mod matching;
mod mutating;
mod params;
mod spec;
mod template;
mod validating;

use std::fmt;
use std::rc::Rc;

use crate::compile::{Environment, Program};
use crate::documents::Documents;
use crate::eval::{Scope, Source, Variable};
use crate::meter::CONDITIONS_LIMIT;
use crate::plan::Plan;
use crate::types::Type;
use crate::value::Value;

use matching::UnknownNamespace;

pub use mutating::Mutated;
pub use spec::{
    AuditAnnotation, Binding, BindingSpec, Expression, FailurePolicy, Kind, MatchCondition,
    MatchPolicy, MatchResources, Metadata, Mutation, MutationExpression, NamedRule, NotFoundAction,
    ParamKind, ParamRef, PatchType, PolicySpec, Reason, Selector, SelectorOperator,
    SelectorRequirement, Settings, ValidationAction, WrittenPolicy,
};
pub use template::Template;
pub use validating::{Denial, Verdict};

/// The text of an error when the cost budget of a policy is spent.
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// A problem of settings, with the place as a JSON pointer.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The place in the settings.
    pub pointer: String,
    /// The problem.
    pub message: String,
}

/// The abilities of the host that evaluates the policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Abilities {
    /// Whether reviews have the Namespace of the object.
    pub namespace: bool,
    /// Whether somebody answers questions about rights.
    pub access: bool,
}

/// A compiled policy with its bindings.
pub struct Policy {
    name: String,
    failure_policy: FailurePolicy,
    constraints: MatchResources,
    conditions: Vec<Program>,
    variables: Vec<Variable>,
    /// What the conditions read, and what everything else reads.
    reads: [Plan; 2],
    param_kind: Option<ParamKind>,
    body: Body,
    bindings: Vec<Binding>,
    params: Vec<Value>,
    has_namespace: bool,
    asks_about_rights: bool,
    /// Whether it is the CEL of a template of Gatekeeper.
    is_template: bool,
}

enum Body {
    Validating(validating::Validations),
    Mutating(Vec<mutating::Mutator>),
}

// === impl Body ===

impl Body {
    fn programs(&self) -> Vec<&Program> {
        match self {
            Self::Validating(validations) => validations.programs().collect(),
            Self::Mutating(mutators) => mutators.iter().map(|one| &one.program).collect(),
        }
    }
}

/// Whether a policy applies to a review and a parameter.
enum Matched {
    Yes,
    No,
    /// The conditions cannot be evaluated, and the policy fails closed.
    Failed(String),
}

// === impl Problem ===

impl Problem {
    fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            pointer: pointer.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pointer, self.message)
    }
}

/// Compiles expressions, and collects the problems with their places.
struct Compilation {
    environment: Environment,
    problems: Vec<Problem>,
}

// === impl Compilation ===

impl Compilation {
    /// Compiles the expression at a place. `wanted` are the types that it may return; none accepts every type.
    fn compile(&mut self, pointer: &str, source: &str, wanted: &[Type]) -> Option<Program> {
        let program = match self.environment.compile(source) {
            Ok(program) => program,
            Err(error) => {
                self.problems.push(Problem::new(pointer, error.to_string()));
                return None;
            }
        };
        let result = program.result();
        if !wanted.is_empty() && *result != Type::Dyn && !wanted.contains(result) {
            let names: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            let message = match names.as_slice() {
                [name] => format!("must evaluate to {name} but got {result}"),
                names => format!(
                    "must evaluate to one of {} but got {result}",
                    names.join(", ")
                ),
            };
            self.problems.push(Problem::new(pointer, message));
            return None;
        }
        Some(program)
    }

    /// Compiles an expression that cannot use `authorizer`, as in kube-apiserver.
    fn compile_without_access(
        &mut self,
        pointer: &str,
        source: &str,
        wanted: &[Type],
    ) -> Option<Program> {
        let had_access = self.environment.has_access();
        self.environment.set_access(false);
        let program = self.compile(pointer, source, wanted);
        self.environment.set_access(had_access);
        program
    }

    fn conditions(&mut self, written: &[MatchCondition]) -> Vec<Program> {
        let mut conditions = Vec::new();
        for (index, condition) in written.iter().enumerate() {
            let pointer = format!("/policy/spec/matchConditions/{index}/expression");
            let wanted = [crate::types::BOOL];
            conditions.extend(self.compile(&pointer, &condition.expression, &wanted));
        }
        conditions
    }

    /// Compiles variables. Each one can use those before it.
    fn variables(&mut self, written: &[MatchCondition]) -> Vec<Variable> {
        let mut variables = Vec::new();
        for (index, variable) in written.iter().enumerate() {
            let pointer = format!("/policy/spec/variables/{index}/expression");
            let program = self.compile(&pointer, &variable.expression, &[]);
            let kind = program
                .as_ref()
                .map_or(Type::Dyn, |program| program.result().clone());
            self.environment.add_variable(variable.name.clone(), kind);
            variables.extend(program.map(|program| Variable {
                name: variable.name.clone(),
                program,
            }));
        }
        variables
    }

    fn add(&mut self, pointer: &str, message: impl Into<String>) {
        self.problems.push(Problem::new(pointer, message));
    }
}

// === impl Policy ===

impl Policy {
    /// Compiles a policy with its bindings.
    ///
    /// # Errors
    /// All problems, each with its place in the settings.
    pub fn new(settings: Settings, abilities: Abilities) -> Result<Self, Vec<Problem>> {
        let Settings {
            policy,
            bindings,
            params,
        } = settings;
        let spec = policy.spec;
        let is_mutating = policy.kind == Kind::MutatingAdmissionPolicy;
        let mut compilation = Compilation {
            environment: Environment::new()
                .with_params(spec.param_kind.is_some())
                .with_namespace(abilities.namespace)
                .with_access(abilities.access)
                .with_patches(is_mutating),
            problems: Vec::new(),
        };
        let conditions = compilation.conditions(&spec.match_conditions);
        let variables = compilation.variables(&spec.variables);
        let body = if is_mutating {
            Body::Mutating(mutating::compile(&mut compilation, &spec))
        } else {
            Body::Validating(validating::compile(&mut compilation, &spec))
        };
        let constraints = spec.match_constraints.unwrap_or_default();
        let at = "/policy/spec/matchConstraints";
        matching::check(&constraints, at, abilities, &mut compilation.problems);
        check_bindings(
            &policy.metadata.name,
            &bindings,
            is_mutating,
            abilities,
            &mut compilation,
        );
        if !compilation.problems.is_empty() {
            return Err(compilation.problems);
        }
        Ok(Self {
            reads: [
                Plan::new(&variables, &conditions),
                Plan::new(&variables, body.programs()),
            ],
            name: policy.metadata.name,
            failure_policy: spec.failure_policy.unwrap_or_default(),
            constraints,
            conditions,
            variables,
            param_kind: spec.param_kind,
            body,
            bindings,
            params: params.iter().map(crate::json::from_json).collect(),
            has_namespace: abilities.namespace,
            asks_about_rights: compilation.environment.asks_about_rights(),
            is_template: false,
        })
    }

    /// Whether the policy changes objects.
    #[must_use]
    pub fn is_mutating(&self) -> bool {
        matches!(self.body, Body::Mutating(_))
    }

    /// Whether an expression uses `authorizer`, so that the plugin needs the capability `access`.
    #[must_use]
    pub fn asks_about_rights(&self) -> bool {
        self.asks_about_rights
    }

    /// Whether the policy applies to a review, before its conditions.
    ///
    /// # Errors
    /// When a selector needs a Namespace that the source does not have. As in kube-apiserver, `failurePolicy` decides then.
    fn applies(&self, source: &dyn Source) -> Result<bool, UnknownNamespace> {
        matching::matches(&self.constraints, source, self.has_namespace)
    }

    /// Whether a binding applies to a review.
    ///
    /// # Errors
    /// As [`Policy::applies`].
    fn is_bound(&self, binding: &Binding, source: &dyn Source) -> Result<bool, UnknownNamespace> {
        match &binding.spec.match_resources {
            Some(resources) => matching::matches(resources, source, self.has_namespace),
            None => Ok(true),
        }
    }

    /// Returns the documents of a review, read by the plans of this policy: for the conditions, and for the rest.
    fn documents<'a>(&'a self, source: &'a dyn Source) -> [Rc<Documents<'a>>; 2] {
        let [conditions, body] = &self.reads;
        [conditions, body].map(|plan| {
            let documents = Documents::planned(source, plan);
            Rc::new(match self.is_template {
                true => documents,
                false => documents.without_own_namespace(),
            })
        })
    }

    /// Evaluates the match conditions.
    fn matched(&self, documents: &Rc<Documents<'_>>, params: &Value) -> Matched {
        if self.conditions.is_empty() {
            return Matched::Yes;
        }
        let scope = Scope::over(Rc::clone(documents), params.clone(), &self.variables);
        let mut budget = CONDITIONS_LIMIT;
        let mut errors = Vec::new();
        for condition in &self.conditions {
            let (result, cost) = scope.evaluate(condition);
            match budget.checked_sub(cost) {
                Some(left) => budget = left,
                None => {
                    return match self.failure_policy {
                        FailurePolicy::Fail => Matched::Failed(OUT_OF_BUDGET.to_owned()),
                        FailurePolicy::Ignore => Matched::No,
                    };
                }
            }
            match result {
                Ok(Value::Bool(false)) => return Matched::No,
                Ok(_) => {}
                Err(error) => errors.push(resulted(condition, &error)),
            }
        }
        match (errors.as_slice(), self.failure_policy) {
            ([], _) => Matched::Yes,
            (_, FailurePolicy::Ignore) => Matched::No,
            ([error], FailurePolicy::Fail) => Matched::Failed(error.clone()),
            (errors, FailurePolicy::Fail) => Matched::Failed(format!("[{}]", errors.join(", "))),
        }
    }
}

/// Returns the text for an expression that cannot be evaluated.
fn resulted(program: &Program, error: &crate::error::EvalError) -> String {
    format!(
        "expression '{}' resulted in error: {error}",
        program.source()
    )
}

fn check_bindings(
    policy: &str,
    bindings: &[Binding],
    is_mutating: bool,
    abilities: Abilities,
    compilation: &mut Compilation,
) {
    if bindings.is_empty() {
        compilation.add(
            "/bindings",
            "must have at least one binding: a policy without a binding does nothing",
        );
    }
    for (index, binding) in bindings.iter().enumerate() {
        let at = format!("/bindings/{index}");
        if binding.spec.policy_name != policy {
            let message = format!(
                "is the binding of the policy {:?}, expected {policy:?}",
                binding.spec.policy_name
            );
            compilation.add(&format!("{at}/spec/policyName"), message);
        }
        let wanted = if is_mutating {
            Kind::MutatingAdmissionPolicyBinding
        } else {
            Kind::ValidatingAdmissionPolicyBinding
        };
        if binding.kind != wanted {
            let message = format!("must be {wanted:?}, as the policy's kind wants");
            compilation.add(&format!("{at}/kind"), message);
        }
        let actions = &binding.spec.validation_actions;
        let at_actions = format!("{at}/spec/validationActions");
        if !is_mutating && actions.is_empty() {
            compilation.add(
                &at_actions,
                "must have at least one of Deny, Warn and Audit",
            );
        }
        if actions.contains(&ValidationAction::Deny) && actions.contains(&ValidationAction::Warn) {
            compilation.add(&at_actions, "must not have both Deny and Warn");
        }
        if let Some(reference) = &binding.spec.param_ref {
            params::check(
                reference,
                &format!("{at}/spec/paramRef"),
                &mut compilation.problems,
            );
        }
        if let Some(resources) = &binding.spec.match_resources {
            let at = format!("{at}/spec/matchResources");
            matching::check(resources, &at, abilities, &mut compilation.problems);
        }
    }
}

#[cfg(test)]
mod tests;
