//! All attributes of spans and log records.

use tollgate_otlp::message::KeyValue;

use super::identities;
use crate::decision::{Called, Decision};
use tollgate_admission::trace::ObservedCall;

/// The attributes of a review's span and of a decision's log record.
pub const REVIEW_ATTRIBUTES: [&str; 17] = [
    "tollgate.review.uid",
    "tollgate.review.endpoint",
    "tollgate.review.plugin",
    "tollgate.review.operation",
    "tollgate.review.group",
    "tollgate.review.version",
    "tollgate.review.kind",
    "tollgate.review.resource",
    "tollgate.review.subresource",
    "tollgate.review.dry_run",
    "tollgate.review.namespace",
    "tollgate.review.name",
    "tollgate.review.user",
    "tollgate.review.verdict",
    "tollgate.review.code",
    "tollgate.review.patch_operations",
    "tollgate.review.reply",
];

/// The attributes of the span of a plugin's call.
pub const PLUGIN_ATTRIBUTES: [&str; 10] = [
    "tollgate.plugin.name",
    "tollgate.plugin.digest",
    "tollgate.plugin.mode",
    "tollgate.plugin.failure_policy",
    "tollgate.plugin.phase",
    "tollgate.plugin.rule",
    "tollgate.plugin.ended",
    "tollgate.plugin.fault",
    "tollgate.plugin.fuel",
    "tollgate.plugin.cpu_milliseconds",
];

/// Returns the attributes of a review. Names of objects, users and namespaces are in it only `with_names`.
pub(super) fn of_decision(decision: &Decision, with_names: bool) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new("tollgate.review.uid", &*decision.uid),
        KeyValue::new("tollgate.review.endpoint", &*decision.endpoint),
        KeyValue::new("tollgate.review.operation", &*decision.operation),
        KeyValue::new("tollgate.review.group", &*decision.group),
        KeyValue::new("tollgate.review.version", &*decision.version),
        KeyValue::new("tollgate.review.kind", &*decision.kind),
        KeyValue::new("tollgate.review.resource", &*decision.resource),
        KeyValue::new("tollgate.review.dry_run", decision.dry_run),
        KeyValue::new("tollgate.review.verdict", &*decision.verdict),
        KeyValue::new(
            "tollgate.review.patch_operations",
            decision.patch_operations as u64,
        ),
    ];
    let mut text = |key: &str, value: Option<&str>| {
        let value = value.filter(|value| !value.is_empty());
        attributes.extend(value.map(|value| KeyValue::new(key, value)));
    };
    let only = decision.only.as_deref();
    let only = only.map(|name| identities::plugin(name, with_names));
    text("tollgate.review.plugin", only);
    text(
        "tollgate.review.subresource",
        decision.sub_resource.as_deref(),
    );
    if with_names {
        text("tollgate.review.namespace", decision.namespace.as_deref());
        text("tollgate.review.name", Some(&decision.name));
        text("tollgate.review.user", Some(&decision.user));
    }
    if let Some(code) = decision.code {
        attributes.push(KeyValue::new("tollgate.review.code", u64::from(code)));
    }
    attributes
}

/// Returns the attributes of a call. `called` is the part of the plugin in the decision, if the decision is known.
pub(super) fn of_call(
    call: &ObservedCall,
    called: Option<&Called>,
    with_names: bool,
) -> Vec<KeyValue> {
    let name = identities::plugin(&call.plugin, with_names);
    let mut attributes = vec![
        KeyValue::new("tollgate.plugin.name", name),
        KeyValue::new("tollgate.plugin.mode", call.mode),
        KeyValue::new("tollgate.plugin.failure_policy", call.failure_policy),
        KeyValue::new("tollgate.plugin.phase", call.phase.name()),
        KeyValue::new("tollgate.plugin.fuel", call.fuel),
        KeyValue::new(
            "tollgate.plugin.cpu_milliseconds",
            call.cpu_time.as_secs_f64() * 1000.0,
        ),
    ];
    let mut text = |key: &str, value: Option<&str>| {
        attributes.extend(value.map(|value| KeyValue::new(key, value)));
    };
    text("tollgate.plugin.digest", call.digest.as_deref());
    text("tollgate.plugin.fault", call.fault);
    text("tollgate.plugin.ended", called.map(|called| &*called.ended));
    if let Some(rule) = called.and_then(|called| called.rule) {
        attributes.push(KeyValue::new("tollgate.plugin.rule", rule as u64));
    }
    attributes
}
