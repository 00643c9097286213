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
use crate::pipeline::turn::{Answered, Called, Statement, Turn, verdict};
use crate::plugin::Group;

/// A group that is being asked about one object.
pub(super) struct Asking<'g> {
    group: &'g Group,
    engine: &'g Engine,
    subject: &'g Subject,
    deadline: Instant,
    /// Everything about the calls of the members, with their statements.
    pub(super) called: Called,
    first_fault: Option<Fault>,
}

/// Asks the members, and makes one answer of theirs. Everything else about the calls is added up.
pub(in crate::pipeline) async fn call(
    group: &Group,
    engine: &Engine,
    subject: &Subject,
    deadline: Instant,
) -> Result<Answered, Overload> {
    let mut asking = Asking::new(group, engine, subject, deadline);
    let answer = match asking.settle().await? {
        GroupStep::Settled(true) => Ok(Answer::Allow),
        GroupStep::Settled(false) => Ok(Answer::Deny(asking.denial())),
        GroupStep::Ask(_) | GroupStep::Unknown => {
            Err(asking
                .first_fault
                .unwrap_or_else(|| Fault::ContractViolation {
                    what: "the expression of the group has no result".to_owned(),
                }))
        }
    };
    Ok((answer, asking.called))
}

// === impl Asking ===

impl<'g> Asking<'g> {
    pub(super) fn new(
        group: &'g Group,
        engine: &'g Engine,
        subject: &'g Subject,
        deadline: Instant,
    ) -> Self {
        Self {
            group,
            engine,
            subject,
            deadline,
            called: Called::nothing(&subject.request),
            first_fault: None,
        }
    }

    /// Asks members until the expression needs no further one.
    async fn settle(&mut self) -> Result<GroupStep, Overload> {
        loop {
            match self.group.definition.expression.step(&self.verdicts()) {
                GroupStep::Ask(index) => self.ask(index).await?,
                step => return Ok(step),
            }
        }
    }

    /// Whether the group denies the object.
    pub(super) async fn denies(&mut self) -> Result<bool, Overload> {
        Ok(self.settle().await? == GroupStep::Settled(false))
    }

    /// The verdicts of the members that were asked.
    pub(super) fn verdicts(&self) -> Vec<Option<MemberVerdict>> {
        let mut verdicts = vec![None; self.group.members.len()];
        for (index, statement) in &self.called.statements {
            verdicts[*index] = Some(statement.verdict);
        }
        verdicts
    }

    /// Returns what a member says. Asks the member if it was not asked yet.
    pub(super) async fn statement(&mut self, index: usize) -> Result<&Statement, Overload> {
        let of_member = |(of, _): &(usize, Statement)| *of == index;
        let at = match self.called.statements.iter().position(of_member) {
            Some(at) => at,
            None => {
                self.ask(index).await?;
                self.called.statements.len() - 1
            }
        };
        Ok(&self.called.statements[at].1)
    }

    /// Calls one member, and counts the call in the member's own metrics.
    pub(super) async fn ask(&mut self, index: usize) -> Result<(), Overload> {
        if !self.called.statements.is_empty() {
            // The other validators of the review get their first turn before the second member.
            tokio::task::yield_now().await;
        }
        let member = &self.group.members[index];
        let turn = Turn::validating(member);
        let answered = turn.call_alone(self.engine, self.subject, self.deadline);
        let (answer, called) = answered.await?;
        let ended = verdict(answer);
        let outcome = match &ended {
            Ok(None) => Outcome::Allowed,
            Ok(Some(_)) => Outcome::Denied,
            Err(_) => Outcome::Fault,
        };
        member.metrics.call(Phase::Validate, outcome, called.cost());
        if let Err(fault) = &ended {
            let policy = member.config.failure_policy.as_str();
            member.metrics.fault(Phase::Validate, fault.kind(), policy);
            turn.log_fault(&self.subject.request, fault, &called);
        }
        let statement = Statement::of(&ended, &called);
        let name = self.group.definition.members[index].clone();
        if let Err(fault) = ended {
            self.first_fault.get_or_insert_with(|| Fault::OfMember {
                member: name.clone(),
                fault: Box::new(fault),
            });
        }
        add(&mut self.called, name, statement.verdict, called);
        self.called.statements.push((index, statement));
        Ok(())
    }

    /// Makes the denial of the group: its own message, and the reasons of every member that denied.
    fn denial(&self) -> Denial {
        let statements = self.called.statements.iter();
        let denials =
            statements.filter_map(|(index, statement)| Some((*index, statement.denial.clone()?)));
        denial(self.group, denials)
    }
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
    called.secrecy = called.secrecy.max(of_member.secrecy);
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

/// Makes a denial of a group from those of its members.
pub(super) fn denial(group: &Group, denials: impl IntoIterator<Item = (usize, Denial)>) -> Denial {
    let causes = denials.into_iter().flat_map(|(index, denial)| {
        let name = &group.definition.members[index];
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
        message: group.definition.message.to_string(),
        code: None,
        reason: None,
        causes: causes.collect(),
    }
}
