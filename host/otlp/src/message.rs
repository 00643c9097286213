//! The messages of OTLP that Tollgate uses, as `opentelemetry-proto` defines them (`opentelemetry/proto/…/v1/*.proto`).
//!
//! The numbers are part of the protocol. A test compares the encoding with that of the official package.

use std::time::{SystemTime, UNIX_EPOCH};

use prost::Message;
use serde_json::Value;

/// The parts of a signal that the exporter needs.
pub trait Record: Send + Sized + 'static {
    /// The word for metrics and log lines.
    const SIGNAL: &'static str;

    /// Encodes the request that exports these records.
    fn request(resource: &Resource, records: Vec<Self>) -> Vec<u8>;
}

/// The request that exports spans.
#[derive(Clone, PartialEq, Message)]
pub struct ExportTraceServiceRequest {
    /// The spans, by resource.
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// The spans of one resource.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceSpans {
    /// The process.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    /// The spans, by scope.
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

/// The spans of one scope.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeSpans {
    /// The part of the program.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    /// The spans.
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

/// One span.
#[derive(Clone, PartialEq, Message)]
pub struct Span {
    /// The id of the trace, 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// The id of the span, 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// The id of the parent, 8 bytes, or empty.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    /// The name, from a short list.
    #[prost(string, tag = "5")]
    pub name: String,
    /// The kind.
    #[prost(enumeration = "SpanKind", tag = "6")]
    pub kind: i32,
    /// The start.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// The end.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    /// The attributes.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    /// Whether the span is about a failure.
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
    /// The flags of W3C Trace Context, and whether the parent is in another process.
    #[prost(fixed32, tag = "16")]
    pub flags: u32,
}

/// The role of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum SpanKind {
    /// Not given.
    Unspecified = 0,
    /// Work inside the process.
    Internal = 1,
    /// The answer to a request of another process.
    Server = 2,
}

/// The result of a span.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// The code.
    #[prost(enumeration = "StatusCode", tag = "3")]
    pub code: i32,
}

/// The code of a span's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum StatusCode {
    /// Not given.
    Unset = 0,
    /// Success.
    Ok = 1,
    /// A failure.
    Error = 2,
}

/// The request that exports log records.
#[derive(Clone, PartialEq, Message)]
pub struct ExportLogsServiceRequest {
    /// The records, by resource.
    #[prost(message, repeated, tag = "1")]
    pub resource_logs: Vec<ResourceLogs>,
}

/// The records of one resource.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceLogs {
    /// The process.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    /// The records, by scope.
    #[prost(message, repeated, tag = "2")]
    pub scope_logs: Vec<ScopeLogs>,
}

/// The records of one scope.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeLogs {
    /// The part of the program.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    /// The records.
    #[prost(message, repeated, tag = "2")]
    pub log_records: Vec<LogRecord>,
}

/// One log record.
#[derive(Clone, PartialEq, Message)]
pub struct LogRecord {
    /// The time of the event.
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    /// The severity: 9 for information, 13 for warnings, 17 for errors.
    #[prost(int32, tag = "2")]
    pub severity_number: i32,
    /// The severity as a word.
    #[prost(string, tag = "3")]
    pub severity_text: String,
    /// The content.
    #[prost(message, optional, tag = "5")]
    pub body: Option<AnyValue>,
    /// The attributes.
    #[prost(message, repeated, tag = "6")]
    pub attributes: Vec<KeyValue>,
    /// The flags of the trace.
    #[prost(fixed32, tag = "8")]
    pub flags: u32,
    /// The trace that the event belongs to, or empty.
    #[prost(bytes = "vec", tag = "9")]
    pub trace_id: Vec<u8>,
    /// The span that the event belongs to, or empty.
    #[prost(bytes = "vec", tag = "10")]
    pub span_id: Vec<u8>,
    /// The time at which the record was made.
    #[prost(fixed64, tag = "11")]
    pub observed_time_unix_nano: u64,
    /// The kind of event.
    #[prost(string, tag = "12")]
    pub event_name: String,
}

/// The process that exports.
#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    /// The attributes.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// The part of the program that makes records.
#[derive(Clone, PartialEq, Message)]
pub struct InstrumentationScope {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The version.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// An attribute.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    /// The key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// A value of any type. None is the null of JSON.
#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    /// The value.
    #[prost(oneof = "Content", tags = "1, 2, 3, 4, 5, 6")]
    pub content: Option<Content>,
}

