//! The validators, all of them, on the object as it came.

mod existing;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::ReusableBoxFuture;

use super::audit::Audit;
use super::compare::Comparison;
use super::outcome::{Ended, Report};
use super::passed_over::{PassedOver, Reason};
use super::turn::{Beginning, Turn};
use crate::comparison::Verdict;
use crate::config::Mode;
use crate::engine::{Answer, Engine, Fault, Overload, Phase, Subject};
use crate::metrics::Metrics;
use crate::plugin::{Plugin, PluginSet, Shadow};
use crate::review::request::AdmissionRequest;

/// What the validators say.
pub(super) struct Validated {
    pub(super) reports: Vec<Report>,
    pub(super) audits: Vec<Audit>,
    pub(super) comparisons: Vec<Comparison>,
    pub(super) passed_over: Vec<PassedOver>,
}

/// What came of one validator: its report and what is to be compared with it, or why it was passed over after all.
type Judged = Result<(Report, Option<Comparison>), PassedOver>;

/// Runs every validator that applies; `only` limits the run to one of them.
///
/// All calls are under way at once, on this task: one that is done at its first turn costs nothing for it, and
/// one that takes its time yields at every tick to the others. A call takes kilobytes while it is under way, and nearly all
/// are done at once: they follow one another in the same place, which stays in the processor's caches.
pub(super) async fn validate(
    engine: &Engine,
    metrics: &Metrics,
    plugins: &PluginSet,
    only: Option<&str>,
    request: &Arc<AdmissionRequest>,
    deadline: Instant,
) -> Result<Validated, Overload> {
    let subject = Subject {
        request: request.clone(),
        object: request.object.clone(),
    };
    let mut audits = Vec::new();
    let mut passed_over = Vec::new();
    // By the plugins' places in the order.
    let mut judged: Vec<(usize, Judged)> = Vec::new();
    let mut place = None;
    let mut under_way = FuturesUnordered::new();
    for (index, plugin) in plugins.iter().enumerate() {
        if only.is_some_and(|name| plugin.config.name.as_str() != name) {
            continue;
        }
        let turn = Turn {
            plugin,
            phase: Phase::Validate,
        };
        match turn.begin(request, request.object.as_ref()) {
            Beginning::Call => {}
            Beginning::NotAsked(mismatch) => {
                passed_over.extend(PassedOver::by_match(index, mismatch));
                continue;
            }
            Beginning::Report(report) => {
                judged.push((index, Ok((*report, None))));
                continue;
            }
        }
        let shadow = plugins.shadow_of(plugin).cloned();
        if plugin.config.mode == Mode::Audit {
            audits.push(Audit {
                plugin: plugin.clone(),
                phase: Phase::Validate,
                subject: subject.clone(),
                shadow,
            });
        } else {
            let call = counting(engine, metrics, plugin, shadow, subject.clone(), deadline);
            let call = async move {
                let report = call.await?;
                let report = report.ok_or_else(|| PassedOver::new(index, Reason::NoRoom));
                Ok::<_, Overload>((index, report))
            };
            let mut call = match place.take() {
                None => ReusableBoxFuture::new(call),
                Some(mut place) => {
                    ReusableBoxFuture::set(&mut place, call);
                    place
                }
            };
            match poll_fn(|context| Poll::Ready(call.poll(context))).await {
                Poll::Ready(done) => {
                    judged.push(done?);
                    place = Some(call);
                }
                Poll::Pending => under_way.push(call),
            }
        }
    }
    while let Some(done) = under_way.next().await {
        judged.push(done?);
    }
    judged.sort_by_key(|(index, _)| *index);
    let mut reports = Vec::with_capacity(judged.len());
    let mut comparisons = Vec::new();
    for (_, judged) in judged {
        match judged {
            Ok((report, comparison)) => {
                reports.push(report);
                comparisons.extend(comparison);
            }
            Err(passed) => passed_over.push(passed),
        }
    }
    Ok(Validated {
        reports,
        audits,
        comparisons,
        passed_over,
    })
}

/// Runs one validator whose report counts, and says what is to be compared with it. What one in mode warn would have said changes nothing, so nothing is
/// refused when the host has no room for it.
async fn counting(
    engine: &Engine,
    metrics: &Metrics,
    plugin: &Arc<Plugin>,
    shadow: Option<Arc<Shadow>>,
    subject: Subject,
    deadline: Instant,
) -> Result<Option<(Report, Option<Comparison>)>, Overload> {
    let shadowed = shadow.map(|shadow| (shadow, subject.clone()));
    match run(engine, plugin, subject, deadline).await {
        Ok((report, live)) => {
            let comparison = shadowed.map(|(shadow, subject)| Comparison {
                shadow,
                phase: Phase::Validate,
                subject,
                live,
                live_fuel: report.cost.fuel,
            });
            Ok(Some((report, comparison)))
        }
        Err(_) if plugin.config.mode == Mode::Warn => {
            metrics.audit_dropped();
            Ok(None)
        }
        Err(overload) => Err(overload),
    }
}

/// Runs one validator: its report, and what it comes to.
pub(super) async fn run(
    engine: &Engine,
    plugin: &Arc<Plugin>,
    subject: Subject,
    deadline: Instant,
) -> Result<(Report, Verdict), Overload> {
    let turn = Turn {
        plugin,
        phase: Phase::Validate,
    };
    let request = subject.request.clone();
    let (answer, mut called) = turn.call(engine, subject, deadline).await?;
    let mut existing = None;
    let ended = match answer {
        Ok(Answer::Allow) => Ok(Ended::Allowed),
        Ok(Answer::Deny(denial)) => {
            let split =
                existing::told_apart(&turn, engine, &request, denial, deadline, &mut called);
            // A call as large as the first one, for which room would be moved about with every other call.
            let split = Box::pin(split).await?;
            existing = split.existing;
            Ok(split.new.map_or(Ended::Allowed, Ended::Denied))
        }
        Ok(Answer::Unchanged | Answer::Mutation(..)) => Err(Fault::ContractViolation {
            what: "a validator answered with a mutation".to_owned(),
        }),
        Err(fault) => Err(fault),
    };
    if existing.is_some() && matches!(ended, Ok(Ended::Allowed)) {
        plugin.metrics.existing_violation();
    }
    let verdict = Verdict::new(&ended, None, called.secrecy);
    let report = Report {
        existing,
        ..turn.report(&request, called, ended)
    };
    Ok((report, verdict))
}
