//! ValidatingAdmissionPolicy: the rules, their messages and the audit annotations.

use std::rc::Rc;

use super::spec::{Binding, FailurePolicy, PolicySpec, Reason, ValidationAction};
use super::{Body, Compilation, Matched, OUT_OF_BUDGET, Policy, resulted};
use crate::compile::Program;
use crate::documents::Documents;
use crate::eval::{Scope, Source};
use crate::meter::POLICY_LIMIT;
use crate::types::{STRING, Type};
use crate::value::Value;

/// The longest result of a `messageExpression`, in bytes.
const LONGEST_MESSAGE: usize = 5 * 1024;
/// The longest value of an audit annotation, in bytes.
const LONGEST_ANNOTATION: usize = 10 * 1024;
/// The key of the audit annotation for failed validations.
const FAILURES: &str = "validation_failure";

/// The compiled rules.
pub(super) struct Validations {
    rules: Vec<Rule>,
    annotations: Vec<(String, Program)>,
}

struct Rule {
    program: Program,
    message: String,
    message_expression: Option<Program>,
    reason: Reason,
}

/// The result of a policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Why the request is denied, as message, StatusReason and HTTP status.
    pub denial: Option<Denial>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// Audit annotations, by key.
    pub annotations: Vec<(String, String)>,
}

/// A denial.
#[derive(Clone, Debug, PartialEq)]
pub struct Denial {
    /// The message of kube-apiserver.
    pub message: String,
    /// The StatusReason.
    pub reason: &'static str,
    /// The HTTP status.
    pub code: u16,
}

/// The result of one rule, or of the policy as a whole.
struct Decision {
    /// None for a request that passes.
    denied: Option<(String, Reason)>,
}

/// The result of an audit annotation.
enum Annotation {
    Publish(String, String),
    Failed(String),
}

/// Compiles the rules.
pub(super) fn compile(compilation: &mut Compilation, spec: &PolicySpec) -> Validations {
    if spec.validations.is_empty() && spec.audit_annotations.is_empty() {
        compilation.add(
            "/policy/spec/validations",
            "must have at least one of validations and auditAnnotations",
        );
    }
    if !spec.mutations.is_empty() {
        compilation.add(
            "/policy/spec/mutations",
            "a ValidatingAdmissionPolicy has no mutations",
        );
    }
    let mut rules = Vec::new();
    for (index, written) in spec.validations.iter().enumerate() {
        let at = format!("/policy/spec/validations/{index}");
        let program = compilation.compile(
            &format!("{at}/expression"),
            &written.expression,
            &[crate::types::BOOL],
        );
        let message_expression = written.message_expression.as_deref().and_then(|source| {
            let at = format!("{at}/messageExpression");
            compilation.compile_without_access(&at, source, &[STRING])
        });
        rules.extend(program.map(|program| {
            Rule {
                program,
                message: written
                    .message
                    .as_deref()
                    .unwrap_or_default()
                    .trim()
                    .to_owned(),
                message_expression,
                reason: written.reason.unwrap_or_default(),
            }
        }));
    }
    let mut annotations = Vec::new();
    for (index, written) in spec.audit_annotations.iter().enumerate() {
        let at = format!("/policy/spec/auditAnnotations/{index}/valueExpression");
        let wanted = [STRING, Type::Named("null_type")];
        let program = compilation.compile(&at, &written.value_expression, &wanted);
        annotations.extend(program.map(|program| (written.key.clone(), program)));
    }
    Validations { rules, annotations }
}

