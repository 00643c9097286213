//! The log records of decisions.

use std::time::SystemTime;

use serde_json::{Value, json};
use tollgate_otlp::message::{LogRecord, nanoseconds};
use tollgate_otlp::{Item, TraceContext};

use super::attributes;
use crate::decision::Decision;

/// A decision that waits to be exported.
pub(super) struct DecisionRecord {
    pub(super) decision: Box<Decision>,
    /// Whether names of objects and users are exported.
    pub(super) with_names: bool,
    /// The trace of the review, if it is traced.
    pub(super) context: Option<TraceContext>,
}

/// The kind of event.
const EVENT: &str = "tollgate.decision";
/// The members of a decision that name objects and users.
const NAMES: [&str; 3] = ["namespace", "name", "user"];

// === impl DecisionRecord ===

impl DecisionRecord {
    /// Returns the decision as `/decisions` shows it.
    fn body(&self) -> Value {
        let mut body = json!(*self.decision);
        if let Some(members) = body.as_object_mut().filter(|_| !self.with_names) {
            for name in NAMES {
                members.remove(name);
            }
        }
        body
    }
}

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
            body: Some(self.body().into()),
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
