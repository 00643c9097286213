//! The validators, all of them, on the object as it came.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::try_join_all;

use super::audit::Audit;
use super::outcome::{Ended, Report};
use super::turn::Turn;
use crate::config::Mode;
use crate::engine::{Answer, Engine, Fault, Overload, Phase, Secrecy, Subject};
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
    plugins: &PluginSet,
    only: Option<&str>,
    request: &Arc<AdmissionRequest>,
    deadline: Instant,
) -> Result<Validated, Overload> {
    let subject = Subject {
        request: request.clone(),
        object: request.object.clone(),
        secrecy: Secrecy::of(request.is_secret()),
    };
    let mut audits = Vec::new();
    let mut calls = Vec::new();
    for plugin in plugins.iter() {
        if only.is_some_and(|name| plugin.config.name.as_str() != name)
            || !plugin.applies(Phase::Validate, request)
        {
            continue;
        }
        if plugin.config.mode == Mode::Audit {
            audits.push(Audit {
                plugin: plugin.clone(),
                phase: Phase::Validate,
                subject: subject.clone(),
            });
        } else {
            calls.push(run(engine, plugin, subject.clone(), deadline));
        }
    }
    Ok(Validated {
        reports: try_join_all(calls).await?,
        audits,
    })
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
    let uid = subject.request.uid.clone();
    let mut called = turn.call(engine, subject, deadline).await?;
    let ended = match called.take_answer() {
        Ok(Answer::Allow) => Ok(Ended::Allowed),
        Ok(Answer::Deny(denial)) => Ok(Ended::Denied(denial)),
        Ok(Answer::Unchanged | Answer::Mutation(_)) => Err(Fault::ContractViolation {
            what: "a validator answered with a mutation".to_owned(),
        }),
        Err(fault) => Err(fault),
    };
    Ok(turn.report(&uid, called, ended))
}
