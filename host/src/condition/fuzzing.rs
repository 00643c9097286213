//! For fuzzing: what an expression gives with and without being metered.

use cel::{Context, Value};

use super::budget::{self, Budget};
use super::{BUDGET, Condition, ENVIRONMENT};
use crate::document::Json;
use crate::review::request::AdmissionRequest;

/// What evaluating an expression came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluated {
    /// Its value, or none where there is an error.
    pub value: Option<bool>,
    /// The budget that was used up.
    pub units: u64,
    /// Whether that was all of it.
    pub is_spent: bool,
}

/// Evaluates a condition as a review does, with the whole budget.
#[must_use]
pub fn metered(
    condition: &Condition,
    request: &AdmissionRequest,
    object: Option<&Json>,
) -> Evaluated {
    let budget = Budget::new(BUDGET);
    let value = condition.evaluate(request, object, &budget).ok();
    Evaluated {
        value,
        units: BUDGET - budget.left(),
        is_spent: budget.is_spent(),
    }
}

/// Evaluates the expression as it was written, by the crate alone: with no bound on what it costs.
#[must_use]
pub fn unmetered(
    condition: &Condition,
    request: &AdmissionRequest,
    object: Option<&Json>,
) -> Option<bool> {
    let parsed = ENVIRONMENT.compile(&condition.text).ok()?;
    let program = &condition.program;
    stacker::maybe_grow(program.stack_bytes, program.stack_bytes, || {
        let budget = Budget::new(BUDGET);
        let mut context = Context::with_env(ENVIRONMENT.clone());
        context.add_variable_as_val(budget::VARIABLE, Box::new(budget.clone()));
        let bound = program.needs.bind(&mut context, request, object, &budget);
        bound.ok()?;
        let value = Value::resolve_val(parsed.expression(), &context).ok()?;
        let value = value.downcast_ref::<cel::common::types::CelBool>()?;
        Some(*value.inner())
    })
}
