//! Evaluates loops over lists and maps.

use super::Evaluation;
use crate::error::{EvalError, Result};
use crate::functions::{self};
use crate::node::{Fold, Loop};
use crate::value::{Key, Value};

/// The cost of one turn beyond the cost of the loop's own expressions: cel-go evaluates the condition of the loop and
/// the result so far.
const TURN: u64 = 3;

/// The values that a loop has collected.
enum Collected {
    /// The result of `all` or `exists` so far. An error stands until a turn decides the result.
    Decision(Result<bool>),
    Count(u64),
    List(Vec<Value>),
    Map(Vec<(Key, Value)>),
}

impl Evaluation<'_, '_> {
    pub(super) fn looped(&mut self, looped: &Loop) -> Result<Value> {
        let range = self.eval(&looped.range)?;
        let mut collected = match looped.fold {
            Fold::All => Collected::Decision(Ok(true)),
            Fold::Exists => Collected::Decision(Ok(false)),
            Fold::ExistsOne => Collected::Count(0),
            Fold::List | Fold::SortBy => Collected::List(Vec::new()),
            Fold::Map | Fold::Entries => Collected::Map(Vec::new()),
        };
        match &range {
            Value::List(list) => {
                for (index, element) in list.iter().enumerate() {
                    let index = Value::Int(i64::try_from(index).unwrap_or(i64::MAX));
                    let is_done =
                        self.turn(looped, index, element.clone(), false, &mut collected)?;
                    if is_done {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                for (key, value) in map.iter() {
                    let is_done =
                        self.turn(looped, key.to_value(), value.clone(), true, &mut collected)?;
                    if is_done {
                        break;
                    }
                }
            }
            other => {
                let message = format!("got '{}', expected iterable type", go_type(other));
                return Err(EvalError::new(message));
            }
        }
        match collected {
            Collected::Decision(decision) => decision.map(Value::Bool),
            Collected::Count(count) => Ok(Value::Bool(count == 1)),
            Collected::List(keys) if looped.fold == Fold::SortBy => {
                let sort = functions::lookup("@sortByAssociatedKeys", true)
                    .ok_or_else(EvalError::no_such_overload)?;
                sort(&[range, Value::list(keys)], &mut self.meter)
            }
            Collected::List(list) => Ok(Value::list(list)),
            Collected::Map(entries) => Ok(Value::map(entries)),
        }
    }

    /// Evaluates one turn. Returns whether the result is decided.
    fn turn(
        &mut self,
        looped: &Loop,
        first: Value,
        second: Value,
        is_map: bool,
        collected: &mut Collected,
    ) -> Result<bool> {
        self.meter.charge(TURN)?;
        if looped.has_two {
            self.locals[looped.slot + 1] = second;
            self.locals[looped.slot] = first.clone();
        } else {
            self.locals[looped.slot] = if is_map { first.clone() } else { second };
        }
        if let Some(filter) = &looped.filter {
            match self.eval(filter)? {
                Value::Bool(true) => {}
                Value::Bool(false) => return Ok(false),
                _ => return Err(EvalError::no_such_overload()),
            }
        }
        let step = self.eval(&looped.step);
        match collected {
            Collected::Decision(decision) => {
                let decides = looped.fold == Fold::Exists;
                match step {
                    Ok(Value::Bool(value)) if value == decides => {
                        *decision = Ok(decides);
                        return Ok(true);
                    }
                    Ok(Value::Bool(_)) => {}
                    Err(EvalError::CostLimit) => return Err(EvalError::CostLimit),
                    Err(error) if decision.is_ok() => *decision = Err(error),
                    Ok(_) if decision.is_ok() => *decision = Err(EvalError::no_such_overload()),
                    Ok(_) | Err(_) => {}
                }
            }
            Collected::Count(count) => match step? {
                Value::Bool(true) => *count += 1,
                Value::Bool(false) => {}
                _ => return Err(EvalError::no_such_overload()),
            },
            Collected::List(list) => {
                list.push(step?);
                self.meter.charge(1)?;
            }
            Collected::Map(entries) if looped.fold == Fold::Map => {
                let key = Key::of(&first).ok_or_else(EvalError::no_such_overload)?;
                entries.push((key, step?));
                self.meter.charge(1)?;
            }
            Collected::Map(entries) => {
                let Value::Map(map) = step? else {
                    return Err(EvalError::no_such_overload());
                };
                for (key, value) in map.iter() {
                    self.meter.charge(1 + entries.len() as u64)?;
                    if entries.iter().any(|(known, _)| known == key) {
                        let key = functions::convert::text_of(&key.to_value())?;
                        let message = format!("insert failed: key {key} already exists");
                        return Err(EvalError::new(message));
                    }
                    entries.push((key.clone(), value.clone()));
                }
            }
        }
        Ok(false)
    }
}

/// Returns the name of a value's type in cel-go's implementation, which its error shows.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "types.Null",
        Value::Bool(_) => "types.Bool",
        Value::Int(_) => "types.Int",
        Value::Uint(_) => "types.Uint",
        Value::Double(_) => "types.Double",
        Value::String(_) => "types.String",
        Value::Bytes(_) => "types.Bytes",
        Value::Timestamp(_) => "types.Timestamp",
        Value::Duration(_) => "types.Duration",
        Value::Optional(_) => "*types.Optional",
        _ => "types.Object",
    }
}
