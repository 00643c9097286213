//! The exceptions of a plugin, as `/plugins` and `/exceptions` show them.

use std::time::SystemTime;

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tollgate_config::Exception;
use tollgate_telemetry::metrics::{ExceptionUses, PluginMetrics};

/// Shows exceptions with the configuration's keys, whether they are still active, and how this process used them.
pub(super) fn status(exceptions: &[Exception], metrics: &PluginMetrics, now: SystemTime) -> Value {
    let all = exceptions.iter().enumerate();
    let all = all.map(|(index, exception)| {
        let mut status = of(exception, now);
        if let Some(uses) = metrics.exception_uses(&exception.label(index)) {
            status["uses"] = of_uses(&uses, now);
        }
        status
    });
    all.collect()
}

fn of(exception: &Exception, now: SystemTime) -> Value {
    let state = if exception.is_active(now) {
        "active"
    } else {
        "expired"
    };
    let mut status = json!({
        "state": state,
        "until": exception.until(),
        "reason": exception.reason(),
    });
    if let Some(name) = &exception.name {
        status["name"] = (**name).into();
    }
    if let Some(namespace) = &exception.confined_to {
        status["confinedTo"] = (**namespace).into();
    }
    for (key, list) in exception.lists() {
        status[key] = list.iter().map(|name| &**name).collect();
    }
    status
}

fn of_uses(uses: &ExceptionUses, now: SystemTime) -> Value {
    let mut status = json!({ "count": uses.count, "since": timestamp(uses.since) });
    if let Some(last) = uses.last {
        status["last"] = timestamp(last).into();
    }
    if let Some(mean) = uses.per_day(now) {
        status["perDay"] = mean.into();
    }
    status
}

/// Formats a time as RFC 3339, to the second.
fn timestamp(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    let time = time.replace_nanosecond(0).unwrap_or(time);
    time.format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_admission::Phase;
    use tollgate_config::SharedException;
    use tollgate_telemetry::metrics::Metrics;

    use super::*;

    #[test]
    fn shows_uses_and_end_of_each_exception() {
        let exception = |expires: &str| {
            let spec = json!({
                "plugins": ["labels"], "names": ["web"], "reason": "legacy", "expires": expires,
            });
            SharedException::read(&spec).expect("valid").exception
        };
        let metrics = Metrics::new();
        let plugin = metrics.plugin("labels");
        let now = SystemTime::now();
        plugin.expect_exception("exceptions[0]");
        plugin.excepted(Phase::Validate, "exceptions[0]", now);
        let all = [exception("never"), exception("2020-01-01")];
        let shown = status(&all, &plugin, now + Duration::from_secs(2 * 24 * 60 * 60));
        let used = &shown[0];
        assert_eq!(
            (&used["state"], &used["names"]),
            (&json!("active"), &json!(["web"]))
        );
        assert_eq!(
            (&used["uses"]["count"], &used["uses"]["perDay"]),
            (&json!(1), &json!(0.5))
        );
        assert!(used["uses"]["last"].is_string(), "{used}");
        assert_eq!(
            (&shown[1]["state"], &shown[1]["until"]),
            (&json!("expired"), &json!("2020-01-01"))
        );
        assert!(shown[1].get("uses").is_none(), "it has no counter: {shown}");
        let first_day = status(&all, &plugin, now);
        assert!(first_day[0]["uses"].get("perDay").is_none(), "{first_day}");
    }
}
