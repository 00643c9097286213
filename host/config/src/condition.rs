//! Match conditions: CEL expressions that decide whether a plugin is called for a request.
//!
//! ```text
//! expression ─▶ parse ─▶ check    only names, functions and fields that there are     at load
//!                     ─▶ needs    the places of the review that it reads
//!                     ─▶ meter    loops and values of unknown size are weighed
//! request ─▶ those places as CEL values ─▶ evaluate, within a budget                  at a plugin's turn
//! ```
//!
//! The operator writes the expression, but the user sends the object. So the user controls the cost of an evaluation.
//! For example, two nested comprehensions over a list of a million elements run for too long, and no deadline can
//! interrupt them. The `cel` crate does not count costs. Tollgate therefore rewrites the parsed expression so that it
//! counts its own cost (`meter`).

mod budget;
mod check;
mod functions;
#[doc(hidden)]
pub mod fuzzing;
mod meter;
mod needs;
mod values;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, LazyLock};

use cel::common::types::CelBool;
use cel::parser::Expression;
use cel::{Context, Env, ExecutionError, Value};
use tollgate_admission::namespaces::OfRequest;
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_json::document::Json;

use budget::Budget;
use functions::Regexes;
use needs::Needs;

/// The budget of all conditions of one plugin at one turn, in units.
///
/// Reading a JSON value or 64 bytes of text costs one unit. One iteration of a loop costs five. The whole budget takes
/// some tenths of a second, as in kube-apiserver.
pub const BUDGET: u64 = 1_000_000;
/// The budget on a thread that serves requests: about a millisecond. A more expensive evaluation starts again on
/// another thread.
pub const BUDGET_INLINE: u64 = 10_000;
/// Maximum number of conditions, as in Kubernetes.
pub const MOST_CONDITIONS: usize = 64;
/// Maximum length of an expression.
pub const LONGEST_EXPRESSION_BYTES: usize = 8 * 1024;
/// Stack per nesting level of an expression. CEL's evaluator is one large recursive function. It was measured to take
/// 50 KiB per level.
const STACK_BYTES_PER_LEVEL: usize = 96 * 1024;

/// One condition, ready for evaluation. Cloning is cheap.
#[derive(Clone)]
pub struct Condition {
    name: Arc<str>,
    text: Arc<str>,
    program: Arc<Program>,
}

/// A compiled expression.
struct Program {
    expression: Expression,
    /// Maximum stack that an evaluation may take.
    stack_bytes: usize,
    needs: Needs,
    regexes: Regexes,
    /// The field names in the text. None if the expression can compute a field name from a value.
    fields: Option<BTreeSet<String>>,
}

/// The result of a list of conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// All conditions hold.
    Holds,
    /// One condition is false: its index in the list.
    Fails(usize),
    /// No condition is false, and at least one could not be evaluated.
    Unclear(ConditionError),
}

/// The reason why a condition could not be evaluated.
///
/// It contains the condition's name and parts of its text, but never a value of the review.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the match condition `{name}` {what}")]
pub struct ConditionError {
    /// The condition's name.
    pub name: Arc<str>,
    /// The error.
    pub what: String,
}

/// The standard library and the host's additions.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(functions::environment()));

/// Evaluates conditions for a request, with the object as it is at the plugin's turn.
///
/// As in kube-apiserver, one false condition decides the result, whatever happens to the others. An error decides only
/// if no condition is false.
#[must_use]
pub fn decide(
    conditions: &[Condition],
    request: &AdmissionRequest,
    object: Option<&Json>,
) -> Decision {
    let budget = Budget::new(BUDGET);
    decide_within(&budget, conditions, request, object)
}

/// Evaluates conditions like `decide`, with a small budget.
///
/// # Errors
/// When the evaluation takes more than [`BUDGET_INLINE`] units. The error is one of the conditions that are still
/// undecided.
pub fn decide_inline<'c>(
    conditions: &'c [Condition],
    request: &AdmissionRequest,
    object: Option<&Json>,
) -> Result<Decision, &'c Condition> {
    let budget = Budget::new(BUDGET_INLINE);
    let decision = decide_within(&budget, conditions, request, object);
    // A condition that is false within the small budget is also false within the full one.
    match decision {
        Decision::Unclear(error) if budget.is_spent() => {
            let costly = conditions
                .iter()
                .find(|condition| condition.name == error.name);
            Err(costly.unwrap_or(&conditions[0]))
        }
        decision => Ok(decision),
    }
}

fn decide_within(
    budget: &Budget,
    conditions: &[Condition],
    request: &AdmissionRequest,
    object: Option<&Json>,
) -> Decision {
    let mut decision = Decision::Holds;
    for (index, condition) in conditions.iter().enumerate() {
        match condition.evaluate(request, object, budget) {
            Ok(true) => {}
            Ok(false) => return Decision::Fails(index),
            Err(what) => {
                if decision == Decision::Holds {
                    decision = Decision::Unclear(ConditionError {
                        name: condition.name.clone(),
                        what,
                    });
                }
            }
        }
    }
    decision
}

/// Parses an expression without checking what it names.
pub(crate) fn parse(text: &str) -> Result<cel::Program, Vec<String>> {
    let parsed = ENVIRONMENT.compile(text);
    parsed.map_err(|errors| check::syntax(&errors))
}

