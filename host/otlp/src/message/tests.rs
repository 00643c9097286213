//! The encoding is compared with that of the package `opentelemetry-proto` 1.45.2 for Python, which Google's library
//! for protobuf encodes.

use serde_json::json;

use super::*;

/// An `ExportTraceServiceRequest` with one span.
const TRACE_REQUEST: &str = "0ace010a1c0a1a0a0c736572766963652e6e616d65120a0a08746f6c6c6761746512ad010a110a08746f6c6c67617465\
     1205312e322e331297010a100102030405060708090a0b0c0d0e0f10120801020304050607082208090a0b0c0d0e0f10\
     2a0f7265766965772076616c696461746530023901002a36fe9c97174121a13136fe9c97174a0b0a047465787412030a\
     01614a0a0a04666c6167120210004a140a05636f756e74120b18fbffffffffffffffff014a110a047061727412092100\
     0000000000e03f7a021802850101030000";
/// An `ExportLogsServiceRequest` with one record.
const LOGS_REQUEST: &str = "0ac7010a1c0a1a0a0c736572766963652e6e616d65120a0a08746f6c6c6761746512a6010a110a08746f6c6c67617465\
     1205312e322e331290010901002a36fe9c9717100d1a045741524e2a2432220a160a07706c7567696e73120b2a090a03\
     0a01610a0210010a080a046e6f6e651200321a0a13746f6c6c676174652e7265766965772e75696412030a0175450100\
     00004a100102030405060708090a0b0c0d0e0f10520801020304050607085921a13136fe9c97176211746f6c6c676174\
     652e6465636973696f6e";
/// An `ExportTraceServiceResponse` and an `ExportLogsServiceResponse`: 3 rejected, because "too old".
const PARTIAL_SUCCESS: &str = "0a0b08031207746f6f206f6c64";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "tollgate".to_owned(),
        version: "1.2.3".to_owned(),
    }
}

fn resource() -> Resource {
    Resource::new(&[("service.name", "tollgate")])
}

#[test]
fn encodes_spans_as_the_protocol_does() {
    let span = Span {
        trace_id: (1..=16).collect(),
        span_id: (1..=8).collect(),
        parent_span_id: (9..=16).collect(),
        name: "review validate".to_owned(),
        kind: SpanKind::Server.into(),
        start_time_unix_nano: 1_700_000_000_000_000_001,
        end_time_unix_nano: 1_700_000_000_000_500_001,
        attributes: vec![
            KeyValue::new("text", "a"),
            KeyValue::new("flag", false),
            KeyValue::new("count", json!(-5)),
            KeyValue::new("part", 0.5),
        ],
        status: Some(Status {
            code: StatusCode::Error.into(),
        }),
        flags: 0x301,
    };
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource()),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope()),
                spans: vec![span.clone()],
            }],
        }],
    };
    assert_eq!(hex(&request.encode_to_vec()), TRACE_REQUEST);
    let encoded = Span::request(&resource(), vec![span]);
    let mut decoded = ExportTraceServiceRequest::decode(&*encoded).unwrap();
    let own = decoded.resource_spans[0].scope_spans[0].scope.as_mut();
    own.unwrap().version = scope().version;
    assert_eq!(decoded, request);
}

#[test]
fn encodes_log_records_as_the_protocol_does() {
    let record = LogRecord {
        time_unix_nano: 1_700_000_000_000_000_001,
        severity_number: 13,
        severity_text: "WARN".to_owned(),
        body: Some(json!({ "plugins": ["a", true], "none": null }).into()),
        attributes: vec![KeyValue::new("tollgate.review.uid", "u")],
        flags: 1,
        trace_id: (1..=16).collect(),
        span_id: (1..=8).collect(),
        observed_time_unix_nano: 1_700_000_000_000_500_001,
        event_name: "tollgate.decision".to_owned(),
    };
    let mut record = record;
    sort(&mut record);
    let request = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(resource()),
            scope_logs: vec![ScopeLogs {
                scope: Some(scope()),
                log_records: vec![record],
            }],
        }],
    };
    assert_eq!(hex(&request.encode_to_vec()), LOGS_REQUEST);
}

/// Puts the members of the body into the order of the constant: that of a JSON object depends on features of the build.
fn sort(record: &mut LogRecord) {
    let content = record.body.as_mut().and_then(|body| body.content.as_mut());
    let Some(Content::Object(object)) = content else {
        panic!("the body is an object");
    };
    object.values.sort_by(|one, other| other.key.cmp(&one.key));
}

#[test]
fn decodes_partial_success() {
    let bytes: Vec<u8> = (0..PARTIAL_SUCCESS.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&PARTIAL_SUCCESS[at..at + 2], 16).unwrap())
        .collect();
    let answer = ExportServiceResponse::decode(&*bytes).unwrap();
    let partial = answer.partial_success.unwrap();
    assert_eq!((partial.rejected, &*partial.error_message), (3, "too old"));
}

#[test]
fn numbers_of_json_keep_their_type() {
    let content = |value: serde_json::Value| AnyValue::from(value).content.unwrap();
    assert_eq!(content(json!(3)), Content::Integer(3));
    assert_eq!(content(json!(-3)), Content::Integer(-3));
    assert_eq!(content(json!(u64::MAX)), Content::Integer(i64::MAX));
    assert_eq!(content(json!(0.25)), Content::Number(0.25));
    assert_eq!(AnyValue::from(json!(null)).content, None);
}
