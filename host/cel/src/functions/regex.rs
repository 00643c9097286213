//! Regular expressions: `matches` of standard CEL, and Kubernetes' regex library.
//!
//! kube-apiserver uses RE2, whose classes such as `\d` are ASCII. The classes of regex-lite are ASCII, too.
//! Classes by Unicode property (`\p{…}`) are the one part of RE2 that regex-lite does not have.

use regex_lite::{Regex, RegexBuilder};

use super::{Native, integer, text};
use crate::error::{EvalError, Result};
use crate::meter::Meter;
use crate::value::Value;

/// The most memory that a compiled pattern may take.
const LARGEST_BYTES: usize = 1 << 20;
/// The cost of compiling a pattern from the data, for each byte.
const COMPILE_UNITS_PER_BYTE: u64 = 50;

pub(super) fn lookup(name: &str, is_member: bool) -> Option<Native> {
    Some(match (name, is_member) {
        ("matches", _) => |args, meter| {
            let regex = foreign(&args[1], meter)?;
            matches(&regex, &args[0], meter)
        },
        ("find", true) => |args, meter| {
            let regex = foreign(&args[1], meter)?;
            find(&regex, &args[0], meter)
        },
        ("findAll", true) => |args, meter| {
            let regex = foreign(&args[1], meter)?;
            find_all(&regex, &args[0], args.get(2), meter)
        },
        _ => return None,
    })
}

/// Compiles a pattern.
pub(crate) fn compile(pattern: &str) -> std::result::Result<Regex, String> {
    if pattern.contains("\\p{") || pattern.contains("\\P{") || has_short_property(pattern) {
        return Err("classes by Unicode property (\\p) are not supported".to_owned());
    }
    // RE2 reads `\z` as the end of the text, and `\pN` was refused above.
    RegexBuilder::new(pattern)
        .size_limit(LARGEST_BYTES)
        .build()
        .map_err(|error| error.to_string())
}

fn has_short_property(pattern: &str) -> bool {
    let bytes = pattern.as_bytes();
    let mut index = 0;
    while index + 1 < bytes.len() {
        if bytes[index] == b'\\' {
            if matches!(bytes[index + 1], b'p' | b'P') {
                return true;
            }
            index += 1;
        }
        index += 1;
    }
    false
}

fn foreign(pattern: &Value, meter: &mut Meter) -> Result<Regex> {
    let pattern = text(pattern)?;
    meter.charge(pattern.len() as u64 * COMPILE_UNITS_PER_BYTE)?;
    compile(pattern)
        .map_err(|error| EvalError::new(format!("error parsing regexp: {error}: `{pattern}`")))
}

pub(crate) fn matches(regex: &Regex, subject: &Value, meter: &mut Meter) -> Result<Value> {
    let subject = text(subject)?;
    meter.charge_search(subject.len(), regex.as_str().len())?;
    Ok(Value::Bool(regex.is_match(subject)))
}

pub(crate) fn find(regex: &Regex, subject: &Value, meter: &mut Meter) -> Result<Value> {
    let subject = text(subject)?;
    meter.charge_search(subject.len(), regex.as_str().len())?;
    let found = regex.find(subject).map(|found| found.as_str());
    Ok(Value::text(found.unwrap_or_default()))
}

pub(crate) fn find_all(
    regex: &Regex,
    subject: &Value,
    limit: Option<&Value>,
    meter: &mut Meter,
) -> Result<Value> {
    let subject = text(subject)?;
    meter.charge_search(subject.len(), regex.as_str().len())?;
    let limit = limit.map(integer).transpose()?.unwrap_or(-1);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let found = regex.find_iter(subject).take(limit);
    Ok(Value::list(
        found.map(|found| Value::text(found.as_str())).collect(),
    ))
}
