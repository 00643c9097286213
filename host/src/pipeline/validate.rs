//! The validators, all of them, on the object as it came.

mod existing;

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::{Either, ready, try_join_all};

use super::audit::Audit;
use super::outcome::{Ended, Report};
use super::turn::{Beginning, Turn};
use crate::config::Mode;
use crate::engine::{Answer, Engine, Fault, Overload, Phase, Subject};
use crate::metrics::Metrics;
use crate::plugin::{Plugin, PluginSet};
use crate::review::request::AdmissionRequest;

/// What the validators say.
pub(super) struct Validated {
    pub(super) reports: Vec<Report>,
    pub(super) audits: Vec<Audit>,
}

/// Runs every validator that applies; `only` limits the run to one of them.
///
/// All calls are under way at once, on this task: one that is done at its first turn costs nothing for it, and
/// one that takes its time yields at every tick to the others.
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
    let mut calls = Vec::new();
    for plugin in plugins.iter() {
        if only.is_some_and(|name| plugin.config.name.as_str() != name) {
            continue;
        }
        let turn = Turn {
            plugin,
            phase: Phase::Validate,
        };
        match turn.begin(request, request.object.as_ref()) {
            Beginning::Call => {}
            Beginning::NotAsked => continue,
            Beginning::Report(report) => {
                calls.push(Either::Left(ready(Ok(Some(*report)))));
                continue;
            }
        }
        if plugin.config.mode == Mode::Audit {
            audits.push(Audit {
                plugin: plugin.clone(),
                phase: Phase::Validate,
                subject: subject.clone(),
            });
        } else {
            let call = counting(engine, metrics, plugin, subject.clone(), deadline);
            calls.push(Either::Right(call));
        }
    }
    Ok(Validated {
        reports: try_join_all(calls).await?.into_iter().flatten().collect(),
        audits,
    })
}

/// Runs one validator whose report counts. What one in mode warn would have said changes nothing, so nothing is
/// refused when the host has no room for it.
async fn counting(
    engine: &Engine,
    metrics: &Metrics,
    plugin: &Arc<Plugin>,
    subject: Subject,
    deadline: Instant,
) -> Result<Option<Report>, Overload> {
    match run(engine, plugin, subject, deadline).await {
        Ok(report) => Ok(Some(report)),
        Err(_) if plugin.config.mode == Mode::Warn => {
            metrics.audit_dropped();
            Ok(None)
        }
        Err(overload) => Err(overload),
    }
}

/// Runs one validator.
pub(super) async fn run(
    engine: &Engine,
    plugin: &Arc<Plugin>,
    subject: Subject,
    deadline: Instant,
) -> Result<Report, Overload> {
    let turn = Turn {
        plugin,
        phase: Phase::Validate,
    };
    let request = subject.request.clone();
    let uid = request.uid.as_str();
    let (answer, mut called) = turn.call(engine, subject, deadline).await?;
    let mut existing = None;
    let ended = match answer {
        Ok(Answer::Allow) => Ok(Ended::Allowed),
        Ok(Answer::Deny(denial)) => {
            let old = existing::old_denial(&turn, engine, &request, deadline, &mut called).await?;
            let split = match old {
                Some(old) => existing::split(denial, &old, &request),
                None => existing::Split::new(denial),
            };
            existing = split.existing;
            Ok(split.new.map_or(Ended::Allowed, Ended::Denied))
        }
        Ok(Answer::Unchanged | Answer::Mutation(_)) => Err(Fault::ContractViolation {
            what: "a validator answered with a mutation".to_owned(),
        }),
        Err(fault) => Err(fault),
    };
    if existing.is_some() && matches!(ended, Ok(Ended::Allowed)) {
        plugin.metrics.existing_violation();
    }
    Ok(Report {
        existing,
        ..turn.report(uid, called, ended)
    })
}
