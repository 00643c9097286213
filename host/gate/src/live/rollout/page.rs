//! The page `/rollouts`: names, numbers and reasons, and nothing of an object.

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tollgate_config::PluginName;
use tollgate_rollout::{Change, Phase, Wait};

use super::running::Running;
use crate::plugin::Plugin;

/// The entry of one rollout.
pub(super) fn of(name: &PluginName, running: &Running) -> Value {
    let steps: Vec<String> = running.plan.steps.iter().map(ToString::to_string).collect();
    let mut page = json!({
        "plugin": name.as_str(),
        "steps": steps,
        "gates": running.plan.gates.to_string(),
        "onFailure": running.plan.on_failure.as_str(),
        "old": identity(&running.old),
    });
    if let Some(new) = &running.new {
        page["new"] = identity(new);
    }
    if let Some(blocked) = &running.blocked {
        page["blocked"] = blocked.as_str().into();
    }
    if let Some(problem) = &running.file_problem {
        page["fileProblem"] = problem.as_str().into();
    }
    if running.is_common {
        page["decidedBy"] = "leader".into();
    }
    let Some(state) = running.seen() else {
        page["phase"] = "waiting".into();
        if running.is_common && running.blocked.is_none() {
            page["waits"] = "waits for the leader of the replicas to begin the rollout".into();
        }
        return page;
    };
    page["identity"] = state.identity.as_str().into();
    page["phase"] = state.phase.as_str().into();
    page["step"] = (state.step + 1).into();
    page["run"] = state.run.into();
    page["startedAt"] = timestamp(state.started_at).into();
    page["stepSince"] = timestamp(state.step_since).into();
    page["observed"] = json!({
        "reviews": state.observed.reviews,
        "newDenials": state.observed.new_denials,
        "faults": state.observed.faults,
        "meanMicrosecondsOfNew": state.observed.new_time.value(),
        "meanMicrosecondsOfOld": state.observed.old_time.value(),
    });
    // The last decision may be older than the phase.
    match state.phase {
        Phase::Running => page["waits"] = running.wait.to_string().into(),
        Phase::Stopped => page["waits"] = Wait::Operator.to_string().into(),
        Phase::Promoted if !running.is_loaded() => {
            page["waits"] = "waits for the new version, which is not loaded: its failurePolicy decides until then"
                .into();
        }
        Phase::Promoted | Phase::RolledBack => {}
    }
    if running.asks_for_promotion {
        page["waits"] = "waits for the leader of the replicas, which an administrator has asked for the next step".into();
    }
    page["history"] = state.history.iter().map(change).collect();
    page
}

fn identity(plugin: &Plugin) -> Value {
    json!({
        "source": plugin.config.source.to_string(),
        "digest": plugin.digest.as_deref().unwrap_or_default(),
        "mode": plugin.config.mode.as_str(),
    })
}

fn change(change: &Change) -> Value {
    json!({
        "time": timestamp(change.at),
        "phase": change.phase.as_str(),
        "step": change.step + 1,
        "by": change.by.as_str(),
        "reason": change.reason,
    })
}

fn timestamp(milliseconds: u64) -> String {
    let nanoseconds = i128::from(milliseconds / 1000) * 1_000_000_000;
    let time = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds);
    time.ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_default()
}
