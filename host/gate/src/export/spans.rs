//! The spans of a review.

use std::time::SystemTime;

use tollgate_admission::Endpoint;
use tollgate_admission::trace::ObservedCall;
use tollgate_otlp::message::{KeyValue, Span, SpanKind, Status, StatusCode, nanoseconds};
use tollgate_otlp::{Item, TraceContext};

use super::{attributes, identities};
use crate::decision::Decision;

/// Spans that wait to be exported.
pub(super) enum SpanItem {
    /// A review with its calls.
    Review(Box<ReviewSpans>),
    /// A call after the answer.
    Late(Box<LateSpan>),
}

/// A review that was answered.
pub(super) struct ReviewSpans {
    pub(super) context: TraceContext,
    pub(super) began: SystemTime,
    pub(super) ended: SystemTime,
    pub(super) endpoint: Endpoint,
    /// The answer, as a word from a fixed list.
    pub(super) reply: &'static str,
    /// None if there was no review to decide about.
    pub(super) decision: Option<Decision>,
    /// Whether names of objects, users and namespaces are exported.
    pub(super) with_names: bool,
    pub(super) calls: Vec<TracedCall>,
}

/// A call after the answer.
pub(super) struct LateSpan {
    pub(super) context: TraceContext,
    /// Whether names of objects, users and namespaces are exported.
    pub(super) with_names: bool,
    pub(super) call: TracedCall,
}

/// A call of a plugin, with the id of its span.
pub(super) struct TracedCall {
    pub(super) span_id: [u8; 8],
    pub(super) call: ObservedCall,
}

/// The flags of a span: sampled, and whether the parent is in another process is known.
const SAMPLED: u32 = 0x101;
/// The flag of a span whose parent is in another process.
const REMOTE_PARENT: u32 = 0x200;

// === impl SpanItem ===

impl Item for SpanItem {
    type Record = Span;

    fn count(&self) -> u64 {
        match self {
            Self::Review(review) => 1 + review.calls.len() as u64,
            Self::Late(_) => 1,
        }
    }

    fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::Review(review) => {
                let decision = review.decision.as_ref().map_or(0, Decision::bytes);
                size_of::<ReviewSpans>() + decision + size_of_val(&*review.calls)
            }
            Self::Late(late) => size_of_val(&**late),
        };
        bytes as u64
    }

    fn write(self, spans: &mut Vec<Span>) {
        match self {
            Self::Review(review) => {
                spans.push(review.span());
                let (context, decision) = (&review.context, review.decision.as_ref());
                let calls = review.calls.iter();
                spans.extend(calls.map(|call| call.span(context, decision, review.with_names)));
            }
            Self::Late(late) => {
                spans.push(late.call.span(&late.context, None, late.with_names));
            }
        }
    }
}

// === impl ReviewSpans ===

impl ReviewSpans {
    fn span(&self) -> Span {
        let mut attributes = match &self.decision {
            Some(decision) => attributes::of_decision(decision, self.with_names),
            None => vec![KeyValue::new(
                "tollgate.review.endpoint",
                self.endpoint.name(),
            )],
        };
        attributes.push(KeyValue::new("tollgate.review.reply", self.reply));
        let is_decided = self
            .decision
            .as_ref()
            .is_some_and(|decision| matches!(&*decision.verdict, "allowed" | "denied"));
        let remote = self.context.parent.map_or(0, |_| REMOTE_PARENT);
        Span {
            trace_id: self.context.trace_id.to_vec(),
            span_id: self.context.span_id.to_vec(),
            parent_span_id: self
                .context
                .parent
                .map(|parent| parent.to_vec())
                .unwrap_or_default(),
            name: format!("review {}", self.endpoint.name()),
            kind: SpanKind::Server.into(),
            start_time_unix_nano: nanoseconds(self.began),
            end_time_unix_nano: nanoseconds(self.ended),
            attributes,
            status: status(!is_decided),
            flags: SAMPLED | remote,
        }
    }
}

// === impl TracedCall ===

impl TracedCall {
    fn span(&self, context: &TraceContext, decision: Option<&Decision>, with_names: bool) -> Span {
        let call = &self.call;
        let called = decision.and_then(|decision| {
            let mut plugins = decision.plugins.iter();
            plugins.find(|called| called.name == call.plugin)
        });
        let ended = call.began.checked_add(call.duration);
        Span {
            trace_id: context.trace_id.to_vec(),
            span_id: self.span_id.to_vec(),
            parent_span_id: context.span_id.to_vec(),
            name: format!(
                "{} {}",
                call.phase.name(),
                identities::plugin(&call.plugin, with_names)
            ),
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: nanoseconds(call.began),
            end_time_unix_nano: nanoseconds(ended.unwrap_or(call.began)),
            attributes: attributes::of_call(call, called, with_names),
            status: status(call.fault.is_some()),
            flags: SAMPLED,
        }
    }
}

fn status(is_failure: bool) -> Option<Status> {
    is_failure.then(|| Status {
        code: StatusCode::Error.into(),
    })
}
