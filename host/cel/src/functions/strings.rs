//! The strings library, version 2, and the functions of strings in standard CEL.

use super::{Native, integer, list, text};
use crate::error::{EvalError, Result};
use crate::meter::Meter;
use crate::value::Value;

/// The longest string that an expression may build: 16 MiB.
const LONGEST: usize = 16 << 20;

pub(super) fn lookup(name: &str, is_member: bool) -> Option<Native> {
    Some(match (name, is_member) {
        ("charAt", true) => char_at,
        ("contains", true) => |args, meter| {
            let (subject, part) = (text(&args[0])?, text(&args[1])?);
            meter.charge_search(subject.len(), part.len())?;
            Ok(Value::Bool(subject.contains(part)))
        },
        ("startsWith", true) => |args, meter| {
            let part = text(&args[1])?;
            meter.charge_text(part.len())?;
            Ok(Value::Bool(text(&args[0])?.starts_with(part)))
        },
        ("endsWith", true) => |args, meter| {
            let part = text(&args[1])?;
            meter.charge_text(part.len())?;
            Ok(Value::Bool(text(&args[0])?.ends_with(part)))
        },
        ("lowerAscii", true) => |args, meter| {
            meter.charge_text(args[0].size())?;
            Ok(Value::text(text(&args[0])?.to_ascii_lowercase()))
        },
        ("upperAscii", true) => |args, meter| {
            meter.charge_text(args[0].size())?;
            Ok(Value::text(text(&args[0])?.to_ascii_uppercase()))
        },
        ("trim", true) => |args, meter| {
            meter.charge_text(args[0].size())?;
            Ok(Value::text(text(&args[0])?.trim()))
        },
        ("join", true) => join,
        ("split", true) => split,
        ("replace", true) => replace,
        ("substring", true) => substring,
        ("strings.quote", false) => quote,
        ("jsonpatch.escapeKey", false) => |args, meter| {
            meter.charge_text(args[0].size())?;
            Ok(Value::text(crate::value::escaped(text(&args[0])?)))
        },
        _ => return None,
    })
}

fn length(text: &str) -> i64 {
    i64::try_from(text.chars().count()).unwrap_or(i64::MAX)
}

/// Returns the byte at which a character begins.
fn byte_at(text: &str, character: i64) -> usize {
    let character = usize::try_from(character).unwrap_or(0);
    let mut places = text.char_indices().map(|(at, _)| at);
    places.nth(character).unwrap_or(text.len())
}

fn out_of_range(index: i64) -> EvalError {
    EvalError::new(format!("index out of range: {index}"))
}

fn char_at(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let (subject, index) = (text(&args[0])?, integer(&args[1])?);
    meter.charge_text(subject.len())?;
    let length = length(subject);
    if index < 0 || index > length {
        return Err(out_of_range(index));
    }
    let found = subject.chars().nth(usize::try_from(index).unwrap_or(0));
    Ok(Value::text(found.map(String::from).unwrap_or_default()))
}

pub(super) fn index_of(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let (subject, part) = (text(&args[0])?, text(&args[1])?);
    meter.charge_search(subject.len(), part.len())?;
    let offset = args.get(2).map(integer).transpose()?.unwrap_or(0);
    if part.is_empty() {
        return Ok(Value::Int(offset));
    }
    if offset < 0 || offset > length(subject) {
        return Err(out_of_range(offset));
    }
    let from = byte_at(subject, offset);
    let found = subject[from..].find(part);
    Ok(Value::Int(
        found.map_or(-1, |at| length(&subject[..from + at])),
    ))
}

pub(super) fn last_index_of(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let (subject, part) = (text(&args[0])?, text(&args[1])?);
    meter.charge_search(subject.len(), part.len())?;
    let characters = length(subject);
    let offset = args.get(2).map(integer).transpose()?;
    if part.is_empty() {
        return Ok(Value::Int(offset.unwrap_or(characters)));
    }
    let until = match offset {
        None => subject.len(),
        Some(offset) if offset < 0 || offset > characters => return Err(out_of_range(offset)),
        // A match may begin at the offset and extend beyond it.
        Some(offset) => byte_at(subject, offset.saturating_add(length(part))),
    };
    let found = subject[..until].rfind(part);
    Ok(Value::Int(found.map_or(-1, |at| length(&subject[..at]))))
}

fn join(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let separator = args.get(1).map(text).transpose()?.unwrap_or_default();
    let mut joined = String::new();
    for (index, element) in list(&args[0])?.iter().enumerate() {
        let element = text(element)?;
        meter.charge_text(element.len() + separator.len())?;
        if index > 0 {
            joined.push_str(separator);
        }
        joined.push_str(element);
        check_length(joined.len())?;
    }
    Ok(Value::text(joined))
}

fn check_length(length: usize) -> Result<()> {
    if length > LONGEST {
        return Err(EvalError::CostLimit);
    }
    Ok(())
}

fn limit(args: &[Value], index: usize) -> Result<Option<usize>> {
    let limit = args.get(index).map(integer).transpose()?;
    Ok(limit.and_then(|limit| usize::try_from(limit).ok()))
}

fn split(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let (subject, separator) = (text(&args[0])?, text(&args[1])?);
    meter.charge_text(subject.len())?;
    let limit = limit(args, 2)?;
    if limit == Some(0) {
        return Ok(Value::list(Vec::new()));
    }
    let most = limit.unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    if separator.is_empty() {
        let mut rest = subject;
        while let Some(next) = rest.chars().next() {
            if parts.len() + 1 == most {
                break;
            }
            let (part, behind) = rest.split_at(next.len_utf8());
            parts.push(Value::text(part));
            rest = behind;
        }
        if !rest.is_empty() {
            parts.push(Value::text(rest));
        }
    } else {
        parts.extend(subject.splitn(most, separator).map(Value::text));
    }
    meter.charge(parts.len() as u64)?;
    Ok(Value::list(parts))
}

fn replace(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let (subject, from, to) = (text(&args[0])?, text(&args[1])?, text(&args[2])?);
    meter.charge_text(subject.len())?;
    let limit = limit(args, 3)?;
    let at_most = subject.len() / from.len().max(1) + 1;
    let longest = at_most
        .min(limit.unwrap_or(at_most))
        .saturating_mul(to.len())
        .saturating_add(subject.len());
    check_length(longest)?;
    meter.charge_text(longest)?;
    Ok(Value::text(match limit {
        Some(limit) => subject.replacen(from, to, limit),
        None => subject.replace(from, to),
    }))
}

fn substring(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let (subject, start) = (text(&args[0])?, integer(&args[1])?);
    meter.charge_text(subject.len())?;
    let characters = length(subject);
    let Some(end) = args.get(2) else {
        if start < 0 || start > characters {
            return Err(out_of_range(start));
        }
        return Ok(Value::text(&subject[byte_at(subject, start)..]));
    };
    let end = integer(end)?;
    if start > end {
        let message = format!("invalid substring range. start: {start}, end: {end}");
        return Err(EvalError::new(message));
    }
    if start < 0 || start > characters {
        return Err(out_of_range(start));
    }
    if end < 0 || end > characters {
        return Err(out_of_range(end));
    }
    Ok(Value::text(
        &subject[byte_at(subject, start)..byte_at(subject, end)],
    ))
}

fn quote(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let subject = text(&args[0])?;
    meter.charge_text(subject.len())?;
    let mut quoted = String::from("\"");
    for character in subject.chars() {
        match character {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    Ok(Value::text(quoted))
}