impl Policy {
    /// Evaluates a review with all bindings and their parameters. A policy that changes objects allows every request.
    #[must_use]
    pub fn validate(&self, source: &dyn Source) -> Verdict {
        let mut verdict = Verdict::default();
        let Body::Validating(validations) = &self.body else {
            return verdict;
        };
        match self.applies(source) {
            Ok(true) => {}
            Ok(false) => return verdict,
            Err(unknown) => {
                self.misconfigured(&mut verdict, None, &unknown.to_string());
                return verdict;
            }
        }
        let documents = self.documents(source);
        let mut failure = None;
        let mut annotations: Vec<(String, Vec<String>)> = Vec::new();
        for binding in &self.bindings {
            let params = match self.is_bound(binding, source) {
                Ok(true) => self.params_of(binding.spec.param_ref.as_ref(), source),
                Ok(false) => continue,
                Err(unknown) => Err(unknown.to_string()),
            };
            let params = match params {
                Ok(params) => params,
                Err(error) => {
                    self.misconfigured(&mut verdict, Some(binding), &error);
                    continue;
                }
            };
            for params in params {
                let (decisions, published) = self.decide(validations, &documents, &params);
                for (index, decision) in decisions.into_iter().enumerate() {
                    if let Some((message, reason)) = decision.denied {
                        self.act(&mut verdict, &mut failure, binding, index, &message, reason);
                    }
                }
                for annotation in published {
                    match annotation {
                        Annotation::Publish(key, value) => {
                            let known = annotations.iter().position(|(known, _)| *known == key);
                            let known = known.unwrap_or_else(|| {
                                annotations.push((key, Vec::new()));
                                annotations.len() - 1
                            });
                            let values = &mut annotations[known].1;
                            if !values.contains(&value) {
                                values.push(value);
                            }
                        }
                        Annotation::Failed(message) => {
                            self.deny(&mut verdict, Some(binding), &message, Reason::Invalid);
                        }
                    }
                }
            }
        }
        for (key, values) in annotations {
            verdict.annotations.push((key, values.join(", ")));
        }
        if let Some(failure) = failure {
            let annotation = (FAILURES.to_owned(), format!("[{failure}]"));
            verdict.annotations.push(annotation);
        }
        verdict
    }

    /// Does what the actions of a binding say about a failed validation. As in kube-apiserver, the audit annotation has only
    /// the first failure.
    fn act(
        &self,
        verdict: &mut Verdict,
        failure: &mut Option<String>,
        binding: &Binding,
        index: usize,
        message: &str,
        reason: Reason,
    ) {
        for action in &binding.spec.validation_actions {
            match action {
                ValidationAction::Deny => self.deny(verdict, Some(binding), message, reason),
                ValidationAction::Warn => verdict.warnings.push(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                    self.name, binding.metadata.name
                )),
                ValidationAction::Audit if failure.is_some() => {}
                ValidationAction::Audit => {
                    let actions = &binding.spec.validation_actions;
                    let texts = serde_json::json!({
                        "message": message,
                        "policy": self.name,
                        "binding": binding.metadata.name,
                    });
                    let text = |name: &str| go_json(&texts[name]);
                    let actions: Vec<String> =
                        actions.iter().map(|action| format!("\"{action:?}\"")).collect();
                    *failure = Some(format!(
                        "{{\"message\":{},\"policy\":{},\"binding\":{},\"expressionIndex\":{index},\
                         \"validationActions\":[{}]}}",
                        text("message"),
                        text("policy"),
                        text("binding"),
                        actions.join(",")
                    ));
                }
            }
        }
    }

    /// Denies the request, whatever the actions of the binding, unless the policy fails open. Without a binding, the
    /// problem is that of the policy.
    fn misconfigured(&self, verdict: &mut Verdict, binding: Option<&Binding>, error: &str) {
        if self.failure_policy == FailurePolicy::Fail {
            let what = binding.map_or("policy", |_| "binding");
            let message = format!("failed to configure {what}: {error}");
            self.deny(verdict, binding, &message, Reason::Invalid);
        }
    }

    /// Denies the request. The first denial counts.
    fn deny(
        &self,
        verdict: &mut Verdict,
        binding: Option<&Binding>,
        message: &str,
        reason: Reason,
    ) {
        if verdict.denial.is_none() {
            let with = binding.map(|binding| format!(" with binding '{}'", binding.metadata.name));
            let message = format!(
                "ValidatingAdmissionPolicy '{}'{} denied request: {message}",
                self.name,
                with.unwrap_or_default()
            );
            let (reason, code) = status(reason);
            verdict.denial = Some(Denial {
                message,
                reason,
                code,
            });
        }
    }

    fn error(&self, message: String) -> Decision {
        let is_denied = self.failure_policy == FailurePolicy::Fail;
        Decision {
            denied: is_denied.then_some((message, Reason::Invalid)),
        }
    }

    /// Returns the messages of the rules that a review breaks with one parameter.
    pub(super) fn broken(&self, source: &dyn Source, params: &Value) -> Vec<String> {
        let Body::Validating(validations) = &self.body else {
            return Vec::new();
        };
        let (decisions, _) = self.decide(validations, &self.documents(source), params);
        let denied = decisions.into_iter().filter_map(|decision| decision.denied);
        denied.map(|(message, _)| message).collect()
    }

    /// Evaluates the rules and the audit annotations with one parameter.
    fn decide(
        &self,
        validations: &Validations,
        [of_conditions, documents]: &[Rc<Documents<'_>>; 2],
        params: &Value,
    ) -> (Vec<Decision>, Vec<Annotation>) {
        match self.matched(of_conditions, params) {
            Matched::Yes => {}
            Matched::No => return (Vec::new(), Vec::new()),
            Matched::Failed(message) => return (vec![self.error(message)], Vec::new()),
        }
        let scope = Scope::over(Rc::clone(documents), params.clone(), &self.variables);
        let mut budget = Some(POLICY_LIMIT);
        let spend = |budget: &mut Option<u64>, cost| {
            *budget = budget.and_then(|left: u64| left.checked_sub(cost));
            budget.is_some()
        };
        let mut results = Vec::with_capacity(validations.rules.len());
        for rule in &validations.rules {
            let (result, cost) = scope.evaluate(&rule.program);
            if !spend(&mut budget, cost) {
                return (vec![self.error(OUT_OF_BUDGET.to_owned())], Vec::new());
            }
            results.push(result);
        }
        let mut decisions = Vec::with_capacity(results.len());
        for (rule, result) in validations.rules.iter().zip(results) {
            decisions.push(match result {
                Err(error) => self.error(resulted(&rule.program, &error)),
                Ok(Value::Bool(true)) => Decision { denied: None },
                Ok(_) => {
                    let evaluated = rule.message_expression.as_ref().map(|expression| {
                        let (text, cost) = scope.evaluate(expression);
                        (text, spend(&mut budget, cost))
                    });
                    match evaluated {
                        Some((_, false)) => {
                            self.error(format!("failed messageExpression: {OUT_OF_BUDGET}"))
                        }
                        evaluated => {
                            let text = evaluated.and_then(|(text, _)| text.ok());
                            Decision {
                                denied: Some((rule.message(text.as_ref()), rule.reason)),
                            }
                        }
                    }
                }
            });
        }
        (decisions, self.annotate(validations, documents, params))
    }

    fn annotate(
        &self,
        validations: &Validations,
        documents: &Rc<Documents<'_>>,
        params: &Value,
    ) -> Vec<Annotation> {
        if validations.annotations.is_empty() {
            return Vec::new();
        }
        let scope = Scope::over(Rc::clone(documents), params.clone(), &self.variables);
        let mut annotations = Vec::new();
        let fails = self.failure_policy == FailurePolicy::Fail;
        let mut budget = POLICY_LIMIT;
        for (key, program) in &validations.annotations {
            let (result, cost) = scope.evaluate(program);
            let Some(left) = budget.checked_sub(cost) else {
                if fails {
                    annotations.push(Annotation::Failed(OUT_OF_BUDGET.to_owned()));
                }
                break;
            };
            budget = left;
            match result {
                Ok(Value::String(text)) if text.trim().is_empty() => {}
                Ok(Value::String(text)) => {
                    let text = text.trim();
                    let end = text.floor_char_boundary(LONGEST_ANNOTATION);
                    annotations.push(Annotation::Publish(key.clone(), text[..end].to_owned()));
                }
                Ok(Value::Null) => {}
                Ok(other) => annotations.push(Annotation::Failed(format!(
                    "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string \
                     or null.",
                    program.source(),
                    other.type_name()
                ))),
                Err(error) if fails => {
                    annotations.push(Annotation::Failed(resulted(program, &error)));
                }
                Err(_) => {}
            }
        }
        annotations
    }
}

