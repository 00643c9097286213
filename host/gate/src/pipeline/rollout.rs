//! The additional calls of a rollout: the old version after a fault, and the second call that is only compared.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_engine::{Engine, Overload, Subject};
use tollgate_telemetry::metrics::Metrics;

use super::outcome::{Ended, Report};
use super::validate::FirstTurns;
use super::{mutate, validate};
use crate::plugin::{FollowUp, InRollout, Outcome, Plugin};

/// A mutator's call that a rollout makes after the chain, so that it takes no time from other mutators.
pub(super) struct AfterChain<'s> {
    pub(super) rollout: InRollout<'s>,
    pub(super) what: FollowUp<'s>,
    /// The input of the version that answered.
    pub(super) subject: Subject,
    /// Index of the report of the version that answered.
    pub(super) report: usize,
}

/// The result of the follow-up of a call.
pub(super) struct Followed {
    /// The report that counts.
    pub(super) report: Report,
    /// The report of a version that only warns.
    pub(super) warned: Option<Box<Report>>,
}

/// A request with this much time left has enough for one more call, whatever `limits.timeout` allows.
const ENOUGH: Duration = Duration::from_secs(1);

/// Returns how a call ended, as far as a rollout looks at it.
pub(super) fn outcome(ended: &Ended) -> Outcome {
    match ended {
        Ended::Denied(_) => Outcome::Denies,
        Ended::Faulted(_) => Outcome::Faults,
        Ended::Allowed | Ended::Unchanged | Ended::Patched | Ended::Excepted(_) => Outcome::Passes,
    }
}

/// Follows up on a validator's call.
pub(super) async fn follow_validator(
    rollout: InRollout<'_>,
    engine: &Engine,
    subject: &Subject,
    deadline: Instant,
    first_turns: &FirstTurns,
    mut report: Report,
) -> Result<Followed, Overload> {
    let ended = outcome(&report.ended);
    let again = |plugin: Arc<Plugin>| {
        let subject = subject.clone();
        async move {
            // A second call must not use up the time of a validator that has not begun.
            first_turns.done().await;
            let called = validate::run(engine, &plugin, &subject, deadline).await;
            called.map(|(report, _)| report)
        }
    };
    report.rollout = Some(rollout.why());
    let mut warned = None;
    match rollout.follow_up(ended) {
        FollowUp::Nothing => rollout.answered(ended, report.cost.cpu_time),
        FollowUp::CallOld => {
            rollout.faulted();
            let why = rollout.why_old(kind(&report.ended));
            report = again(rollout.old.clone()).await?;
            report.rollout = Some(why);
            rollout.old_called(report.cost.cpu_time);
        }
        FollowUp::Compare(reference) => {
            // Without room for the second call, the denial stands and counts for nothing.
            if let Ok(old) = again(reference.clone()).await {
                rollout.compared(ended, report.cost.cpu_time, outcome(&old.ended));
            }
        }
        FollowUp::Warn(warning) => {
            rollout.answered(ended, report.cost.cpu_time);
            if has_time(warning, deadline)
                && let Ok(mut new) = again(warning.clone()).await
            {
                rollout.compared(outcome(&new.ended), new.cost.cpu_time, ended);
                new.rollout = Some(rollout.why_warned());
                warned = Some(Box::new(new));
            }
        }
    }
    Ok(Followed { report, warned })
}

/// Follows up on the calls of mutators, after the chain. Adds the reports of versions that only warn.
pub(super) async fn follow_mutators(
    calls: Vec<AfterChain<'_>>,
    engine: &Engine,
    metrics: &Metrics,
    deadline: Instant,
    max_depth: u32,
    reports: &mut Vec<Report>,
) {
    for call in calls {
        let AfterChain {
            rollout,
            what,
            subject,
            report,
        } = call;
        let Some(answered) = reports.get(report) else {
            continue;
        };
        let (ended, cpu) = (outcome(&answered.ended), answered.cost.cpu_time);
        let again = |plugin: Arc<Plugin>| async move {
            let called = mutate::alone(engine, &plugin, subject, deadline, max_depth).await;
            called.map(|(report, _)| report)
        };
        match what {
            FollowUp::Nothing | FollowUp::CallOld => rollout.answered(ended, cpu),
            FollowUp::Compare(reference) => {
                if let Ok(old) = again(reference.clone()).await {
                    rollout.compared(ended, cpu, outcome(&old.ended));
                }
            }
            FollowUp::Warn(warning) => {
                rollout.answered(ended, cpu);
                if !has_time(warning, deadline) {
                    continue;
                }
                match again(warning.clone()).await {
                    Ok(mut new) => {
                        rollout.compared(outcome(&new.ended), new.cost.cpu_time, ended);
                        new.rollout = Some(rollout.why_warned());
                        reports.push(new);
                    }
                    Err(_) => metrics.audit_dropped(),
                }
            }
        }
    }
}

/// Whether there is time for a call whose answer is not needed. Without it, the fault would be the request's and not the
/// plugin's.
fn has_time(plugin: &Plugin, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    left >= plugin.config.limits.timeout.min(ENOUGH)
}

/// Returns the kind of a fault.
pub(super) fn kind(ended: &Ended) -> &'static str {
    match ended {
        Ended::Faulted(fault) => fault.kind,
        _ => "none",
    }
}
