//! Reinvocation: calls mutators again because a later plugin changed the object.
//!
//! As in kube-apiserver, there is one more round in the same order. A mutator with `reinvocationPolicy: IfNeeded` is
//! called again if its object has changed since its first call and it still matches. A mutator that was not called in
//! the first round is not called in the second.
//!
//! kube-apiserver stops there, and the last webhook wins if two webhooks disagree. Tollgate adds a check: some
//! mutators are called once more, with the final object. This applies to mutators that changed something in the
//! second round, or whose object changed after their second call. Their answer is not applied. If it would change
//! something, the chain does not converge.

use std::sync::Arc;

use tollgate_admission::Phase;
use tollgate_admission::text::{Limit, one_line};
use tollgate_config::FailurePolicy;
use tollgate_engine::{Fault, Subject};

use super::workload::into_workload;
use super::{Applied, Chain, MutateError, Round, evaluate};
use crate::pipeline::identity::{log_request, logged};
use crate::pipeline::outcome::{Ended, Report};
use crate::pipeline::turn::{Answered, Beginning, Turn};
use crate::plugin::Plugin;

/// A mutator that may be called again.
pub(super) struct Seat {
    /// The version of the plugin whose answer counts.
    plugin: Arc<Plugin>,
    /// Index of the plugin.
    index: usize,
    /// Index of the report.
    report: usize,
    /// The object's version after the mutator's last call.
    version: u64,
    second_call: SecondCall,
}

/// The result of the second call of a mutator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SecondCall {
    /// The host made no second call.
    NotMade,
    /// The second call left the object unchanged.
    Unchanged,
    /// The second call changed the object.
    Changed,
}

/// Most places that a message shows.
const MOST_PLACES: usize = 5;

// === impl Seat ===

impl Seat {
    pub(super) fn new(plugin: &Arc<Plugin>, index: usize, report: usize, chain: &Chain) -> Self {
        Self {
            plugin: plugin.clone(),
            index,
            report,
            version: chain.version,
            second_call: SecondCall::NotMade,
        }
    }
}

/// Reinvokes the mutators that need it, and then checks that the chain converges. A denial ends it.
pub(super) async fn reinvoke(
    round: &Round<'_>,
    chain: &mut Chain,
    mut seats: Vec<Seat>,
    reports: &mut [Report],
) -> Result<(), MutateError> {
    for seat in &mut seats {
        if seat.version == chain.version {
            continue;
        }
        let plugin = seat.plugin.clone();
        let turn = turn(&plugin);
        let (beginning, pod) = begin(round, &turn, chain).await;
        match beginning {
            Beginning::Call => {}
            Beginning::NotCalled(_) => continue,
            Beginning::Report(report) => {
                if add(reports, seat, *report) {
                    return Ok(());
                }
                continue;
            }
        }
        turn.plugin.metrics.reinvocation();
        let pod = pod.as_deref();
        let answered = call(round, &turn, chain, pod).await?;
        let (plugins, metrics) = (round.plugins, round.metrics);
        let evaluated = chain.evaluate(&turn, answered, pod, round.max_depth);
        let current = chain.current.as_ref();
        let evaluated = evaluated.into_workload(pod, current, round.max_depth);
        let report = chain.take(&turn, seat.index, plugins, metrics, evaluated, pod);
        seat.second_call = if report.changed.is_empty() {
            SecondCall::Unchanged
        } else {
            SecondCall::Changed
        };
        seat.version = chain.version;
        if add(reports, seat, report) {
            return Ok(());
        }
    }
    let in_doubt = |seat: &&Seat| match seat.second_call {
        SecondCall::NotMade => false,
        SecondCall::Unchanged => seat.version != chain.version,
        SecondCall::Changed => true,
    };
    for seat in seats.iter().filter(in_doubt) {
        if verify(round, chain, seat, &mut reports[seat.report]).await? {
            return Ok(());
        }
    }
    Ok(())
}