// === impl Validations ===

impl Validations {
    pub(super) fn programs(&self) -> impl Iterator<Item = &Program> {
        let rules = self.rules.iter();
        let rules =
            rules.flat_map(|rule| [&rule.program].into_iter().chain(&rule.message_expression));
        rules.chain(self.annotations.iter().map(|(_, program)| program))
    }
}

// === impl Rule ===

impl Rule {
    /// Returns the message: that of the expression if it is usable, the written one, or the rule itself.
    fn message(&self, evaluated: Option<&Value>) -> String {
        let evaluated = evaluated
            .and_then(Value::as_text)
            .map(str::trim)
            .filter(|text| text.len() <= LONGEST_MESSAGE && !text.contains('\n'))
            .unwrap_or_default();
        if !evaluated.is_empty() {
            return evaluated.to_owned();
        }
        if !self.message.is_empty() {
            return self.message.clone();
        }
        format!("failed expression: {}", self.program.source().trim())
    }
}

fn status(reason: Reason) -> (&'static str, u16) {
    match reason {
        Reason::Unauthorized => ("Unauthorized", 401),
        Reason::Forbidden => ("Forbidden", 403),
        Reason::Invalid => ("Invalid", 422),
        Reason::RequestEntityTooLarge => ("RequestEntityTooLarge", 413),
    }
}

/// Writes JSON like Go, which also escapes the characters of HTML.
fn go_json(value: &serde_json::Value) -> String {
    value
        .to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}
