//! Finds out whether a group denies for violations that the old object already had.
//!
//! A group asks no more members than its expression needs. A member that was not asked may deny something new. If the
//! reasons of the members that denied are excused, the expression is therefore evaluated again as if these members had
//! allowed the request, and the members are asked that it needs now. The denial is excused only if the group denies the
//! old object, no member has a new reason, and the expression then allows the request.
//!
//! An expression can deny because a member allows (`!member()`). There is no reason of a member then. Such a denial is
//! treated as a reason without a place. It is excused only if each member says the same about both objects.

use std::mem::{replace, take};

use tollgate_admission::Denial;
use tollgate_config::{GroupStep, MemberVerdict};
use tollgate_engine::{Overload, Subject};

use super::Look;
use super::split::{Split, differs_in_metadata_only};
use crate::pipeline::turn::Called;
use crate::pipeline::validate::group::{Asking, denial as denial_of};
use crate::plugin::Group;

/// The reasons of members, by the index of the member.
#[derive(Default)]
struct Reasons {
    existing: Vec<(usize, Denial)>,
    new: Vec<(usize, Denial)>,
    /// How many statements of members were looked at.
    seen: usize,
}

/// Separates the new reasons of a group's members from existing ones. Further calls are added to `called`.
pub(super) async fn split_members(
    look: &Look<'_>,
    group: &Group,
    denial: Denial,
    called: &mut Called,
) -> Result<Split, Overload> {
    let subject = |object| Subject {
        request: look.excusing.request.clone(),
        object: Some(object),
    };
    let objects = look.excusing.objects;
    let (of_new, of_old) = (subject(objects.new.clone()), subject(objects.old.clone()));
    let mut new = Asking::new(group, look.engine, &of_new, look.deadline);
    let mut old = Asking::new(group, look.engine, &of_old, look.deadline);
    new.called = replace(called, Called::nothing(&of_new.request));
    let split = split(look, group, &mut new, &mut old, denial).await;
    *called = new.called;
    called.add_cost(&old.called);
    split
}

async fn split(
    look: &Look<'_>,
    group: &Group,
    new: &mut Asking<'_>,
    old: &mut Asking<'_>,
    denial: Denial,
) -> Result<Split, Overload> {
    let mut denied = new.called.statements.iter();
    let is_hopeless = denied.any(|(_, it)| it.denial.is_some() && !look.is_excusable(it));
    if is_hopeless || !old.denies().await? {
        return Ok(Split::new(denial));
    }
    let mut reasons = Reasons::default();
    loop {
        reasons.compare(look, new, old).await?;
        if !reasons.new.is_empty() {
            return Ok(reasons.split(group));
        }
        match group.definition.expression.step(&excused(new)) {
            GroupStep::Ask(index) => new.ask(index).await?,
            GroupStep::Settled(true) => {
                return Ok(Split::existing(denial_of(group, reasons.existing)));
            }
            GroupStep::Settled(false) => break,
            GroupStep::Unknown => return Ok(Split::new(denial)),
        }
    }
    // The group denies because of members that allow.
    let mut is_same = true;
    for index in 0..group.members.len() {
        let one = new.statement(index).await?;
        let other = old.statement(index).await?;
        is_same &= one.verdict == other.verdict
            && one.verdict != MemberVerdict::Faulted
            && look.is_excusable(one)
            && look.is_excusable(other);
    }
    reasons.compare(look, new, old).await?;
    if !reasons.new.is_empty() {
        return Ok(reasons.split(group));
    }
    let is_excused = is_same
        && (look.only_collects || look.compare(differs_in_metadata_only).await == Some(true));
    Ok(if is_excused {
        Split::existing(denial)
    } else {
        Split::new(denial)
    })
}

/// The verdicts about the new object, with those excused that deny.
fn excused(new: &Asking<'_>) -> Vec<Option<MemberVerdict>> {
    let mut verdicts = new.verdicts();
    for verdict in verdicts.iter_mut().flatten() {
        if *verdict == MemberVerdict::Denied {
            *verdict = MemberVerdict::Allowed;
        }
    }
    verdicts
}

// === impl Reasons ===

impl Reasons {
    /// Compares the denials that were not compared yet with those of the old object.
    async fn compare(
        &mut self,
        look: &Look<'_>,
        new: &Asking<'_>,
        old: &mut Asking<'_>,
    ) -> Result<(), Overload> {
        for (index, statement) in &new.called.statements[self.seen..] {
            self.seen += 1;
            let Some(denial) = &statement.denial else {
                continue;
            };
            let split = if look.is_excusable(statement) {
                let before = old.statement(*index).await?;
                look.split(denial.clone(), statement, before).await
            } else {
                Split::new(denial.clone())
            };
            self.existing
                .extend(split.existing.map(|denial| (*index, denial)));
            self.new.extend(split.new.map(|denial| (*index, denial)));
        }
        Ok(())
    }

    fn split(&mut self, group: &Group) -> Split {
        let of = |reasons: &mut Vec<(usize, Denial)>| {
            (!reasons.is_empty()).then(|| denial_of(group, take(reasons)))
        };
        Split {
            new: of(&mut self.new),
            existing: of(&mut self.existing),
        }
    }
}
