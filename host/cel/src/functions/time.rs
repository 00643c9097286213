//! The accessors of timestamps and durations.

use jiff::Zoned;
use jiff::tz::{Offset, TimeZone};

use super::{Native, text};
use crate::error::{EvalError, Result};
use crate::value::Value;

pub(super) fn lookup(name: &str, is_member: bool) -> Option<Native> {
    if !is_member {
        return None;
    }
    Some(match name {
        "getFullYear" => |args, _| Ok(Value::Int(zoned(args)?.year().into())),
        "getMonth" => |args, _| Ok(Value::Int(i64::from(zoned(args)?.month()) - 1)),
        "getDate" => |args, _| Ok(Value::Int(zoned(args)?.day().into())),
        "getDayOfMonth" => |args, _| Ok(Value::Int(i64::from(zoned(args)?.day()) - 1)),
        "getDayOfYear" => |args, _| Ok(Value::Int(i64::from(zoned(args)?.day_of_year()) - 1)),
        "getDayOfWeek" => |args, _| {
            Ok(Value::Int(
                zoned(args)?.weekday().to_sunday_zero_offset().into(),
            ))
        },
        "getHours" => |args, _| match &args[0] {
            Value::Duration(duration) => Ok(Value::Int(duration.as_secs() / 3600)),
            _ => Ok(Value::Int(zoned(args)?.hour().into())),
        },
        "getMinutes" => |args, _| match &args[0] {
            Value::Duration(duration) => Ok(Value::Int(duration.as_secs() / 60)),
            _ => Ok(Value::Int(zoned(args)?.minute().into())),
        },
        "getSeconds" => |args, _| match &args[0] {
            Value::Duration(duration) => Ok(Value::Int(duration.as_secs())),
            _ => Ok(Value::Int(zoned(args)?.second().into())),
        },
        "getMilliseconds" => |args, _| match &args[0] {
            Value::Duration(duration) => Ok(Value::Int(
                i64::try_from(duration.as_millis()).unwrap_or(i64::MAX),
            )),
            _ => Ok(Value::Int(zoned(args)?.millisecond().into())),
        },
        _ => return None,
    })
}

/// Returns the timestamp in the time zone of the second argument, or in UTC.
fn zoned(args: &[Value]) -> Result<Zoned> {
    let Value::Timestamp(time) = &args[0] else {
        return Err(EvalError::no_such_overload());
    };
    let zone = match args.get(1) {
        None => TimeZone::UTC,
        Some(name) => zone(text(name)?)?,
    };
    Ok(time.to_zoned(zone))
}

/// Reads a time zone: a name of the IANA database, or an offset such as `-08:00`.
fn zone(name: &str) -> Result<TimeZone> {
    let unknown = || EvalError::new(format!("unknown time zone {name}"));
    let Some((hours, minutes)) = name.split_once(':') else {
        return match name {
            "" | "UTC" => Ok(TimeZone::UTC),
            name => TimeZone::get(name).map_err(|_| unknown()),
        };
    };
    let is_negative = hours.starts_with('-');
    let hours: i32 = hours.parse().map_err(|_| unknown())?;
    let minutes: i32 = minutes.parse().map_err(|_| unknown())?;
    let minutes = if is_negative { -minutes } else { minutes };
    Offset::from_seconds(hours * 3600 + minutes * 60)
        .map(TimeZone::fixed)
        .map_err(|_| unknown())
}