/// Returns the Namespace of a request. Matching has looked it up before it evaluates the conditions.
fn known_namespace(
    request: &AdmissionRequest,
    object: Option<&Json>,
) -> Result<Option<Json>, String> {
    match request.namespace_of(object) {
        OfRequest::None => Ok(None),
        OfRequest::Known(namespace) => Ok(Some(namespace.document().clone())),
        OfRequest::Failed(what) => Err(format!("needs the namespace: {what}")),
        OfRequest::Awaited(_) => {
            Err("needs the namespace, which nobody has looked up yet".to_owned())
        }
    }
}

// === impl Condition ===

impl Condition {
    /// Compiles an expression.
    ///
    /// # Errors
    ///
    /// The list of all problems, each with its line and column if known.
    pub fn compile(name: &str, text: &str) -> Result<Self, Vec<String>> {
        if text.len() > LONGEST_EXPRESSION_BYTES {
            return Err(vec![format!(
                "got {} bytes, expected at most {LONGEST_EXPRESSION_BYTES}",
                text.len()
            )]);
        }
        let parsed = parse(text)?;
        check::check(&parsed)?;
        let needs = Needs::of(parsed.expression());
        let fields = check::fields(parsed.expression());
        let mut regexes = Regexes::default();
        let expression = meter::meter(parsed.expression(), &mut regexes);
        let stack_bytes = meter::depth(&expression) * STACK_BYTES_PER_LEVEL;
        Ok(Self {
            name: Arc::from(name),
            text: Arc::from(text),
            program: Arc::new(Program {
                expression,
                stack_bytes,
                needs,
                regexes,
                fields,
            }),
        })
    }

    /// Returns the condition's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the expression as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the expression names `namespaceObject`, the Namespace of the request.
    ///
    /// kube-apiserver does not know this variable in the match conditions of a webhook.
    #[must_use]
    pub fn needs_namespace(&self) -> bool {
        self.program.needs.namespace()
    }

    fn evaluate(
        &self,
        request: &AdmissionRequest,
        object: Option<&Json>,
        budget: &Budget,
    ) -> Result<bool, String> {
        let namespace = if self.needs_namespace() {
            known_namespace(request, object)?
        } else {
            None
        };
        let stack_bytes = self.program.stack_bytes;
        // Only the deepest expressions need more than the thread's own stack.
        let result = stacker::maybe_grow(stack_bytes, stack_bytes, || {
            self.resolve(request, object, namespace.as_ref(), budget)
        });
        // `|| true` can hide an error. A spent budget is always an error.
        if budget.is_spent() {
            return Err(format!(
                "costs too much on this object: together with the conditions before it, it takes more than {BUDGET} \
                 steps"
            ));
        }
        result
            .map_err(|error| self.describe(&error))?
            .map_err(|found| format!("returned a value of the type {found}, expected a boolean"))
    }

    /// Returns the result, or the type of a result that is not a boolean.
    fn resolve(
        &self,
        request: &AdmissionRequest,
        object: Option<&Json>,
        namespace: Option<&Json>,
        budget: &Budget,
    ) -> Result<Result<bool, String>, ExecutionError> {
        let program = &self.program;
        let mut context = Context::with_env(ENVIRONMENT.clone());
        context.add_variable_as_val(budget::VARIABLE, Box::new(budget.clone()));
        program.regexes.bind(&mut context);
        program
            .needs
            .bind(&mut context, request, object, namespace, budget)?;
        let value = Value::resolve_val(&program.expression, &context)?;
        Ok(match value.downcast_ref::<CelBool>() {
            Some(result) => Ok(*result.inner()),
            None => Err(value.get_type().name().to_owned()),
        })
    }

    /// Describes an error without any value from the review. The crate's own messages quote values.
    fn describe(&self, error: &ExecutionError) -> String {
        let fields = self.program.fields.as_ref();
        let known = |name: &str| fields.is_some_and(|fields| fields.contains(name));
        match error {
            ExecutionError::NoSuchKey(name) if known(name) => {
                format!("failed: no such key: {name}")
            }
            ExecutionError::NoSuchKey(_) => "failed: no such key".to_owned(),
            ExecutionError::NoSuchOverload(overload) => format!(
                "failed: `{}` cannot be applied to {}",
                check::operator(overload.function()),
                overload.argument_types().join(" and ")
            ),
            ExecutionError::UnexpectedType { got, want } if want == "bool" => {
                format!("failed: expected a boolean, got a value of the type {got}")
            }
            ExecutionError::FunctionError { function, .. } => {
                format!(
                    "failed: `{}` does not accept this value",
                    check::operator(function)
                )
            }
            ExecutionError::UnsupportedBinaryOperator(operator, ..) => {
                let sign = check::arithmetic_sign(operator);
                format!("failed: `{sign}` cannot be applied to these types")
            }
            ExecutionError::IndexOutOfBounds(_) => "failed: index out of bounds".to_owned(),
            ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
                "failed: division by zero".to_owned()
            }
            ExecutionError::Overflow(..) => "failed: a number is too large".to_owned(),
            _ => "failed: a value has an unexpected type".to_owned(),
        }
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.text) == (&other.name, &other.text)
    }
}

impl Eq for Condition {}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condition")
            .field("name", &self.name)
            .field("text", &self.text)
            .finish()
    }
}

#[cfg(test)]
mod tests;
