//! Writes one JSON object per event: time, level, the event's fields at the top level, target.
//!
//! The formatter of `tracing-subscriber` also writes `log.file` and `log.module_path` for records of the `log` crate.
//! These are paths on the machine that built a dependency, so they do not help an operator.

use std::error::Error;
use std::fmt;

use serde::Serializer as _;
use serde::ser::SerializeMap;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// A formatter that writes events as JSON.
pub(super) struct JsonLines;

/// A visitor that writes the fields of one event into an object.
struct Fields<'m, M: SerializeMap> {
    map: &'m mut M,
    /// The target of a record from the `log` crate.
    target: Option<String>,
    result: Result<(), M::Error>,
}

/// Prefix of the extra fields in a record of the `log` crate.
const LOG_PREFIX: &str = "log.";
const LOG_TARGET: &str = "log.target";

// === impl JsonLines ===

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        let mut line = Vec::with_capacity(256);
        write_event(&mut line, &timestamp, event).map_err(|_| fmt::Error)?;
        let line = String::from_utf8(line).map_err(|_| fmt::Error)?;
        writer.write_str(&line)?;
        writer.write_char('\n')
    }
}

fn write_event(line: &mut Vec<u8>, timestamp: &str, event: &Event<'_>) -> serde_json::Result<()> {
    let mut serializer = serde_json::Serializer::new(line);
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("timestamp", timestamp)?;
    map.serialize_entry("level", event.metadata().level().as_str())?;
    let mut fields = Fields {
        map: &mut map,
        target: None,
        result: Ok(()),
    };
    event.record(&mut fields);
    let Fields { target, result, .. } = fields;
    result?;
    let own = event.metadata().target();
    map.serialize_entry("target", target.as_deref().unwrap_or(own))?;
    map.end()
}

// === impl Fields ===

impl<M: SerializeMap> Fields<'_, M> {
    fn write(&mut self, field: &Field, value: &(impl serde::Serialize + ?Sized)) {
        if self.result.is_ok() && !field.name().starts_with(LOG_PREFIX) {
            self.result = self.map.serialize_entry(field.name(), value);
        }
    }
}

impl<M: SerializeMap> Visit for Fields<'_, M> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.write(field, &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.write(field, &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.write(field, &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.write(field, &value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == LOG_TARGET {
            self.target = Some(value.to_owned());
        }
        self.write(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.write(field, &value.to_string());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.write(field, &format!("{value:?}"));
    }
}
