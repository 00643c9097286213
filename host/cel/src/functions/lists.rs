//! Kubernetes' lists library, and version 3 of the lists extension.

use std::cmp::Ordering;

use super::{Native, integer, list};
use crate::error::{EvalError, Result};
use crate::meter::Meter;
use crate::ops;
use crate::value::Value;

/// The longest list that `lists.range` creates.
const LONGEST_RANGE: i64 = 100_000;

pub(super) fn lookup(name: &str, is_member: bool) -> Option<Native> {
    Some(match (name, is_member) {
        ("isSorted", true) => is_sorted,
        ("sum", true) => sum,
        ("min", true) => |args, meter| extreme(args, meter, "min", Ordering::Less),
        ("max", true) => |args, meter| extreme(args, meter, "max", Ordering::Greater),
        ("includes", true) => includes,
        ("slice", true) => slice,
        ("flatten", true) => flatten,
        ("sort", true) => sort,
        ("distinct", true) => distinct,
        ("first", true) => |args, _| Ok(end(list(&args[0])?.first())),
        ("last", true) => |args, _| Ok(end(list(&args[0])?.last())),
        ("lists.range", false) => range,
        ("@sortByAssociatedKeys", true) => sort_by_keys,
        _ => return None,
    })
}

fn end(element: Option<&Value>) -> Value {
    element.map_or(Value::Optional(None), |value| Value::some(value.clone()))
}

fn is_sorted(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let list = list(&args[0])?;
    meter.charge(list.len() as u64)?;
    for pair in list.windows(2) {
        if ops::compare(&pair[0], &pair[1])? == Ordering::Greater {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn sum(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let list = list(&args[0])?;
    meter.charge(list.len() as u64)?;
    let mut elements = list.iter();
    let Some(first) = elements.next() else {
        return Ok(Value::Int(0));
    };
    if !matches!(
        first,
        Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_)
    ) {
        return Err(EvalError::no_such_overload());
    }
    elements.try_fold(first.clone(), |sum, element| ops::add(&sum, element, meter))
}

fn extreme(
    args: &[Value],
    meter: &mut Meter,
    name: &'static str,
    wanted: Ordering,
) -> Result<Value> {
    let list = list(&args[0])?;
    meter.charge(list.len() as u64)?;
    let mut best: Option<&Value> = None;
    for element in list {
        let is_better = match best {
            None => true,
            Some(best) => ops::compare(element, best)? == wanted,
        };
        if is_better {
            best = Some(element);
        }
    }
    best.cloned()
        .ok_or_else(|| EvalError::new(format!("{name} called on empty list")))
}

/// Charges for a comparison with every element.
fn charge_search(list: &[Value], meter: &mut Meter) -> Result<()> {
    meter.charge(list.len() as u64)
}

pub(super) fn index_of(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let list = list(&args[0])?;
    charge_search(list, meter)?;
    let found = list.iter().position(|element| *element == args[1]);
    Ok(Value::Int(found.map_or(-1, |at| at as i64)))
}

pub(super) fn last_index_of(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let list = list(&args[0])?;
    charge_search(list, meter)?;
    let found = list.iter().rposition(|element| *element == args[1]);
    Ok(Value::Int(found.map_or(-1, |at| at as i64)))
}

fn includes(args: &[Value], meter: &mut Meter) -> Result<Value> {
    Ok(Value::Bool(match &args[0] {
        Value::List(list) => {
            charge_search(list, meter)?;
            list.contains(&args[1])
        }
        other => *other == args[1],
    }))
}

fn slice(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let list = list(&args[0])?;
    let (start, end) = (integer(&args[1])?, integer(&args[2])?);
    if start < 0 || end < 0 {
        let message = format!("cannot slice({start}, {end}), negative indexes not supported");
        return Err(EvalError::new(message));
    }
    if start > end {
        let message = format!(
            "cannot slice({start}, {end}), start index must be less than or equal to end index"
        );
        return Err(EvalError::new(message));
    }
    let (from, to) = (start as usize, end as usize);
    if to > list.len() {
        let message = format!(
            "cannot slice({start}, {end}), list is length {}",
            list.len()
        );
        return Err(EvalError::new(message));
    }
    meter.charge((to - from) as u64)?;
    Ok(Value::list(list[from..to].to_vec()))
}

fn flatten(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let depth = args.get(1).map(integer).transpose()?.unwrap_or(1);
    if depth < 0 {
        return Err(EvalError::new("level must be non-negative"));
    }
    let mut flat = Vec::new();
    flatten_into(&mut flat, list(&args[0])?, depth, meter)?;
    Ok(Value::list(flat))
}

fn flatten_into(out: &mut Vec<Value>, list: &[Value], depth: i64, meter: &mut Meter) -> Result<()> {
    for element in list {
        meter.charge(1)?;
        match element {
            Value::List(inner) if depth > 0 => flatten_into(out, inner, depth - 1, meter)?,
            other => out.push(other.clone()),
        }
    }
    Ok(())
}

fn charge_sort(length: usize, meter: &mut Meter) -> Result<()> {
    let rounds = usize::BITS - length.leading_zeros();
    meter.charge(length as u64 * u64::from(rounds.max(1)))
}

/// Sorts by keys. All keys must be comparable with each other.
fn sorted(list: &[Value], keys: &[Value], meter: &mut Meter) -> Result<Value> {
    charge_sort(list.len(), meter)?;
    if let Some(first) = keys.first() {
        let is_comparable = !matches!(first, Value::List(_) | Value::Map(_) | Value::Null);
        let same = keys.iter().all(|key| key.type_name() == first.type_name());
        if !is_comparable || !same {
            return Err(EvalError::new("list elements must have the same type"));
        }
    }
    let mut order: Vec<usize> = (0..list.len()).collect();
    let mut failed = None;
    order.sort_by(|left, right| {
        ops::compare(&keys[*left], &keys[*right]).unwrap_or_else(|error| {
            failed = Some(error);
            Ordering::Equal
        })
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(Value::list(
            order.into_iter().map(|index| list[index].clone()).collect(),
        )),
    }
}

fn sort(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let list = list(&args[0])?;
    sorted(list, list, meter)
}

fn sort_by_keys(args: &[Value], meter: &mut Meter) -> Result<Value> {
    sorted(list(&args[0])?, list(&args[1])?, meter)
}

fn distinct(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let mut distinct: Vec<Value> = Vec::new();
    for element in list(&args[0])? {
        meter.charge(1 + distinct.len() as u64)?;
        if !distinct.contains(element) {
            distinct.push(element.clone());
        }
    }
    Ok(Value::list(distinct))
}

pub(super) fn reverse(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let list = list(&args[0])?;
    meter.charge(list.len() as u64)?;
    Ok(Value::list(list.iter().rev().cloned().collect()))
}

fn range(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let length = integer(&args[0])?;
    if length > LONGEST_RANGE {
        return Err(EvalError::CostLimit);
    }
    meter.charge(u64::try_from(length).unwrap_or(0))?;
    Ok(Value::list((0..length).map(Value::Int).collect()))
}