/// The types of a value.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Content {
    /// Text.
    #[prost(string, tag = "1")]
    Text(String),
    /// A boolean.
    #[prost(bool, tag = "2")]
    Boolean(bool),
    /// A whole number.
    #[prost(int64, tag = "3")]
    Integer(i64),
    /// A number.
    #[prost(double, tag = "4")]
    Number(f64),
    /// A list.
    #[prost(message, tag = "5")]
    List(ArrayValue),
    /// An object.
    #[prost(message, tag = "6")]
    Object(KeyValueList),
}

/// A list of values.
#[derive(Clone, PartialEq, Message)]
pub struct ArrayValue {
    /// The elements.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<AnyValue>,
}

/// An object.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValueList {
    /// The members.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<KeyValue>,
}

/// The answer of a collector to either request. The two messages have the same numbers.
#[derive(Clone, PartialEq, Message)]
pub struct ExportServiceResponse {
    /// The part that the collector rejected, if it rejected any.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// The part of a request that a collector rejected.
#[derive(Clone, PartialEq, Message)]
pub struct PartialSuccess {
    /// The number of spans or records.
    #[prost(int64, tag = "1")]
    pub rejected: i64,
    /// The reason, or a warning if nothing was rejected.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// The name of the scope.
const SCOPE: &str = "tollgate";

// === impl Span ===

impl Record for Span {
    const SIGNAL: &'static str = "traces";

    fn request(resource: &Resource, spans: Vec<Self>) -> Vec<u8> {
        let request = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(resource.clone()),
                scope_spans: vec![ScopeSpans {
                    scope: Some(InstrumentationScope::own()),
                    spans,
                }],
            }],
        };
        request.encode_to_vec()
    }
}

// === impl LogRecord ===

impl Record for LogRecord {
    const SIGNAL: &'static str = "decisions";

    fn request(resource: &Resource, log_records: Vec<Self>) -> Vec<u8> {
        let request = ExportLogsServiceRequest {
            resource_logs: vec![ResourceLogs {
                resource: Some(resource.clone()),
                scope_logs: vec![ScopeLogs {
                    scope: Some(InstrumentationScope::own()),
                    log_records,
                }],
            }],
        };
        request.encode_to_vec()
    }
}

// === impl Resource ===

impl Resource {
    /// Creates a resource from keys and texts.
    #[must_use]
    pub fn new(attributes: &[(&str, &str)]) -> Self {
        let attributes = attributes.iter();
        let attributes = attributes.map(|(key, value)| KeyValue::new(key, *value));
        Self {
            attributes: attributes.collect(),
        }
    }
}

// === impl InstrumentationScope ===

impl InstrumentationScope {
    fn own() -> Self {
        Self {
            name: SCOPE.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

// === impl KeyValue ===

impl KeyValue {
    /// Creates an attribute.
    #[must_use]
    pub fn new(key: &str, value: impl Into<AnyValue>) -> Self {
        Self {
            key: key.to_owned(),
            value: Some(value.into()),
        }
    }
}

// === impl AnyValue ===

impl From<Content> for AnyValue {
    fn from(content: Content) -> Self {
        Self {
            content: Some(content),
        }
    }
}

impl From<&str> for AnyValue {
    fn from(text: &str) -> Self {
        Content::Text(text.to_owned()).into()
    }
}

impl From<String> for AnyValue {
    fn from(text: String) -> Self {
        Content::Text(text).into()
    }
}

impl From<bool> for AnyValue {
    fn from(value: bool) -> Self {
        Content::Boolean(value).into()
    }
}

impl From<f64> for AnyValue {
    fn from(value: f64) -> Self {
        Content::Number(value).into()
    }
}

impl From<u64> for AnyValue {
    fn from(value: u64) -> Self {
        Content::Integer(i64::try_from(value).unwrap_or(i64::MAX)).into()
    }
}

impl From<Value> for AnyValue {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self { content: None },
            Value::Bool(value) => value.into(),
            Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(value), _) => Content::Integer(value).into(),
                (None, Some(value)) => value.into(),
                (None, None) => number.as_f64().unwrap_or_default().into(),
            },
            Value::String(text) => text.into(),
            Value::Array(elements) => {
                let values = elements.into_iter().map(Self::from).collect();
                Content::List(ArrayValue { values }).into()
            }
            Value::Object(members) => {
                let values = members
                    .into_iter()
                    .map(|(key, value)| KeyValue {
                        key,
                        value: Some(value.into()),
                    })
                    .collect();
                Content::Object(KeyValueList { values }).into()
            }
        }
    }
}

/// Returns nanoseconds since 1970.
#[must_use]
pub fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