/// Adds the report of a second call, and returns whether it denies the request. An exception does not count as a
/// call.
fn add(reports: &mut [Report], seat: &Seat, report: Report) -> bool {
    if matches!(report.ended, Ended::Excepted(_)) {
        return false;
    }
    let refuses = report.refuses();
    reports[seat.report].add(report);
    refuses
}

/// Calls a mutator with the final object, and returns whether its answer denies the request.
async fn verify(
    round: &Round<'_>,
    chain: &Chain,
    seat: &Seat,
    report: &mut Report,
) -> Result<bool, MutateError> {
    let turn = turn(&seat.plugin);
    let (beginning, pod) = begin(round, &turn, chain).await;
    match beginning {
        Beginning::Call => {}
        Beginning::NotCalled(_) => return Ok(false),
        Beginning::Report(last) => return Ok(refused(report, *last)),
    }
    let pod = pod.as_deref();
    let request = pod.map_or(&chain.request, |pod| &pod.request);
    let (answer, called) = call(round, &turn, chain, pod).await?;
    let config = &turn.plugin.config;
    let current = chain.current.as_ref();
    let before = pod.map_or(current, |pod| pod.object.as_ref());
    let applied = evaluate(config, answer, before, called.secrecy, round.max_depth);
    let secrecy = applied.secrecy(called.secrecy).max(chain.secrecy);
    let Applied { ended, change, .. } = applied;
    let (ended, change) = into_workload((ended, change), pod, current, round.max_depth);
    let Some(change) = change else {
        let ended = if secrecy.withholds() {
            ended.map_err(Fault::without_plugins_words)
        } else {
            ended
        };
        return Ok(refused(report, turn.report(request, called, ended)));
    };
    report.unsettled = change
        .operations
        .iter()
        .map(|operation| secrecy.pointer(operation.path().as_str(), chain.original.as_ref()))
        .collect();
    turn.plugin.metrics.not_converging();
    let what = unsettled(&report.unsettled);
    if config.failure_policy == FailurePolicy::Ignore {
        log_request!(
            warn,
            turn.identity(&chain.request),
            plugin = logged(config),
            phase = Phase::Mutate.name(),
            failure_policy = config.failure_policy.as_str(),
            "not converging: {what}"
        );
        turn.report(request, called, Ok(Ended::Patched));
        return Ok(false);
    }
    report.ended = turn
        .report(request, called, Err(Fault::NotConverging { what }))
        .ended;
    Ok(true)
}

/// Takes over the result of the last call if it denies the request, and returns whether it does.
fn refused(report: &mut Report, last: Report) -> bool {
    let refuses = last.refuses();
    if refuses {
        report.ended = last.ended;
    }
    refuses
}

async fn begin(
    round: &Round<'_>,
    turn: &Turn<'_>,
    chain: &Chain,
) -> (Beginning, Option<Arc<Subject>>) {
    let object = chain.current.as_ref();
    let templates = round.templates;
    templates
        .begin(turn, round.engine, object, round.deadline)
        .await
}

async fn call(
    round: &Round<'_>,
    turn: &Turn<'_>,
    chain: &Chain,
    pod: Option<&Subject>,
) -> Result<Answered, MutateError> {
    let subject = chain.subject(pod);
    turn.call(round.engine, &subject, round.deadline)
        .await
        .map_err(MutateError::Overload)
}

fn turn(plugin: &Arc<Plugin>) -> Turn<'_> {
    Turn {
        plugin,
        phase: Phase::Mutate,
    }
}

fn unsettled(places: &[String]) -> String {
    let shown: Vec<String> = places
        .iter()
        .take(MOST_PLACES)
        .map(|place| one_line(place, Limit::Bytes(256)))
        .collect();
    let more = match places.len().saturating_sub(MOST_PLACES) {
        0 => String::new(),
        more => format!(" and {more} more places"),
    };
    format!(
        "called again after a later plugin changed the object, and once more with the final object, it would still \
         change {}{more}: the plugin is not idempotent, or it and another plugin set different values",
        shown.join(", ")
    )
}
