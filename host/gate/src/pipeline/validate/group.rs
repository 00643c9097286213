//! Calls a group: its members one after another, as far as the expression needs their verdicts.
//!
//! The order is that of the expression, so the same request takes the same calls and the same fuel each time. A member's
//! fault leaves its verdict open. The group's answer stands if it does not depend on an open verdict.

use std::sync::Arc;
use std::time::Instant;

use tollgate_admission::{Cause, Denial, Phase};
use tollgate_config::{GroupStep, MemberVerdict};
use tollgate_engine::{Answer, Engine, Fault, Overload, Subject};
use tollgate_telemetry::metrics::Outcome;

use crate::pipeline::outcome::MemberReport;
use crate::pipeline::turn::{Answered, Called, Turn};
use crate::plugin::{Group, Plugin};

/// Asks the members, and makes one answer of theirs. Everything else about the calls is added up.
pub(in crate::pipeline) async fn call(
    group: &Group,
    engine: &Engine,
    subject: &Subject,
    deadline: Instant,
) -> Result<Answered, Overload> {
    let mut called = Called::nothing(&subject.request);
    let mut known = vec![None; group.members.len()];
    let mut denials: Vec<(Arc<str>, Denial)> = Vec::new();
    let mut first_fault: Option<Fault> = None;
    loop {
        let index = match group.definition.expression.step(&known) {
            GroupStep::Settled(true) => return Ok((Ok(Answer::Allow), called)),
            GroupStep::Settled(false) => {
                let denial = denial(&group.definition.message, denials);
                return Ok((Ok(Answer::Deny(denial)), called));
            }
            GroupStep::Unknown => {
                let fault = first_fault.unwrap_or_else(|| Fault::ContractViolation {
                    what: "the expression of the group has no result".to_owned(),
                });
                return Ok((Err(fault), called));
            }
            GroupStep::Ask(index) => index,
        };
        let member = &group.members[index];
        let name = group.definition.members[index].clone();
        let (answer, of_member) = ask(member, engine, subject, deadline).await?;
        let verdict = match answer {
            Ok(Answer::Allow) => MemberVerdict::Allowed,
            Ok(Answer::Deny(denial)) => {
                denials.push((name.clone(), denial));
                MemberVerdict::Denied
            }
            Ok(Answer::Unchanged | Answer::Mutation(..)) => {
                let what = "a validator answered with a mutation".to_owned();
                keep(&mut first_fault, &name, Fault::ContractViolation { what });
                MemberVerdict::Faulted
            }
            Err(fault) => {
                keep(&mut first_fault, &name, fault);
                MemberVerdict::Faulted
            }
        };
        known[index] = Some(verdict);
        add(&mut called, name, verdict, of_member);
    }
}

/// Calls one member, and counts the call in the member's own metrics.
async fn ask(
    member: &Arc<Plugin>,
    engine: &Engine,
    subject: &Subject,
    deadline: Instant,
) -> Result<Answered, Overload> {
    let turn = Turn {
        plugin: member,
        phase: Phase::Validate,
    };
    let (answer, called) = turn.call_alone(engine, subject, deadline).await?;
    let outcome = match &answer {
        Ok(Answer::Allow) => Outcome::Allowed,
        Ok(Answer::Deny(_)) => Outcome::Denied,
        Ok(Answer::Unchanged | Answer::Mutation(..)) | Err(_) => Outcome::Fault,
    };
    member.metrics.call(Phase::Validate, outcome, called.cost());
    if let Err(fault) = &answer {
        let policy = member.config.failure_policy.as_str();
        member.metrics.fault(Phase::Validate, fault.kind(), policy);
        turn.log_fault(&subject.request, fault, &called);
    }
    Ok((answer, called))
}

fn keep(first: &mut Option<Fault>, name: &Arc<str>, fault: Fault) {
    first.get_or_insert_with(|| Fault::OfMember {
        member: name.clone(),
        fault: Box::new(fault),
    });
}

/// Adds what a member has done beside its verdict. Its texts get its name, because they are shown as the group's.
fn add(called: &mut Called, name: Arc<str>, verdict: MemberVerdict, of_member: Called) {
    called.add_cost(&of_member);
    let warnings = of_member.warnings.iter();
    called
        .warnings
        .extend(warnings.map(|warning| format!("{name}: {warning}")));
    let annotations = of_member.annotations.into_iter();
    called
        .annotations
        .extend(annotations.map(|(key, value)| (format!("{name}.{key}"), value)));
    called.secrecy = called.secrecy.and(of_member.secrecy);
    called.grounds = called.grounds.and(of_member.grounds);
    called.members.push(MemberReport {
        name,
        ended: match verdict {
            MemberVerdict::Allowed => "allowed",
            MemberVerdict::Denied => "denied",
            MemberVerdict::Faulted => "fault",
        },
        fuel: of_member.fuel,
    });
}

/// Makes the denial of a group: its own message, and the reasons of every member that denied.
fn denial(message: &str, denials: Vec<(Arc<str>, Denial)>) -> Denial {
    let causes = denials.into_iter().flat_map(|(name, denial)| {
        let causes = if denial.causes.is_empty() {
            vec![Cause {
                message: denial.message,
                reason: denial.reason,
                field: None,
            }]
        } else {
            denial.causes
        };
        causes.into_iter().map(move |cause| Cause {
            message: format!("{name}: {}", cause.message),
            ..cause
        })
    });
    Denial {
        message: message.to_owned(),
        code: None,
        reason: None,
        causes: causes.collect(),
    }
}
