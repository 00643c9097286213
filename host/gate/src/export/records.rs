//! The log records of decisions.

use std::time::SystemTime;

use tollgate_otlp::message::{LogRecord, nanoseconds};
use tollgate_otlp::{Item, TraceContext};

use super::{attributes, identities};
use crate::decision::Decision;

/// A decision that waits to be exported.
pub(super) struct DecisionRecord {
    pub(super) decision: Box<Decision>,
    /// Whether names of objects, users and namespaces are exported.
    pub(super) with_names: bool,
    /// The trace of the review, if it is traced.
    pub(super) context: Option<TraceContext>,
}

/// The kind of event.
const EVENT: &str = "tollgate.decision";
// === impl DecisionRecord ===

impl Item for DecisionRecord {
    type Record = LogRecord;

    fn count(&self) -> u64 {
        1
    }

    fn bytes(&self) -> u64 {
        (size_of::<Self>() + self.decision.bytes()) as u64
    }

    fn write(self, records: &mut Vec<LogRecord>) {
        let (severity_number, severity) = match &*self.decision.verdict {
            "allowed" => (9, "INFO"),
            "denied" => (13, "WARN"),
            _ => (17, "ERROR"),
        };
        let context = self.context.as_ref();
        records.push(LogRecord {
            time_unix_nano: nanoseconds(self.decision.time),
            observed_time_unix_nano: nanoseconds(SystemTime::now()),
            severity_number,
            severity_text: severity.to_owned(),
            body: Some(identities::document(&self.decision, self.with_names).into()),
            attributes: attributes::of_decision(&self.decision, self.with_names),
            flags: context.map_or(0, |_| 1),
            trace_id: context
                .map(|context| context.trace_id.to_vec())
                .unwrap_or_default(),
            span_id: context
                .map(|context| context.span_id.to_vec())
                .unwrap_or_default(),
            event_name: EVENT.to_owned(),
        });
    }
}
