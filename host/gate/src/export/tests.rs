//! The spans and records are made of decisions that hold a marker wherever an object or a plugin's text could be.

use std::collections::BTreeSet;

use serde_json::json;
use tollgate_admission::Phase;
use tollgate_admission::review::decode::decode;
use tollgate_config::{FailurePolicy, Mode, PluginName};
use tollgate_otlp::Item as _;
use tollgate_otlp::message::{AnyValue, Content, KeyValue, LogRecord, Span};

use super::*;
use crate::decision::{Called, Conflict, NotCalled};
use crate::pipeline::outcome::{Ended, FaultReport, Report};

const MARKER: &str = "marker";

fn report(plugin: &str, ended: Ended) -> Report {
    Report {
        plugin: PluginName::parse_any(plugin).unwrap(),
        mode: Mode::Enforce,
        failure_policy: FailurePolicy::Fail,
        ended,
        warnings: vec![MARKER.to_owned()],
        annotations: vec![(MARKER.to_owned(), MARKER.to_owned())],
        changed: Vec::new(),
        conflicts: Vec::new(),
        existing: None,
        reinvoked: None,
        unsettled: Vec::new(),
        cost: Default::default(),
        digest: Some("sha256:00".into()),
        rollout: None,
        template: None,
        members: Vec::new(),
    }
}

/// A denial of a Secret by one plugin, and a fault of another one.
fn decision() -> Decision {
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u-1", "operation": "CREATE", "name": "web", "namespace": "shop",
            "kind": {"group": "", "version": "v1", "kind": "Secret"},
            "resource": {"group": "", "version": "v1", "resource": "secrets"},
            "userInfo": {"username": "jane", "extra": {"token": [MARKER]}},
            "object": {"data": {"password": MARKER}},
        },
    });
    let request = decode(review.to_string().as_bytes(), 32).unwrap().request;
    let denial = tollgate_admission::Denial {
        message: MARKER.to_owned(),
        reason: Some(MARKER.to_owned()),
        ..Default::default()
    };
    let fault = FaultReport {
        kind: "trap",
        message: format!("the plugin aborted: {MARKER}"),
    };
    let mut decision = Decision::about(&request, Endpoint::Validate, None);
    decision.verdict = "denied".into();
    decision.code = Some(403);
    decision.plugins = vec![
        Called::of(&report("labels", Ended::Denied(denial)), Some(2)),
        Called::of(&report("images", Ended::Faulted(fault)), None),
    ];
    decision
}

/// A decision of plugins of the namespace, with its name wherever it can be.
fn decision_of_tenants() -> Decision {
    let mut decision = decision();
    decision.only = Some("shop/guard".to_owned());
    let fault = FaultReport {
        kind: "conflict",
        message: "the plugin changes a value that shop/first wrote".to_owned(),
    };
    let mut conflicting = Called::of(&report("shop/guard", Ended::Faulted(fault)), None);
    conflicting.conflicts = vec![Conflict {
        pointer: "/metadata/labels/a".to_owned(),
        with: "shop/first".to_owned(),
    }];
    let excepted = Ended::Excepted("old pods".into());
    let excepted = Called::of(&report("shop/first", excepted), None);
    decision.plugins.extend([conflicting, excepted]);
    decision.not_called.push(NotCalled {
        name: "shop/last".to_owned(),
        why: "no rule matches".into(),
    });
    decision
}

fn call(plugin: &str, fault: Option<&'static str>) -> TracedCall {
    TracedCall {
        span_id: [4; 8],
        call: ObservedCall {
            plugin: plugin.into(),
            digest: Some("sha256:00".into()),
            mode: "enforce",
            failure_policy: "Fail",
            phase: Phase::Validate,
            began: SystemTime::UNIX_EPOCH + Duration::from_secs(1),
            duration: Duration::from_millis(3),
            cpu_time: Duration::from_millis(2),
            fuel: 7,
            fault,
        },
    }
}

fn context() -> TraceContext {
    TraceContext {
        trace_id: [1; 16],
        span_id: [2; 8],
        parent: Some([3; 8]),
    }
}

fn spans(with_names: bool) -> Vec<Span> {
    let calls = vec![call("labels", None), call("images", Some("trap"))];
    spans_of(decision(), calls, with_names)
}

fn spans_of(decision: Decision, calls: Vec<TracedCall>, with_names: bool) -> Vec<Span> {
    let count = 1 + calls.len() as u64;
    let review = ReviewSpans {
        context: context(),
        began: SystemTime::UNIX_EPOCH,
        ended: SystemTime::UNIX_EPOCH + Duration::from_secs(2),
        endpoint: Endpoint::Validate,
        reply: "review",
        decision: Some(decision),
        with_names,
        calls,
    };
    let item = SpanItem::Review(Box::new(review));
    assert_eq!(item.count(), count);
    assert!(item.bytes() > 500);
    let mut spans = Vec::new();
    item.write(&mut spans);
    spans
}

fn record(with_names: bool) -> LogRecord {
    record_of(decision(), with_names)
}

fn record_of(decision: Decision, with_names: bool) -> LogRecord {
    let record = DecisionRecord {
        decision: Box::new(decision),
        with_names,
        context: Some(context()),
    };
    assert!(record.bytes() > 500);
    let mut records = Vec::new();
    record.write(&mut records);
    records.remove(0)
}

