//! Functions for fuzzing: they compare the results of an expression with and without metering.

use cel::{Context, Value};
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_json::document::Json;

use super::budget::{self, Budget};
use super::{BUDGET, Condition, ENVIRONMENT};

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluated {
    /// The value. None if there was an error.
    pub value: Option<bool>,
    /// The units that were used.
    pub units: u64,
    /// Whether the whole budget was used.
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

/// Evaluates the original expression with the crate alone. The cost has no bound.
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
        let bound = program
            .needs
            .bind(&mut context, request, object, None, &budget);
        bound.ok()?;
        let value = Value::resolve_val(parsed.expression(), &context).ok()?;
        let value = value.downcast_ref::<cel::common::types::CelBool>()?;
        Some(*value.inner())
    })
}
