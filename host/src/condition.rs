//! Match conditions: CEL expressions that decide whether a plugin is asked about a request.
//!
//! ```text
//! expression ─▶ parse ─▶ check    only names, functions and fields that there are     at load
//!                     ─▶ needs    the places of the review that it reads
//!                     ─▶ meter    loops and values of unknown size are weighed
//! request ─▶ those places as CEL values ─▶ evaluate, within a budget                  at a plugin's turn
//! ```
//!
//! The expression is the operator's and the object is the user's, so what an evaluation costs is the user's to
//! choose: a comprehension in a comprehension over a list of a million is what no deadline could interrupt. CEL's
//! crate counts nothing, therefore the parsed expression is rewritten to count for itself (`meter`).

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

use crate::document::Json;
use crate::review::request::AdmissionRequest;
use budget::Budget;
use functions::Regexes;
use needs::Needs;

/// What all conditions of one plugin may cost at one turn. A unit is a JSON value or 64 bytes of text that
/// are looked at; the turn of a loop is five. All together it is some tenths of a second, as in kube-apiserver.
pub const BUDGET: u64 = 1_000_000;
/// What they may cost on a thread that serves: about a millisecond. What costs more is begun anew elsewhere.
pub const BUDGET_INLINE: u64 = 10_000;
/// As in Kubernetes.
pub const MOST_CONDITIONS: usize = 64;
/// Longer expressions are refused.
pub const LONGEST_EXPRESSION_BYTES: usize = 8 * 1024;
/// Of the stack, for each level that an expression is nested: CEL's evaluator is one large recursive function, and
/// was seen to take 50 KiB.
const STACK_BYTES_PER_LEVEL: usize = 96 * 1024;

/// One condition, ready to be evaluated. Cloning is cheap.
#[derive(Clone)]
pub struct Condition {
    name: Arc<str>,
    text: Arc<str>,
    program: Arc<Program>,
}

/// What an expression was compiled to.
struct Program {
    expression: Expression,
    /// What evaluating it may take of a thread's stack.
    stack_bytes: usize,
    needs: Needs,
    regexes: Regexes,
    /// The fields that stand in the text; none where one can be made of a value.
    fields: Option<BTreeSet<String>>,
}

/// What a list of conditions comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// All of them hold.
    Holds,
    /// One of them does not: its place in the list.
    Fails(usize),
    /// None is false, and one could not be evaluated.
    Unclear(ConditionError),
}

/// Why a condition could not be evaluated. Names the condition and what stands in its text, never a value of the
/// review.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the match condition `{name}` {what}")]
pub struct ConditionError {
    /// The condition.
    pub name: Arc<str>,
    /// What went wrong.
    pub what: String,
}

/// The standard library, and what this host adds to it.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(functions::environment()));

/// Decides about a request, with the object as it is at the plugin's turn.
///
/// As in kube-apiserver, a condition that is false decides whatever happens to the others; an error decides only
/// where none is false.
#[must_use]
pub fn decide(
    conditions: &[Condition],
    request: &AdmissionRequest,
    object: Option<&Json>,
) -> Decision {
    let budget = Budget::new(BUDGET);
    decide_within(&budget, conditions, request, object)
}

/// The same decision, where it costs little.
///
/// # Errors
/// When it takes more than [`BUDGET_INLINE`] steps: one of the conditions that are not decided by then.
pub fn decide_inline<'c>(
    conditions: &'c [Condition],
    request: &AdmissionRequest,
    object: Option<&Json>,
) -> Result<Decision, &'c Condition> {
    let budget = Budget::new(BUDGET_INLINE);
    let decision = decide_within(&budget, conditions, request, object);
    // What is false within the smaller budget is false within the larger one, whatever came before.
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

// === impl Condition ===

impl Condition {
    /// Compiles an expression.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, each with its line and column where there is one.
    pub fn compile(name: &str, text: &str) -> Result<Self, Vec<String>> {
        if text.len() > LONGEST_EXPRESSION_BYTES {
            return Err(vec![format!(
                "got {} bytes, expected at most {LONGEST_EXPRESSION_BYTES}",
                text.len()
            )]);
        }
        let parsed = ENVIRONMENT
            .compile(text)
            .map_err(|errors| check::syntax(&errors))?;
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

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The expression as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    fn evaluate(
        &self,
        request: &AdmissionRequest,
        object: Option<&Json>,
        budget: &Budget,
    ) -> Result<bool, String> {
        let stack_bytes = self.program.stack_bytes;
        // Any but the deepest find room on the thread's own stack.
        let result = stacker::maybe_grow(stack_bytes, stack_bytes, || {
            self.resolve(request, object, budget)
        });
        // An error can be outweighed, by `|| true`; what costs too much is an error whatever stands beside it.
        if budget.is_spent() {
            return Err(format!(
                "costs too much on this object: with the conditions before it, it takes more than {BUDGET} steps"
            ));
        }
        result
            .map_err(|error| self.describe(&error))?
            .map_err(|found| {
                format!("gives a value of the type {found}, and a condition is true or false")
            })
    }

    /// The result; where it is not a boolean, the type that it has.
    fn resolve(
        &self,
        request: &AdmissionRequest,
        object: Option<&Json>,
        budget: &Budget,
    ) -> Result<Result<bool, String>, ExecutionError> {
        let program = &self.program;
        let mut context = Context::with_env(ENVIRONMENT.clone());
        context.add_variable_as_val(budget::VARIABLE, Box::new(budget.clone()));
        program.regexes.bind(&mut context);
        program.needs.bind(&mut context, request, object, budget)?;
        let value = Value::resolve_val(&program.expression, &context)?;
        Ok(match value.downcast_ref::<CelBool>() {
            Some(result) => Ok(*result.inner()),
            None => Err(value.get_type().name().to_owned()),
        })
    }

    /// An error without anything that came from the review: the crate's own texts quote values.
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
                format!("failed: a boolean is expected where there is a {got}")
            }
            ExecutionError::FunctionError { function, .. } => {
                format!(
                    "failed: `{}` cannot take this value",
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
            _ => "failed: its values are not of the types that it expects".to_owned(),
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