fn keys(attributes: &[KeyValue]) -> BTreeSet<&str> {
    attributes.iter().map(|attribute| &*attribute.key).collect()
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.content.as_ref()? {
        Content::Text(text) => Some(text),
        _ => None,
    }
}

#[test]
fn review_has_span_and_so_has_each_call() {
    let spans = spans(true);
    let [review, labels, images] = &spans[..] else {
        panic!("three spans: {spans:#?}");
    };
    assert_eq!(review.name, "review validate");
    assert_eq!(review.parent_span_id, [3; 8]);
    assert_eq!(review.flags, 0x301);
    assert_eq!(review.status, None, "a denial is no failure");
    assert_eq!(
        text(&review.attributes, "tollgate.review.verdict"),
        Some("denied")
    );
    assert_eq!(labels.name, "validate labels");
    for call in [labels, images] {
        assert_eq!(call.trace_id, review.trace_id);
        assert_eq!(call.parent_span_id, review.span_id);
        assert_eq!(call.start_time_unix_nano, 1_000_000_000);
        assert_eq!(call.end_time_unix_nano, 1_003_000_000);
    }
    assert_eq!(
        text(&labels.attributes, "tollgate.plugin.ended"),
        Some("denied")
    );
    assert_eq!(
        text(&images.attributes, "tollgate.plugin.fault"),
        Some("trap")
    );
    assert_eq!(images.status.as_ref().map(|status| status.code), Some(2));
    assert_eq!(labels.status, None);
}

#[test]
fn attributes_are_on_the_list_and_hold_no_content() {
    let spans = spans(true);
    let record = record(true);
    let of_reviews: BTreeSet<&str> = REVIEW_ATTRIBUTES.into();
    let of_plugins: BTreeSet<&str> = PLUGIN_ATTRIBUTES.into();
    assert!(keys(&spans[0].attributes).is_subset(&of_reviews));
    assert!(keys(&record.attributes).is_subset(&of_reviews));
    for call in &spans[1..] {
        assert!(keys(&call.attributes).is_subset(&of_plugins));
    }
    let all = format!("{spans:?}{record:?}");
    assert!(!all.contains(MARKER), "{all}");
}

#[test]
fn record_names_object_user_and_trace() {
    let record = record(true);
    assert_eq!(
        (record.severity_number, &*record.severity_text),
        (13, "WARN")
    );
    assert_eq!(record.event_name, "tollgate.decision");
    assert_eq!(record.trace_id, [1; 16]);
    for (key, value) in [
        ("tollgate.review.uid", "u-1"),
        ("tollgate.review.namespace", "shop"),
        ("tollgate.review.name", "web"),
        ("tollgate.review.user", "jane"),
    ] {
        assert_eq!(text(&record.attributes, key), Some(value), "{key}");
    }
    let Some(AnyValue {
        content: Some(Content::Object(body)),
    }) = &record.body
    else {
        panic!("the body is the decision: {record:#?}");
    };
    assert!(body.values.iter().any(|member| member.key == "plugins"));
}

#[test]
fn names_are_left_out_where_the_log_leaves_them_out() {
    let (spans, record) = (spans(false), record(false));
    let all = format!("{spans:?}{record:?}");
    for name in ["shop", "jane", "\"web\""] {
        assert!(!all.contains(name), "{name} is in {all}");
    }
    assert!(all.contains("u-1"));
    assert!(!names_are_allowed(&PluginSet::default()));
}

#[test]
fn namespaces_in_names_of_plugins_are_left_out_with_the_other_names() {
    let exported = |with_names| {
        let calls = vec![call("shop/guard", None), call("guard", Some("trap"))];
        let spans = spans_of(decision_of_tenants(), calls, with_names);
        let late = late("shop/guard", with_names);
        (spans, late, record_of(decision_of_tenants(), with_names))
    };
    let all = format!("{:?}", exported(true));
    for name in ["shop/guard", "shop/first", "shop/last"] {
        assert!(all.contains(name), "{name} is not in {all}");
    }
    let (spans, late, record) = exported(false);
    let all = format!("{spans:?}{late:?}{record:?}");
    assert!(!all.contains("shop"), "the namespace is in {all}");
    for name in ["guard", "first", "old pods", "last"] {
        assert!(all.contains(name), "{name} is not in {all}");
    }
    assert_eq!(spans[1].name, "validate guard");
    // The call belongs to the plugin of the namespace, and not to one of the cluster with the same name.
    let ended = |span: &Span| text(&span.attributes, "tollgate.plugin.ended").map(str::to_owned);
    assert_eq!(ended(&spans[1]).as_deref(), Some("fault"));
    assert_eq!(ended(&spans[2]), None);
}

/// The span of a call after the answer.
fn late(plugin: &str, with_names: bool) -> Vec<Span> {
    let late = SpanItem::Late(Box::new(LateSpan {
        context: context(),
        with_names,
        call: call(plugin, None),
    }));
    assert_eq!(late.count(), 1);
    let mut spans = Vec::new();
    late.write(&mut spans);
    spans
}

#[test]
fn calls_after_the_answer_are_exported_alone() {
    let spans = late("labels", true);
    assert_eq!(spans[0].parent_span_id, [2; 8]);
    assert_eq!(spans[0].trace_id, [1; 16]);
    assert_eq!(text(&spans[0].attributes, "tollgate.plugin.ended"), None);
}
